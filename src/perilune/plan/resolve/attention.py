"""Attention and sampling backends, and the page size they impose.

Source: SGLang 0.5.23 `arg_groups/attention_hook.py` and the attention passes of `overrides.py`.
"""

from __future__ import annotations

from typing import Final

from perilune.plan.model.traits import has_asymmetric_kv
from perilune.plan.resolve import machine
from perilune.plan.resolve.engine_model import engine_model
from perilune.plan.resolve.graphs import disable_graphs
from perilune.plan.resolve.state import Resolution
from perilune.plan.resolve.view import attention_backends

AITER_HEADS: Final = (16, 128)
AITER_LONG_CONTEXT: Final = 8192
AITER_WORKSPACE_FACTOR: Final = 0.85
PAGE_SIZES: Final = {
    "flashmla": (64,),
    "trtllm_mla": (32, 64),
    "cutedsl_mla": (32, 64),
    "trtllm_mha": (16, 32, 64, 128),
    "hpc_ops": (64,),
}


def sampling_backend(r: Resolution) -> None:
    """Sample with FlashInfer where it runs, else with PyTorch."""
    if r["sampling_backend"] is None:
        flashinfer = machine.has_flashinfer(r.platform, r.env)
        reason = "FlashInfer is installed." if flashinfer else "FlashInfer does not run here."
        r.set("sampling_backend", "flashinfer" if flashinfer else "pytorch", reason)


def backend_compatibility(r: Resolution) -> None:
    """Settle the attention backends, and what each of them needs: page size, KV dtype, GPU, memory."""
    _settle_backend(r)
    _drop_graphs_of_plain_torch(r)
    _fit_page_size(r)
    _check_trtllm_mla(r)
    _settle_cutedsl_mla(r)
    _check_trtllm_mha(r)
    if r["attention_backend"] == "fa3" and r["kv_cache_dtype"] == "fp8_e5m2":
        r.warn("FlashAttention 3 reads FP8 KV as e4m3 only; Triton is used for fp8_e5m2.")
        r.set("attention_backend", "triton", "FlashAttention 3 has no fp8_e5m2 KV cache.")
    _fit_fa4_page(r)
    _reserve_aiter_workspace(r)
    _fit_xpu_page(r)


def page_size_default(r: Resolution) -> None:
    """Without a backend that needs pages, a page is one token."""
    if r["page_size"] is not None:
        return
    layout = r.env.get("SGLANG_AITER_KV_CACHE_LAYOUT", "nhd").lower()
    if machine.is_hip(r.platform) and layout == "vectorized_5d":
        r.set("page_size", 64, "The vectorized_5d KV layout is made for pages of 64.")
    else:
        r.set("page_size", 1, "No attention backend asks for pages.")


def multi_item_scoring(r: Resolution) -> None:
    """Multi-item scoring rules out graphs, prefix reuse and chunks, and needs FlashInfer attention."""
    if not r["enable_mis"]:
        return
    reason = "Not compatible with --enable-mis."
    disable_graphs(r, reason)
    if not r["disable_radix_cache"]:
        r.warn("The radix cache is off because of --enable-mis.")
        r.set("disable_radix_cache", True, reason)
    if r["chunked_prefill_size"] != -1:
        r.warn("Chunked prefill is off because of --enable-mis.")
        r.set("chunked_prefill_size", -1, reason)
    prefill, decode = attention_backends(r)
    if (prefill, decode) != ("flashinfer", "flashinfer"):
        raise r.reject(
            "Multi-item scoring requires flashinfer attention backend for custom attention mask support. "
            "Please set --attention-backend flashinfer when using --enable-mis. "
            f"Current backends: prefill={prefill}, decode={decode}",
            error="AssertionError",
        )


def default_backend(r: Resolution) -> tuple[str, str]:
    """The attention backend the engine picks by itself, and why."""
    if r.model.is_mla:
        return _default_for_mla(r)
    topk, page = r["speculative_eagle_topk"], r["page_size"]
    chain = topk is None or (topk == 1 and page in (1, None))
    if machine.is_sm90(r.platform) and chain:
        return "fa3", "The fastest on Hopper."
    algorithm = r["speculative_algorithm"]
    settled = algorithm is None or topk is not None or str(algorithm).upper() == "DFLASH"
    if machine.is_sm100(r.platform) and chain and settled:
        if has_asymmetric_kv(r.model):
            return "fa4", "Key and value rows differ in width."
        return "trtllm_mha", "The fastest on Blackwell."
    if machine.is_hip(r.platform):
        return "aiter", "The fastest on ROCm."
    if machine.has_flashinfer(r.platform, r.env):
        return "flashinfer", "Works with this speculation."
    return "triton", "Nothing faster is installed."


