"""Every command that can be composed, before the real parser; and a selection before the real hooks."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import cache
from itertools import chain
from typing import Any

import pytest

from perilune.errors import Refused
from perilune.facts.hardware import platform
from perilune.facts.options import knobs
from perilune.plan.compose import Choice, all_choices, compose
from perilune.plan.compose.flags import parse
from perilune.plan.deployment import Deployment, Pool
from perilune.plan.memory import ledger
from perilune.plan.planned import assumed
from perilune.plan.resolve import resolve
from perilune.plan.rules import correct
from perilune.plan.server import Server

from .oracle import Oracle, Verdict

pytestmark = pytest.mark.conformance

W4A8 = "sgl-npu/Kimi-K3-W4A8"
DOWNLOAD_ONLY = {"SGLANG_USE_MODELSCOPE"}  # where checkpoints come from; the judge has them locally

TWINS = ("gb300", "mi350x")  # the engine tells them from b300 and mi355x by memory alone
NEEDED = (("moe-backend", "megamoe"),)  # what the MegaMoE knob needs
KNOB_BASES = (
    Choice(hardware="b300"),
    Choice(hardware="b300", hicache="l2", strategy="low-latency"),
    Choice(hardware="b300", mode="prefill"),
    Choice(hardware="gb200", mode="decode"),
    Choice(hardware="mi355x"),
)

# What 0.5.23 rejects of all that the page composes: error, and the recipes and options it strikes.
REJECTED = {
    "arguments enable-hierarchical-cache and disable-radix-cache are mutually exclusive": (
        r"[^/]+/decode/.* hicache=(l2|l3)"
    ),
    "DSpark with dp attention requires --enable-dp-lm-head": r"gb200/decode/high-throughput .*spec=dspark .*",
}


@cache
def every_choice() -> tuple[tuple[Choice, Deployment], ...]:
    return tuple(all_choices())


def head_of(pool: Pool) -> Server:
    """The head's command, with the assumed value where none was published."""
    return assumed(pool.servers[0], pool.unpublished)


def distinct(pools: Iterator[Pool]) -> list[Pool]:
    """One pool per platform and command; the order of flags makes no difference to the engine."""
    found: dict[Any, Pool] = {}
    for pool in pools:
        flags = frozenset((flag.name, flag.values) for flag in parse(pool.server.argv))
        found.setdefault((pool.platform, flags, frozenset(pool.server.env)), pool)
    return list(found.values())


def with_knobs() -> Iterator[Pool]:
    """Every knob option on a few recipes that show it."""
    for base in KNOB_BASES:
        for knob in knobs().values():
            for option in knob.options:
                picks = (*NEEDED, (knob.id, option.id)) if knob.needs else ((knob.id, option.id),)
                with suppress(Refused):
                    yield compose(replace(base, knobs=picks)).pools[0]


def test_the_parser_takes_every_command(oracle: Oracle) -> None:
    composed = (pool for _, deployment in every_choice() for pool in deployment.pools)
    pools = distinct(chain(composed, with_knobs()))
    lines = [list(head_of(pool).argv) for pool in pools]
    [answer] = oracle.judge([{"kind": "flags", "platform": "b300", "lines": lines}])
    refused = [(pools[i].recipe, v["error"]) for i, v in enumerate(answer["verdicts"]) if not v["accepted"]]
    assert len(lines) > 1500
    assert refused == []


def is_representative(choice: Choice) -> bool:
    """Whether the hooks should see it: what is left out changes nothing that they decide."""
    if choice.vlm_transport == "cpu" or choice.gpus in (32, 64):
        return False
    if choice.preset is not None and choice.strategy != "high-throughput":
        return False
    plain = choice.hicache == "off" and choice.preset is None
    if choice.hardware in TWINS and not plain:
        return False
    return choice.quant != "nvfp4" or (choice.hardware == "b300" and choice.spec == "dspark" and plain)


def written(pool: Pool, choice: Choice) -> str:
    return f"{pool.recipe} quant={pool.quant} spec={pool.spec} hicache={choice.hicache} preset={choice.preset}"


