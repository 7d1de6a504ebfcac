"""What composed commands leave to the reader."""

from __future__ import annotations

from collections.abc import Iterator

from perilune.plan.rules.rule import Says, rule
from perilune.plan.rules.subject import Subject


@rule("unpublished", "advice", "published recipes")
def unpublished(s: Subject) -> Iterator[Says]:
    """A value that no source publishes stands as a placeholder in the command."""
    for unknown in s.unpublished:
        assumed = f" The figures below assume {unknown.assume}: {unknown.because}" if unknown.assume else ""
        yield Says(
            f"{unknown.flag}: {unknown.what}{assumed}",
            f"Replace {unknown.placeholder} before you start.",
            (unknown.flag,),
        )
