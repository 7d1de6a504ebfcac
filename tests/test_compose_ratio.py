"""The ratio calculator: its formula, its rounding, and its value on every recipe."""

from __future__ import annotations

import pytest

from perilune.plan.compose import Choice, compose
from perilune.plan.compose.flags import parse
from perilune.plan.compose.ratio import memory_ratio, ratio_inputs, shown

# At the page's average request of 11,264 tokens, without speculation and with DSPARK (None: not allowed).
PUBLISHED = {
    "b300/unified/low-latency": ("0.9", "0.86"),
    "b300/unified/balanced": ("7.21", "5.13"),
    "b300/unified/high-throughput": ("7.21", "5.13"),
    "b200/unified/low-latency": ("0.72", "0.43"),
    "b200/unified/balanced": ("5.77", "3.99"),
    "b200/unified/high-throughput": ("5.77", "3.99"),
    "mi350x/unified/balanced": ("14.4", "7.97"),
    "mi355x/unified/balanced": ("14.4", "7.97"),
    "h100/unified/low-latency": ("0.23", "0.21"),
    "h100/unified/balanced": ("0.23", "0.21"),
    "h100/unified/high-throughput": ("0.18", "0.17"),
    "h200/unified/low-latency": ("0.45", "0.43"),
    "h200/unified/balanced": ("0.45", "0.43"),
    "h200/unified/high-throughput": ("0.18", "0.17"),
    "gb300/unified/low-latency": ("0.9", "0.86"),
    "gb300/unified/balanced": ("7.21", "5.13"),
    "gb300/unified/high-throughput": ("7.21", "5.13"),
    "gb200/unified/low-latency": ("0.45", "0.43"),
    "gb200/unified/balanced": ("7.21", "3.99"),
    "gb200/unified/high-throughput": ("7.21", "3.99"),
    "b300/prefill/default": ("0.9", "0.86"),
    "b300/prefill/long-context": ("5.77", None),
    "gb300/prefill/default": ("0.9", "0.86"),
    "gb300/prefill/long-context": ("5.77", None),
    "gb200/prefill/default": ("5.77", None),
    "gb200/prefill/long-context": ("5.77", None),
    "b200/prefill/default": ("5.77", None),
    "b200/prefill/long-context": ("5.77", None),
    "b300/decode/balanced": ("1.44", "1.03"),
    "b300/decode/low-latency": ("0.18", "0.17"),
    "b300/decode/high-throughput": ("1.44", "1.03"),
    "b200/decode/low-latency": ("0.09", "0.086"),
    "b200/decode/balanced": ("1.44", "0.8"),
    "b200/decode/high-throughput": ("1.44", "0.8"),
    "mi350x/decode/balanced": ("0.36", "0.33"),
    "mi355x/decode/balanced": ("0.36", "0.33"),
    "h100/decode/low-latency": ("0.045", "0.043"),
    "h100/decode/balanced": ("0.045", "0.043"),
    "h100/decode/high-throughput": ("0.045", "0.043"),
    "h200/decode/low-latency": ("0.09", "0.086"),
    "h200/decode/balanced": ("0.09", "0.086"),
    "h200/decode/high-throughput": ("0.09", "0.086"),
    "gb300/decode/low-latency": ("0.18", "0.17"),
    "gb300/decode/balanced": ("1.44", "1.03"),
    "gb300/decode/high-throughput": ("1.44", "1.03"),
    "gb200/decode/low-latency": ("0.18", None),
    "gb200/decode/balanced": ("1.44", "0.8"),
    "gb200/decode/high-throughput": ("1.44", "1.03"),
}


def choice_of(recipe: str, spec: str) -> Choice:
    hardware, role, strategy = recipe.split("/")
    if role == "prefill":
        return Choice(hardware=hardware, mode=role, prefill_strategy=strategy, spec=spec)
    return Choice(hardware=hardware, mode=role, strategy=strategy, spec=spec)


def ratio_of(choice: Choice) -> str | None:
    return compose(choice).pools[0].server.value("--mamba-full-memory-ratio")


@pytest.mark.parametrize("recipe", PUBLISHED)
def test_the_ratio_of_every_recipe(recipe: str) -> None:
    for spec, expected in zip(("none", "dspark"), PUBLISHED[recipe], strict=True):
        if expected is not None:
            assert ratio_of(choice_of(recipe, spec)) == expected


@pytest.mark.parametrize("name", ["a3", "950"])
def test_no_ratio_on_ascend(name: str) -> None:
    assert ratio_of(Choice(hardware=name)) is None


