"""TraceLab rounds of coding agents: JSON lines, a round each, with how much of the prompt was cached.

There are no block ids: ids are made that repeat as much of the round before, with its answer, as was recorded. A round
is sent at its latest input event and answered at its latest output event; its output tokens hold the reasoning. Rounds
are kept in a few numbers each, all of them at once: nothing says that the rounds of a session stand together.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import msgspec

from perilune.plan.display import counted
from perilune.rehearse.request import Request
from perilune.rehearse.traces.azure import instant
from perilune.rehearse.traces.blocks import Minter, Shared
from perilune.rehearse.traces.jsonl import objects
from perilune.rehearse.traces.source import Source
from perilune.rehearse.traces.turns import chained

BLOCK_TOKENS: Final = 64
FIELDS: Final = ("timing_events", "input_tokens_total", "output_tokens")
INPUTS: Final = frozenset({"user_message", "tool_result"})
OUTPUTS: Final = frozenset({"text", "reasoning", "tool_call"})
MOST_ROUNDS: Final = 5_000_000


class Event(msgspec.Struct):
    """Something that happened in a round."""

    event_type: str
    timestamp: str | None = None


class Row(msgspec.Struct):
    """One line."""

    session_id: str
    input_tokens_total: int | None
    prefix_tokens: int | None
    output_tokens: int | None
    timing_events: tuple[Event, ...]
    provider: str = ""
    round_index: int = 0


class _Round(NamedTuple):
    sent_s: float
    number: int
    answered_s: float
    isl: int
    osl: int
    cached: int


_DECODER: Final = msgspec.json.Decoder(Row)


def read(source: Source, *, share_prefix: bool = False) -> Iterator[Request]:
    """The first rounds of the sessions by start, arrivals in seconds since 1970.

    With `share_prefix`, what a first round found cached is taken to be common to all sessions of its provider.
    """
    sessions: dict[tuple[str, str], list[_Round]] = {}
    count = undated = 0
    for row in objects(source, _DECODER):
        count += 1
        if count > MOST_ROUNDS:
            raise source.bad(f"More than {MOST_ROUNDS:,} rounds cannot be held.", fix="Split the file by session.")
        sent, answered = _instants(source, row, INPUTS), _instants(source, row, OUTPUTS)
        if not sent and not answered:
            undated += 1
            continue
        sent_s = max(sent) if sent else min(answered)
        isl, osl, cached = row.input_tokens_total or 0, row.output_tokens or 0, row.prefix_tokens or 0
        if not 0 <= cached <= max(isl, 0):
            raise source.bad("The cached tokens are 0 to the prompt's.", field="prefix_tokens")
        if source.usable(FIELDS, sent_s, isl, osl):
            rounds = sessions.setdefault((row.provider, row.session_id), [])
            rounds.append(_Round(sent_s, row.round_index, max(sent_s, *answered, sent_s), isl, osl, cached))
    if undated:
        source.notes.append(f"{counted(undated, 'round')} left out: no event tells when they were sent")
    shared = Shared() if share_prefix else None
    for rounds in sessions.values():
        rounds.sort(key=lambda each: (each.sent_s, each.number))
    ordered = sorted(sessions.items(), key=lambda item: item[1][0].sent_s)
    for number, ((provider, _), rounds) in enumerate(ordered):
        prefix = () if shared is None else shared.ids((provider,), rounds[0].cached // BLOCK_TOKENS)
        head = chained(_turns(rounds, prefix, number))
        if head is not None:
            yield head


def _turns(rounds: list[_Round], prefix: tuple[int, ...], session: int) -> Iterator[Request]:
    minter = Minter(session)
    ids, done_s = prefix, 0.0
    for each in rounds:
        ids = minter.extend(ids[: each.cached // BLOCK_TOKENS], (each.isl + each.osl) // BLOCK_TOKENS)
        yield Request(max(0.0, each.sent_s - done_s), each.isl, each.osl, ids, BLOCK_TOKENS, session=session)
        done_s = each.answered_s


def _instants(source: Source, row: Row, kinds: frozenset[str]) -> list[float]:
    return [
        instant(source, event.timestamp, "timing_events")
        for event in row.timing_events
        if event.timestamp and event.event_type in kinds
    ]
