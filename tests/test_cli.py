"""The command line: the documents other tools read, exit codes, and one clear sentence for unusable input."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from perilune.plan.compose import Choice, compose, parse_set
from perilune.plan.planned import plan

SERVE = "sglang serve --model-path moonshotai/Kimi-K3 --tp-size 8 --dcp-size 8 --mem-fraction-static 0.85"
DSPARK = (
    "--speculative-algorithm DSPARK --speculative-draft-model-path RadixArk/Kimi-K3-DSpark "
    "--speculative-dspark-block-size 7 --enable-linear-replayssm-spec"
)
MEASURED = "--free-before-load-gib 265.5 --free-after-weights-gib 71.6"


def test_memory_json_equals_the_engine(perilune) -> None:
    """The judged case of the published recipe: SGLang 0.5.23's own numbers for these boot-log figures."""
    found = perilune(
        f"memory --platform b300 {MEASURED} --isl 8192 --osl 1024 --json -- "
        f"{SERVE} --mamba-full-memory-ratio 5.13 --max-running-requests 256 {DSPARK}"
    )
    expected = {
        "ok": True,
        "error": None,
        "state_bytes_per_slot": 56_171_520,
        "ring_bytes_per_slot": 20_401_920,
        "slots_per_request": 5,
        "rest_gib": 31.67734374999999,
        "max_mamba_cache_size": 370,
        "kv_bytes_per_token": 48_128,
        "max_total_num_tokens": 116_416,
        "logical_token_capacity": 931_328,
        "max_running_requests": 74,
        "binds": "state",
        "mem_fraction_static": 0.85,
    }
    assert found.code == 0
    assert {name: found.document[name] for name in expected} == expected
    assert found.document["weights_bytes"] > 0
    assert found.document["basis"] == "exact"


@pytest.mark.parametrize(
    ("flags", "published"),
    [
        ("--mamba-full-memory-ratio 7.21", 101),
        (f"--mamba-full-memory-ratio 5.13 --max-running-requests 256 {DSPARK}", 68),
        ("--mamba-full-memory-ratio 7.21 --quant nvfp4", 91),
        (f"--mamba-full-memory-ratio 5.13 --max-running-requests 256 {DSPARK} --quant nvfp4", 60),
    ],
)
def test_published_caps_are_predicted_within_5_percent(perilune, flags: str, published: int) -> None:
    """Requests the B300 Balanced recipe admits (Kimi-K3 page), predicted with no boot log."""
    line = f"{SERVE} {flags.replace(' --quant nvfp4', ' --moe-runner-backend flashinfer_trtllm')}"
    if "nvfp4" in flags:
        line = line.replace("moonshotai/Kimi-K3", "nvidia/Kimi-K3-NVFP4")
    found = perilune(f"memory --platform b300 --json -- {line}").document
    assert found["basis"] == "predicted"
    assert abs(found["max_running_requests"] - published) <= 0.05 * published


def test_resolve_json(perilune) -> None:
    found = perilune(f"resolve --platform b300 --json -- SGLANG_X=1 {SERVE} --page-size 1").document
    assert (found["accepted"], found["error"]) == (True, None)
    assert found["resolved"]["decode_attention_backend"] == "cutedsl_mla"
    assert found["resolved"]["page_size"] == 64
    assert {"field", "from", "to", "reason"} == set(found["rewrites"][0])
    assert ("page_size", 1, 64) in {(r["field"], r["from"], r["to"]) for r in found["rewrites"] if r["from"] == 1}


def test_a_command_without_a_model_is_taken_to_serve_kimi_k3(perilune) -> None:
    run = perilune("memory --platform b300 --json -- sglang serve --tp-size 8")
    assert run.document["ok"] is True
    assert "no --model-path" in run.err


def test_a_refusal_of_the_engine_is_a_finding(perilune) -> None:
    run = perilune(f"resolve --platform b300 --json -- {SERVE} --decode-attention-backend triton")
    assert run.code == 1
    assert run.document["accepted"] is False
    assert run.document["error"].startswith("AssertionError: Decode attention backend for Kimi-K3 DCP must be")


