"""The final check of the resolved arguments, which rejects what no earlier step did."""

from __future__ import annotations

from perilune.plan.resolve.checks.server import check_server_args

__all__ = ["check_server_args"]
