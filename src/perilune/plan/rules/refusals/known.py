"""One class of refusal: the text it answers, what it means in plain words, and the edit that gets past it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from perilune.plan.memory import Ledger
from perilune.plan.server import Server

ATTENTION = ("--attention-backend", "--decode-attention-backend", "--prefill-attention-backend")
SPECULATION = (
    "--speculative-algorithm",
    "--speculative-draft-model-path",
    "--speculative-dspark-block-size",
    "--speculative-dflash-block-size",
    "--speculative-num-draft-tokens",
    "--speculative-num-steps",
    "--speculative-eagle-topk",
    "--speculative-draft-attention-backend",
    "--enable-linear-replayssm-spec",
)

Remedy = Callable[[Server, Ledger], Server]
Applies = Callable[[Ledger], bool]


def always(_: Ledger) -> bool:
    """Every ledger."""
    return True


@dataclass(frozen=True, slots=True)
class Known:
    """One class of refusal: the error it answers, why the engine refuses, the edit in words, and the edit.

    `remedy` is None where nothing can be changed without knowing what was meant.
    """

    id: str
    error: re.Pattern[str]
    why: str
    says: str = ""
    remedy: Remedy | None = None
    flags: tuple[str, ...] = ()
    applies: Applies = always  # tells causes apart that share one text

    def answers(self, error: str, found: Ledger) -> bool:
        """Whether a refusal is of this class."""
        return bool(self.error.search(error)) and self.applies(found)


def known(
    name: str,
    error: str,
    why: str,
    says: str = "",
    remedy: Remedy | None = None,
    flags: tuple[str, ...] = (),
    applies: Applies = always,
) -> Known:
    """A class of refusal; `error` is a regular expression."""
    return Known(name, re.compile(error), why, says, remedy, flags, applies)


def write(flag: str, value: str | None = None) -> Remedy:
    """Write a flag."""
    return lambda server, _: server.set(flag, value)


def unset(*flags: str) -> Remedy:
    """Remove flags."""

    def edit(server: Server, _: Ledger) -> Server:
        for flag in flags:
            server = server.unset(flag)
        return server

    return edit


def unset_env(name: str) -> Remedy:
    """Remove a variable."""
    return lambda server, _: server.with_env({name: None})


def then(*remedies: Remedy) -> Remedy:
    """One remedy after the other."""

    def edit(server: Server, found: Ledger) -> Server:
        for remedy in remedies:
            server = remedy(server, found)
        return server

    return edit


def refusal(found: Ledger) -> str:
    """The engine's text, empty when it boots."""
    return found.error or found.allocation_error or ""
