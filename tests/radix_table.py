"""Radix caches as servers would have them, random operations on them, and our model playing those."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from perilune.rehearse.radix import Claim, Key, RadixCache, Snapshots

Setup = dict[str, Any]
Operation = list[Any]

PLAIN: Setup = {
    "page_size": 64,
    "dcp": 1,
    "tokens": 6400,
    "slots": 44,
    "strategy": "extra_buffer",
    "kernel_chunk": 64,
    "track_interval": 128,
    "overlap": True,
    "skip_decode_lock": False,
    "max_states_per_path": -1,
    "policy": "lru",
    "policy_config": None,
    "disabled": False,
    "block_tokens": 128,
    "requests": 8,  # that the operations keep running at once
}
ONE: Setup = PLAIN | {"page_size": 1, "tokens": 500, "block_tokens": 8}
NO_STATE: Setup = {"slots": None, "strategy": "auto"}

SETUPS: dict[str, Setup] = {
    "extra_buffer": PLAIN,
    "extra_buffer, ample slots": PLAIN | {"slots": 200, "requests": 40},
    "extra_buffer, ample tokens": PLAIN | {"tokens": 64 * 600},
    "extra_buffer, without overlap": PLAIN | {"overlap": False},
    "extra_buffer, decode lock skipped": PLAIN | {"skip_decode_lock": True},
    "extra_buffer, two states a path": PLAIN | {"max_states_per_path": 2},
    "extra_buffer under DCP": PLAIN | {"dcp": 2, "tokens": 12800, "block_tokens": 64},
    "extra_buffer under DCP, small pages": PLAIN | {"dcp": 2, "page_size": 16, "block_tokens": 32, "tokens": 3200},
    "extra_buffer, small pages": PLAIN | {"page_size": 16, "block_tokens": 32, "tokens": 3200},
    "extra_buffer, page of one": ONE | {"kernel_chunk": 4, "track_interval": 8},
    "extra_buffer, blocks of six": ONE | {"page_size": 4, "kernel_chunk": 4, "track_interval": 8, "block_tokens": 6},
    "extra_buffer, lfu": PLAIN | {"policy": "lfu"},
    "extra_buffer, disabled": PLAIN | {"disabled": True},
    "extra_buffer_lazy": PLAIN | {"strategy": "extra_buffer_lazy"},
    "extra_buffer_lazy, scarce slots": PLAIN | {"strategy": "extra_buffer_lazy", "slots": 16, "requests": 4},
    "extra_buffer_lazy, decode lock skipped": PLAIN | {"strategy": "extra_buffer_lazy", "skip_decode_lock": True},
    "no_buffer": ONE | {"strategy": "no_buffer", "overlap": False, "slots": 30},
    "no_buffer, slru": ONE | {"strategy": "no_buffer", "overlap": False, "slots": 30, "policy": "slru"},
    "no state, page 64": PLAIN | NO_STATE,
    "no state, page 1": ONE | NO_STATE,
    "no state, lfu": PLAIN | NO_STATE | {"policy": "lfu"},
    "no state, priority": PLAIN | NO_STATE | {"policy": "priority"},
    "no state, tlru": PLAIN
    | NO_STATE
    | {"policy": "tlru", "policy_config": {"threshold": 1024, "next_prompt_estimate": 128}},
}


class Played(RadixCache):
    """Our model, taking the operations that the driver of the real cache takes."""

    def __init__(self, setup: Setup) -> None:
        snapshots = Snapshots.of(
            setup["strategy"],
            page_size=setup["page_size"],
            dcp=setup["dcp"],
            kernel_chunk=setup["kernel_chunk"],
            track_interval=setup["track_interval"],
            overlap=setup["overlap"],
        )
        super().__init__(
            tokens=setup["tokens"],
            page=setup["page_size"] * setup["dcp"],
            slots=setup["slots"],
            snapshots=None if setup["slots"] is None else snapshots,
            skip_decode_lock=setup["skip_decode_lock"],
            max_states_per_path=setup["max_states_per_path"],
            policy=setup["policy"],
            policy_config=setup["policy_config"],
            disabled=setup["disabled"],
        )
        self.running: dict[int, list[Any]] = {}  # claim, prompt, length, start of the last chunk

    def play(self, operation: Operation) -> list[int | None]:
        """What an operation found, and the counts after it."""
        name, *given = operation
        return [getattr(self, name)(*given), *self.counts()]

    def start(self, rid: int, blocks: list[int], block_tokens: int, prompt: int) -> int | None:
        """Match a new request, lock it and give it its slots."""
        claim = Claim(Key(tuple(blocks), block_tokens))
        found = self.match(claim, prompt - 1)
        self.lock(claim)
        if not self.take_slots([claim]):
            self.unlock(claim)
            self.unmatch(claim)
            return None
        self.running[rid] = [claim, prompt, found, found]
        return found

    def pass_by(self, rid: int, blocks: list[int], block_tokens: int, prompt: int) -> int:
        """Match a request that is then not admitted."""
        claim = Claim(Key(tuple(blocks), block_tokens))
        found = self.match(claim, prompt - 1)
        self.unmatch(claim)
        return found

    def probe(self, blocks: list[int], block_tokens: int, length: int) -> int:
        """Match without taking anything; before it, a peek must say the same."""
        key = Key(tuple(blocks), block_tokens)
        peeked = self.peek(key, length)
        found = self.touch(key, length)
        assert peeked == found
        return found

    def step(self, rid: int, tokens: int, steps: int, last: bool) -> int | None:
        """Prefill so many more tokens of the prompt (`last`: and end with it), or decode so many steps after it."""
        if rid not in self.running:
            return None
        claim, prompt, start, _ = self.running[rid]
        end = start + steps if start >= prompt else min(start + tokens, prompt)
        if not self._grow(rid, start, end):
            return None
        self.running[rid][2] = end
        if start >= prompt:
            return end
        self.running[rid][3] = start
        if end == prompt and last:
            self.end(rid)
            return None
        self.checkpoint(claim, start, end)
        return int(claim.cached)

    def end(self, rid: int) -> None:
        """The request ends, or is retracted where its prompt was not done."""
        if rid not in self.running or self.running[rid][2] < self.running[rid][1]:
            self.drop(rid)
            return
        claim, prompt, length, start = self.running.pop(rid)
        self.finish(claim, start, prompt, length)

    def drop(self, rid: int) -> None:
        """The request loses its place."""
        if rid in self.running:
            claim, _, length, _ = self.running.pop(rid)
            self.retract(claim, length)

    def evict(self, tokens: int, states: int) -> None:
        """Evict for an allocation that is short of so much."""
        if tokens:
            self.evict_tokens(self.tokens_free + tokens)
        if states and self.hybrid:
            self.evict_states(self.slots_free + states)

    def counts(self) -> list[int]:
        """Free, evictable and locked: tokens, then slots."""
        found = [self.tokens_free, self.tokens_evictable, self.tokens_cached - self.tokens_evictable]
        if self.hybrid:
            found += [self.slots_free, self.slots_evictable, self.slots_cached - self.slots_evictable]
        return found

    def held(self) -> tuple[int, int]:
        """Tokens and slots that the running requests hold themselves, told from what they did."""
        page = self.page
        claims: list[tuple[Claim, int]] = [(claim, length) for claim, _, length, _ in self.running.values()]
        tokens = sum(-(-length // page) * page - claim.cached for claim, length in claims)
        return tokens, len(claims) * self.slots_per_request

    def _grow(self, rid: int, start: int, end: int) -> bool:
        page = self.page
        pages = -(-end // page) * page - -(-start // page) * page
        room = 0 if page == 1 else end - start + page - pages
        if not self.allocate_tokens(pages, room):
            self.drop(rid)
            return False
        return True


def operations(seed: int, count: int, setup: Setup) -> Iterator[Operation]:
    """Random operations: conversations that branch and come back, more than the pools hold."""
    rng = random.Random(seed)
    unit, size = setup["page_size"] * setup["dcp"], setup["block_tokens"]
    most = setup["requests"]
    past: list[list[int]] = [[]]
    live: dict[int, int] = {}
    fresh = rid = 0

    def blocks() -> tuple[list[int], int]:
        nonlocal fresh
        base = rng.choice(past[-60:])
        kept = base[: rng.randint(0, len(base))] if rng.random() < 0.5 else base
        added = []
        for _ in range(rng.randint(0 if kept else 1, 4)):
            fresh += rng.random() < 0.7
            added.append(fresh)
        found = (kept + added)[: 24 * unit // size + 1]
        past.append(found)
        prompt = max(1, len(found) * size - rng.randint(0, 2 * size))
        return ([], prompt) if rng.random() < 0.1 else (found, prompt)

    def operation() -> Operation | None:
        nonlocal rid
        kind = rng.random()
        if kind < 0.26:
            known, prompt = blocks()
            told = [known, size if known else 0, prompt]
            if kind < 0.16 and len(live) < most:
                rid += 1
                live[rid] = rng.randint(2, 7)
                return ["start", rid, *told]
            return ["pass_by", 0, *told] if kind < 0.20 else ["probe", *told]
        if kind < 0.28:
            return ["evict", rng.choice((0, unit, 5 * unit, 20 * unit)), rng.choice((0, 0, 1, 3))]
        if not live:
            return None
        chosen = rng.choice(list(live))
        live[chosen] -= 1
        if kind < 0.31 or live[chosen] < 0:
            del live[chosen]
            return ["drop" if kind < 0.31 else "end", chosen]
        chunk, steps = (
            rng.choice((1, 2, 4, 5, 8)) * setup["page_size"] * rng.choice((1, setup["dcp"])),
            rng.choice((1, 3, unit, 3 * unit + 1)),
        )
        return ["step", chosen, chunk, steps, rng.random() < 0.1]

    while count:
        made = operation()
        if made is not None:
            count -= 1
            yield made
