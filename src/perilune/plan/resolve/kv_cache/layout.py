"""Page-major KV layout, which the unified pool uses: who can read strided K/V and state rows."""

from __future__ import annotations

from perilune.plan.model.traits import has_asymmetric_kv
from perilune.plan.resolve.state import Resolution
from perilune.plan.resolve.view import attention_backends

MLA_BACKENDS = frozenset({"triton", "fa3", "trtllm_mla", "flashinfer", "cutedsl_mla", "flashmla"})
ASYMMETRIC_BACKENDS = frozenset({"triton", "fa3", "fa4"})
MHA_BACKENDS = frozenset({"triton", "fa3", "fa4", "flashinfer", "trtllm_mha"})
STATE_DECODE = frozenset({"triton", "flashinfer"})
STATE_PREFILL = frozenset({"triton", "flashkda", "flashinfer"})
KDA_STATE = frozenset({"cutedsl", "helion"})  # stride-safe on KDA hybrids only
FLAG = "--enable-page-major-kv-layout"


def page_major_layout(r: Resolution) -> None:
    """The unified pool lays KV out page by page; check every kernel that will read it."""
    if r["enable_unified_memory"]:
        r.set("enable_page_major_kv_layout", True, "The unified memory pool stores KV page by page.")
    if not r["enable_page_major_kv_layout"]:
        return
    if not r["enable_unified_memory"]:
        raise r.reject(
            f"{FLAG} without --enable-unified-memory is temporarily unsupported: the strided MHA K/V views "
            "were removed and the static-pool page-major layout awaits its per-layer-view reimplementation. "
            f"Run with --enable-unified-memory, or drop {FLAG}.",
            error="AssertionError",
        )
    _check_attention(r)
    _check_state(r, "decode", STATE_DECODE)
    _check_state(r, "prefill", STATE_PREFILL)
    if r["mamba_backend"] not in (None, "triton"):
        raise r.reject(
            f"{FLAG} requires the Triton Mamba kernels for the strided conv/SSM state; got "
            f"{r['mamba_backend']!r}. Pass --mamba-backend triton.",
            error="AssertionError",
        )


def _check_attention(r: Resolution) -> None:
    if r.model.is_mla:
        allowed = MLA_BACKENDS
    elif has_asymmetric_kv(r.model):
        allowed = ASYMMETRIC_BACKENDS
    else:
        allowed = MHA_BACKENDS
    used = {backend for backend in attention_backends(r) if backend is not None}
    if not used <= allowed:
        raise r.reject(
            f"{FLAG}: the resolved attention backends {sorted(used)} are not in the allowed set "
            f"{sorted(allowed)} for this configuration. Pass a compatible --attention-backend.",
            error="AssertionError",
        )


def _check_state(r: Resolution, phase: str, allowed: frozenset[str]) -> None:
    if r.model.is_mla:
        allowed |= KDA_STATE
    backend = r[f"linear_attn_{phase}_backend"] or r["linear_attn_backend"]
    if backend is not None and backend not in allowed:
        raise r.reject(
            f"{FLAG}: linear-attention {phase.upper()} backend must be one of {sorted(allowed)} for the "
            f"strided conv/SSM state; got {backend!r}.",
            error="AssertionError",
        )
