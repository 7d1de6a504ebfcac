"""WEKA sessions flattened to CSV: a row a call, with how much of its prompt was cached instead of block ids.

Rows of one session follow one another; a sub-agent's rows come after the turn that called it, and their times count
from its start. Ids are made so that each prompt repeats as much of the prompt and answer before it as was recorded.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from perilune.rehearse.request import Request
from perilune.rehearse.traces.blocks import Minter
from perilune.rehearse.traces.source import Source
from perilune.rehearse.traces.table import real, table, whole
from perilune.rehearse.traces.turns import chained

BLOCK_TOKENS: Final = 64
FIELDS: Final = ("t_s", "input_tokens", "output_tokens")
COLUMNS: Final = ("trace", "subagent", *FIELDS, "prefix_hit_tokens", "api_time_s", "think_time_s")


@dataclass(slots=True)
class _Session:
    """The session that is being read."""

    name: str
    minter: Minter
    chains: dict[str, list[Request]] = field(default_factory=dict)
    ids: dict[str, tuple[int, ...]] = field(default_factory=dict)  # of the latest prompt of each chain
    helper: tuple[int, ...] = ()  # of the first prompt of the latest sub-agent
    done_s: float = 0.0  # when the agent's own latest turn was answered

    def cached(self, agent: str) -> tuple[int, ...]:
        """The prompt that the next one of an agent repeats: its own latest, or how a sub-agent before it began."""
        return self.ids.get(agent, self.helper if agent else ())


def read(source: Source) -> Iterator[Request]:
    """The first turns, session by session, arrivals counted from the session's start."""
    session = _Session("", Minter(0))
    number = -1
    for trace, agent, t, asked, answered, hit, api, think in table(source, COLUMNS):
        if trace != session.name or number < 0:
            yield from _heads(session)
            number += 1
            session = _Session(trace, Minter(number))
        t_s, api_s = real(source, t, FIELDS[0]), real(source, api, "api_time_s")
        isl, osl = whole(source, asked, FIELDS[1]), whole(source, answered, FIELDS[2])
        cached = whole(source, hit, "prefix_hit_tokens")
        if not 0 <= cached <= isl:
            raise source.bad("The cached tokens are 0 to the prompt's.", field="prefix_hit_tokens")
        chain = session.chains.setdefault(agent, [])
        wait = real(source, think, "think_time_s") if chain else t_s + (session.done_s if agent else 0.0)
        if not source.usable(FIELDS, wait, isl, osl):
            continue
        blocks = session.minter.extend(session.cached(agent)[: cached // BLOCK_TOKENS], (isl + osl) // BLOCK_TOKENS)
        chain.append(Request(wait, isl, osl, blocks, BLOCK_TOKENS, session=number))
        session.ids[agent] = blocks
        if agent and len(chain) == 1:
            session.helper = blocks
        if not agent:
            session.done_s = t_s + api_s
    yield from _heads(session)


def _heads(session: _Session) -> Iterator[Request]:
    heads = [chained(chain) for chain in session.chains.values()]
    yield from sorted((head for head in heads if head is not None), key=lambda head: head.arrival_s)
