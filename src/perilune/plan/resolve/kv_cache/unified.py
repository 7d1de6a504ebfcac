"""The unified memory pool (`--enable-unified-memory`) and the features that know its virtual page ids."""

from __future__ import annotations

from perilune.plan.model.traits import has_kda, is_hybrid_swa
from perilune.plan.resolve.graph_config import DISABLED, FULL
from perilune.plan.resolve.graphs import set_phase
from perilune.plan.resolve.state import Rejected, Resolution
from perilune.plan.resolve.view import attention_backends

FLAG = "--enable-unified-memory"
VERIFY_BACKENDS = frozenset({"triton", "trtllm_mla", "cutedsl_mla", "flashmla", "flashinfer", "fa3"})
MHA_BACKENDS = frozenset({"triton", "flashinfer", "fa3", "trtllm_mha"})
DCP_BACKENDS = frozenset({"flashinfer", "trtllm_mla", "cutedsl_mla"})
TRANSFER_BACKENDS = frozenset({"mooncake"})
SPECULATION = frozenset({None, "DSPARK", "EAGLE", "EAGLE3", "DFLASH"})
FULL_GRAPH_BACKENDS = frozenset({"fa3", "fa4"})


def unified_memory(r: Resolution) -> None:
    """Refuse what would index the unified pool by wrong ids, and drop full prefill graphs it cannot run."""
    if not r["enable_unified_memory"]:
        return
    if r["disaggregation_mode"] != "null":
        _check_disaggregation(r)
    _check_speculation(r)
    _check_overlays(r)
    if r["dcp_size"] > 1:
        _check_dcp(r)
    _drop_full_prefill_graph(r)


def _refusal(r: Resolution, text: str) -> Rejected:
    return r.reject(f"{FLAG} {text}", error="AssertionError")


def _is_swa(r: Resolution) -> bool:
    return is_hybrid_swa(r.model, disabled=r["disable_hybrid_swa_memory"])


def _is_recurrent(r: Resolution) -> bool:
    return r.model.linear_kind is not None or has_kda(r.model)


def _backends(r: Resolution) -> set[str]:
    return {backend for backend in attention_backends(r) if backend is not None}


def _check_disaggregation(r: Resolution) -> None:
    transfer = r["disaggregation_transfer_backend"]
    if transfer not in TRANSFER_BACKENDS:
        raise _refusal(
            r,
            "with PD disaggregation supports only these transfer backends: "
            f"{', '.join(sorted(TRANSFER_BACKENDS))}; got {transfer!r}.",
        )
    if r["pp_size"] != 1:
        raise _refusal(
            r,
            "with PD disaggregation does not support pipeline parallelism (whole-envelope transfer has no "
            "per-layer entries to subset).",
        )
    if r["speculative_algorithm"] is not None:
        raise _refusal(
            r,
            "with PD disaggregation does not support speculative decoding with the Mooncake transfer backend.",
        )
    if r.flag_env("SGLANG_DISABLE_LAZY_COMPACTION"):
        raise _refusal(r, "with PD disaggregation requires lazy compaction; unset SGLANG_DISABLE_LAZY_COMPACTION.")
    if r["enable_hisparse"]:
        raise _refusal(
            r,
            "with PD disaggregation is not compatible with --enable-hisparse: the decode-side HiSparse "
            "prealloc path ships host/C4 rows straight from the allocator, bypassing the virtual->physical "
            "translation the unified pool needs.",
        )
    if r["disaggregation_decode_enable_offload_kvcache"]:
        _check_decode_offload(r)
    if r["disaggregation_decode_retraction_backup"] == "host_pool" and _is_recurrent(r):
        raise _refusal(r, "host-pool decode retraction does not support hybrid-Mamba models.")


def _check_decode_offload(r: Resolution) -> None:
    if r["hicache_storage_backend"] != "file":
        raise _refusal(r, "with decode KV offload currently supports --hicache-storage-backend=file only.")
    if r.model.is_mla:
        raise _refusal(r, "decode KV offload does not support MLA models yet.")
    if _is_recurrent(r):
        raise _refusal(r, "decode KV offload does not support hybrid-Mamba models.")
    if _is_swa(r):
        raise _refusal(r, "decode KV offload does not support hybrid-SWA H2D/D2H transfers yet.")


def _check_speculation(r: Resolution) -> None:
    algorithm, topk = r["speculative_algorithm"], r["speculative_eagle_topk"]
    if algorithm not in SPECULATION:
        raise _refusal(
            r,
            "only supports --speculative-algorithm DSPARK, DFLASH, EAGLE and EAGLE3; other speculative "
            "algorithms are not yet audited for the unified pool's virtual-to-physical loc translation. Got "
            f"--speculative-algorithm={algorithm!r}.",
        )
    if topk not in (None, 1):
        raise _refusal(
            r,
            "supports a linear draft chain only (--speculative-eagle-topk in {None, 1}); tree verify "
            "relocates accepted tokens one at a time inside the target pool, which the unified pool's "
            f"page-granular move_kv_cache cannot express. Got --speculative-eagle-topk={topk!r}.",
        )
    if algorithm in ("EAGLE", "EAGLE3"):
        _check_fused_draft(r)
    elif algorithm == "DSPARK":
        _check_verify_backends(r, algorithm, VERIFY_BACKENDS | {"fa4"})
    elif algorithm == "DFLASH":
        _check_verify_backends(r, algorithm, MHA_BACKENDS)


