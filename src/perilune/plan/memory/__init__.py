"""The memory ledger: what every byte of one GPU is for, and how many requests a server admits."""

from __future__ import annotations

from perilune.plan.memory.explain import derive
from perilune.plan.memory.figures import Basis, Figure
from perilune.plan.memory.ledger import Ledger, Range, StageLedger, Workload, ledger
from perilune.plan.memory.notices import Notice, NoticeKind
from perilune.plan.memory.pools import Binds
from perilune.plan.memory.predict import Measured
from perilune.plan.memory.split import Demand, Split, split_for

__all__ = [
    "Basis",
    "Binds",
    "Demand",
    "Figure",
    "Ledger",
    "Measured",
    "Notice",
    "NoticeKind",
    "Range",
    "Split",
    "StageLedger",
    "Workload",
    "derive",
    "ledger",
    "split_for",
]
