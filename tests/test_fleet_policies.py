"""Router policies pick the worker that the real router picks."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perilune.rehearse.fleet import policies
from perilune.rehearse.fleet.policies import POLICIES, CacheAware, CacheAwareSettings, Policy, PowerOfTwo, policy
from perilune.rehearse.fleet.prefix_tree import Node, PrefixTree
from perilune.rehearse.request import Request
from perilune.rehearse.ticks import ticks

RECORDED = json.loads((Path(__file__).parent / "data" / "fleet" / "router.json").read_text())["cases"]


def request(blocks: Sequence[int] = (), *, isl: int = 0, width: int = 1) -> Request:
    return Request(0.0, isl or len(blocks) * width, 1, tuple(blocks), width)


def replay(chosen: Policy, case: Mapping[str, Any]) -> list[int]:
    """The picks of one recorded session: prompts sent, some of them answered, pauses between."""
    loads = [0] * case["workers"]
    everyone = range(case["workers"])
    sent: dict[str, int] = {}
    now = 0.0
    for operation in case["operations"]:
        match operation:
            case {"send": name, "prompt": prompt}:
                worker = chosen.pick(request(prompt), loads, everyone, ticks(now))
                loads[worker] += 1
                sent[name] = worker
            case {"finish": name}:
                loads[sent[name]] -= 1
            case {"sleep_s": pause}:
                now += pause
    return list(sent.values())


@pytest.mark.parametrize("case", RECORDED, ids=[case["name"] for case in RECORDED])
def test_picks_are_the_routers_own(case: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policies, "CHARACTERS_PER_TOKEN", 1)  # the recorded prompts are characters
    chosen: Policy = policy(case["policy"], Random(0))
    if case["settings"]:
        chosen = CacheAware(CacheAwareSettings(**case["settings"]))
    assert replay(chosen, case) == case["picks"]


@pytest.mark.parametrize("name", POLICIES)
def test_only_workers_that_are_up_are_picked(name: policies.PolicyName) -> None:
    chosen = policy(name, Random(1))
    loads = [0, 5, 3, 2]
    everyone = [chosen.pick(request([1, 2, 3]), loads, [0, 1, 2, 3], 0) for _ in range(40)]
    some = [chosen.pick(request([1, 2, 3]), loads, [1, 3], 0) for _ in range(40)]
    assert set(some) <= {1, 3}
    assert set(everyone) <= {0, 1, 2, 3}
    assert [chosen.pick(request([9]), loads, [2], 0) for _ in range(3)] == [2, 2, 2]


@pytest.mark.parametrize("name", POLICIES)
def test_the_same_seed_picks_alike(name: policies.PolicyName) -> None:
    def picks(seed: int) -> list[int]:
        chosen = policy(name, Random(seed))
        loads = [0] * 5
        found = []
        for number in range(200):
            found.append(chosen.pick(request([number % 7, number]), loads, range(5), number))
            loads[found[-1]] += 1
        return found

    assert picks(3) == picks(3)
    if name in {"random", "power_of_two"}:
        assert picks(3) != picks(4)


def test_power_of_two_never_compares_a_worker_with_itself() -> None:
    chosen = PowerOfTwo(Random(5))
    assert {chosen.pick(request(), [9, 0], [0, 1], 0) for _ in range(50)} == {1}
    picks = [chosen.pick(request(), [3, 2, 1], [0, 1, 2], 0) for _ in range(300)]
    assert 0 not in picks  # there is always a lighter one beside the heaviest
    assert picks.count(2) > picks.count(1)


def test_the_answer_beyond_the_prompt_is_not_matched() -> None:
    chosen = CacheAware()
    first = Request(0.0, 20, 5, (1, 2, 3), 10)  # the third block is the answer's
    chosen.pick(first, [0, 0], [0, 1], 0)
    assert chosen.tree.match((1, 2, 3)) == (2, 0)


def test_a_worker_that_left_is_forgotten() -> None:
    chosen = CacheAware()
    chosen.pick(request([1, 2, 3, 4]), [0, 1], [0, 1], 0)
    assert chosen.pick(request([1, 2, 3, 4]), [1, 0], [0, 1], 0) == 0
    chosen.left(0)
    assert chosen.pick(request([1, 2, 3, 4]), [1, 0], [0, 1], 0) == 1


def test_prompts_without_ids_go_to_the_lightest_and_leave_no_trace() -> None:
    chosen = CacheAware()
    assert [chosen.pick(request(isl=100), [4, 2, 2], [0, 1, 2], 0) for _ in range(2)] == [1, 1]
    assert chosen.tree.sizes == {}


prompts = st.lists(st.integers(0, 3), min_size=1, max_size=6).map(tuple)


@given(st.lists(st.tuples(prompts, st.integers(0, 2), st.integers(0, 3)), max_size=40))
def test_the_tree_knows_exactly_what_it_was_told(steps: list[tuple[tuple[int, ...], int, int]]) -> None:
    """Against a plain list of prompts: the longest shared prefix, and sizes that add up to the tree's nodes."""
    tree = PrefixTree()
    told: list[tuple[int, ...]] = []
    for prompt, worker, chance in steps:
        longest = max((_shared(prompt, other) for other in told), default=0)
        assert tree.match(prompt)[0] == longest
        tree.insert(prompt, worker)
        told.append(prompt)
        if not chance:
            tree.evict(4)
            assert all(size <= 4 for size in tree.sizes.values())
            told = [blocks for blocks in told if tree.match(blocks)[0] == len(blocks)]
            if len(told) < 2:
                return
        assert _sizes(tree) == {worker: size for worker, size in tree.sizes.items() if size}
        if not chance:
            return  # what is left of the evicted prompts is no longer in the list
    for worker in range(3):
        tree.forget(worker)
    assert not tree.root.children


def _shared(one: Sequence[int], other: Sequence[int]) -> int:
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def _sizes(tree: PrefixTree) -> dict[int, int]:
    sizes: dict[int, int] = {}
    nodes: list[Node] = list(tree.root.children.values())
    for node in nodes:
        nodes.extend(node.children.values())
        assert node.seen or node.children
        for worker in node.seen:
            sizes[worker] = sizes.get(worker, 0) + len(node.blocks)
        assert all(a.parent is node for a in node.children.values())
        assert all(one is not other for one, other in pairwise(node.children.values()))
    return sizes
