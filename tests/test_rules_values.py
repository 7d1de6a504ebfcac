"""Numbers that a flag takes and a server may not have: each ends in findings that say what to do."""

from __future__ import annotations

import random

import pytest

from perilune.facts.flags import Option, options
from perilune.facts.hardware import platform, platforms
from perilune.plan.rules import Finding, Subject, apply_edits, findings_of, subject_of
from perilune.plan.server import Server

K3 = "sglang serve --model-path moonshotai/Kimi-K3 --tp-size 8"
VALUES = ("0", "-1", "1.5", "1000000000", str(10**30), "nan", "inf")
NUMERIC = [o for name, o in options().items() if o.name == name and o.type in ("int", "float", "human_readable_int")]
BESIDE = (
    "--disaggregation-mode prefill",
    "--disaggregation-mode decode",
    "--speculative-algorithm DSPARK --speculative-draft-model-path RadixArk/Kimi-K3-DSpark",
    "--disable-radix-cache",
    "--enable-hierarchical-cache",
    "--model-path moonshotai/Kimi-Linear-48B-A3B-Instruct",
)
ROUNDS = 8


def errors_of(subject: Subject) -> list[Finding]:
    return [finding for finding in findings_of(subject) if finding.severity == "error"]


@pytest.mark.parametrize("option", NUMERIC, ids=lambda option: option.name)
def test_every_number_is_judged_and_what_is_wrong_can_be_fixed(option: Option) -> None:
    for value in VALUES:
        server = Server.parse(f"{K3} {option.name}={value}")
        errors = errors_of(subject_of(server, platform("b300")))
        for _ in range(ROUNDS):
            if not errors:
                break
            assert all(error.fix for error in errors), (value, errors)
            edits = [edit for error in errors for edit in error.edits]
            if not edits:  # nobody can tell which node it is meant to be
                assert {error.id for error in errors} == {"node-rank-range"}
                return
            server = apply_edits(server, edits)
            errors = errors_of(subject_of(server, platform("b300")))
        assert not errors, (value, server, errors)


@pytest.mark.parametrize("seed", range(4))
def test_numbers_beside_each_other_never_stop_the_judging(seed: int) -> None:
    draw = random.Random(seed)
    for _ in range(100):
        words = [K3, *draw.sample(BESIDE, draw.randint(0, 2))]
        words += [f"{option.name}={draw.choice(VALUES)}" for option in draw.sample(NUMERIC, draw.randint(1, 4))]
        where = platform(draw.choice(list(platforms())))
        subject = subject_of(Server.parse(" ".join(words)), where)
        assert all(error.fix for error in errors_of(subject)), words
        for one in subject.absurd:
            assert not subject.known.has(one.name)


@pytest.mark.parametrize(
    ("flags", "fix"),
    [
        ("--mem-fraction-static 1.5", "Remove --mem-fraction-static."),
        ("--tp-size 0", "Write --tp-size 8."),
        ("--tp-size 0 --nnodes 2 --dist-init-addr 10.0.0.1:20000", "Write --tp-size 16."),
        ("--nnodes -1", "Remove --nnodes."),
        ("--page-size 0", "Remove --page-size."),
        ("--cuda-graph-max-bs-decode 1000000000", "Remove --cuda-graph-max-bs-decode."),
        ("--cuda-graph-max-bs-prefill 1000000000 --cuda-graph-max-bs-decode 64", "Remove --cuda-graph-max-bs-prefill."),
        ('--cuda-graph-config \'{"decode": {"max_bs": "many"}}\'', "Remove --cuda-graph-config."),
        ("--pp-size 1000 --model-path moonshotai/Kimi-Linear-48B-A3B-Instruct", "Remove --pp-size."),
    ],
)
def test_an_absurd_value_is_an_error_that_says_what_to_write(flags: str, fix: str) -> None:
    found = errors_of(subject_of(Server.parse(f"{K3} {flags}"), platform("b300")))
    assert [(finding.id, finding.fix) for finding in found] == [("value-absurd", fix)]


def test_a_variable_is_judged_as_a_value() -> None:
    server = Server.parse(f"SGLANG_PP_LAYER_PARTITION=40,53 {K3} --tp-size 2 --pp-size 4")
    (found,) = errors_of(subject_of(server, platform("b300")))
    assert found.fix == "Remove SGLANG_PP_LAYER_PARTITION."


@pytest.mark.parametrize(
    ("command", "severities"),
    [
        ("sglang serve --tp-size 8", ["error"]),
        ("python3 -m sglang.launch_server --tp-size 8", ["error"]),
        ("--tp-size 8", ["advice"]),  # perhaps not the whole command
        ("sglang serve --tp-size 8 --model-path '$MODEL'", []),
        ("sglang serve moonshotai/Kimi-K3 --tp-size 8", []),
        ("sglang serve --tp-size 8 --config /nowhere/else.yaml", []),
        (K3, []),
    ],
)
def test_a_server_is_told_its_model(command: str, severities: list[str]) -> None:
    found = findings_of(subject_of(Server.parse(command), platform("b300"), expands=True))
    assert [finding.severity for finding in found if finding.id == "model-missing"] == severities
