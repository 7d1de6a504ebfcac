"""HiSparse: sparse attention whose cold pages live on the host."""

from __future__ import annotations

from perilune.errors import UnusableInput
from perilune.plan.model.traits import has_sparse_attention
from perilune.plan.resolve.machine import is_hip
from perilune.plan.resolve.state import Resolution

OTHER_ARCHITECTURES = frozenset(
    {
        "DeepseekV4ForCausalLM",
        "MiniMaxM3SparseForCausalLM",
        "MiniMaxM3SparseForConditionalGeneration",
    }
)
CACHE_DTYPES = ("bfloat16", "fp8_e4m3")
ROCM_BACKENDS = frozenset({"tilelang", "triton", "aiter"})
CUDA_BACKENDS = {
    "bfloat16": frozenset({"flashmla_sparse"}),
    "fp8_e4m3": frozenset({"flashmla_kv", "flashinfer_sparse_mla"}),
}
ANY_CUDA_BACKEND = frozenset().union(*CUDA_BACKENDS.values())


def check_hisparse(r: Resolution) -> None:
    """Check the model, prefix cache, speculation, KV dtype and sparse backends of a HiSparse server."""
    if not r["enable_hisparse"]:
        return
    if r.model.architecture in OTHER_ARCHITECTURES:
        raise UnusableInput(
            f"HiSparse is not modelled for {r.model.architecture}.",
            where="--enable-hisparse",
            fix="Leave it out.",
        )
    if not has_sparse_attention(r.model):
        raise r.reject(
            "--enable-hisparse is only supported for DSA (DeepSeek Sparse Attention) models (e.g., DeepSeek "
            "V3.2, GLM-5), DeepSeek V4, and MiniMax M3 now. ",
            error="AssertionError",
        )
    if not r["disable_radix_cache"]:
        raise r.reject(
            "Hierarchical sparse attention currently requires --disable-radix-cache.",
            error="AssertionError",
        )
    if r["enable_mixed_chunk"]:
        raise r.reject("--enable-hisparse does not support --enable-mixed-chunk yet.")
    _check_speculation(r)
    _check_formats(r)


def _check_speculation(r: Resolution) -> None:
    if r["speculative_algorithm"] in (None, "NONE"):
        return
    if (r["speculative_eagle_topk"] or 1) != 1:
        raise r.reject(
            "The minimal HiSparse spec integration supports linear speculation only; use --speculative-eagle-topk 1."
        )
    if r["speculative_adaptive"]:
        raise r.reject(
            "HiSparse speculative decoding uses statically sized swap state; --speculative-adaptive is not supported."
        )


def _check_formats(r: Resolution) -> None:
    dtype = r["kv_cache_dtype"]
    if dtype not in (*CACHE_DTYPES, "auto"):
        choices = " or ".join(f"--kv-cache-dtype={known}" for known in CACHE_DTYPES)
        raise r.reject(
            f"HiSparse requires one of {CACHE_DTYPES} KV cache dtypes, but got --kv-cache-dtype={dtype}. "
            f"Please use {choices}."
        )
    allowed = ROCM_BACKENDS if is_hip(r.platform) else CUDA_BACKENDS.get(dtype, ANY_CUDA_BACKEND)
    for phase in ("prefill", "decode"):
        backend = r[f"dsa_{phase}_backend"]
        if backend is not None and backend not in allowed:
            raise r.reject(
                f"HiSparse supports DSA {phase} backend(s) {sorted(allowed)} on this platform with "
                f"--kv-cache-dtype={dtype}, but got --dsa-{phase}-backend={backend}. Please use one of "
                f"{sorted(allowed)}, or omit the option to let SGLang pick a backend for this platform."
            )
