"""Which tool wrote a file, and the runs in it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from perilune.errors import UnusableInput
from perilune.files import read_capped
from perilune.rehearse.calibration.results import aiperf, bench_serving, guidellm
from perilune.rehearse.calibration.results.result import MOST_TOKENS, Entry, Result

MOST_BYTES = 256 * 1024 * 1024
MOST_RUNS = 1000
KNOWN = "Known: sglang.bench_serving JSONL, aiperf profile_export_aiperf.json, guidellm benchmarks.json."


def read_results(path: Path) -> tuple[Result, ...]:
    """The runs of a results file; raises UnusableInput naming file, line and field."""
    raw = read_capped(path, MOST_BYTES)
    found: list[Result] = []
    for entry in _documents(raw, path.name):
        found.extend(_checked(one) for one in _runs(entry))
        if len(found) > MOST_RUNS:
            raise UnusableInput(f"The file holds more than {MOST_RUNS:,} runs.", where=path.name)
    if not found:
        raise UnusableInput("The file holds no run.", where=path.name, fix=KNOWN)
    return tuple(found)


def _checked(result: Result) -> Result:
    for name, tokens in (("input", result.isl), ("output", result.osl)):
        if not 1 <= tokens <= MOST_TOKENS:
            raise UnusableInput(f"The mean {name} length of {tokens:,} tokens cannot be used.", where=result.source)
    return result


def _runs(entry: Entry) -> Iterator[Result]:
    if guidellm.MARK in entry.values:
        yield from guidellm.results(entry)
    elif any(mark in entry.values for mark in bench_serving.MARKS):
        yield bench_serving.result(entry)
    elif all(mark in entry.values for mark in aiperf.MARKS):
        yield aiperf.result(entry)
    else:
        raise UnusableInput("No known load tool writes such a file.", where=entry.where, fix=KNOWN)


def _documents(raw: bytes, name: str) -> Iterator[Entry]:
    """The whole file as one JSON document, or a document a line. bench_serving writes infinite rates as `Infinity`."""
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        raise UnusableInput("The text is not UTF-8.", where=f"{name}, byte {error.start}") from None
    lines = [(number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
    if len(lines) > 1 and not _is_document(lines[0][1]):
        lines = [(1, text)]
    for number, line in lines:
        where = name if len(lines) == 1 else f"{name}, line {number}"
        yield Entry(_mapping(line, where), where)


def _is_document(line: str) -> bool:
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True


def _mapping(text: str, where: str) -> Mapping[str, Any]:
    try:
        value = json.loads(text)
    except RecursionError:
        raise UnusableInput("It is nested too deeply to read.", where=where) from None
    except ValueError as error:
        place = (
            f"{where}, line {error.lineno}"
            if isinstance(error, json.JSONDecodeError) and "line" not in where
            else where
        )
        reason = error.msg if isinstance(error, json.JSONDecodeError) else str(error)
        raise UnusableInput(f"It cannot be read as JSON ({reason}).", where=place, fix=KNOWN) from None
    if not isinstance(value, dict):
        raise UnusableInput("It is no JSON object.", where=where, fix=KNOWN)
    return value
