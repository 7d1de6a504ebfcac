"""DeepSeek sparse attention (DSA): page size, KV dtype, kernels, context parallelism.

Source: SGLang 0.5.23 `arg_groups/model_overrides/deepseek_v2.py` and the DSA passes of `overrides.py`.
"""

from __future__ import annotations

from typing import Final

from perilune.plan.model.config import ModelConfig
from perilune.plan.model.fields import Fields
from perilune.plan.resolve import machine
from perilune.plan.resolve.graph_config import BREAKABLE, DISABLED
from perilune.plan.resolve.graphs import set_phase, supports_prefill_cp_graph
from perilune.plan.resolve.state import Resolution
from perilune.plan.resolve.view import attention_unset

DENSE_PREFILL_ENV: Final = "SGLANG_DSA_PREFILL_DENSE_ATTN_KV_LEN_THRESHOLD"
INDEX_PAGE: Final = 64
PHASE_BACKENDS: Final = ("dsa_prefill_backend", "dsa_decode_backend")


def declare(r: Resolution) -> None:
    """Settle the attention backend, DCP kernels, context-parallel layout and page size."""
    if r["dcp_size"] > 1:
        _settle_dcp(r)
    if attention_unset(r):
        r.set("attention_backend", "dsa", "The model has sparse attention.")
    if machine.is_npu(r.platform):
        return
    if r["enable_prefill_cp"]:
        lay_out_context_parallelism(r, "DSA context parallelism", dense=r["cp_strategy"] == "zigzag")
    if machine.is_hip(r.platform) and not _has_paged_indexer(r):
        r.set("page_size", 1, "aiter's paged index kernels are not available.")
        return
    pooled = _index_pool(r.model)
    if pooled > 1 and r["dcp_size"] > 1:
        raise r.reject(
            f"--dcp-size > 1 is not supported for DSA with index_kpool={pooled}: a pooled index key spans "
            "positions owned by different DCP ranks."
        )
    r.set("page_size", INDEX_PAGE * pooled, "A page holds whole groups of index keys.")


