"""What the rules cover: every constraint and report has an answer, every rule an example, and the page is current."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from perilune.facts.flags import options
from perilune.facts.hardware import platform
from perilune.facts.history import history, release
from perilune.facts.rule_agreement import beyond_arguments
from perilune.facts.rule_coverage import Covered, coverage
from perilune.facts.rule_examples import examples
from perilune.plan.rules import FLEET_RULES, GROUPS, PAIR_RULES, apply_edits, subject_of
from perilune.plan.rules.refusals import KNOWN
from perilune.plan.rules.releases import before, lacks_flag, still_takes
from perilune.plan.rules.rule import COMPARED
from perilune.plan.rules.versions import newer_flag
from perilune.plan.server import Server

RULES = [*(rule for rules in GROUPS.values() for rule in rules), *PAIR_RULES, *FLEET_RULES]
IDS = {rule.id for rule in RULES} | {known.id for known in KNOWN}
ONLY_COMPOSED = {"unpublished"}


def test_every_rule_has_a_name_of_its_own_and_says_what_it_is_about() -> None:
    names = [rule.id for rule in RULES]
    assert len(names) == len(set(names))
    assert not [rule.id for rule in RULES if not rule.says.endswith(".")]
    assert not [rule.id for rule in RULES if not rule.source]


def test_every_rule_and_class_of_refusal_has_an_example() -> None:
    assert IDS - {example.id for example in examples()} == ONLY_COMPOSED
    assert {example.id for example in examples()} <= IDS


@pytest.mark.parametrize(("kind", "count"), [("constraints", 145), ("cases", 58)])
def test_every_constraint_and_report_is_judged_or_says_why_not(kind: str, count: int) -> None:
    found: dict[str, Covered] = dict(getattr(coverage(), kind))
    assert len(found) == count
    for name, one in found.items():
        assert bool(one.rules) != bool(one.by), name
        assert set(one.rules) <= IDS, name
        assert one.rules or one.why, name


def test_every_report_that_a_rule_judges_has_an_example() -> None:
    shown: dict[str, set[str]] = {}
    for example in examples():
        for case in example.cases:
            shown.setdefault(case, set()).add(example.id)
    judged = {name: one.rules for name, one in coverage().cases.items() if one.rules}
    assert set(shown) == set(judged)
    assert not {name for name, rules in judged.items() if not shown[name] & set(rules)}


def test_every_error_beyond_the_arguments_is_listed_with_its_reason() -> None:
    """Rules of one server with severity error, and classes of refusal that their examples meet after the arguments."""
    own = {rule.id for rules in GROUPS.values() for rule in rules if rule.severity == "error"} - {"engine-refuses"}
    refusals = {known.id for known in KNOWN}
    for example in examples():
        if example.id in refusals and example.trips is not None:
            found = subject_of(Server.parse(example.commands[0]), platform(example.at), engine=example.engine).ledger
            if found.resolved.accepted:
                own.add(example.id)
    assert set(beyond_arguments()) == own
    assert all(beyond_arguments().values())


def test_the_releases_name_flags_that_exist() -> None:
    found = history()
    assert set(found.options_since) <= set(options())
    assert not set(found.options_until) & set(options())
    assert set(found.options_since.values()) | set(found.options_until.values()) <= set(found.versions)
    assert [release(version) for version in found.versions] == sorted(release(v) or () for v in found.versions)


def test_the_releases_that_sources_name_are_those_compared() -> None:
    assert f"SGLang {history().versions[0]} to {history().versions[-1]}" == COMPARED


@pytest.mark.parametrize(
    ("engine", "takes_old", "lacks_new"),
    [
        ("0.5.18", True, True),
        ("0.5.19", True, False),
        ("0.5.20", False, False),
        ("0.5.23", False, False),
        ("main", False, False),
    ],
)
def test_a_release_decides_which_spellings_it_takes(engine: str, takes_old: bool, lacks_new: bool) -> None:
    assert still_takes(engine, "--mamba-scheduler-strategy") is takes_old
    assert bool(lacks_flag(engine, "--enable-shared-experts-attn-tp")) is lacks_new


@pytest.mark.parametrize(
    ("engine", "written", "for_it"),
    [
        ("0.5.21", "--attn-dp-size 4", "--dp-size 4 --enable-dp-attention"),
        ("0.5.22", "--enable-hicache", "--enable-hierarchical-cache"),
        ("0.5.18", "--enable-dense-mlp-attn-tp", ""),
        ("0.5.22", "--attn-dp-size 4", "--attn-dp-size 4"),
    ],
)
def test_a_flag_is_written_as_the_release_takes_it(engine: str, written: str, for_it: str) -> None:
    """Which release has which name was read off the argument fields of each release's wheel."""
    model = "sglang serve --model-path moonshotai/Kimi-K3 --tp-size 8"
    subject = subject_of(Server.parse(f"{model} {written}"), platform("b300"), engine=engine)
    edits = [edit for finding in newer_flag(subject) for edit in finding.edits]
    assert apply_edits(subject.server, edits) == Server.parse(f"{model} {for_it}".strip())


def test_a_variable_that_the_release_reads_counts_as_the_flag_of_today() -> None:
    server = Server.parse("SGLANG_K3_SHARED_EXPERTS_ATTN_TP=1 --model-path moonshotai/Kimi-K3 --tp-size 8")
    old, new = (subject_of(server, platform("b300"), engine=engine) for engine in ("0.5.18", "0.5.23"))
    assert old["enable_shared_experts_attn_tp"]
    assert not new["enable_shared_experts_attn_tp"]


def test_releases_compare_as_numbers() -> None:
    assert before("0.5.9", "0.5.10")
    assert before("v0.5.17", "0.5.18.post1")
    assert not before("0.5.23", "0.5.23")
    assert not before("nightly", "0.5.23")


def script() -> ModuleType:
    path = Path(__file__).resolve().parent.parent / "scripts" / "rules_doc.py"
    spec = importlib.util.spec_from_file_location("rules_doc", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_current() -> None:
    found = script()
    assert found.PAGE.read_text(encoding="utf-8") == found.page(), "run scripts/rules_doc.py"
