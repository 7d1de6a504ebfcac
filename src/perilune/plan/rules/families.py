"""Flags that go together: one of them is rarely right without a look at the others."""

from __future__ import annotations

ATTENTION = ("--attention-backend", "--decode-attention-backend", "--prefill-attention-backend")
LEADERS = {
    "--speculative-algorithm": ("--speculative-", "--enable-linear-replayssm-spec"),
    "--enable-hierarchical-cache": ("--hicache-",),
    "--dcp-size": ("--dcp-",),
    "--attn-dp-size": ("--enable-dp-lm-head",),
}
"""Flags without which others mean nothing, and how the names of those begin."""
SPECULATION = (
    "--speculative-algorithm",
    "--speculative-draft-model-path",
    "--speculative-dspark-block-size",
    "--speculative-dflash-block-size",
    "--speculative-num-draft-tokens",
    "--speculative-num-steps",
    "--speculative-eagle-topk",
    "--speculative-draft-attention-backend",
    "--enable-linear-replayssm-spec",
)
