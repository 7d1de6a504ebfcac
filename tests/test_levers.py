"""The page's capacity levers, each tried on a plan: what it gains there, or why it does not apply."""

from __future__ import annotations

import re

import pytest

from memory_table import BALANCED, DSPARK, NODES2, REPLAY, resolved, server
from perilune.errors import UnusableInput
from perilune.facts.hardware import platform
from perilune.plan.memory import Demand, Ledger, Measured, ledger
from perilune.plan.memory.levers import LEVERS, Effect, advise, try_levers
from perilune.plan.resolve import resolve

B300 = Measured(265.5, 72.8)


def tried(argv: str, on: str = "b300", measured: Measured | None = B300) -> dict[str, Effect]:
    before = ledger(resolved(argv, on), measured)
    return {effect.lever.id: effect for effect in try_levers(server(argv), before, measured)}


def told(effects: dict[str, Effect]) -> dict[str, tuple[str, int | None, int | None]]:
    return {
        name: (str(e.outcome), e.after.admitted, e.after.tokens and e.after.tokens // 1000)
        for name, e in effects.items()
    }


def test_on_the_balanced_recipe() -> None:
    effects = tried(f"{BALANCED} --mamba-full-memory-ratio 7.21")
    assert told(effects) == {
        "lazy": ("gains", 137, 1259),
        "state-bf16": ("gains", 213, 1248),
        "kv-fp8": ("gains", 110, 2518),
        "fraction-0.90": ("gains", 154, 1758),
        "fraction-0.92": ("gains", 172, 1961),
        "skip-lock": ("gains", 137, 1259),
    }
    assert effects["lazy"].before.admitted == 110
    assert "linear_attn_decode_backend: None -> triton" in effects["state-bf16"].changes[0]
    assert "experimental" in effects["skip-lock"].changes[0]


def test_bf16_state_slows_verification() -> None:
    effects = tried(f"{BALANCED} --mamba-full-memory-ratio 5.13{DSPARK}{REPLAY} --max-running-requests 256")
    assert any("falls back from the fused kernel to Triton" in text for text in effects["state-bf16"].changes)


def test_lazy_under_pipeline_parallelism_is_refused_in_the_engines_words() -> None:
    effect = tried("--tp-size 8 --pp-size 2" + NODES2, "b200", None)["lazy"]
    assert str(effect.outcome) == "refused"
    assert effect.why.startswith("Lazy extra buffer requires overlap schedule")
    assert effect.after.admitted is None


def test_a_prefill_server_refuses_lazy_and_warns_of_kv_formats() -> None:
    flags = "--tp-size 8 --disaggregation-mode prefill --disaggregation-transfer-backend nixl"
    effects = tried(flags + " --mem-fraction-static 0.85")
    assert str(effects["lazy"].outcome) == "refused"
    assert any("Prefill and decode must both have it" in text for text in effects["kv-fp8"].changes)


@pytest.mark.parametrize("name", ["lazy", "skip-lock"])
def test_without_a_radix_cache_slot_levers_do_nothing(name: str) -> None:
    effect = tried("--tp-size 8 --disable-radix-cache --mem-fraction-static 0.85")[name]
    assert (str(effect.outcome), effect.why) == (
        "nothing",
        "With the radix cache off a request holds one state slot already.",
    )


def test_levers_the_plan_has_already() -> None:
    flags = f"{BALANCED} --mamba-radix-cache-strategy extra_buffer_lazy --mamba-ssm-dtype bfloat16"
    effects = tried(flags.replace("0.85", "0.92") + " --kv-cache-dtype fp8_e4m3")
    outcomes = {name: str(effect.outcome) for name, effect in effects.items()}
    assert outcomes.pop("skip-lock") == "gains"
    assert set(outcomes.values()) == {"already"}


def test_a_fraction_that_the_engine_lowers_is_had_all_the_same() -> None:
    """aiter takes 15 % off what is written: 0.92 is 0.782, and yet nothing is left to write."""
    found = tried("--tp-size 8 --dcp-size 8 --attention-backend aiter --mem-fraction-static 0.92", "mi350x", None)
    assert {str(found[name].outcome) for name in ("fraction-0.90", "fraction-0.92")} == {"already"}


@pytest.mark.parametrize(
    ("argv", "why"),
    [
        # the engine advises to raise the fraction above one that is lower than the one in use
        ("--max-mamba-cache-size 900", "The 900 pinned state slots do not fit at the fraction of 0.9 in use."),
        ("--page-size 512 --max-total-tokens 64", ""),
    ],
)
def test_a_refusal_carries_no_advice_of_the_engines(argv: str, why: str) -> None:
    effect = tried(f"{BALANCED} {argv}")["fraction-0.90"]
    assert str(effect.outcome) == "refused"
    assert effect.why == why or not why
    assert not re.search("raise|increase", effect.why, re.IGNORECASE)


def test_a_request_limit_does_not_hide_what_a_lever_gains() -> None:
    effect = tried(f"{BALANCED} --max-running-requests 8 --mamba-full-memory-ratio 7.21")["lazy"]
    assert str(effect.outcome) == "gains"
    assert effect.before.admitted == effect.after.admitted == 8
    assert (effect.after.by_state or 0) > (effect.before.by_state or 0)


def test_a_fraction_that_leaves_too_little_is_called_out() -> None:
    effects = tried("--tp-size 8 --enable-int8-mamba-checkpoint --mem-fraction-static 0.85")
    assert effects["fraction-0.92"].outcome == "gains"
    assert any("Only 7.1 GiB stay for graphs" in text for text in effects["fraction-0.92"].changes)


def before_of(argv: str) -> Ledger:
    return ledger(resolve(server(argv), platform("b300")), B300)


def test_advice_names_the_cheapest_levers_in_order() -> None:
    argv = f"{BALANCED} --mamba-full-memory-ratio 7.21"
    advice = advise(server(argv), before_of(argv), Demand(200, 9216), B300)
    assert advice.reached
    assert not advice.split.admitted
    assert [(step.lever.id, step.alone, step.together) for step in advice.steps] == [
        ("fraction-0.90", 158, 158),
        ("fraction-0.92", 176, 176),
        ("lazy", 137, 215),
    ]


def test_advice_needs_no_lever_where_a_split_will_do() -> None:
    argv = f"{BALANCED} --mamba-full-memory-ratio 0.9"
    advice = advise(server(argv), before_of(argv), Demand(100, 9216), B300)
    assert advice.reached
    assert advice.steps == ()
    assert advice.split.ratios is not None


def test_advice_says_when_no_lever_is_enough() -> None:
    advice = advise(server(BALANCED), before_of(BALANCED), Demand(100_000, 9216), B300)
    assert not advice.reached
    gains = [step.together for step in advice.steps]
    assert gains == sorted(gains)


def test_levers_cost_more_the_further_they_reach() -> None:
    assert [lever.id for lever in sorted(LEVERS, key=lambda lever: lever.cost)] == [
        "fraction-0.90",
        "fraction-0.92",
        "lazy",
        "kv-fp8",
        "state-bf16",
        "skip-lock",
    ]


@pytest.mark.parametrize("demand", [Demand(0, 10), Demand(10, 0), Demand(1 << 40, 1)])
def test_demands_that_cannot_be_are_refused(demand: Demand) -> None:
    with pytest.raises(UnusableInput, match="cannot be asked for"):
        advise(server(BALANCED), before_of(BALANCED), demand, B300)


def test_a_plan_that_does_not_boot_has_nothing_to_split() -> None:
    argv = "--tp-size 8 --pp-size 8 --mamba-radix-cache-strategy extra_buffer_lazy"
    with pytest.raises(UnusableInput, match="Lazy extra buffer requires overlap"):
        advise(server(argv), before_of(argv), Demand(1, 1), B300)
