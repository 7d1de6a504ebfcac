"""What a resolution records: rewrites with reasons, the environment, defaults that are filled in last."""

from __future__ import annotations

from typing import Any

import pytest

from perilune.errors import UnusableInput
from perilune.facts.hardware import platform
from perilune.plan.model.config import known_config
from perilune.plan.resolve.state import FALLBACKS, Resolution
from resolve_table import Case, outcome

LINES = [
    Case("b300", ""),
    Case("b300", "--dcp-size 8 DSPARK --enable-linear-replayssm-spec"),
    Case("b300", "--attn-dp-size 8 --moe-a2a-backend megamoe --moe-runner-backend deep_gemm"),
    Case("b300", "--disaggregation-mode decode --enable-hierarchical-cache"),
    Case("h200", "--tp-size 16 --nnodes 2 --dist-init-addr 10.0.0.1:20000 --attention-backend flashmla"),
    Case("mi355x", "--attention-backend aiter --mamba-ssm-dtype bfloat16"),
    Case("a3", "--tp-size 16 --pp-size 2 --disaggregation-mode prefill --disaggregation-transfer-backend ascend"),
    Case("b300", "--enable-deterministic-inference --quantization unquant --enable-symm-mem"),
]
BOOLEANS = [
    ("1", False, True),
    ("true", False, True),
    ("YES", False, True),
    ("y", False, True),
    ("0", True, False),
    ("No", True, False),
    ("", True, True),
    ("on", False, False),
    (" 1", False, False),
    ("maybe", True, True),
]
ENVIRONMENT = [
    ("b300", "--enable-deterministic-inference", {"NCCL_ALGO": "allreduce:tree", "NCCL_MIN_NCHANNELS": "8"}),
    (
        "b300",
        "SGLANG_DETERMINISTIC_NCCL_NCHANNELS=4 --enable-deterministic-inference",
        {"NCCL_MIN_NCHANNELS": "4", "NCCL_MAX_NCHANNELS": "4"},
    ),
    ("b300", "--rl-on-policy-target fsdp", {"SGLANG_VLM_CACHE_SIZE_MB": "0"}),
    ("b300", "--enable-symm-mem", {"SGLANG_SYMM_MEM_PREALLOC_GB_SIZE": "4"}),
    (
        "b300",
        "SGLANG_SYMM_MEM_PREALLOC_GB_SIZE=8 --enable-symm-mem",
        {"SGLANG_SYMM_MEM_PREALLOC_GB_SIZE": "8"},
    ),
    ("mi355x", "", {"GPU_PINNED_MIN_XFER_SIZE": "4194304"}),
]
OVERRIDES = [
    ('{"architectures": null}', "--json-model-override-args: architectures must be a list"),
    ('{"architectures": ["Grok1ForCausalLM"]}', "The architecture Grok1ForCausalLM is not modelled"),
    ('{"text_config": 5}', "num_hidden_layers is missing"),
    ('{"text_config": {"num_attention_heads": 0}}', "num_attention_heads is 0"),
    ('{"vision_config": {"vt_hidden_size": "x"}}', "vt_hidden_size must be a whole number"),
]
GRAPHS = [
    ('{"decode": {"max_bs": "x"}}', r"--cuda-graph-config\[decode\]: max_bs must be a whole number"),
    ('{"decode": {"bs": 4}}', "bs must be a list of whole numbers"),
    ('{"decode": {"bs": [true]}}', "bs must be a list of whole numbers"),
    ('{"prefill": {"max_context_size": 1.5}}', "max_context_size must be a whole number"),
    ('{"decode": {"max_bs": 4000000000}}', "would capture more than 131,072 sizes"),
]


def resolution(**values: Any) -> Resolution:
    return Resolution(values, frozenset(), {}, platform("b300"), known_config("moonshotai/Kimi-K3"))


@pytest.mark.parametrize("case", LINES, ids=str)
def test_every_rewrite_says_why_in_a_line(case: Case) -> None:
    found = outcome(case)
    assert found.rewrites
    for rewrite in found.rewrites:
        assert rewrite.before != rewrite.after or type(rewrite.before) is not type(rewrite.after)
        assert rewrite.reason.endswith(".")
        assert len(rewrite.reason) <= 90
        assert "\n" not in rewrite.reason


@pytest.mark.parametrize("case", LINES, ids=str)
def test_the_last_rewrite_of_a_field_is_its_value(case: Case) -> None:
    found = outcome(case)
    last = {rewrite.field: rewrite.after for rewrite in found.rewrites}
    assert {name: found[name] for name in last} == last


def test_a_step_reads_the_last_decision_and_what_was_written() -> None:
    r = resolution(page_size=1)
    r.set("page_size", 64, "Pages.")
    r.set("page_size", 64, "Pages again.")
    assert (r["page_size"], r.written["page_size"]) == (64, 1)
    assert [(w.before, w.after, w.reason) for w in r.rewrites] == [(1, 64, "Pages.")]


@pytest.mark.parametrize(("word", "default", "read"), BOOLEANS)
def test_a_boolean_variable_is_read_as_the_engine_reads_it(word: str, default: bool, read: bool) -> None:
    r = resolution()
    r.env["X"] = word
    assert r.flag_env("X", default) is read
    assert r.flag_env("UNSET", default) is default


@pytest.mark.parametrize(("word", "read"), [("7", 7), ("-1", -1), ("x", 5), ("", 5), ("1.5", 5)])
def test_a_number_variable_is_read_as_the_engine_reads_it(word: str, read: int) -> None:
    r = resolution()
    r.env["X"] = word
    assert r.int_env("X", 5) == read


@pytest.mark.parametrize("flags", ["", "--mamba-max-states-per-path 0"])
def test_fallbacks_are_filled_at_the_end_even_after_a_rejection(flags: str) -> None:
    found = outcome(Case("b300", flags))
    assert {name: found[name] for name in FALLBACKS} == FALLBACKS


@pytest.mark.parametrize(("where", "flags", "expect"), ENVIRONMENT)
def test_variables_that_the_engine_sets(where: str, flags: str, expect: dict[str, str]) -> None:
    env = outcome(Case(where, flags)).env
    assert {name: env.get(name) for name in expect} == expect


@pytest.mark.parametrize(("text", "message"), OVERRIDES)
def test_overrides_that_make_no_model(text: str, message: str) -> None:
    with pytest.raises(UnusableInput, match=message):
        outcome(Case("b300", f"--json-model-override-args '{text}'"))


@pytest.mark.parametrize(("text", "message"), GRAPHS)
def test_graph_settings_that_are_no_numbers(text: str, message: str) -> None:
    with pytest.raises(UnusableInput, match=message):
        outcome(Case("b300", f"--cuda-graph-config '{text}'"))


@pytest.mark.parametrize("device", ["cpu", "xpu", "hpu", "npu"])
def test_a_device_that_the_platform_does_not_have(device: str) -> None:
    with pytest.raises(UnusableInput, match="is not modelled on"):
        outcome(Case("b300", f"--device {device}"))
