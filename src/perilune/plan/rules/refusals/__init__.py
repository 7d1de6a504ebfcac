"""The engine's own refusals by subject: what each means in plain words, and the edit that gets past it."""

from __future__ import annotations

from perilune.plan.memory import Ledger
from perilune.plan.rules.refusals.context import CONTEXT
from perilune.plan.rules.refusals.fallback import FALLBACK
from perilune.plan.rules.refusals.kernels import KERNELS
from perilune.plan.rules.refusals.known import Known, refusal
from perilune.plan.rules.refusals.memory import MEMORY
from perilune.plan.rules.refusals.parallelism import PARALLELISM
from perilune.plan.rules.refusals.speculation import REFUSED
from perilune.plan.rules.refusals.spelling import SPELLING
from perilune.plan.rules.refusals.state import STATE

__all__ = ["KNOWN", "Known", "known_refusal", "refusal"]

KNOWN: tuple[Known, ...] = (*SPELLING, *MEMORY, *REFUSED, *STATE, *CONTEXT, *KERNELS, *PARALLELISM, *FALLBACK)


def known_refusal(error: str, found: Ledger, helped: Known | None) -> Known | None:
    """The class an error belongs to. Of several with one id, the one that `helped`, else the last, which asks most."""
    answers = [known for known in KNOWN if known.answers(error, found)]
    alike = [known for known in answers if known.id == answers[0].id]
    return None if not alike else helped if helped in alike else alike[-1]
