"""The router's command, read for where requests go."""

from __future__ import annotations

import pytest

from perilune.errors import UnusableInput
from perilune.rehearse.fleet.flags import RouterSettings, router_settings
from perilune.rehearse.fleet.policies import CacheAwareSettings

COMMAND = (
    "python3 -m sglang_router.launch_router --pd-disaggregation --prefill http://p:30000 8998 --decode http://d:30100"
)


@pytest.mark.parametrize(
    ("more", "settings"),
    [
        ("", RouterSettings()),
        ("--policy random", RouterSettings("random", "random")),
        ("--policy random --decode-policy=power_of_two", RouterSettings("random", "power_of_two")),
        ("--prefill-policy round_robin", RouterSettings("round_robin", "cache_aware")),
        ("--policy random --policy round_robin", RouterSettings("round_robin", "round_robin")),
        (
            "--cache-threshold 0.5 --balance-abs-threshold=32 --balance-rel-threshold 1.1 --max-tree-size 1000",
            RouterSettings(
                cache_aware=CacheAwareSettings(
                    cache_threshold=0.5, balance_abs_threshold=32, balance_rel_threshold=1.1, max_tree_size=1000
                )
            ),
        ),
    ],
)
def test_what_the_command_says(more: str, settings: RouterSettings) -> None:
    assert router_settings([*COMMAND.split(), *more.split()]) == settings


@pytest.mark.parametrize("argv", [None, (), ("router",)])
def test_without_a_router_its_defaults_hold(argv: tuple[str, ...] | None) -> None:
    """As `sglang_router/router_args.py` of sglang-router 0.3.2 has them."""
    assert router_settings(argv) == RouterSettings(
        "cache_aware", "cache_aware", CacheAwareSettings(0.3, 64, 1.5, 60, 2**26)
    )


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("--policy manual", "'manual' is not modelled"),
        ("--prefill-policy bucket", "'bucket' is not modelled"),
        ("--policy", "'' is not modelled"),
        ("--cache-threshold high", "'high' is no value of --cache-threshold"),
        ("--cache-threshold nan", "'nan' is no value"),
        ("--max-tree-size -1", "'-1' is no value"),
        ("--balance-abs-threshold 1.5", "'1.5' is no value"),
        ("--balance-rel-threshold", "'' is no value"),
    ],
)
def test_what_cannot_be_rehearsed(more: str, message: str) -> None:
    with pytest.raises(UnusableInput, match=message):
        router_settings([*COMMAND.split(), *more.split()])