@pytest.mark.parametrize(
    ("words", "env", "slots", "verify", "attention_tp"),
    [
        ("--tp-size 8", {}, 5, 0, 8),
        ("", {}, 5, 0, 8),  # the calculator takes TP8 where none is written
        ("--tp-size 8 --pp-size 2", {}, 4, 0, 8),
        ("--tp-size 8 --disable-overlap-schedule", {}, 4, 0, 8),
        ("--tp-size 8 --disable-radix-cache", {}, 1, 0, 8),
        ("--tp-size 8 --mamba-radix-cache-strategy no_buffer", {}, 3, 0, 8),
        ("--tp-size 8 --mamba-radix-cache-strategy extra_buffer_lazy", {}, 4, 0, 8),
        ("--tp-size 8", {"SGLANG_OPT_MAMBA_SKIP_DECODE_LOCK": "1"}, 4, 0, 8),
        (
            "--mamba-radix-cache-strategy extra_buffer_lazy",
            {"SGLANG_OPT_MAMBA_SKIP_DECODE_LOCK": "1"},
            3,
            0,
            8,
        ),
        ("--mamba-radix-cache-strategy no_buffer", {"SGLANG_OPT_MAMBA_SKIP_DECODE_LOCK": "1"}, 3, 0, 8),
        ("--tp-size 8 --disaggregation-mode decode", {}, 1, 0, 8),
        ("--disaggregation-mode decode --disaggregation-decode-enable-radix-cache", {}, 5, 0, 8),
        ("--tp-size 16 --attn-dp-size 2", {}, 5, 0, 8),
        ("--tp-size 16 --dp-size 2 --enable-dp-attention", {}, 5, 0, 8),
        ("--tp-size 16 --dp-size 2", {}, 5, 0, 16),
        ("--speculative-algorithm DSPARK --speculative-dspark-block-size 7", {}, 5, 8, 8),
        ("--speculative-algorithm DSPARK --speculative-dspark-block-size 3", {}, 5, 4, 8),
        ("--speculative-algorithm DFLASH --speculative-dflash-block-size 8", {}, 5, 8, 8),
        ("--speculative-algorithm DSPARK --enable-linear-replayssm-spec", {}, 5, 0, 8),
        ("--speculative-algorithm DSPARK --disaggregation-mode prefill", {}, 5, 0, 8),
    ],
)
def test_what_the_calculator_reads(words: str, env: dict[str, str], slots: int, verify: int, attention_tp: int) -> None:
    inputs = ratio_inputs(parse(words.split()), env)
    assert (inputs.slots, inputs.verify_states, inputs.attention_tp) == (slots, verify, attention_tp)


@pytest.mark.parametrize(
    ("words", "state_bytes", "kv_bytes", "draft_bytes"),
    [
        ("--tp-size 8", 56_171_520, 27_648, 0),
        ("--tp-size 8 --mamba-ssm-dtype bfloat16", 29_039_616, 27_648, 0),
        ("--tp-size 1 --kv-cache-dtype fp8_e4m3", 449_372_160, 13_824, 0),
        ("--tp-size 32 --speculative-algorithm DSPARK", 14_042_880, 27_648, 1400),
    ],
)
def test_bytes_per_slot_and_token(words: str, state_bytes: int, kv_bytes: int, draft_bytes: int) -> None:
    inputs = ratio_inputs(parse(words.split()), {})
    assert (inputs.state_bytes, inputs.mla_kv_bytes, inputs.draft_kv_bytes) == (
        state_bytes,
        kv_bytes,
        draft_bytes,
    )


def test_the_ratio_follows_given_lengths() -> None:
    assert ratio_of(Choice(hardware="b300", isl=10240, osl=1024)) == "5.13"
    assert ratio_of(Choice(hardware="b300", isl=8192, osl=1024)) == "6.28"


def test_the_formula() -> None:
    ratio = memory_ratio(
        slots=5,
        verify_states=8,
        state_bytes=56_171_520,
        length=11_264,
        mla_kv_bytes=27_648,
        dcp=8,
        draft_kv_bytes=1_400,
    )
    assert ratio == pytest.approx(13 * 56_171_520 / (11_264 * (27_648 / 8 + 1_400)))


def test_no_value_where_heads_do_not_divide_or_length_is_nothing() -> None:
    assert ratio_inputs(parse(["--tp-size", "5"]), {}).ratio(11_264) is None
    assert ratio_inputs(parse(["--tp-size", "8"]), {}).ratio(0) is None


@pytest.mark.parametrize(
    ("ratio", "text"),
    [
        (14.43, "14.4"),
        (12.0, "12"),
        (9.999, "10"),
        (7.214, "7.21"),
        (5.125, "5.13"),
        (3.301, "3.3"),
        (1.0, "1"),
        (0.9015, "0.9"),
        (0.797, "0.8"),
        (0.0863, "0.086"),
        (0.00456, "0.0046"),
    ],
)
def test_how_a_ratio_is_shown(ratio: float, text: str) -> None:
    assert shown(ratio) == text
