"""Defaults that follow from the memory of one accelerator: chunk size, graph sizes, static memory fraction.

Source: SGLang 0.5.23 `arg_groups/memory_hook.py`. Memory is in MiB throughout, as there.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from perilune.plan.model.config import ModelConfig
from perilune.plan.model.fields import Fields
from perilune.plan.model.traits import is_hybrid_swa
from perilune.plan.resolve import machine
from perilune.plan.resolve.engine_model import engine_model
from perilune.plan.resolve.graph_config import (
    BREAKABLE,
    DISABLED,
    GraphConfig,
    decode_sizes,
    prefill_sizes,
)
from perilune.plan.resolve.state import Resolution
from perilune.plan.resolve.view import runs_attention_dp

GIB: Final = 1024  # in MiB
MLA_PREFILL_GRAPH_TOKENS: Final = 8192
SYMM_MEM_PREALLOC: Final = "SGLANG_SYMM_MEM_PREALLOC_GB_SIZE"


class Capacity(NamedTuple):
    """Defaults for accelerators with less than `below` MiB."""

    below: float
    chunk: int
    decode_bs: int  # tp < 4
    decode_bs_wide: int  # tp >= 4


CAPACITIES: Final = (
    Capacity(20 * GIB, 2048, 8, 8),
    Capacity(35 * GIB, 4096, 48, 160),
    Capacity(60 * GIB, 4096, 32, 160),
    Capacity(90 * GIB, 8192, 256, 512),
    Capacity(160 * GIB, 8192, 256, 512),
    Capacity(float("inf"), 16384, 512, 512),
)


def gpu_memory_settings(r: Resolution) -> None:
    """Fill in chunk size, captured sizes and memory fraction where the user left them open."""
    total = r.platform.memory_mib
    capacity = next(c for c in CAPACITIES if total < c.below)
    if r["chunked_prefill_size"] is None:
        r.set("chunked_prefill_size", capacity.chunk, f"Default for {total:,} MiB per accelerator.")
    graphs = _with_prefill_sizes(r, _with_decode_sizes(r, r["cuda_graph_config"], capacity))
    if graphs != r["cuda_graph_config"]:
        r.set("cuda_graph_config", graphs, "Captured sizes follow from memory, chunk size and requests.")
    if r["mem_fraction_static"] is None:
        fraction, reason = _static_fraction(r, total)
        r.set("mem_fraction_static", fraction, reason)
    if r["enable_symm_mem"] and SYMM_MEM_PREALLOC not in r.env:
        r.env[SYMM_MEM_PREALLOC] = "4"
        r.warn(f"Symmetric memory preallocates 4 GB; {SYMM_MEM_PREALLOC} changes it.")


def _with_decode_sizes(r: Resolution, graphs: GraphConfig, capacity: Capacity) -> GraphConfig:
    largest = graphs.decode.max_bs
    if largest is None:
        largest = capacity.decode_bs if r["tp_size"] < 4 else capacity.decode_bs_wide
        if r["max_running_requests"] is not None:
            largest = min(largest, r["max_running_requests"])
    sizes = graphs.decode.bs
    if sizes is None:
        speculative = r["speculative_algorithm"] is not None
        sizes = decode_sizes(largest, speculative=speculative, padded=not r["disable_cuda_graph_padding"])
    else:
        largest = max(sizes, default=None)
        if largest is None:
            raise r.reject("max() arg is an empty sequence")
    return graphs.with_phase("decode", max_bs=largest, bs=sizes)


def _with_prefill_sizes(r: Resolution, graphs: GraphConfig) -> GraphConfig:
    prefill = graphs.prefill
    largest = prefill.max_bs
    if largest is None:
        largest = r["chunked_prefill_size"]
        if r.model.is_mla:
            largest = min(largest, MLA_PREFILL_GRAPH_TOKENS)
        opted_in = r["pp_size"] > 1 and prefill.backend == BREAKABLE
        if opted_in and ("prefill", "bs") not in graphs.locked:
            largest = min(largest, MLA_PREFILL_GRAPH_TOKENS)
        if r["max_total_tokens"] is not None:
            largest = min(largest, r["max_total_tokens"])
        if "llama-2" in r["model_path"].lower():
            largest = min(largest, 4096)
    sizes = prefill_sizes(largest) if prefill.bs is None else prefill.bs
    return graphs.with_phase("prefill", max_bs=largest, bs=sizes)


def _static_fraction(r: Resolution, total: int) -> tuple[float, str]:
    """The share of memory for weights and pools, and how it came about."""
    measured = sizes_pools_after_capture(r)
    parallel = r["tp_size"] * r["pp_size"] / 8 * GIB
    reserved = 1536 + parallel if measured else _reserved(r, total, parallel)
    fraction: float = round((total - reserved) / total, 3)
    reason = f"Activations and graphs keep {reserved:,.0f} of {total:,} MiB"
    serves_images = not (r["language_only"] or r["language_model_only"] or r["disaggregation_mode"] == "decode")
    if engine_model(r).is_multimodal and serves_images:
        if measured:
            return fraction - 8 * GIB / total, f"{reason}, the image encoder 8 GiB."
        factor = vision_factor(r.model)
        return fraction * factor, f"{reason}; times {factor:.4g} for images."
    return fraction, f"{reason}."


def _reserved(r: Resolution, total: int, parallel: float) -> float:
    """MiB left out of the static share for activations, graphs and all-to-all buffers."""
    reserved = 512 + _activation_tokens(r) * 1.5
    reserved += parallel
    reserved += _for_graphs(r)
    if total > 60 * GIB:
        reserved = max(reserved, 10 * GIB)
    decodes = r["disaggregation_mode"] != "prefill" and r["cuda_graph_config"].decode.backend != DISABLED
    if decodes and r["moe_a2a_backend"] == "deepep":
        reserved += 2 * GIB
    return reserved


def _activation_tokens(r: Resolution) -> int:
    if r["disaggregation_mode"] == "decode":
        running = r["max_running_requests"] or r["cuda_graph_config"].decode.max_bs or 1
        tokens = running * (r["speculative_num_draft_tokens"] or 1)
    elif r["chunked_prefill_size"] > 0:
        tokens = r["chunked_prefill_size"]
    else:
        tokens = r["max_prefill_tokens"]
    return max(int(tokens), 2048)


def _for_graphs(r: Resolution) -> float:
    graphs: GraphConfig = r["cuda_graph_config"]
    role = r["disaggregation_mode"]
    largest = graphs.decode.max_bs or 0
    reserved = 0.0
    if role != "prefill" and graphs.decode.backend != DISABLED:
        reserved += largest * 2
    if role != "prefill" and runs_attention_dp(r):
        reserved += largest * r["attn_dp_size"] * 3
        if largest > 300:
            reserved += largest * r["attn_dp_size"] * 1.5
    if role != "decode" and graphs.prefill.backend != DISABLED:
        reserved += 1.5 * GIB if r.model.is_mla else len(graphs.prefill.bs or ()) * 8
        if graphs.prefill.backend == BREAKABLE and r["moe_a2a_backend"] == "deepep":
            reserved += GIB
    return reserved


def vision_factor(model: ModelConfig) -> float:
    """The part of the static share that a multimodal model keeps: less with a bigger image encoder."""
    k3 = model.model_type == "kimi_k3"
    if model.vision is None and not k3:
        return 1.0
    vision = Fields(model.vision or {}, f"{model.path} config vision_config")
    prefix = "vt_" if k3 else ""
    layers = vision.integer(f"{prefix}num_hidden_layers", low=0, default=27 if k3 else 24)
    width = vision.integer(f"{prefix}hidden_size", low=0, default=1024)
    complexity = layers * width**2 / (24 * 1024**2)
    return 0.95 * max(0.8, min(1.05, 1.0 - 0.1 * (complexity - 1.0)))


def sizes_pools_after_capture(r: Resolution) -> bool:
    """Whether the engine sizes its pools after graph capture, from memory that is then really free."""
    graphs: GraphConfig = r["cuda_graph_config"]
    role = r["disaggregation_mode"]
    wanted = (
        r.flag_env("SGLANG_ENABLE_POST_CAPTURE_KV_SIZING")
        and machine.is_cuda(r.platform)
        and not r["enable_kv_cache_sharding"]
        and r["dcp_size"] == 1
        and not r.model.is_mla
        and not r["prefill_only_disable_kv_cache"]
        and not r["enable_memory_saver"]
        and "SGLANG_MOONCAKE_CUSTOM_MEM_POOL" not in r.env
    )
    if not wanted:
        return False
    efa = r.env.get("MOONCAKE_PROTOCOL", "rdma").lower() == "efa"
    if efa and r["disaggregation_transfer_backend"] == "mooncake":
        return False
    if r["enable_unified_memory"] and not is_hybrid_swa(r.model, disabled=r["disable_hybrid_swa_memory"]):
        return False
    if role != "prefill" and graphs.decode.backend == DISABLED:
        return False
    if role == "decode":
        return True
    chunk = r["chunked_prefill_size"]
    return bool(
        graphs.prefill.backend != DISABLED and chunk > 0 and prefill_buffer_tokens(r) <= max(graphs.prefill.bs or (0,))
    )


def prefill_buffer_tokens(r: Resolution) -> int:
    """The largest prefill forward pass, in tokens; dynamic chunking under PP may go above the chunk size."""
    chunk = max(r["chunked_prefill_size"] or 0, 0)
    if r["enable_dynamic_chunking"] and r["pp_size"] > 1 and chunk:
        return max(chunk, r["max_prefill_tokens"] or 0, -(-chunk * 5 // 4))
    return chunk
