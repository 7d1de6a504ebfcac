"""Where a text names the program of a server: to start it, or only to speak of it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from perilune.plan.sources.found import Word

MOST_LOOKED_AT = 8_192  # characters
LAUNCHER = re.compile(r"\bsglang\s+serve\b|\bsglang\.(?:launch_server|cli\.main)\b|\bdynamo\.sglang\b")
MENTION = re.compile(
    r"\bsglang(?:\s+|[\"']?\s*,\s*[\"']?|[\"']?\s*\n\s*-\s+[\"']?)serve\b"
    r"|\bsglang\.(?:launch_server|cli\.main)\b|\bdynamo\.sglang\b"
)
_STARTS = re.compile(
    r"(?:^|[;&|(])\s*"
    r"(?:(?:\w+=\S*|exec|nohup|sudo|env|time|export|command)\s+)*"
    r"(?:(?:numactl|taskset|timeout|srun|mpirun|ssh|docker|podman|stdbuf|nice|setsid|torchrun)\b[^;&|]*?)?"
    r"(?:\S*python\S*\s+(?:-\S+\s+)*?-m\s+|\S*/)?"
    rf"(?:{LAUNCHER.pattern})",
    re.MULTILINE,
)


def only_mentions(words: Iterable[Word]) -> Iterator[tuple[int, int]]:
    """The characters of words that speak of the program among others: `"waiting for sglang serve"`."""
    for word in words:
        if "sglang" in word.text and word.at is not None and LAUNCHER.search(word.text) and not starts(word.text):
            first = word.at if word.start is None else word.start
            yield first, max(word.end, word.places[-1] if word.places else first)


def starts(text: str) -> bool:
    """Whether a text, run by a shell, would start a server."""
    return len(text) > MOST_LOOKED_AT or _STARTS.search(text) is not None
