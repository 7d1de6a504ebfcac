"""The formats of traces, and how to tell them from the first lines of a file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final, Literal

import msgspec

from perilune.errors import UnusableInput
from perilune.rehearse.request import Request
from perilune.rehearse.traces import azure, bailian, burstgpt, mooncake, plain, tracelab, vidur, weka, weka_table
from perilune.rehearse.traces.source import DOCUMENT_BYTES, Source
from perilune.rehearse.traces.table import header

Clock = Literal["requests", "sessions", "none"]

_OBJECT: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])


@dataclass(frozen=True, slots=True)
class Format:
    """One format: `clock` says what has a common clock, the requests, only the turns of a session, or nothing."""

    name: str
    about: str
    read: Callable[[Source, bool], Iterator[Request]]  # the flag: sessions share their prefix
    time_field: str
    clock: Clock = "requests"
    sessions: bool = False  # yields first turns, linked to the later ones
    columns: frozenset[str] = frozenset()  # that tell a table of this format
    keys: frozenset[str] = frozenset()  # that tell an object of this format


def _flat(read: Callable[[Source], Iterator[Request]]) -> Callable[[Source, bool], Iterator[Request]]:
    return lambda source, _: read(source)


FORMATS: Final = {
    each.name: each
    for each in (
        Format(
            "mooncake",
            "Mooncake JSON lines (FAST'25)",
            _flat(mooncake.read),
            mooncake.FIELDS[0],
            keys=frozenset({"timestamp", "input_length", "output_length"}),
        ),
        Format(
            "bailian",
            "Qwen-Bailian JSON lines",
            _flat(bailian.read),
            bailian.FIELDS[0],
            keys=frozenset({"chat_id", "timestamp", "input_length", "output_length"}),
        ),
        Format(
            "azure",
            "Azure LLM inference CSV, 2023 and 2024",
            _flat(azure.read),
            azure.FIELDS[0],
            columns=frozenset(azure.FIELDS),
        ),
        Format(
            "burstgpt",
            "BurstGPT CSV, 1 to 3",
            _flat(burstgpt.read),
            burstgpt.FIELDS[0],
            columns=frozenset(burstgpt.FIELDS),
        ),
        Format(
            "weka",
            "WEKA sessions, a JSON document each: a file, a folder, or one a line",
            lambda source, share: weka.read(source, share_prefix=share),
            weka.FIELDS[0],
            clock="sessions",
            sessions=True,
            keys=frozenset({"requests", "block_size"}),
        ),
        Format(
            "weka-csv",
            "WEKA sessions flattened to CSV",
            _flat(weka_table.read),
            weka_table.FIELDS[0],
            clock="sessions",
            sessions=True,
            columns=frozenset(weka_table.COLUMNS),
        ),
        Format(
            "tracelab",
            "TraceLab JSON lines",
            lambda source, share: tracelab.read(source, share_prefix=share),
            tracelab.FIELDS[0],
            sessions=True,
            keys=frozenset({"session_id", "input_tokens_total", "prefix_tokens", "timing_events"}),
        ),
        Format(
            "vidur",
            "Vidur CSV",
            _flat(vidur.read),
            vidur.FIELDS[0],
            clock="none",
            columns=frozenset(vidur.FIELDS[1:]),
        ),
        Format(
            "csv",
            "plain CSV: isl, osl, arrival_s, ...",
            _flat(plain.read_csv),
            plain.FIELDS[0],
            columns=frozenset(plain.FIELDS[1:]),
        ),
        Format(
            "jsonl",
            "plain JSON lines: isl, osl, arrival_s, ...",
            _flat(plain.read_jsonl),
            plain.FIELDS[0],
            keys=frozenset(plain.FIELDS[1:]),
        ),
    )
}


def named(name: str) -> Format:
    """The format of that name; raises UnusableInput for an unknown one."""
    if name not in FORMATS:
        raise UnusableInput(f"There is no trace format {name!r}; there are {', '.join(FORMATS)}.", where="trace format")
    return FORMATS[name]


def sniff(path: Path) -> Format:
    """The format of a trace, from its first line; raises UnusableInput when none fits or the file cannot be read."""
    if path.is_dir():
        return FORMATS["weka"]
    source = Source(path)
    for raw in source.lines(DOCUMENT_BYTES):
        line = raw.strip()
        if line:
            break
    else:
        raise UnusableInput("The file is empty.", where=str(path))
    if not line.startswith(b"{"):
        names = set(header(Source(path)))
        found = _of(lambda each: bool(each.columns) and each.columns <= names)
        hint = f"columns {', '.join(sorted(names))[:200]}"
    else:
        keys = _keys(path, line)
        found = _of(lambda each: bool(each.keys) and each.keys <= keys)
        hint = f"keys {', '.join(sorted(keys))[:200]}" if keys else "a first line that is no JSON object"
    if found is None:
        raise UnusableInput(
            f"No trace format is like this file, with {hint}.",
            where=str(path),
            fix=f"Name one of {', '.join(FORMATS)}.",
        )
    return found


def _of(fits: Callable[[Format], bool]) -> Format | None:
    """The format that fits; of several, the one that asks for most."""
    fitting = [each for each in FORMATS.values() if fits(each)]
    return max(fitting, key=lambda each: len(each.columns | each.keys), default=None)


def _keys(path: Path, line: bytes) -> set[str]:
    """The keys of the first object; of a document over many lines, those that begin its first lines."""
    try:
        return set(_OBJECT.decode(line))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        begun = b" ".join(raw.strip() for raw in islice(Source(path).lines(), 200))
        return {key for key in ("requests", "block_size") if f'"{key}"'.encode() in begun}