def test_plan_json_has_both_roles_and_the_router(perilune) -> None:
    found = perilune("plan --hardware gb300 --mode pd --strategy balanced --json").document
    assert [pool["role"] for pool in found["pools"]] == ["prefill", "decode"]
    for pool in found["pools"]:
        assert len(pool["command"]) == pool["nodes"]
        assert pool["command"][1][pool["command"][1].index("--node-rank") + 1] == "1"
        assert pool["memory"]["ok"] is True
    assert "--pd-disaggregation" in found["router"]
    assert found["sources"]


def test_what_the_engine_would_refuse_comes_with_a_variant_that_boots(perilune) -> None:
    """The published GB200 decode High-Throughput recipe with DSPARK lacks --enable-dp-lm-head."""
    run = perilune("plan --hardware gb200 --mode decode --strategy high-throughput --json")
    assert run.code == 1
    pool = run.document["pools"][0]
    assert "--enable-dp-lm-head" not in pool["command"][0]
    assert "--enable-dp-lm-head" in pool["corrected"]["command"]
    assert any(f["severity"] == "error" and "--enable-dp-lm-head" in f["fix"] for f in run.document["findings"])


@pytest.mark.parametrize("suffix", ["yaml", "json"])
def test_a_plan_file_reads_back_as_the_same_plan(perilune, tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"plan.{suffix}"
    choice = "--hardware b200 --mode pd --strategy balanced --isl 8192 --osl 1024 --concurrency 64"
    made = perilune(f"plan {choice} -o {path} --json").document
    assert perilune(f"plan {path} --json").document == made
    assert perilune(f"commands {path} --json").document == perilune(f"commands {choice} --json").document
    assert "max_mamba_cache_size" in perilune(f"explain max_running_requests --plan {path} --pool prefill").out


def test_yaml_is_the_same_document_as_json(perilune) -> None:
    choice = "--hardware h200 --mode unified --strategy low-latency"
    assert yaml.safe_load(perilune(f"plan {choice} --yaml").out) == perilune(f"plan {choice} --json").document


def test_a_pasted_text_is_read_from_standard_input(perilune) -> None:
    text = "export HF_TOKEN=hf_secret\nsglang serve \\\n  --model-path moonshotai/Kimi-K3 \\\n  --tp-size 8\n"
    run = perilune("memory --platform b300 -- -", stdin=text)
    assert run.code == 0
    assert "Admits" in run.out
    assert "hf_secret" not in run.out + run.err


def test_secrets_never_leave(perilune) -> None:
    line = f"HF_TOKEN=hf_hush {SERVE} --api-key hush-key"
    for command in (
        f"resolve --platform b300 --json -- {line}",
        f"memory --platform b300 -- {line}",
        "plan --hardware b300 --env HF_TOKEN=hf_hush --set api-key=hush-key --json",
        "commands --hardware b300 --env HF_TOKEN=hf_hush --set api-key=hush-key --form docker",
    ):
        run = perilune(command)
        assert run.code in (0, 1), run.err
        assert "hush" not in run.out + run.err, command
    assert "<api-key>" in run.out
    assert "#   <hf-token>: your own value" in run.out


def test_asking_for_more_than_is_admitted_names_the_levers(perilune) -> None:
    run = perilune(f"memory --platform b300 --isl 8192 --osl 1024 --concurrency 400 -- {SERVE}")
    assert run.code == 1
    assert "400 requests are asked for" in run.out
    assert "--mem-fraction-static 0.9" in run.out


def test_a_shortfall_is_a_finding_for_programs_too(perilune) -> None:
    run = perilune(f"memory --platform b300 --isl 8192 --osl 1024 --concurrency 400 --json -- {SERVE}")
    found = run.document
    assert run.code == 1
    assert found["split"]["admitted"] is False
    assert found["split"]["levers"][0]["lever"].startswith("--mem-fraction-static")
    assert [finding["severity"] for finding in found["findings"]] == ["capacity"]


def test_a_pair_is_judged_together(perilune) -> None:
    """KV dtype, page size and transfer backend must agree between the roles."""
    found = perilune(
        "plan --hardware b300 --mode pd --strategy balanced --json --set prefill:kv-cache-dtype=fp8_e4m3 "
        "--set decode:page-size=32 --set decode:disaggregation-transfer-backend=mooncake"
    ).document["findings"]
    told = " ".join(finding["message"] for finding in found if finding["severity"] == "error")
    for subject in ("fp8_e4m3", "page", "mooncake"):
        assert subject in told


def test_a_composed_pair_has_nothing_to_say_of_itself(perilune) -> None:
    found = perilune("plan --hardware b300 --mode pd --strategy balanced --json").document["findings"]
    assert [finding["id"] for finding in found if finding["severity"] == "error"] == []


def test_a_plan_of_unpublished_values_reads_back_whole(perilune, tmp_path: Path) -> None:
    path = tmp_path / "a3.yaml"
    made = perilune(f"plan --hardware a3 --mode pd -o {path} --json").document
    assert made["pools"][0]["unpublished"]
    assert perilune(f"plan {path} --json").document == made


def test_published_figures_stand_beside_the_prediction(perilune) -> None:
    pool = perilune("plan --hardware b300 --spec none --json").document["pools"][0]
    assert pool["published"][0]["says"] == "admits 101 requests"
    assert any("0.5.18" in figure["engine"] for figure in pool["published"])


@pytest.mark.parametrize(
    ("changes", "shown"),
    [
        ("", [("admits 68 requests", [])]),
        ("--isl 8192 --osl 1024", [("admits 68 requests", ["with --mamba-full-memory-ratio 5.13"])]),
        ("--preset peak-throughput", []),
        ("--set mem-fraction-static=0.9", []),
        ("--set tp-size=4", []),
        ("--env SGLANG_X=1", []),
    ],
)
def test_published_figures_are_of_the_measured_command_or_say_what_it_had(
    perilune, changes: str, shown: list[tuple[str, list[str]]]
) -> None:
    pool = perilune(f"plan --hardware b300 {changes} --json").document["pools"][0]
    assert [(one["says"], one["differs"]) for one in pool["published"]] == shown


def test_what_a_recipe_says_of_itself_is_not_said_of_an_altered_one(perilune) -> None:
    assert "- TP8 with DCP8." in perilune("plan --hardware b300").out
    for change in ("--preset peak-throughput", "--set tp-size=4"):
        assert "- The recipe before your changes: TP8 with DCP8." in perilune(f"plan --hardware b300 {change}").out


def test_commands_say_what_the_engine_refuses(perilune) -> None:
    run = perilune("commands --hardware b300 --mode pd --set mamba-radix-cache-strategy=extra_buffer_lazy")
    assert run.code == 1
    assert "# error" in run.out
    assert "extra_buffer_lazy" in run.out


def test_one_boot_log_cannot_speak_for_two_pools(perilune) -> None:
    run = perilune(f"plan --hardware b300 --mode pd {MEASURED}")
    assert run.code == 2
    assert "2 pools" in run.err


def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    shell = f"set -o pipefail; {sys.executable} -m perilune recipes | head -1"
    done = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode in (0, 141), done.stderr
    assert done.stderr == ""


def test_text_keeps_to_80_columns(perilune) -> None:
    commands = [
        "plan --hardware a3 --mode pd",
        "plan --hardware a3",
        "recipes",
        f"memory --platform b300 -- {SERVE}",
        "plan --hardware b300",
        f"explain max_running_requests --platform b300 -- {SERVE}",
        f"explain list --platform b300 -- {SERVE}",
        f"resolve --platform b300 --all -- {SERVE}",
    ]
    for command in commands:
        text = perilune(command).out
        text = re.sub(r"\nCommands\n.*?\nCapacity", "", text, flags=re.S)
        wide = [line for line in text.splitlines() if len(line) > 80]
        assert not wide, (command, wide)


@pytest.mark.parametrize("hardware", ["b300", "gb200", "h200", "mi350x", "a3", "950"])
def test_comments_keep_to_80_columns_unless_one_word_is_longer(perilune, hardware: str) -> None:
    for form in ("shell", "docker"):
        text = perilune(f"commands --hardware {hardware} --form {form}").out
        comments = [line for line in text.splitlines() if line.startswith("#")]
        assert comments
        assert not [line for line in comments if len(line) > 80]


def test_a_command_that_does_not_start_is_printed_with_a_warning_and_1(perilune) -> None:
    """Loaded by SGLang 0.5.23, which reads flags where the image of the recipe read variables, A3 is too small."""
    run = perilune("commands --hardware a3")
    assert run.code == 1
    assert run.out.startswith("# WARNING: SGLang 0.5.23 does not start the unified pool with this command.")
    assert "--corrected" in run.out.split("sglang serve")[0]
    fixed = perilune("commands --hardware a3 --corrected")
    assert fixed.code == 0
    assert "WARNING" not in fixed.out
    assert perilune("plan --hardware a3").code == 1


def test_a_variant_over_more_gpus_counts_them(perilune) -> None:
    deployment = compose(Choice(hardware="b300", overrides=(parse_set("tp-size=4"),)))
    (pool,) = plan(deployment).corrected.pools
    assert pool.server.value("--tp-size") == "8"
    assert (deployment.gpus, pool.gpus, pool.nodes) == (4, 8, 1)


TRY = re.compile(r"^ {10}try (.*(?:\n {14}\S.*)*)", re.M)


@pytest.mark.parametrize(
    "choice",
    [
        "--hardware mi350x --isl 8192 --osl 1024 --concurrency 64",
        "--hardware b300 --isl 8192 --osl 1024 --concurrency 100",
        "--hardware a3 --isl 8192 --osl 1024 --concurrency 64",
        "--hardware b300 --mode pd --isl 8192 --osl 1024 --concurrency 640",
        "--hardware b300 --set tp-size=4",
        "--hardware gb200 --mode decode --strategy high-throughput",
    ],
)
def test_a_fix_of_plan_can_be_given_to_plan(perilune, choice: str) -> None:
    text = perilune(f"plan {choice}").out
    options = [" ".join(found.split()) for found in TRY.findall(text)]
    assert options
    before = perilune(f"plan {choice} --json").document["findings"]
    after = perilune(f"plan {choice} {options[0]} --json").document["findings"]
    first = next(one for one in before if one["severity"] in ("error", "capacity"))
    assert first["message"] not in {one["message"] for one in after}


def test_a_plan_that_is_only_written_says_why_it_ends_in_1(perilune, tmp_path: Path) -> None:
    run = perilune(f"plan --hardware mi350x --isl 8192 --osl 1024 --concurrency 64 -o {tmp_path / 'plan.yaml'}")
    assert (run.code, run.out) == (1, "")
    assert "64 requests are asked for, 26 of 9,216 tokens each run at once" in " ".join(run.err.split())


def test_requests_longer_than_the_context_are_refused_in_the_headline(perilune) -> None:
    run = perilune("plan --hardware b300 --isl 2000000 --osl 1024 --concurrency 1")
    assert run.code == 1
    assert "\nRefuses requests of 2,001,024 tokens: the context is 1,048,576 tokens.\n" in run.out
    assert "Admits" not in run.out


def test_one_request_is_one_request(perilune) -> None:
    text = perilune("plan --hardware b300 --isl 8192 --osl 1024 --concurrency 1").out
    assert "Admits 1 request of 9,216 tokens at once" in text
    assert not re.search(r"\b1 (requests|lines)\b", text)


def test_a_memory_that_is_too_small_lacks_one_amount(perilune) -> None:
    run = perilune("memory --platform a3 -- sglang serve --model-path sgl-npu/Kimi-K3-W4A8 --tp 4")
    (legend,), (table,) = (re.findall(rf"{name} +(-[\d.]+)", run.out) for name in ("- missing", "missing to load"))
    assert legend == table
    told = r"the weights take ([\d.]+) GiB of each die and loading itself ([\d.]+) GiB; ([\d.]+) GiB are free"
    weights, besides, free = map(float, re.findall(told, " ".join(run.out.split()))[0])
    assert float(legend) == pytest.approx(free - weights - besides, abs=0.011)


def test_a_formula_of_the_ledger_is_cut_at_a_term_and_says_so(perilune) -> None:
    text = " ".join(perilune(f"memory --platform b300 -- {SERVE}").out.split())
    assert "…" not in text
    assert "92 x 896 experts x (2 x 384 + 3,584) x 4 B" in text
    assert "69 x 3 x 1,536 x 7,168 x 2 B (q_proj, k_proj and v_proj) + 9 more" in text


def test_a_ratio_that_sizes_nothing_is_said_to_be_void(perilune) -> None:
    lengths = "--isl 8192 --osl 1024"
    pinned = perilune(f"memory --platform b300 {lengths} -- {SERVE} --max-mamba-cache-size 300").out
    assert "void here: --max-mamba-cache-size sizes" in " ".join(pinned.split())
    assert "the plan has" not in pinned
    assert "the plan has 5" in perilune(f"memory --platform b300 {lengths} -- {SERVE} --mamba-full-memory-ratio 5").out


UNUSABLE = {
    "no command": ("memory --platform b300", "command"),
    "unknown platform": ("memory --platform b999 -- sglang serve", "Known: b300"),
    "not a number": (f"memory --platform b300 --free-before-load-gib nan --free-after-weights-gib 1 -- {SERVE}", "nan"),
    "negative": (f"memory --platform b300 --free-before-load-gib -1 --free-after-weights-gib 1 -- {SERVE}", "GiB"),
    "one figure": (f"memory --platform b300 --free-before-load-gib 265 -- {SERVE}", "both"),
    "one length": (f"memory --platform b300 --isl 10 -- {SERVE}", "--osl"),
    "unknown model": ("memory --platform b300 -- sglang serve --model-path my/model", "--model-config"),
    "absent file": (f"memory --platform b300 --model-config /nowhere/config.json -- {SERVE}", "/nowhere"),
    "no hardware": ("plan", "--hardware"),
    "forbidden choice": ("plan --hardware h200 --quant nvfp4", "mxfp4"),
    "no such cell": ("plan --hardware h100 --mode pd", "h100"),
    "no such plan": ("plan /nowhere/plan.yaml", "/nowhere"),
    "no such figure": (f"explain max_runing_requests --platform b300 -- {SERVE}", "max_running_requests"),
    "unclosed quote": ("memory --platform b300 -- 'sglang serve --model-path \"x'", "quot"),
}


@pytest.mark.parametrize("verb", ["resolve", "memory"])
@pytest.mark.parametrize(
    ("flags", "hint"),
    [
        ("--mem-fraction-sttic 0.9", "--mem-fraction-static"),
        ("--max-running-requests many", "invalid int value: 'many'"),
        ("--kv-cache-dtype fp8", "fp8_e4m3"),
        ("--dcp 8", "in full"),
    ],
)
def test_what_the_engines_parser_refuses_is_a_finding_too(perilune, verb: str, flags: str, hint: str) -> None:
    run = perilune(f"{verb} --platform b300 -- {SERVE} {flags}")
    assert (run.code, run.err) == (1, "")
    assert hint in run.out
    told = perilune(f"{verb} --platform b300 --json -- {SERVE} {flags}")
    assert told.code == 1
    assert told.document["error"]


@pytest.mark.parametrize(
    ("command", "hint"),
    [
        (f"memory --platform b300 {SERVE}", "put -- before"),
        (f"resolve --platform b300 {SERVE}", "put -- before"),
        (f"explain rest_gib --platform b300 {SERVE}", "put -- before"),
        ("plan --hardware gb200 --nodes 4", "nodes follow from the recipe"),
        ("commands --hardware gb200 --nnodes 4", "nodes follow from the recipe"),
        ("plan --hardware b300 --strateggy balanced", "--strategy"),
    ],
)
def test_an_option_in_the_wrong_place_says_where_it_belongs(perilune, command: str, hint: str) -> None:
    run = perilune(command)
    assert run.code == 2
    assert hint in " ".join(run.err.split())


@pytest.mark.parametrize("name", UNUSABLE)
def test_unusable_input_ends_in_one_sentence_and_2(perilune, name: str) -> None:
    command, hint = UNUSABLE[name]
    run = perilune(command)
    assert run.code == 2, run
    assert hint.lower() in run.err.lower()
    assert all(len(line) <= 80 for line in run.err.splitlines())
    assert "Traceback" not in run.err
    assert "defect of perilune" not in run.err


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("perilune: 1\nmodel: x\npools: &a [*a]\n", "alias"),
        ("[" * 5000, "nesting"),
        ("perilune: 1\nmodel: m\npools: [{role: decode, platform: b300, nodes: 2, gpus: 9, command: [[]]}]", "2 nodes"),
        ("perilune: 9\nmodel: x\npools: []\n", "version 9"),
        ("a: [1", "line"),
        ("\x00", "YAML"),
        ("pools: 3", "plan"),
    ],
)  # fmt: skip
def test_a_hostile_plan_file_ends_in_one_sentence(perilune, tmp_path: Path, text: str, hint: str) -> None:
    path = tmp_path / "plan.yaml"
    path.write_text(text)
    run = perilune(f"plan {path}")
    assert run.code == 2
    assert hint in run.err
    assert str(path) in run.err