def lay_out_context_parallelism(r: Resolution, layout: str, *, dense: bool) -> None:
    """Derive attention DP and CP widths; `dense` also moves experts to DeepEP over the whole TP group."""
    replicas, groups = r["dp_size"], r["attn_dp_size"]
    if groups > 1 and replicas > 1:
        raise r.reject(
            f"--dp-size {replicas} with --attn-dp-size {groups}: data-parallel replicas combined with "
            "attention data parallelism are not supported.",
            error="AssertionError",
        )
    if replicas > 1:
        r.warn(f"--dp-size {replicas} means attention DP here; use --attn-dp-size {replicas}.")
    groups *= replicas
    r.set("attn_dp_size", groups, f"{layout} runs its groups as attention DP.")
    r.set("dp_size", 1, f"{layout} runs its groups as attention DP.")
    if dense:
        reason = f"{layout} exchanges tokens between experts this way."
        r.set("moe_dense_tp_size", 1, reason)
        r.set("moe_a2a_backend", "deepep", reason)
        r.set("ep_size", r["tp_size"], reason)
    sparse = layout.startswith("DSA")
    if sparse and r["tp_size"] > 8:
        raise r.reject(
            "Context parallel only supports single machine (tp_size <= 8). Cross-machine CP has precision issues.",
            error="AssertionError",
        )
    given = sparse and r["cp_strategy"] == "interleave" and r["attn_cp_size"] > 1
    if not given:
        r.set("attn_cp_size", r["tp_size"] // groups, "The rest of the TP group shares each prompt.")


def adjust(r: Resolution) -> None:
    """Settle KV dtype and kernels, and check what sparse attention does not work with."""
    r.env.setdefault(DENSE_PREFILL_ENV, str(_fields(r.model).integer("index_topk")))
    _check_two_batch_overlap(r)
    if not machine.is_npu(r.platform):
        captured = r["cuda_graph_config"].prefill.backend == BREAKABLE and supports_prefill_cp_graph(r)
        if r["enable_prefill_cp"] and not captured:
            set_phase(r, "prefill", "Not captured under this context parallelism.", backend=DISABLED)
        _settle_kv_dtype(r)
        _settle_kernels(r)
    if r["enable_prefill_cp"] and r["disaggregation_mode"] == "decode":
        raise r.reject(
            "CP is only supported for prefill when PD disaggregation, please remove --enable-prefill-cp.",
            error="AssertionError",
        )
    if r["enable_dsa_cache_layer_split"]:
        _check_layer_split(r)


def _fields(model: ModelConfig) -> Fields:
    return Fields({**model.text, **model.raw}, f"{model.path} config")


def _index_pool(model: ModelConfig) -> int:
    return _fields(model).integer("index_kpool", high=1 << 16, default=1)


def _has_paged_indexer(r: Resolution) -> bool:
    uses_aiter = r.env.get("SGLANG_USE_AITER", "1").lower() in ("true", "1")
    return uses_aiter and not r.flag_env("SGLANG_DSA_HIP_DISABLE_PRESHUFFLE")


def _settle_dcp(r: Resolution) -> None:
    if r["enable_hisparse"] or r["enable_hierarchical_cache"]:
        raise r.reject("DSA DCP does not support HiSparse or HiCache.")
    if r["disaggregation_mode"] != "null":
        raise r.reject("DSA DCP does not support PD disaggregation.")
    if r["speculative_eagle_topk"] not in (None, 1):
        raise r.reject("DSA DCP requires --speculative-eagle-topk 1.")
    for name in PHASE_BACKENDS:
        if r[name] is None:
            r.set(name, "trtllm", "It has a kernel for DCP.")
    if r["dcp_replicate_q_proj"] is None and r["dcp_comm_backend"] in ("a2a", "fi_a2a"):
        r.set("dcp_replicate_q_proj", True, "All-to-all DCP exchanges less with a replicated Q projection.")


def _check_two_batch_overlap(r: Resolution) -> None:
    raw = {**r.model.text, **r.model.raw}
    every, pattern, kinds = (
        raw.get("index_topk_freq", 1) or 1,
        raw.get("index_topk_pattern"),
        raw.get("indexer_types"),
    )
    shared = every > 1 or (pattern is not None and "S" in pattern) or (kinds is not None and "shared" in kinds)
    if r["enable_two_batch_overlap"] and shared:
        raise r.reject(
            "--enable-two-batch-overlap is not supported with DSA index-topk sharing: the TBO op path does "
            "not propagate topk indices across layers, so shared layers would run sparse attention without "
            f"indices. Got index_topk_freq={every!r}, index_topk_pattern={pattern!r}, and "
            f"indexer_types={kinds!r}."
        )


def _settle_kv_dtype(r: Resolution) -> None:
    dtype = r["kv_cache_dtype"]
    if dtype == "auto":
        wide = machine.capability(r.platform)[0] >= 10
        dtype = "fp8_e4m3" if wide else "bfloat16"
        reason = "Sparse attention on Blackwell reads FP8 KV." if wide else "Sparse attention reads BF16 KV."
        r.set("kv_cache_dtype", dtype, reason)
    elif dtype == "bf16":
        r.set("kv_cache_dtype", "bfloat16", "Another name for the same type.")
    elif dtype not in ("bfloat16", "fp8_e4m3"):
        raise r.reject("DeepSeek DSA only supports bf16/bfloat16 or fp8_e4m3 kv_cache_dtype", error="AssertionError")


def _settle_kernels(r: Resolution) -> None:
    fp8 = r["kv_cache_dtype"] == "fp8_e4m3"
    blackwell, hip = machine.capability(r.platform)[0] >= 10, machine.is_hip(r.platform)
    if r["enable_hisparse"]:
        both = "tilelang" if hip else "flashmla_kv" if fp8 else "flashmla_sparse"
        chosen = (both, both)
    elif hip:
        chosen = ("triton", "triton")
    elif fp8:
        chosen = ("trtllm", "trtllm") if blackwell else ("flashmla_kv", "flashmla_kv")
    else:
        chosen = ("flashmla_sparse", "trtllm" if blackwell else "fa3")
    for name, backend in zip(PHASE_BACKENDS, chosen, strict=True):
        if r[name] is None:
            r.set(name, backend, f"Reads {r['kv_cache_dtype']} KV on this platform.")
    _check_kernels(r, fp8=fp8)


def _check_kernels(r: Resolution, *, fp8: bool) -> None:
    prefill, decode = r["dsa_prefill_backend"], r["dsa_decode_backend"]
    if machine.is_hip(r.platform):
        return
    tilelang = fp8 and "tilelang" in (prefill, decode)
    if tilelang and r["enable_hisparse"]:
        raise r.reject("CUDA TileLang FP8 KV does not support HiSparse.")
    if "triton" in (prefill, decode):
        raise r.reject(
            "The triton DSA backend is only supported on ROCm/HIP. Pick an alternative DSA backend for CUDA "
            "(flashmla_kv on Hopper, trtllm on Blackwell)."
        )
    if tilelang and prefill != decode:
        raise r.reject(
            "CUDA TileLang FP8 KV requires both DSA backends to be tilelang; raw and scaled FP8 KV layouts "
            "cannot be mixed."
        )
    if tilelang and r["dcp_size"] > 1:
        raise r.reject("CUDA TileLang FP8 KV does not support --dcp-size > 1.")


def _check_layer_split(r: Resolution) -> None:
    role = r["disaggregation_mode"]
    if role == "decode":
        raise r.reject(
            "--enable-dsa-cache-layer-split is not supported on decode workers. This flag is a prefill-CP "
            "optimization; decode receives full cache shards through PD transfer."
        )
    if role != "prefill":
        raise r.reject(
            "--enable-dsa-cache-layer-split is only supported on PD prefill workers. Non-PD workers also run "
            "decode and require ordinary local decode cache semantics."
        )
    if not r["enable_prefill_cp"] or r["cp_strategy"] != "interleave":
        raise r.reject("--enable-dsa-cache-layer-split requires --enable-prefill-cp and --cp-strategy interleave.")
    transfer = r["disaggregation_transfer_backend"]
    if transfer != "mooncake":
        raise r.reject(
            "--enable-dsa-cache-layer-split currently only supports the mooncake transfer backend "
            f"(mooncake / mooncake_tcp). Got --disaggregation-transfer-backend {transfer!r}. mori/nixl "
            "support will be added later by the community."
        )
    if r["pp_size"] > 1:
        raise r.reject(
            "--enable-dsa-cache-layer-split is not supported with pipeline parallelism (pp_size > 1) yet. It "
            "requires prefill context parallelism, and CP + PP has not been validated for this feature."
        )
