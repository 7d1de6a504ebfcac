"""KV-cache element formats below FP8: NVFP4, MX FP4 and MXFP8, and what they run with."""

from __future__ import annotations

from perilune.plan.resolve.machine import is_cuda, is_sm100
from perilune.plan.resolve.state import Resolution
from perilune.plan.resolve.view import attention_backends

NVFP4_PREFILL_BACKEND = {"fp8_e4m3": "flashinfer", "nvfp4": "trtllm_mha"}
NVFP4_PREFILL_DTYPE = {backend: dtype for dtype, backend in NVFP4_PREFILL_BACKEND.items()}
NVFP4_SPECULATION = frozenset({None, "EAGLE", "EAGLE3", "NEXTN", "NGRAM"})
# (prefill is fa4, model is MLA) -> backends, and what the refusal calls the case
FP4_BACKENDS = {
    (True, True): ("FA4 MLA", "decode_attention_backend", ["flashinfer", "trtllm_mla"]),
    (True, False): ("FA4 MHA", "decode_attention_backend", ["triton", "torch_native", "flex_attention"]),
    (False, True): ("MLA", "attention_backend", ["flashinfer", "trtllm_mla"]),
    (False, False): (
        "MHA",
        "attention_backend",
        ["triton", "torch_native", "flex_attention", "trtllm_mha"],
    ),
}


def nvfp4_prefill_dtype(r: Resolution) -> None:
    """An NVFP4 cache decodes with trtllm_mha and prefills from FP8 or, on SM100, from NVFP4 itself."""
    if r["kv_cache_dtype"] != "nvfp4":
        if r["prefill_kv_cache_dequant_dtype"] != "auto":
            raise r.reject("--prefill-kv-cache-dequant-dtype applies only with --kv-cache-dtype=nvfp4.")
        return
    dtype = _prefill_dtype(r)
    if dtype == "nvfp4" and not is_sm100(r.platform):
        raise r.reject(
            "Native NVFP4 prefill currently requires SM100; use --prefill-kv-cache-dequant-dtype=fp8_e4m3 on "
            "this platform."
        )
    backend = NVFP4_PREFILL_BACKEND[dtype]
    prefill, decode = r["prefill_attention_backend"], r["decode_attention_backend"]
    if prefill not in (None, backend):
        raise r.reject(
            f"--prefill-kv-cache-dequant-dtype={dtype} requires prefill backend {backend!r}, but "
            f"--prefill-attention-backend={prefill!r} was set. Remove the backend option and select the KV "
            "dtype only."
        )
    if decode not in (None, "trtllm_mha"):
        raise r.reject(
            f"NVFP4 decode requires --decode-attention-backend=trtllm_mha; got {decode!r}. Remove the "
            "backend option; NVFP4 selects the supported decode implementation automatically."
        )
    r.set("prefill_attention_backend", backend, f"An NVFP4 cache prefilled from {dtype} needs {backend}.")
    r.set("decode_attention_backend", "trtllm_mha", "An NVFP4 cache decodes with trtllm_mha.")
    r.set("prefill_kv_cache_dequant_dtype", dtype, "The prefill dtype that this GPU and backend support.")


def _prefill_dtype(r: Resolution) -> str:
    asked = r["prefill_kv_cache_dequant_dtype"]
    if asked != "auto":
        return str(asked)
    backend = r["prefill_attention_backend"] or r["attention_backend"]
    if backend is None:
        return "nvfp4" if is_sm100(r.platform) else "fp8_e4m3"
    if backend not in NVFP4_PREFILL_DTYPE:
        raise r.reject(
            f"NVFP4 prefill supports an FP8 E4M3 workspace or native NVFP4, but backend {backend!r} provides neither."
        )
    return NVFP4_PREFILL_DTYPE[backend]


def mxfp8_compatibility(r: Resolution) -> None:
    """An MXFP8 cache needs Blackwell's block-scaled operands."""
    if r["kv_cache_dtype"] == "mxfp8" and not is_sm100(r.platform):
        raise r.reject(
            "--kv-cache-dtype mxfp8 requires an SM100+ (Blackwell) GPU for the block-scaled operands used by "
            "the FA4 MXFP8 attention path."
        )


