"""Which split admits a demand, what the page's calculator says, and what is missing when none does."""

from __future__ import annotations

from decimal import Decimal

import pytest

from memory_table import BALANCED, DSPARK, REPLAY, case, planned
from perilune.plan.compose.ratio import shown
from perilune.plan.memory import Demand, Measured, split_for
from perilune.plan.memory.calculator import read_calculator
from perilune.plan.memory.split import Ratios, Slots

# On case 03 (B300 TP8 DCP8, ratio 7.21, 32.88 GiB for both pools, 5 slots a request):
# requests, tokens each: slots, ratios
ADMITTED = {
    (64, 9216): (Slots(320, 591), Ratios(Decimal("1.045"), Decimal("16.72"))),
    (100, 9216): (Slots(500, 570), Ratios(Decimal("3.931"), Decimal("10.13"))),
    (110, 11264): (Slots(550, 551), Ratios(Decimal("7.113"), Decimal("7.327"))),
    (1, 1_048_576): (Slots(5, 562), Ratios(Decimal("0.009640"), Decimal("8.749"))),
}


@pytest.mark.parametrize("demand", ADMITTED)
def test_splits_that_admit_a_demand(demand: tuple[int, int]) -> None:
    plan = case("03").plan
    assert plan.inputs is not None
    split = split_for(plan.inputs, Demand(*demand))
    assert (split.slots, split.ratios) == ADMITTED[demand]
    assert split.admitted


def test_what_is_missing_when_no_split_does() -> None:
    plan = case("03").plan
    assert plan.inputs is not None
    split = split_for(plan.inputs, Demand(200, 9216))
    assert not split.admitted
    assert split.most == 112
    assert (split.slots, split.ratios) == (None, None)
    assert split.short_gib == pytest.approx(25.42, abs=0.01)
    assert split.state_gib == pytest.approx(1001 * 56_171_520 / 2**30)
    assert split.kv_gib == pytest.approx(200 * 9216 / 8 * 27_648 / 2**30)


def test_a_request_limit_in_the_way_is_named() -> None:
    plan = case("23").plan  # --max-running-requests 16
    assert plan.inputs is not None
    assert split_for(plan.inputs, Demand(16, 1024)).asked is None
    split = split_for(plan.inputs, Demand(40, 1024))
    assert split.admitted
    assert split.asked == 40


def test_the_ratio_has_no_say_where_slots_follow_the_request_limit() -> None:
    plan = case("31").plan  # PD decode: radix off, --max-running-requests 128
    assert plan.inputs is not None
    split = split_for(plan.inputs, Demand(128, 9216))
    assert split.admitted
    assert split.ratios is None
    assert split.slots is not None
    assert split.slots.low == 128


def test_attention_dp_counts_the_whole_server() -> None:
    plan = case("24").plan  # attention DP 2
    assert plan.inputs is not None
    split = split_for(plan.inputs, Demand(50, 4096))
    assert split.slots is not None
    assert split.slots.low == 50 * 5
    assert split.most % 2 == 0


def test_a_model_without_state_only_asks_for_tokens() -> None:
    plan = case("03").plan
    assert plan.inputs is not None
    from msgspec.structs import replace

    attention_only = replace(plan.inputs, slot_bytes=0, ring_bytes=0)
    assert split_for(attention_only, Demand(1000, 9216)).admitted
    short = split_for(attention_only, Demand(1500, 9216))
    assert not short.admitted
    assert short.state_gib == 0
    assert short.short_gib > 0


# The page's worked values at 11,264 tokens (recipe flags).
PAGE_RATIOS = {
    "0.86": ("b300", "--tp-size 8 --mem-fraction-static 0.85" + DSPARK + REPLAY),
    "5.13": ("b300", BALANCED + DSPARK + REPLAY),
    "7.21": ("b300", BALANCED),
    "1.03": (
        "gb300",
        "--tp-size 8 --dcp-size 8 --disaggregation-mode decode --disaggregation-transfer-backend nixl"
        + DSPARK
        + REPLAY,
    ),
    "14.4": ("b300", BALANCED + " --kv-cache-dtype fp8_e4m3"),
    "7.97": ("b300", BALANCED + " --kv-cache-dtype fp8_e4m3" + DSPARK + REPLAY),
}


@pytest.mark.parametrize("ratio", PAGE_RATIOS)
def test_the_pages_calculator(ratio: str) -> None:
    platform, argv = PAGE_RATIOS[ratio]
    reading = read_calculator(planned(argv, platform, measured=Measured(265.5, 71.6)), 11_264)
    assert reading is not None
    assert reading.page is not None
    assert shown(reading.page) == ratio


def test_the_calculator_beside_what_this_memory_admits() -> None:
    reading = read_calculator(case("03").plan, 11_264)
    assert reading is not None
    assert (reading.present, reading.most) == (7.21, 110)
    assert reading.best is not None
    assert reading.best.low <= Decimal("7.21") <= reading.best.high