def _default_for_mla(r: Resolution) -> tuple[str, str]:
    if machine.is_sm90(r.platform):
        return "fa3", "The fastest for MLA on Hopper."
    if machine.is_sm100(r.platform):
        return "flashinfer", "The default for MLA on Blackwell."
    if machine.is_hip(r.platform):
        heads = max(1, r.model.num_kv_heads // r["tp_size"])
        if heads in AITER_HEADS:
            return "aiter", f"aiter has an MLA kernel for {heads} heads."
        return "triton", f"aiter has no MLA kernel for {heads} heads per rank."
    return "triton", "Nothing faster is installed."


def _settle_backend(r: Resolution) -> None:
    split = r["prefill_attention_backend"]
    if split is not None and split == r["decode_attention_backend"]:
        r.set("attention_backend", split, "Prefill and decode use the same one.")
    elif r["attention_backend"] is None:
        r.set("attention_backend", *default_backend(r))


def _drop_graphs_of_plain_torch(r: Resolution) -> None:
    backend = r["attention_backend"]
    if backend not in ("torch_native", "flex_attention"):
        return
    r.warn(f"CUDA graphs are off: {backend} attention cannot be captured.")
    disable_graphs(r, f"{backend} attention cannot be captured.")
    if backend == "flex_attention" and r["speculative_algorithm"] is not None:
        raise r.reject(
            "Speculative decoding is currently not supported with Flex Attention backend",
            error="AssertionError",
        )


def _is_used(r: Resolution, backend: str) -> bool:
    """Whether a field that the engine looks at for `backend` names it."""
    if backend in (r["attention_backend"], r["decode_attention_backend"]):
        return True
    if backend in ("flashmla", "trtllm_mla"):
        return False
    if r["prefill_attention_backend"] == backend:
        return True
    return backend == "trtllm_mha" and r["speculative_draft_attention_backend"] == backend


def _fit_page_size(r: Resolution) -> None:
    for backend, sizes in PAGE_SIZES.items():
        page = r["page_size"]
        if not _is_used(r, backend) or page in sizes:
            continue
        known = " ".join(str(size) for size in sizes)
        r.warn(f"The page size is 64 instead of {page}: {backend} knows only {known}.")
        r.set("page_size", 64, f"{backend} knows only pages of {known} tokens.")


def _check_trtllm_mla(r: Resolution) -> None:
    if not _is_used(r, "trtllm_mla"):
        return
    if not machine.is_sm100(r.platform):
        raise r.reject(
            "TRTLLM MLA backend is only supported on Blackwell GPUs (SM100/SM12x). Please use a different backend."
        )
    if r["kv_cache_dtype"] not in ("fp8_e4m3", "bf16", "auto"):
        raise r.reject("TensorRT-LLM MLA backend only supports kv-cache-dtype of fp8_e4m3, bf16, or auto.")


def _settle_cutedsl_mla(r: Resolution) -> None:
    if not _is_used(r, "cutedsl_mla"):
        return
    if r["prefill_attention_backend"] == "cutedsl_mla":
        raise r.reject("CuteDSL MLA only supports decoding for now", error="AssertionError")
    if not machine.is_sm100(r.platform):
        raise r.reject(
            "CuteDSL MLA backend is only supported on Blackwell GPUs (SM100). Please use a different backend."
        )
    if r["kv_cache_dtype"] not in ("fp8_e4m3", "bf16", "bfloat16", "auto"):
        raise r.reject("CuteDSL MLA backend only supports kv-cache-dtype of fp8_e4m3, bf16, or auto.")
    if r["prefill_attention_backend"] is None:
        r.set("prefill_attention_backend", "trtllm_mla", "cutedsl_mla only decodes.")


def _check_trtllm_mha(r: Resolution) -> None:
    prefill, decode = attention_backends(r)
    supported = machine.is_sm90(r.platform) or machine.is_sm100(r.platform)
    if prefill == "trtllm_mha" and not supported:
        raise r.reject(
            "TRTLLM MHA backend for prefill requires Hopper (SM90), Blackwell (SM100), or SM120 GPUs. "
            "Please use a different prefill backend."
        )
    if decode == "trtllm_mha" and not supported:
        raise r.reject(
            "TRTLLM MHA backend for decode is only supported on Hopper (SM90), Blackwell (SM100) and (SM120) "
            "GPUs. Please use a different decode backend."
        )
    if prefill == "trtllm_mha" and not machine.is_sm100(r.platform) and r["attn_cp_size"] > 1:
        raise r.reject(
            "Prefill context parallelism with the TRTLLM MHA prefill backend requires SM100 (trtllm-gen "
            "context kernel): the SM90/SM120 fmha_v2 prefill path does not implement CP shard masking."
        )


def _fit_fa4_page(r: Resolution) -> None:
    chain = (r["speculative_eagle_topk"] or 0) <= 1
    if _is_used(r, "fa4") and not r.model.is_mla and machine.is_sm100(r.platform) and chain:
        r.warn(f"The page size is 128 instead of {r['page_size']}: fa4 knows no other.")
        r.set("page_size", 128, "fa4 has pages of 128 tokens for per-head KV.")


def _reserve_aiter_workspace(r: Resolution) -> None:
    context = engine_model(r).context_length
    if r["attention_backend"] != "aiter" or context <= AITER_LONG_CONTEXT:
        return
    explicit = r.written["mem_fraction_static"] is not None
    fraction = r["mem_fraction_static"]
    if explicit and r.flag_env("SGLANG_AITER_HONOR_EXPLICIT_MEM_FRACTION"):
        r.warn(f"The memory fraction stays {fraction:.3f}; leave room for aiter's workspace.")
        return
    reason = f"aiter needs workspace for contexts above {AITER_LONG_CONTEXT:,} tokens."
    r.set("mem_fraction_static", fraction * AITER_WORKSPACE_FACTOR, reason)


def _fit_xpu_page(r: Resolution) -> None:
    sizes = (64, 128, 16, 32) if r.model.is_mla else (64, 128)
    if "intel_xpu" in attention_backends(r) and r["page_size"] not in sizes:
        r.set("page_size", 128, "intel_xpu attention has no smaller default page.")
