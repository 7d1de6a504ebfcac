"""WEKA kv-cache-tester sessions: recorded coding agents, one JSON document a session, with nested sub-agents.

A document is a file; a folder of them, or one document a line, are read as well. Block ids hold within their session
alone. A prompt has an id for each full block, so its last tokens have none.

What the format leaves unsaid was taken from the published sessions. A sub-agent's `t` is the instant it was *done*:
`t` minus its duration lies within a second of the end of the turn that called it, in every session that has one. Inner
calls count from the sub-agent's own start. Sub-agents of one turn ran side by side, and the caller's next think time
contains them; so a sub-agent is rehearsed as a chain of its own that starts when it was recorded to start.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Literal

import msgspec

from perilune.errors import UnusableInput
from perilune.files import unusable
from perilune.rehearse.request import Request
from perilune.rehearse.traces.blocks import LOCAL_BITS, Shared, fitting
from perilune.rehearse.traces.jsonl import objects, spoken
from perilune.rehearse.traces.source import DOCUMENT_BYTES, Source
from perilune.rehearse.traces.turns import chained

FIELDS: Final = ("t", "in", "out")
MOST_FILES: Final = 100_000


class Normal(msgspec.Struct, tag_field="type", tag="n"):
    """One call of the model."""

    t: float
    isl: int = msgspec.field(name="in")
    osl: int = msgspec.field(name="out")
    hash_ids: tuple[int, ...] = ()
    api_time: float | None = None
    think_time: float | None = None


class Streaming(Normal, tag_field="type", tag="s"):
    """One call whose answer was streamed."""


class Subagent(msgspec.Struct, tag_field="type", tag="subagent"):
    """An agent that a turn started, and its calls."""

    t: float
    requests: tuple[Normal | Streaming, ...]
    duration_ms: float | None = None


class Session(msgspec.Struct):
    """One document."""

    requests: tuple[Normal | Streaming | Subagent, ...]
    block_size: int
    hash_id_scope: Literal["local", "global"] = "local"
    tool_tokens: int = 0
    system_tokens: int = 0


_DECODER: Final = msgspec.json.Decoder(Session)


def read(source: Source, *, share_prefix: bool = False) -> Iterator[Request]:
    """The first turns of a file or a folder, session by session, arrivals counted from the session's start.

    With `share_prefix`, sessions with equal counts of tool and system tokens are taken to have these prompts in common.
    """
    shared = Shared() if share_prefix else None
    number = 0
    for place in _files(source):
        for session in _documents(place):
            yield from _heads(place, session, number, shared)
            number += 1
        source.empty += place.empty


def _files(source: Source) -> Iterator[Source]:
    """The file itself, or the JSON files of a folder by name."""
    if not source.path.is_dir():
        yield source
        return
    try:
        paths = sorted(path for path in source.path.iterdir() if path.name.endswith((".json", ".json.gz")))
    except OSError as error:
        raise unusable(source.path, error) from None
    if not paths:
        raise UnusableInput("The folder holds no session: no *.json or *.json.gz.", where=str(source.path))
    if len(paths) > MOST_FILES:
        raise UnusableInput(f"The folder holds more than {MOST_FILES:,} files.", where=str(source.path))
    for path in paths:
        yield Source(Path(path), source.notes)


def _documents(source: Source) -> Iterator[Session]:
    """One document over many lines, or one a line."""
    if not _indented(source.path):
        yield from objects(source, _DECODER, DOCUMENT_BYTES)
        return
    taken: list[bytes] = []
    room = DOCUMENT_BYTES
    for raw in source.lines():
        taken.append(raw)
        room -= len(raw)
        if room < 0:
            raise source.bad(f"The session is longer than the {DOCUMENT_BYTES:,} bytes it may have.")
    try:
        yield _DECODER.decode(b"".join(taken))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise source.bad(f"The file is no session: {spoken(error)}.") from None
    except RecursionError:
        raise source.bad("The file is nested too deeply.") from None


def _indented(path: Path) -> bool:
    """Whether the first line is only the beginning of the document."""
    for raw in Source(path).lines(DOCUMENT_BYTES):
        return not raw.rstrip().endswith(b"}")
    raise UnusableInput("The file is empty.", where=str(path))


def _heads(source: Source, session: Session, number: int, shared: Shared | None) -> Iterator[Request]:
    """The first turn of the agent and of each sub-agent, in order of start."""
    if session.block_size < 1:
        raise source.bad("A block has a token or more.", field="block_size")
    ids = _ids(source, session, number, shared)
    main: list[Normal | Streaming] = []
    chains: list[tuple[float, tuple[Normal | Streaming, ...]]] = []
    for entry in session.requests:
        if isinstance(entry, Subagent):
            called = _end(main[-1]) if main else 0.0
            chains.append((_start(source, entry, called), entry.requests))
        else:
            main.append(entry)
    chains.append((0.0, tuple(main)))
    heads = [chained(_turns(source, start, calls, session.block_size, number, ids)) for start, calls in chains]
    yield from sorted((head for head in heads if head is not None), key=lambda head: head.arrival_s)


def _turns(
    source: Source, start: float, calls: tuple[Normal | Streaming, ...], block_tokens: int, session: int, ids: _Ids
) -> Iterator[Request]:
    before: Normal | None = None
    for call in calls:
        if before is None:
            wait = call.t if call.t >= start else start + call.t
        elif call.think_time is not None:
            wait = call.think_time
        else:
            wait = max(0.0, call.t - _end(before))
        if source.usable(FIELDS, wait, call.isl, call.osl):
            blocks = fitting(source, ids.of(call), block_tokens, call.isl + call.osl)
            yield Request(wait, call.isl, call.osl, blocks, block_tokens, session=session)
            before = call


def _start(source: Source, agent: Subagent, called: float) -> float:
    """When a sub-agent began: its duration before it was done, if that is after the call; else the instant given."""
    if agent.duration_ms is None:
        return agent.t
    if not math.isfinite(agent.duration_ms) or agent.duration_ms < 0:
        raise source.bad("A duration is 0 or more.", field="duration_ms")
    start = agent.t - agent.duration_ms / 1000
    return max(start, 0.0) if start > called - 1 else agent.t


def _end(call: Normal) -> float:
    return call.t + (call.api_time or 0.0)


class _Ids:
    """What the block ids of one session are in the whole trace."""

    __slots__ = ("_base", "_common", "_source")

    def __init__(self, source: Source, base: int, common: dict[int, int]) -> None:
        self._source, self._base, self._common = source, base, common

    def of(self, call: Normal) -> tuple[int, ...]:
        ids = call.hash_ids
        if not self._base:
            return ids
        if ids and not 0 <= min(ids) <= max(ids) < 1 << LOCAL_BITS:
            raise self._source.bad(f"A local id is 0 to 2**{LOCAL_BITS} - 1.", field="hash_ids")
        base, common = self._base, self._common
        if not common:
            return tuple([base + number for number in ids])
        return tuple([common.get(number, base + number) for number in ids])


def _ids(source: Source, session: Session, number: int, shared: Shared | None) -> _Ids:
    base = 0 if session.hash_id_scope == "global" else (number + 1) << LOCAL_BITS
    first = next((entry for entry in session.requests if not isinstance(entry, Subagent)), None)
    if shared is None or not base or first is None:
        return _Ids(source, base, {})
    tools = max(0, session.tool_tokens) // session.block_size
    both = max(0, session.tool_tokens + session.system_tokens) // session.block_size
    prefix = first.hash_ids[:both]
    common = shared.ids(("tools", session.block_size, session.tool_tokens), min(tools, len(prefix)))
    key = ("system", session.block_size, session.tool_tokens, session.system_tokens)
    common += shared.ids(key, len(prefix))[len(common) :]
    return _Ids(source, base, dict(zip(prefix, common, strict=True)))