@pytest.mark.parametrize(
    ("change", "hint"),
    [
        ({"pools": []}, "no pool"),
        ({"router": []}, "router"),
        ({"model": "x\x1b[31m"}, "printed"),
        ({"workload": {"isl": 0, "osl": 1}}, "workload.isl"),
        ({"workload": {"isl": 5}}, "both lengths"),
        ({"workload": {"concurrency": -4}}, "workload.concurrency"),
        ({"pool": {"gpus": 1_000_000}}, "gpus"),
        ({"pool": {"replicas": 2**62}}, "replicas"),
        ({"pool": {"env": {"A;touch x;B": "c"}}}, "variable"),
        ({"pool": {"image": "--privileged"}}, "image"),
        ({"pool": {"command": [["numactl", "-m", "0", "sglang", "serve"]]}}, "numactl"),
        ({"pool": {"unpublished": [{"placeholder": "8", "flag": "--tp-size", "what": "", "assume": "'"}]}}, "quotes"),
        ({"pool": {"platform": "b999"}}, "pools[0]"),
    ],
)
def test_a_plan_file_edited_into_nonsense_is_refused(
    perilune, tmp_path: Path, change: dict[str, Any], hint: str
) -> None:
    path = tmp_path / "plan.json"
    perilune(f"plan --hardware b300 -o {path}")
    document = json.loads(path.read_text())
    document["pools"][0].update(change.pop("pool", {}))
    path.write_text(json.dumps(document | change))
    for verb in ("plan", "commands"):
        run = perilune(f"{verb} {path}")
        assert run.code == 2, run
        assert hint in run.err
        assert str(path) in run.err
        assert run.out == ""


