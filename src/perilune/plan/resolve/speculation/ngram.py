"""NGRAM speculation: drafts from a lookup of what was already said."""

from __future__ import annotations

from perilune.plan.resolve.machine import is_npu
from perilune.plan.resolve.speculation.common import disable_mixed_chunk, limit_running_requests
from perilune.plan.resolve.state import Resolution
from perilune.plan.resolve.view import runs_attention_dp

DRAFT_TOKENS = 12


def ngram(r: Resolution) -> None:
    """Settle NGRAM's tree width and draft tokens; its wide trees need page size 1 or flashinfer."""
    if is_npu(r.platform):
        raise r.reject("Ngram speculative decoding only supports CUDA, CPU, or XPU devices.")
    limit_running_requests(r)
    disable_mixed_chunk(r, "NGRAM")
    breadth = r["speculative_ngram_max_bfs_breadth"]
    r.set("speculative_eagle_topk", breadth, "NGRAM's tree is as wide as its breadth-first search.")
    if r["speculative_num_draft_tokens"] is None:
        r.set("speculative_num_draft_tokens", DRAFT_TOKENS, "NGRAM verifies 12 draft tokens by default.")
        r.warn("NGRAM verifies 12 draft tokens by default; set --speculative-num-draft-tokens.")
    tokens = r["speculative_num_draft_tokens"]
    if r["speculative_num_steps"] is None:
        if breadth == 0:
            raise r.reject("integer division or modulo by zero", error="ZeroDivisionError")
        r.set("speculative_num_steps", tokens // breadth, "NGRAM's depth is draft tokens over breadth.")
    _external_corpus(r, tokens)
    if breadth > 1 and r["page_size"] > 1 and r["attention_backend"] != "flashinfer":
        raise r.reject(
            f"speculative_eagle_topk({breadth}) > 1 with page_size({r['page_size']}) > 1 is unstable and "
            "produces incorrect results for paged attention backends. This combination is only supported for "
            "the 'flashinfer' backend."
        )
    if runs_attention_dp(r):
        raise r.reject("Currently ngram speculative decoding does not support dp attention.")


def _external_corpus(r: Resolution, tokens: int) -> None:
    if r["speculative_ngram_external_corpus_path"] is None:
        return
    for name in ("sam-budget", "corpus-max-tokens"):
        if r[f"speculative_ngram_external_{name.replace('-', '_')}"] <= 0:
            raise r.reject(
                f"--speculative-ngram-external-{name} must be positive when "
                "--speculative-ngram-external-corpus-path is set."
            )
    if r["speculative_ngram_external_sam_budget"] > tokens - 1:
        raise r.reject(
            "speculative_ngram_external_sam_budget must be less than or equal to "
            f"speculative_num_draft_tokens - 1 ({tokens - 1})."
        )
