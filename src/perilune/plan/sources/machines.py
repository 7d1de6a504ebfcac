"""The platform that a document names beyond doubt."""

from __future__ import annotations

import re

_GPU = re.compile(r"(?<![a-z0-9])(gb300|gb200|b300|b200|h200|h100|mi355x|mi350x)(?![0-9])", re.IGNORECASE)
_ASCEND = re.compile(r"(?<![a-z0-9])cann[\w.]*-(a3|950)(?![0-9])|(?<![a-z0-9])ascend-?(a3|950)(?![0-9])", re.IGNORECASE)


def platform_in(*texts: str) -> str | None:
    """The one platform that labels, GPU types or images name; None when they name none, or several."""
    found: set[str] = set()
    for text in texts:
        found.update(match[1].lower() for match in _GPU.finditer(text))
        found.update((match[1] or match[2]).lower() for match in _ASCEND.finditer(text))
    return found.pop() if len(found) == 1 else None