def test_only_a_regular_file_is_replaced(perilune, tmp_path: Path) -> None:
    pipe, loop = tmp_path / "pipe.yaml", tmp_path / "loop.yaml"
    os.mkfifo(pipe)
    loop.symlink_to(loop)
    for path in (pipe, loop, tmp_path):
        run = perilune(f"plan --hardware b300 -o {path}")
        assert run.code == 2
        assert str(path) in run.err
    assert pipe.is_fifo()


@pytest.mark.parametrize("change", [{"vocab_size": 10**400}, {"model_type": []}, {"text_config": {"model_type": {}}}])
def test_a_config_with_absurd_fields_is_refused(perilune, tmp_path: Path, change: dict[str, Any]) -> None:
    path = tmp_path / "config.json"
    llama = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 8192,
        "num_hidden_layers": 80,
        "num_attention_heads": 64,
        "num_key_value_heads": 8,
        "intermediate_size": 28672,
        "vocab_size": 128256,
    }
    path.write_text(json.dumps(llama | change))
    run = perilune(f"memory --platform b300 --model-config {path} -- sglang serve --model-path x --tp-size 8")
    assert run.code == 2
    assert "defect" not in run.err


def test_words_that_are_no_text_are_refused() -> None:
    word = b"--served-model-name=\xff"
    done = subprocess.run(
        [sys.executable, "-m", "perilune", "plan", "--hardware", "b300", "--set", word],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 2
    assert "UTF-8" in done.stderr