def kv4_compatibility(r: Resolution) -> None:
    """Check an FP4 cache against the GPU, speculation, transfer, host tiers and attention backends."""
    dtype = r["kv_cache_dtype"]
    if dtype not in ("nvfp4", "fp4_mx_block16"):
        return
    if not is_cuda(r.platform):
        raise r.reject("KV4 is not tested on non-CUDA platforms.", error="RuntimeError")
    if dtype == "nvfp4" and not is_sm100(r.platform):
        raise r.reject(
            "--kv-cache-dtype=nvfp4 requires Blackwell SM100 or SM120. Use --kv-cache-dtype=fp4_mx_block16 "
            "for the block-size-16 FP4 recipe.",
            error="RuntimeError",
        )
    if r["enable_unified_memory"]:
        raise r.reject(
            "FP4 KV cache does not yet support --enable-unified-memory: the unified MHA pool does not "
            "allocate FP4 block scales or the prefill dequant workspace."
        )
    prefill, decode = attention_backends(r)
    mixed = dtype == "nvfp4" and (prefill, decode) == ("flashinfer", "trtllm_mha")
    if dtype == "nvfp4" and "trtllm_mha" in (prefill, decode):
        _native_speculation(r, mixed=mixed)
        _native_pools(r)
    if prefill != decode and prefill != "fa4":
        if not mixed:
            r.warn(f"An FP4 cache with {prefill} prefill and {decode} decode is rarely used.")
        return
    case, field, allowed = FP4_BACKENDS[prefill == "fa4", r.model.is_mla]
    used = decode if prefill == "fa4" else r["attention_backend"]
    if used not in allowed:
        raise r.reject(f"KV4 {case} expects {field} to be one of {allowed}, but got {used}", error="AssertionError")


def _native_speculation(r: Resolution, *, mixed: bool) -> None:
    """The kernel-native scale layout of NVFP4 serves linear verification by a draft on the same backend."""
    given = r["speculative_algorithm"]
    algorithm = given.upper() if given is not None else None
    if algorithm in ("DFLASH", "DSPARK"):
        raise r.reject(
            f"SM100 native NVFP4 speculative decoding does not yet support {algorithm}; use EAGLE/NEXTN or NGRAM."
        )
    if algorithm not in NVFP4_SPECULATION:
        raise r.reject(
            "SM100 native NVFP4 speculative decoding supports EAGLE, EAGLE3, NEXTN, and breadth-1 NGRAM; got "
            f"{algorithm}."
        )
    breadth = r["speculative_ngram_max_bfs_breadth"]
    if algorithm == "NGRAM" and breadth != 1:
        raise r.reject(
            "SM100 native NVFP4 NGRAM speculative decoding requires --speculative-ngram-max-bfs-breadth=1 "
            f"because trtllm_mha supports linear target verification only; got {breadth}."
        )
    draft = r["speculative_draft_attention_backend"]
    if algorithm not in (None, "NGRAM") and draft != "trtllm_mha":
        if draft is not None:
            raise r.reject(
                "SM100 native NVFP4 speculative decoding requires "
                "--speculative-draft-attention-backend=trtllm_mha so the draft worker consumes its physical "
                f"NVFP4 KV layout; got {draft!r}."
            )
        reason = "The draft must read the same NVFP4 cache layout as the target."
        r.set("speculative_draft_attention_backend", "trtllm_mha", reason)
        r.warn("With an NVFP4 cache the draft runs on trtllm_mha.")
    if mixed and given is not None and r["speculative_attention_mode"] == "prefill":
        r.set("speculative_attention_mode", "decode", "Only the decode backend verifies on an NVFP4 cache.")
        r.warn("With an NVFP4 cache prefilled by flashinfer, drafts are verified by the decode backend.")


def _native_pools(r: Resolution) -> None:
    if r["disaggregation_mode"] != "null":
        raise r.reject(
            "SM100 native NVFP4 with trtllm_mha does not yet support PD disaggregation because its physical "
            "block-scale layout is not implemented by the KV transfer path."
        )
    if r["enable_hierarchical_cache"] or r["enable_lmcache"]:
        raise r.reject(
            "SM100 native NVFP4 with trtllm_mha does not yet support hierarchical KV cache or LMCache "
            "because their host pools do not preserve the physical block-scale layout."
        )
