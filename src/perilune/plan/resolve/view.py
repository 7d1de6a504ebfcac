"""Readings of an unfinished resolution that several steps share."""

from __future__ import annotations

from perilune.plan.resolve.state import Resolution


def attention_backends(r: Resolution) -> tuple[str | None, str | None]:
    """The (prefill, decode) attention backends; a split backend that is unset follows the common one."""
    common = r["attention_backend"]
    return r["prefill_attention_backend"] or common, r["decode_attention_backend"] or common


def attention_unset(r: Resolution) -> bool:
    """Whether no attention backend has been chosen, neither the common one nor one per phase."""
    return (r["attention_backend"], *attention_backends(r)) == (None, None, None)


def runs_attention_dp(r: Resolution) -> bool:
    """Whether attention is data parallel (more than one group, or joining such a deployment)."""
    return bool(r["attn_dp_size"] > 1 or r["ep_join_mode"] == "scale")


def dp_ranks(r: Resolution) -> int:
    """How many schedulers share the request load: replicas times attention-DP groups."""
    return int(r["dp_size"] * r["attn_dp_size"])
