"""From a command line to the engine's argument record: conversions, defaults, mistakes, config files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from perilune.errors import UnusableInput
from perilune.facts.flags import defaults
from perilune.facts.hardware import platform
from perilune.plan.commandline.hints import hints
from perilune.plan.resolve import resolve
from perilune.plan.resolve.absurd import refuse_absurd
from perilune.plan.resolve.arguments import arguments, engine_environment
from perilune.plan.resolve.state import Rejected
from perilune.plan.server import Server

# flags -> the fields they write
WRITTEN: dict[str, dict[str, Any]] = {
    "--tp 8": {"tp_size": 8},
    "--tensor-parallel-size=8": {"tp_size": 8},
    "--tp 8 --tp-size 4": {"tp_size": 4},
    "--context-length 1Mi": {"context_length": 1_048_576},
    "--max-prefill-tokens 32_768": {"max_prefill_tokens": 32_768},
    "--chunked-prefill-size -1": {"chunked_prefill_size": -1},
    "--max-total-tokens 1.5M": {"max_total_tokens": 1_500_000},
    "--mem-fraction-static .85": {"mem_fraction_static": 0.85},
    "--cuda-graph-bs-decode 1 2 4": {"cuda_graph_bs_decode": [1, 2, 4]},
    "--dcp-replicate-q-proj": {"dcp_replicate_q_proj": True},
    "--no-dcp-replicate-q-proj": {"dcp_replicate_q_proj": False},
    "--enable-dp-attention --dp-size 2": {"enable_dp_attention": True, "dp_size": 2},
    "--monokernel-backend amd": {"enable_amd_monokernel": True},
    "--speculative-algo DSPARK": {"speculative_algorithm": "DSPARK"},
    "--speculative-draft-model x": {"speculative_draft_model_path": "x"},
    "--quantization-param-path None": {"quantization_param_path": None},
    "--model-checksum": {"model_checksum": ""},
    '--cuda-graph-config \'{"decode": {"max_bs": 8}}\'': {"cuda_graph_config": {"decode": {"max_bs": 8}}},
    "--limit-mm-data-per-request '{\"image\": 1}'": {"limit_mm_data_per_request": {"image": 1}},
    "--radix-eviction-policy=lfu": {
        "radix_eviction_policy": "lfu",
        "_radix_eviction_policy_explicitly_set": True,
    },
    '--lora-paths a \'{"lora_name": "n", "lora_path": "p"}\'': {
        "lora_paths": ["a", {"lora_name": "n", "lora_path": "p"}]
    },
}

# flags -> the engine's own text
REJECTED = {
    "--nonexistent-flag 1": "unrecognized arguments: --nonexistent-flag 1",
    "stray": "unrecognized arguments: stray",
    "--tp-size x": "argument --tp-size/--tensor-parallel-size: invalid int value: 'x'",
    "--tp-size": "argument --tp-size/--tensor-parallel-size: expected one argument",
    "--tp-size --dcp-size 8": "argument --tp-size/--tensor-parallel-size: expected one argument",
    "--cuda-graph-bs-decode": "argument --cuda-graph-bs-decode: expected at least one argument",
    "--trust-remote-code=1": "argument --trust-remote-code: ignored explicit argument '1'",
    "--cuda-graph-max-bs 64": (
        "ambiguous option: --cuda-graph-max-bs could match --cuda-graph-max-bs-decode, --cuda-graph-max-bs-prefill"
    ),
    "--context-length 1.5Ki": (
        "argument --context-length: Decimals are not allowed with IEC suffixes like 'Ki'. "
        "Use an integer IEC value such as '1Ki', or an SI value such as '1.5K'."
    ),
    "--mm-process-config x": "argument --mm-process-config: invalid loads value: 'x'",
    "--cuda-graph-backend-prefill tc_piecewise": (
        "argument --cuda-graph-backend-prefill: tc_piecewise was removed; select breakable, full, or disabled"
    ),
    "--log-level loud": "AttributeError: module 'logging' has no attribute 'LOUD'",
}


def record(flags: str, program: str = "sglang serve") -> tuple[dict[str, Any], frozenset[str]]:
    return arguments(Server.parse(f"{program} {flags}"), model="moonshotai/Kimi-K3")


@pytest.mark.parametrize("flags", WRITTEN)
def test_what_flags_write(flags: str) -> None:
    values, given = record(flags)
    expected = {**defaults(), "model_path": "moonshotai/Kimi-K3", **WRITTEN[flags]}
    assert values == expected
    assert given == {"model_path", *(name for name in WRITTEN[flags] if not name.startswith("_"))}


@pytest.mark.parametrize("flags", REJECTED)
def test_what_the_parser_rejects(flags: str) -> None:
    with pytest.raises(Rejected) as caught:
        record(flags, "python -m sglang.launch_server")
    assert caught.value.message == REJECTED[flags]
    assert caught.value.stage == "parse"


def test_the_record_is_whole_and_its_lists_are_its_own() -> None:
    first, _ = record("")
    assert first.keys() == defaults().keys()
    first["encoder_urls"].append("x")
    assert record("")[0]["encoder_urls"] == []


def test_the_engine_demands_a_model() -> None:
    with pytest.raises(Rejected, match=r"^the following arguments are required: --model-path/--model$"):
        arguments(Server.parse("sglang serve --tp-size 8 --nonexistent"))


MODELS = {
    "sglang serve moonshotai/Kimi-K3 --tp 8": "moonshotai/Kimi-K3",
    "sglang serve --model-type llm moonshotai/Kimi-K3": "moonshotai/Kimi-K3",
    "sglang serve --model moonshotai/Kimi-K3 --model-type=auto": "moonshotai/Kimi-K3",
    "python -m sglang.launch_server --model-path a/b": "a/b",
    "--model-path a/b": "a/b",
}


@pytest.mark.parametrize("command", MODELS)
def test_where_the_model_stands(command: str) -> None:
    assert arguments(Server.parse(command))[0]["model_path"] == MODELS[command]


def test_only_sglang_serve_takes_a_positional_model() -> None:
    with pytest.raises(Rejected, match="unrecognized arguments: a/b"):
        arguments(Server.parse("python -m sglang.launch_server a/b"), model="x")


@pytest.mark.parametrize("command", ["sglang serve --help", "sglang serve -h m", "sglang serve --model-type diffusion"])
def test_a_command_that_starts_no_language_model_server(command: str) -> None:
    with pytest.raises(UnusableInput):
        arguments(Server.parse(command), model="x")


CONFIGS = {
    "tp-size: 8\ndcp-size: 4\ntrust-remote-code: true\nskip_tokenizer_init: false\n": {
        "tp_size": 8,
        "dcp_size": 4,
        "trust_remote_code": True,
    },
    "cuda-graph-bs-decode: [1, 2]\nmem-fraction-static: 0.8\n": {
        "cuda_graph_bs_decode": [1, 2],
        "mem_fraction_static": 0.8,
    },
    "mm-process-config: {image: {max_pixels: 5}}\n": {"mm_process_config": {"image": {"max_pixels": 5}}},
    "": {},
}


@pytest.mark.parametrize("text", CONFIGS)
def test_a_config_file_comes_before_the_command_line(text: str, tmp_path: Path) -> None:
    path = tmp_path / "server.yaml"
    path.write_text(text)
    values, given = record(f"--config {path} --tp-size 2")
    expected = {**CONFIGS[text], "tp_size": 2}
    assert {name: values[name] for name in given - {"model_path"}} == expected


def test_the_engine_ignores_a_config_file_joined_with_an_equals_sign(tmp_path: Path) -> None:
    path = tmp_path / "server.yaml"
    path.write_text("tp-size: 8\n")
    assert record(f"--config={path}")[0]["tp_size"] == 1


@pytest.mark.parametrize(
    ("name", "text", "error"),
    [
        ("a.json", "{}", "ValueError: Config file must be YAML format, got: .json"),
        ("a.yaml", None, "ValueError: Config file not found: "),
        ("a.yaml", "[1]", "ValueError: Config file must contain a dictionary at root level"),
        ("a.yaml", "dcp-replicate-q-proj: true", "with action 'BooleanOptionalAction'"),
        ("a.yaml", "lora-paths: [a]", "Unsupported config option 'lora_paths' with action 'LoRAPathAction'"),
        ("a.yaml", "1: 2", "AttributeError: 'int' object has no attribute 'replace'"),
        ("a.yaml", "nonexistent: 2", "unrecognized arguments: --nonexistent 2"),
        ("a.yaml", "dcp_size: 4", "unrecognized arguments: --dcp_size 4"),
    ],
)
def test_a_config_file_the_engine_rejects(name: str, text: str | None, error: str, tmp_path: Path) -> None:
    path = tmp_path / name
    if text is not None:
        path.write_text(text)
    with pytest.raises(Rejected) as caught:
        record(f"--config {path}")
    assert error in caught.value.message


@pytest.mark.parametrize(
    "text", ["a: &x [1]\nb: *x\n", "a: [", "tp-size: " + "1" * 300_000], ids=["alias", "broken", "big"]
)
def test_a_config_file_that_is_not_read(text: str, tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(text)
    with pytest.raises(UnusableInput, match=r"a\.yaml"):
        record(f"--config {path}")


@pytest.mark.parametrize("flags", ["--config a.yaml --config b.yaml", "--tp-size 8 --config"])
def test_a_config_flag_without_one_file(flags: str) -> None:
    with pytest.raises(Rejected, match="ValueError: "):
        record(flags)


def test_older_spellings_of_variables() -> None:
    seen = engine_environment(
        {"SGL_HOST_IP": "1", "SGLANG_HOST_IP": "2", "SGLANG_AITER_MLA_DCP_DECODE_BACKEND": "x", "A": "b"}
    )
    assert seen["SGLANG_HOST_IP"] == "1"
    assert seen["SGLANG_AITER_MLA_DECODE_BACKEND"] == "x"
    assert seen["A"] == "b"


HINTS = {
    "--mamba-scheduler-strategy extra_buffer": "--mamba-scheduler-strategy is now --mamba-radix-cache-strategy.",
    "--cuda-graph-max-bs 8": "--cuda-graph-max-bs is now --cuda-graph-max-bs-decode.",
    "--disable-piecewise-cuda-graph": "--disable-piecewise-cuda-graph is now --cuda-graph-backend-prefill disabled",
    "--reasoning_parser kimi_k3": "--reasoning_parser is not a flag of SGLang; the closest one is --reasoning-parser.",
    "--mamba-ful-memory-ratio=5": "the closest one is --mamba-full-memory-ratio.",
    "--crash-on-nan": "--crash-on-nan is gone and nothing replaces it.",
    "--max-model-len 8": "--max-model-len is now --context-length. The vLLM name.",
    "--hicache-s 5": "Write the flag that --hicache-s stands for in full.",
    "--kv-cache-dtype fp8": "--kv-cache-dtype fp8 is now fp8_e4m3.",
    "--node-rank <node-rank>": "--node-rank still holds the placeholder <node-rank>.",
    "--zzzz 1": "--zzzz is not a flag of SGLang.",
}


@pytest.mark.parametrize("flags", HINTS)
def test_what_to_write_instead(flags: str) -> None:
    (hint,) = hints(Server.parse(flags).argv)
    assert HINTS[flags] in hint


def test_flags_that_are_fine_need_no_hint() -> None:
    assert hints(Server.parse("--tp 8 --kv-cache-dtype fp8_e4m3 --trust-remote-code").argv) == ()


ABSURD = {
    "--mem-fraction-static nan": "--mem-fraction-static: nan is not a number that can be used.",
    "--mem-fraction-static inf": "--mem-fraction-static: inf is not a number",
    "--mem-fraction-static -0.5": "--mem-fraction-static: -0.5 is negative. Give a fraction between 0 and 1",
    "--mem-fraction-static 85": "--mem-fraction-static: 85 is more than the whole memory.",
    "--mamba-full-memory-ratio 0": "--mamba-full-memory-ratio: 0 is not allowed.",
    "--tp-size -8": "--tp-size: -8 is negative. Give a whole number.",
    "--tp-size 0": "--tp-size: 0 is not allowed.",
    "--tp-size 70000": "--tp-size: 70,000 is larger than any real one.",
    "--max-running-requests 99999999999999999999": "--max-running-requests: 99,999,999,999,999,999,999 is larger",
    "--max-total-tokens " + "9" * 400: "--max-total-tokens: A number of more than 77 digits is larger",
    "--host " + "x" * 5_000: "--host: Its value has 5,000 characters.",
    "--cuda-graph-bs-decode 1 99999999999999999": "--cuda-graph-bs-decode: 99,999,999,999,999,999 is larger",
}


@pytest.mark.parametrize("flags", ABSURD, ids=lambda flags: flags[:40])
def test_absurd_values_are_refused(flags: str) -> None:
    with pytest.raises(UnusableInput) as caught:
        resolve(Server.parse(f"sglang serve moonshotai/Kimi-K3 {flags}"), platform("b300"))
    assert ABSURD[flags] in str(caught.value)


@pytest.mark.parametrize("flags", ["--chunked-prefill-size -1", "--stream-interval 0", "--max-running-requests 1"])
def test_values_the_engine_judges_itself_are_not_refused(flags: str) -> None:
    refuse_absurd(*record(flags))


def test_a_rejected_command_line_is_an_answer_with_hints() -> None:
    found = resolve(Server.parse("sglang serve m --mamba-scheduler-strategy no_buffer"), platform("b300"))
    assert not found.accepted
    assert found.stage == "parse"
    assert found.error == "unrecognized arguments: --mamba-scheduler-strategy no_buffer"
    assert "--mamba-radix-cache-strategy" in found.warnings[0]


def test_an_unknown_model_cannot_be_judged() -> None:
    with pytest.raises(UnusableInput, match=r"--model-path: Nothing is known of the model 'acme/unknown'"):
        resolve(Server.parse("sglang serve acme/unknown --tp-size 8"), platform("b300"))


def test_an_unknown_draft_is_taken_to_be_the_published_one() -> None:
    command = (
        "sglang serve moonshotai/Kimi-K3 --tp-size 8 --speculative-algorithm DSPARK"
        " --speculative-draft-model-path acme/unknown"
    )
    found = resolve(Server.parse(command), platform("b300"))
    assert found.accepted
    assert found.draft is not None
    assert found["speculative_num_draft_tokens"] == 8
    assert any("acme/unknown" in warning and "RadixArk/Kimi-K3-DSpark" in warning for warning in found.warnings)
