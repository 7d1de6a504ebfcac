"""Reading what people keep their servers in: scripts, images, manifests, recipes."""

from __future__ import annotations

from perilune.plan.sources.found import Found, Note, Reading, Word
from perilune.plan.sources.read import read_file, read_source
from perilune.plan.sources.text import Text, read_text

__all__ = ["Found", "Note", "Reading", "Text", "Word", "read_file", "read_source", "read_text"]
