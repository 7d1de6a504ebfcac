"""The flag catalog: what the engine's parser takes, what was renamed, which environment names are known."""

from __future__ import annotations

import pytest

from perilune.facts.flags import (
    catalog,
    closest_flag,
    defaults,
    environment,
    fallbacks,
    option_of,
    options,
    renamed_flag,
    renames,
)
from perilune.plan.resolve.state import FALLBACKS

OPTIONS = {
    # spelling: field, kind, type, default
    "--tp-size": ("tp_size", "store", "int", 1),
    "--tensor-parallel-size": ("tp_size", "store", "int", 1),
    "--context-length": ("context_length", "store", "human_readable_int", None),
    "--trust-remote-code": ("trust_remote_code", "store_true", None, False),
    "--no-dcp-replicate-q-proj": ("dcp_replicate_q_proj", "boolean_optional", None, None),
    "--cuda-graph-config": ("cuda_graph_config", "store", "graph_config", None),
    "--enable-dp-attention": ("enable_dp_attention", "deprecated_true", None, False),
    "--monokernel-backend": ("enable_amd_monokernel", "deprecated_const", None, False),
    "--lora-paths": ("lora_paths", "lora_paths", "str", None),
}


@pytest.mark.parametrize("spelling", OPTIONS)
def test_an_option(spelling: str) -> None:
    option = options()[spelling]
    assert (option.dest, option.kind, option.type, option.default) == OPTIONS[spelling]


def test_the_catalog_is_whole() -> None:
    assert catalog().version == "0.5.23"
    assert len(catalog().options) == 532
    assert len(catalog().fields) == len(defaults()) == 546
    off_the_command_line = {o.dest for o in catalog().options} - set(defaults())
    assert off_the_command_line == {"help", "config"}
    assert fallbacks() == FALLBACKS


def test_the_canonical_spelling_follows_the_field() -> None:
    tp = option_of("tp_size")
    assert tp is not None
    assert tp.name == "--tp-size"


def test_choices_hold_what_recipes_use() -> None:
    for spelling, value in {
        "--kv-cache-dtype": "fp8_e4m3",
        "--mamba-radix-cache-strategy": "extra_buffer_lazy",
        "--attention-backend": "trtllm_mla",
        "--moe-a2a-backend": "megamoe",
        "--reasoning-parser": "kimi_k3",
    }.items():
        assert value in (options()[spelling].choices or ())


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("--mamba-scheduler-strategy", "--mamba-radix-cache-strategy"),
        ("--enable-dp-attention", "--attn-dp-size"),
        ("--cuda-graph-max-bs", "--cuda-graph-max-bs-decode"),
        ("--disable-piecewise-cuda-graph", "--cuda-graph-backend-prefill disabled"),
    ],
)
def test_a_renamed_flag(old: str, new: str) -> None:
    rename = renamed_flag(old)
    assert rename is not None
    assert rename.to == new


def test_every_rename_leads_to_a_flag_that_exists() -> None:
    for rename in renames().flags:
        known = (rename.match or rename.old) in options()
        assert known == (rename.status == "deprecated"), rename.old
        assert all(word in options() for word in rename.to.split() if word.startswith("--")), rename.to
        assert rename.source


def test_every_renamed_value_is_a_choice_now() -> None:
    for rename in renames().values:
        choices = options()[str(rename.flag)].choices or ()
        assert rename.to in choices
        assert (rename.old in choices) == (rename.status == "deprecated")


def test_every_renamed_variable_leads_to_something_known() -> None:
    for rename in renames().environment:
        target = rename.to.split(" ")[0]
        assert not target or target in environment() or target in options(), rename.to


@pytest.mark.parametrize(
    "name",
    [
        "SGLANG_RAGGED_VERIFY_MODE",
        "SGLANG_ROCM_K3_KDA_FUSED_BACKEND",
        "SGLANG_AITER_K3_OPT",
        "SGLANG_HOST_IP",
        "NCCL_CUMEM_ENABLE",
        "GLOO_SOCKET_IFNAME",
        "HCCL_BUFFSIZE",
        "PYTORCH_CUDA_ALLOC_CONF",
    ],
)
def test_a_known_variable(name: str) -> None:
    assert environment()[name].name == name


def test_an_older_spelling_of_a_variable_is_known() -> None:
    assert environment()["SGLANG_AITER_MLA_DCP_DECODE_BACKEND"].name == "SGLANG_AITER_MLA_DECODE_BACKEND"


def test_the_token_is_a_secret() -> None:
    assert environment()["HF_TOKEN"].secret


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("--reasoning_parser", "--reasoning-parser"),
        ("--tp_size", "--tp-size"),
        ("--TP-size", "--tp-size"),
        ("--mamba-ful-memory-ratio", "--mamba-full-memory-ratio"),
        ("--kv-cache-type=fp8", "--kv-cache-dtype"),
        ("--attention-dp-size", "--attn-dp-size"),
        ("--zzzz", None),
    ],
)
def test_the_closest_flag(written: str, meant: str | None) -> None:
    assert closest_flag(written) == meant


def test_every_published_spelling_is_one_option() -> None:
    seen: dict[str, str] = {}
    for option in catalog().options:
        for spelling in option.options:
            assert seen.setdefault(spelling, option.dest) == option.dest
