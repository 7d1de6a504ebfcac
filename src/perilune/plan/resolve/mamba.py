"""Linear-attention state: cache strategy, stochastic rounding, int8 checkpoints.

Source: SGLang 0.5.23 `arg_groups/mamba_hook.py` and `_mamba_radix_cache_resolution` of `overrides.py`.
"""

from __future__ import annotations

from typing import Final

from perilune.plan.model.config import ModelConfig
from perilune.plan.model.fields import Fields
from perilune.plan.resolve import machine
from perilune.plan.resolve.state import Resolution

STATE_CACHE_ARCHITECTURES: Final = frozenset(
    {
        "BailingMoeV2_5ForCausalLM",
        "BailingMoeV3ForCausalLM",
        "BailingMoeV3VLForConditionalGeneration",
        "FalconH1ForCausalLM",
        "Glm5NextForConditionalGeneration",
        "InternS2MobiusForConditionalGeneration",
        "InternS2PreviewForConditionalGeneration",
        "JetNemotronForCausalLM",
        "JetVLMForConditionalGeneration",
        "KimiK3ForConditionalGeneration",
        "KimiLinearForCausalLM",
        "Lfm2ForCausalLM",
        "Lfm2MoeForCausalLM",
        "MiniCPMV4_6ForConditionalGeneration",
        "MiniCPMV4_7ForConditionalGeneration",
        "NemotronHForCausalLM",
        "NemotronHPuzzleForCausalLM",
        "NemotronH_Omni_Reasoning_V3",
        "Qwen3NextForCausalLM",
        "Qwen3_5ForCausalLM",
        "Qwen3_5ForConditionalGeneration",
        "Qwen3_5MoeForCausalLM",
        "Qwen3_5MoeForConditionalGeneration",
        "Qwen4ExpForConditionalGeneration",
        "ZayaForCausalLM",
    }
)
WITHOUT_EXTRA_BUFFER: Final = frozenset(
    {
        "InternS2MobiusForConditionalGeneration",
        "JetNemotronForCausalLM",
        "JetVLMForConditionalGeneration",
        "Lfm2ForCausalLM",
        "Lfm2MoeForCausalLM",
        "ZayaForCausalLM",
    }
)
KERNEL_CHUNK: Final = 64
"""Tokens of one chunk of the linear-attention kernels, where the config does not set `mamba_chunk_size`."""


def backend(r: Resolution) -> None:
    """Check the options of the state kernels."""
    if r["mamba_cache_philox_rounds"] < 0:
        raise r.reject("--mamba-cache-philox-rounds must be non-negative.")
    path_limit = r["mamba_max_states_per_path"]
    if path_limit == 0 or path_limit < -1:
        raise r.reject(f"--mamba-max-states-per-path must be -1 (unlimited) or a positive integer, got {path_limit}.")
    if r["enable_mamba_cache_stochastic_rounding"]:
        _check_stochastic_rounding(r)
    if r["mamba_backend"] == "flashinfer" and not machine.has_flashinfer(r.platform, r.env):
        text = "FlashInfer mamba module not available, please check the FlashInfer installation."
        if r["enable_mamba_cache_stochastic_rounding"]:
            text += (
                " Stochastic rounding with --mamba-backend flashinfer requires FlashInfer Mamba "
                "and --mamba-ssm-dtype float16."
            )
        raise r.reject(text)


def int8_checkpoint(r: Resolution) -> None:
    """Refuse int8 state checkpoints beside caches that cannot read them."""
    if not r["enable_int8_mamba_checkpoint"]:
        return
    if r["enable_hierarchical_cache"]:
        raise r.reject(
            "--enable-int8-mamba-checkpoint is not supported together with --enable-hierarchical-cache: "
            "the host-offload path is not int8-aware. Disable one of them."
        )
    if r["radix_cache_backend"] is not None:
        raise r.reject(
            "--enable-int8-mamba-checkpoint only supports the built-in mamba radix cache; "
            f"--radix-cache-backend={r['radix_cache_backend']!r} is not int8-aware. "
            "Omit --radix-cache-backend."
        )
    if r["enable_lmcache"]:
        raise r.reject(
            "--enable-int8-mamba-checkpoint is not supported together with --enable-lmcache: "
            "LMCache is not int8-aware. Disable one of them."
        )


def radix_cache(r: Resolution) -> None:
    """Choose how states are cached beside the radix tree, and check the choice."""
    if r.model.architecture in STATE_CACHE_ARCHITECTURES and not r["disable_radix_cache"]:
        r.set("uses_mamba_radix_cache", True, "The model keeps a recurrent state per request.")
        if r["mamba_radix_cache_strategy"] == "auto":
            _choose_strategy(r)
    if not r["uses_mamba_radix_cache"]:
        if uses_extra_buffer(r):
            raise r.reject(
                f"--mamba-radix-cache-strategy {r['mamba_radix_cache_strategy']} needs mamba state, "
                f"got {r.model.architecture}."
            )
    elif uses_extra_buffer(r):
        _check_extra_buffer(r)
    else:
        _check_no_buffer(r)


