"""The final check of the resolved arguments."""

from __future__ import annotations

from perilune.plan.resolve.state import Resolution


def check_server_args(r: Resolution) -> None:
    """Not decided yet."""
