"""How many tokens a speculative step yields: one length or a mix, as given, as the plan pins it, or assumed."""

from __future__ import annotations

import random
from functools import cache
from statistics import mean

import pytest

from perilune.errors import UnusableInput
from perilune.plan.compose import Choice, compose, parse_env
from perilune.plan.planned import Plan, plan
from perilune.rehearse.acceptance import Acceptance, acceptance_for, parse_mix
from perilune.rehearse.offered import OfferedLoad
from perilune.rehearse.perform import Settings, perform
from perilune.rehearse.report.document import document
from perilune.rehearse.report.phrases import acceptance_text

WIDTH = 8  # tokens that a step of the recipe verifies


@cache
def planned(*env: str, spec: str = "dspark") -> Plan:
    edits = tuple(map(parse_env, env))
    return plan(compose(Choice(hardware="b300", strategy="low-latency", spec=spec, overrides=edits)))


def accepted(*env: str) -> Acceptance:
    found = acceptance_for(planned(*env).pools[0])
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("env", "length"),
    [
        (("SGLANG_SIMULATE_ACC_LEN=3.5",), 3.5),
        (("SGLANG_SIMULATE_ACC_LEN=3.5", "SGLANG_SIMULATE_ACC_METHOD=match-expected"), 3.5),
        (("SGLANG_SIMULATE_ACC_LEN=0.5",), 1.0),
        (("SGLANG_SIMULATE_ACC_LEN=20",), 8.0),
        (("SGLANG_SIMULATE_ACC_LEN=-1",), 4.5),  # off: the published runs' length is assumed
    ],
)
def test_a_pinned_length_is_kept_within_what_a_step_can_yield(env: tuple[str, ...], length: float) -> None:
    assert accepted(*env).length == length


@pytest.mark.parametrize("length", [1.0, 3.3, 7.8])
def test_a_rounded_normal_draw_yields_its_mean(length: float) -> None:
    draw = random.Random(3)
    drawn = mean(round(min(max(draw.gauss(length, 1), 1), WIDTH)) for _ in range(200_000))
    found = accepted(f"SGLANG_SIMULATE_ACC_LEN={length}", "SGLANG_SIMULATE_ACC_METHOD=multinomial")
    assert found.length == pytest.approx(drawn, abs=0.01)


def test_an_unknown_method_is_refused() -> None:
    with pytest.raises(UnusableInput, match="no method"):
        accepted("SGLANG_SIMULATE_ACC_LEN=3", "SGLANG_SIMULATE_ACC_METHOD=real")


@pytest.mark.parametrize(
    "text", ["", "3", "3:0", "3:-1", "3:1.5", "x:1", "nan:1", "3:1,", "3:1" + ",3:1" * 500, "3:1e9"]
)
def test_what_is_no_mix_is_refused(text: str) -> None:
    with pytest.raises(UnusableInput, match="no part of a mix"):
        parse_mix(text)


@pytest.mark.parametrize("text", ["0.5:1,3:2", "3:1,9:1"])
def test_a_mix_keeps_to_what_a_step_can_yield(text: str) -> None:
    with pytest.raises(UnusableInput, match="1 to 8 tokens"):
        acceptance_for(planned().pools[0], mix=parse_mix(text))


def test_requests_of_a_mix_differ_as_often_as_it_says() -> None:
    """Alone on a server, a request that gets four times the tokens a step takes a quarter of the time a token."""
    load = OfferedLoad(concurrency=1, requests=200, isl=64, osl=401)
    found = perform(planned(), load, Settings(acceptance_mix=parse_mix("1:30,4:70"), records=True))
    tpots = []
    for one in found.outcome.records:
        assert one.end_s is not None
        assert one.first_token_s is not None
        tpots.append((one.end_s - one.first_token_s) / (one.osl - 1))
    fast = [tpot for tpot in tpots if tpot < 2 * min(tpots)]
    slow = [tpot for tpot in tpots if tpot >= 2 * min(tpots)]
    assert mean(slow) / mean(fast) == pytest.approx(4, rel=0.02)
    assert len(fast) / len(tpots) == pytest.approx(0.7, abs=0.1)
    assert document(found)["acceptance"]["length"] == pytest.approx(3.1)
    assert "1 for 30 %, 4 for 70 % of the requests" in acceptance_text(found)
