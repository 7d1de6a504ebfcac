"""What a rehearsal found, for people and for programs: text, JSON, HTML, pictures, a trace, a comparison."""

from __future__ import annotations

from perilune.rehearse.report.document import document
from perilune.rehearse.report.rehearsal import PoolFacts, Rehearsal, facts_of
from perilune.rehearse.report.summary import summary

__all__ = ["PoolFacts", "Rehearsal", "document", "facts_of", "summary"]