def uses_extra_buffer(r: Resolution) -> bool:
    """Whether states are snapshotted into extra slots (`extra_buffer`, `extra_buffer_lazy`)."""
    strategy = r["mamba_radix_cache_strategy"]
    return not r["disable_radix_cache"] and strategy in ("extra_buffer", "extra_buffer_lazy")


def cache_chunk(r: Resolution) -> int:
    """Tokens between two states that the radix tree can hold; raises a rejection for a bad page."""
    chunk, page = _state_chunk(r.model), r["page_size"]
    if max(chunk, page) % min(chunk, page):
        raise r.reject(
            "For SSM models, either chunk_size or page_size must be divisible by the other, "
            f"got chunk_size={chunk}, page_size={page}",
            error="AssertionError",
        )
    return max(chunk, int(page))


def supports_extra_buffer(r: Resolution) -> bool:
    """Whether the model can snapshot its states: the family must, and the base kernel must be Triton."""
    known = STATE_CACHE_ARCHITECTURES - WITHOUT_EXTRA_BUFFER
    return r.model.architecture in known and r["linear_attn_backend"] == "triton"


def _state_chunk(model: ModelConfig) -> int:
    fields = Fields(model.raw, f"{model.path} config")
    if model.model_type == "nemotron_h":
        legacy = fields.integer("chunk_size", default=256)
        return fields.integer("mamba_chunk_size", default=legacy)
    return fields.integer("mamba_chunk_size", default=KERNEL_CHUNK)


def _choose_strategy(r: Resolution) -> None:
    overlaps = not r["disable_overlap_schedule"]
    pages = r["page_size"] is not None and r["page_size"] > 1
    if (overlaps or pages) and supports_extra_buffer(r):
        reason = "Overlap scheduling needs state snapshots." if overlaps else "Paged KV needs state snapshots."
        r.set("mamba_radix_cache_strategy", "extra_buffer", reason)
        return
    reason = "Neither overlap scheduling nor pages are used."
    if overlaps or pages:
        reason = "States cannot be snapshotted here."
    r.set("mamba_radix_cache_strategy", "no_buffer", reason)
    r.set("disable_overlap_schedule", True, "no_buffer does not work with overlap scheduling.")


def _check_extra_buffer(r: Resolution) -> None:
    if not supports_extra_buffer(r):
        raise r.reject(
            f"extra_buffer is not supported for {r.model.architecture}; use no_buffer.",
            error="AssertionError",
        )
    if r["mamba_radix_cache_strategy"] == "extra_buffer_lazy" and r["disaggregation_mode"] != "null":
        raise r.reject(
            "extra_buffer_lazy unsupported under PD disaggregation; use --mamba-radix-cache-strategy extra_buffer.",
            error="AssertionError",
        )
    interval, draft, page = r["mamba_track_interval"], r["speculative_num_draft_tokens"], r["page_size"]
    if (draft is not None and interval < draft) or (page is not None and interval % page):
        raise r.reject("", error="AssertionError")
    if page is None:
        return
    chunk, smallest = r["chunked_prefill_size"], cache_chunk(r)
    if chunk is not None and 0 < chunk < smallest:
        r.warn(
            f"Prefill chunks of {chunk} tokens are shorter than the {smallest} tokens between two "
            "cacheable states, so a long prompt may leave none to reuse."
        )


def _check_no_buffer(r: Resolution) -> None:
    if r["page_size"] not in (1, None):
        raise r.reject("no_buffer only supports page_size=1.", error="AssertionError")
    if not r["disable_overlap_schedule"]:
        raise r.reject(
            "no_buffer do not support overlap schedule. Try to set disable_overlap_schedule=True.",
            error="AssertionError",
        )
    if r["attention_backend"] == "trtllm_mha":
        raise r.reject("no_buffer do not support trtllm_mha attention backend.", error="AssertionError")


def _check_stochastic_rounding(r: Resolution) -> None:
    if r["mamba_ssm_dtype"] != "float16":
        raise r.reject(
            "Stochastic rounding for the Mamba SSM cache requires --mamba-ssm-dtype float16, got "
            f"{r['mamba_ssm_dtype']!r}. Run with --mamba-ssm-dtype float16 or disable "
            "--enable-mamba-cache-stochastic-rounding."
        )
    if not machine.is_cuda(r.platform):
        raise r.reject(
            "Stochastic rounding for the Mamba SSM cache is only supported on NVIDIA CUDA platforms. "
            "Disable --enable-mamba-cache-stochastic-rounding on this platform."
        )
    if r["mamba_backend"] == "triton" and not machine.is_sm100(r.platform):
        raise r.reject(
            "Stochastic rounding for the Mamba SSM cache with --mamba-backend triton requires SM100 with "
            "CUDA >= 12.8 because it uses the cvt.rs.f16x2.f32 PTX instruction. On H100/SM90, run with "
            "--mamba-backend flashinfer --mamba-ssm-dtype float16, or disable "
            "--enable-mamba-cache-stochastic-rounding."
        )