def _check_fused_draft(r: Resolution) -> None:
    """An EAGLE draft keeps its KV inside the target's entries, so both must run on translated backends."""
    if not (_is_swa(r) or _is_recurrent(r)):
        raise _refusal(
            r,
            "+ EAGLE/EAGLE3 requires a unified target (hybrid-SWA or a mamba hybrid): the draft's KV lives "
            "fused inside the target's sub-pool entries.",
        )
    allowed = VERIFY_BACKENDS if r.model.is_mla else MHA_BACKENDS
    target = set(attention_backends(r))
    if None in target or not target <= allowed:
        raise _refusal(
            r,
            "+ EAGLE/EAGLE3 requires the target on the spec-verify-audited attention backends "
            f"{sorted(allowed)} (got {sorted(target, key=str)}).",
        )
    own = r["speculative_draft_attention_backend"]
    draft = {own} if own else _backends(r)
    if not draft <= MHA_BACKENDS:
        raise _refusal(
            r,
            f"+ EAGLE/EAGLE3 runs the draft on {sorted(draft)}, but a fused draft is MHA-shaped and reads "
            f"its KV through the translated MHA rails {sorted(MHA_BACKENDS)}. Set "
            "--speculative-draft-attention-backend to one of them.",
        )


def _check_verify_backends(r: Resolution, algorithm: str, allowed: frozenset[str]) -> None:
    note = ""
    if r["dcp_size"] > 1:
        allowed -= {"flashinfer"}
        note = " (flashinfer is excluded under --dcp-size > 1)"
    used = _backends(r)
    if not used <= allowed:
        raise _refusal(
            r,
            f"+ {algorithm} requires spec-verify-audited attention backends {sorted(allowed)}{note} for both "
            f"prefill and decode; got {sorted(used)}. Other backends do not translate speculative verify "
            "indices to the unified pool's physical ids yet.",
        )


def _check_overlays(r: Resolution) -> None:
    if r["enable_two_batch_overlap"]:
        raise _refusal(
            r,
            "does not support --enable-two-batch-overlap: the iteration's read tables are indexed by the "
            "whole batch's rows, and a TBO child's readers do not offset into them.",
        )
    if r["enable_lmcache"]:
        raise _refusal(
            r,
            "is not yet compatible with --enable-lmcache: the LMCache offload path indexes the device "
            "buffers with the ids it is handed, and under the unified pool those are VIRTUAL.",
        )
    if r["enable_unified_cache_external_linker"]:
        raise _refusal(
            r,
            "does not support --enable-unified-cache-external-linker: direct L3 transfers do not preserve "
            "unified page-envelope indices and compaction lifetimes. Use --enable-hierarchical-cache for "
            "supported L2/L3 transfers.",
        )
    if r["speculative_algorithm"] not in ("EAGLE", "EAGLE3"):
        return
    if r["disaggregation_decode_retraction_backup"] == "host_pool":
        raise _refusal(
            r,
            "+ EAGLE/EAGLE3 does not support --disaggregation-decode-retraction-backup=host_pool: the backup "
            "builds the draft's host pool off the draft's own device pool, which a fused EAGLE draft does "
            "not have.",
        )
    if r["enable_hierarchical_cache"]:
        raise _refusal(
            r,
            "+ EAGLE/EAGLE3 does not support --enable-hierarchical-cache: HiCache keeps the draft on a "
            "private pool, and would pack an MTP head's KV into the target's page-envelope host pool, which "
            "refuses per-layer draft loads.",
        )


def _check_dcp(r: Resolution) -> None:
    dcp = "with decode context parallelism (--dcp-size > 1)"
    if not r.model.is_mla:
        raise _refusal(
            r,
            f"{dcp} supports MLA models only (e.g. kimi-linear): the MHA unified pool has no DCP-aware "
            "masked write path (UnifiedMHATokenToKVPool.set_kv_buffer asserts dcp_kv_mask is None).",
        )
    if _is_swa(r):
        raise _refusal(
            r,
            f"{dcp} does not support hybrid sliding-window models: UnifiedSWATokenToKVPoolAllocator does not "
            "widen its virtual id space, and the full->swa mapping is not DCP-sharded.",
        )
    if r["disaggregation_mode"] != "null":
        raise _refusal(
            r,
            f"{dcp} does not support PD disaggregation: the transfer ships whole page envelopes, which under "
            "DCP hold only this rank's shard of each widened page. Rejected here rather than at the first KV "
            "transfer, where translate_kv_indices_for_transfer would abort a server that had already booted.",
        )
    used = _backends(r)
    if not used <= DCP_BACKENDS:
        raise _refusal(
            r,
            f"{dcp} requires {sorted(DCP_BACKENDS)} for the full-attention layers; got {sorted(used)}. The "
            "other paged MLA backends build their block table from raw (widened) req_to_token page ids and "
            "do not translate them through the unified pool's virtual->physical page table.",
        )


def _drop_full_prefill_graph(r: Resolution) -> None:
    if r["cuda_graph_config"].prefill.backend != FULL or _backends(r) <= FULL_GRAPH_BACKENDS:
        return
    set_phase(r, "prefill", "Full prefill graphs over the unified pool need fa3 or fa4.", backend=DISABLED)
    r.warn("The full prefill CUDA graph is disabled: with unified memory only fa3 and fa4 can capture it.")