@pytest.fixture(scope="module")
def judged(oracle: Oracle) -> list[tuple[Pool, str, Verdict]]:
    """The representative pools, what they are, and the engine's verdict on each."""
    named = {
        id(pool): written(pool, choice)
        for choice, deployment in every_choice()
        if is_representative(choice)
        for pool in deployment.pools
    }
    pools = distinct(pool for _, d in every_choice() for pool in d.pools if id(pool) in named)
    verdicts = oracle.judge([case_of(head_of(pool), pool.platform, oracle) for pool in pools])
    return [(pool, named[id(pool)], verdict) for pool, verdict in zip(pools, verdicts, strict=True)]


def case_of(server: Server, platform_id: str, oracle: Oracle) -> dict[str, Any]:
    folder = unquantized_config(oracle)
    argv = [folder if word == W4A8 else word for word in server.argv]
    env = {name: given for name, given in server.env if name not in DOWNLOAD_ONLY}
    # The reference has no 950; its hooks decide as on A3.
    name = "a3" if platform_id == "950" else platform_id
    return {"kind": "arguments", "platform": name, "argv": argv, "env": env}


def unquantized_config(oracle: Oracle) -> str:
    """A folder with the model's config as the ModelSlim build has it: without a quantization section."""
    folder = oracle.kept / "models" / "kimi-k3-w4a8"
    folder.mkdir(parents=True, exist_ok=True)
    config = json.loads((oracle.scripts / "kimi_k3_config.json").read_text(encoding="utf-8"))
    (folder / "config.json").write_text(json.dumps(_without(config, {"quantization_config", "auto_map"})))
    return str(folder)


def _without(value: Any, names: set[str]) -> Any:
    if isinstance(value, dict):
        return {key: _without(item, names) for key, item in value.items() if key not in names}
    return value


def test_the_hooks_reject_exactly_what_is_known(judged: list[tuple[Pool, str, Verdict]]) -> None:
    wrong = []
    for _, what, verdict in judged:
        expected = [error for error, pattern in REJECTED.items() if re.fullmatch(pattern, what.split(" preset")[0])]
        said = verdict.get("error") or ""
        if bool(expected) == verdict["ok"] or (expected and not any(error in said for error in expected)):
            wrong.append(f"{what}: expected {expected or 'accepted'}, engine says {said or 'accepted'}")
    assert wrong == []
    assert sum(not verdict["ok"] for _, _, verdict in judged) > 50


def test_our_resolution_agrees_on_every_composed_command(judged: list[tuple[Pool, str, Verdict]]) -> None:
    wrong = []
    for pool, what, verdict in judged:
        mine = resolve(head_of(pool), platform(pool.platform))
        if mine.accepted != verdict["ok"] or (not mine.accepted and mine.error != verdict["error"]):
            wrong.append(f"{what}: engine {verdict.get('error', 'accepts')}, ours {mine.error or 'accepts'}")
    assert wrong == []


def test_what_is_rejected_comes_with_a_correction_that_the_engine_takes(
    oracle: Oracle, judged: list[tuple[Pool, str, Verdict]]
) -> None:
    rejected = [(pool, what) for pool, what, verdict in judged if not verdict["ok"]]
    fixed = []
    for pool, what in rejected:
        server = head_of(pool)
        correction = correct(server, ledger(resolve(server, platform(pool.platform))))
        assert correction is not None, what
        fixed.append(case_of(correction.server, pool.platform, oracle))
    answers = oracle.judge(fixed)
    wrong = [(what, a.get("error")) for (_, what), a in zip(rejected, answers, strict=True) if not a["ok"]]
    assert wrong == []


def test_a_pd_pair_holds_the_commands_of_its_roles_alone() -> None:
    pair = compose(Choice(hardware="gb300", mode="pd"))
    alone = [compose(Choice(hardware="gb300", mode=mode)).pools[0] for mode in ("prefill", "decode")]
    assert [pool.server for pool in pair.pools] == [pool.server for pool in alone]
