"""Our parser beside the real one: every option, spelling, prefix and choice, and every kind of mistake."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from perilune.facts.flags import Option, catalog, options
from perilune.plan.commandline.occurrences import matching
from perilune.plan.resolve import parser
from perilune.plan.resolve.state import Rejected

from .compare import plain
from .conftest import reference

pytestmark = pytest.mark.conformance

SAMPLES: dict[str | None, tuple[str, ...]] = {
    "str": ("x", ""),
    "nullable_str": ("x", "None", ""),
    "int": ("7", "-3", " 8 ", "1_000", "0x10", "7.5", "x", ""),
    "float": ("0.5", "-1", "1e3", "nan", "inf", "x"),
    "human_readable_int": ("7", "32k", "1.5M", "4Ki", "1.5Ki", "2g", "-1", "x"),
    "json": ('{"a": [1, null]}', "NaN", "[", "x"),
    "json_list": ("[1, 2]", '{"a": 1}', "NaN", "[", "x"),
    "graph_backend": ("disabled", "tc_piecewise", "x"),
    "graph_config": (
        "{}",
        '{"prefill": {"backend": "breakable", "max_seq_len": 5}}',
        '{"decode": {"max_bs": 8, "bs": [1, 2]}}',
        '{"decode": {"max_seq_len": 5}}',
        '{"decode": {"backend": "tc_piecewise"}}',
        '{"verify": {}}',
        '{"decode": 1}',
        "[]",
        "{",
    ),
}


def lines_of(option: Option) -> Iterator[list[str]]:
    """Every way to write an option, right and wrong."""
    first = option.options[0]
    if not option.takes_value:
        yield from ([spelling] for spelling in option.options)
        yield [f"{first}=1"]
        yield [first, "1"]
        return
    values = [str(choice) for choice in option.choices or ()] or list(SAMPLES[option.type])
    for value in values:
        yield [first, value]
        yield [f"{first}={value}"]
    for spelling in option.options:
        yield [spelling, values[0]]
    yield [first]
    yield [first, values[0], values[0]]
    if option.choices:
        yield [first, "no-such-choice"]


def prefixes() -> Iterator[list[str]]:
    """Every prefix of every long option that is not an option itself, with one value."""
    seen = set()
    for spelling in options():
        for length in range(3, len(spelling)):
            prefix = spelling[:length]
            if prefix not in options() and prefix not in seen:
                seen.add(prefix)
                if len(matching(prefix)) <= 6 and "--help" not in matching(prefix):
                    yield [prefix, "1"]


def reference_lines() -> list[list[str]]:
    """The flags of the reference, right and wrong."""
    return [entry["flag"].split() for entry in reference("flags_results.json")]


MISTAKES = [
    ["--nonexistent-flag", "1"],
    ["--tp_size", "8"],
    ["--tp-size", "8", "stray"],
    ["--", "--tp-size", "8"],
    ["-x"],
    ["-t", "8"],
    ["--tp-size", "--dcp-size", "8"],
    ["--tp-size", "8", "--tp-size", "4"],
    ["--dcp-replicate-q-proj", "--no-dcp-replicate-q-proj"],
    ["--lora-paths", "a", ' {"lora_name": "n", "lora_path": "p"} '],
    ["--lora-paths", '{"lora_name": "n"}'],
    ["--lora-paths", "{x}"],
    ["--lora-paths"],
    ["--model-checksum"],
    ["--cuda-graph-bs-decode", "1", "2", "x"],
    ["--mem-fraction-static", "0.8", "0.9"],
    ["--host", "-1"],
    ["--host", "-x"],
    ["--host", "a b"],
    ["--host=-x"],
    ["--no-trust-remote-code"],
    ["--trust-remote-cod"],
    ["--mode", "x"],
]


def groups() -> dict[str, list[list[str]]]:
    """Lines to judge, in groups that are reported together."""
    written = [line for option in catalog().options if option.kind != "help" for line in lines_of(option)]
    return {"options": written, "prefixes": list(prefixes()), "mistakes": MISTAKES, "reference": reference_lines()}


CASES = [
    {"id": f"parser-{name}", "kind": "flags", "platform": "b300", "lines": lines} for name, lines in groups().items()
]


def ours(words: list[str]) -> dict[str, Any]:
    """What our parser says of one line, as the driver reports the real one."""
    unwritten = {option.dest: option.default for option in catalog().options} | {"model_path": "x"}
    try:
        written = parser.parse(words, model="x")
    except Rejected as rejection:
        return {"accepted": False, "error": rejection.message}
    changed = {name: plain(value) for name, value in written.items() if value != unwritten[name]}
    return {"accepted": True, "stored": changed}


UNORDERED = ("argument --sampling-backend: ", "argument --reasoning-parser: ")
"""Errors that list choices in no fixed order: a set, or from whichever module happens to be imported."""


def same(mine: dict[str, Any], theirs: dict[str, Any]) -> bool:
    """Whether two answers agree, as text (nan is not equal to itself)."""
    if mine.get("error", "").startswith(UNORDERED):
        return sorted(mine["error"]) == sorted(theirs.get("error", ""))
    return json.dumps(mine, sort_keys=True) == json.dumps(theirs, sort_keys=True)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_the_parser(case: dict[str, Any], verdict_of: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    wrong = []
    for words, theirs in zip(case["lines"], verdict_of(case)["verdicts"], strict=True):
        mine = ours(words)
        if not same(mine, theirs):
            wrong.append(f"{words}: engine {theirs}, ours {mine}")
    assert not wrong, f"{len(wrong)} of {len(case['lines'])} differ:\n" + "\n".join(wrong[:40])
    assert case["lines"]
