"""The order in which SGLang 0.5.23 resolves arguments. Each step is a function of its subject's module."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from perilune.facts.hardware import Platform
from perilune.plan.model.config import ModelConfig
from perilune.plan.resolve import (
    attention,
    checks,
    deterministic,
    engine_model,
    graphs,
    hicache,
    kv_cache,
    linear_attention,
    loading,
    mamba,
    memory_fraction,
    model_rules,
    moe,
    parallel,
    pd,
    platforms,
    serving,
    speculation,
)
from perilune.plan.resolve.state import Rejected, Resolution, Resolved

Step = Callable[[Resolution], None]

STEPS: tuple[Step, ...] = (
    parallel.deprecated_dp_attention,
    moe.mega_moe,
    serving.hidden_states_mode,
    serving.media_url_security,
    serving.watermark,
    hicache.ratio_default,
    kv_cache.offload_compatibility,
    serving.prefill_decode_interval,
    serving.response_store,
    serving.sampling_mask,
    speculation.aux_hidden_state_capture,
    platforms.hardware_runtime,
    loading.model_source,
    serving.multimodal,
    serving.ssl,
    serving.asr,
    serving.deprecated_args,
    serving.prefill_delayer,
    serving.missing_defaults,
    loading.expert_pack,
    pd.disaggregation,
    kv_cache.prefill_only_flags,
    parallel.decode_context_parallelism,
    engine_model.read,
    parallel.dwdp,
    graphs.cuda_graph_config,
    platforms.device_backends,
    platforms.symmetric_memory_support,
    memory_fraction.gpu_memory_settings,
    model_rules.model_specific,
    serving.prefill_decode_interval_default,
    kv_cache.offload_compatibility,
    attention.sampling_backend,
    deterministic.deterministic_inference,
    kv_cache.nvfp4_prefill_dtype,
    attention.backend_compatibility,
    graphs.prefill_graph_for_trtllm_mla,
    mamba.backend,
    mamba.int8_checkpoint,
    linear_attention.backend,
    kv_cache.kv4_compatibility,
    kv_cache.mxfp8_compatibility,
    attention.page_size_default,
    platforms.amd_specifics,
    serving.grammar_backend,
    attention.multi_item_scoring,
    kv_cache.prefill_only_backend,
    hicache.hierarchical_cache,
    parallel.data_parallelism,
    serving.load_balance_method,
    parallel.context_parallelism,
    graphs.prefill_cp_default,
    parallel.kv_cache_sharding,
    moe.kernel_config,
    moe.a2a,
    parallel.shared_experts_tp,
    parallel.eplb_and_dispatch,
    parallel.expert_distribution_metrics,
    parallel.elastic_ep,
    moe.experimental_marlin,
    parallel.pipeline_overlap,
    speculation.speculative_decoding,
    moe.boundary_reduction,
    parallel.layernorm_sp,
    moe.flashinfer_a2a_budget,
    moe.mega_moe_budget,
    loading.load_format,
    pd.encoder_disaggregation,
    serving.tokenizer_batching,
    serving.environment_variables,
    kv_cache.cache_compatibility,
    kv_cache.page_major_layout,
    kv_cache.unified_memory,
    speculation.diffusion_llm,
    serving.crash_dump,
    serving.debug_utils,
    serving.other_validations,
    model_rules.model_capability,
    platforms.kernel_plugins,
    graphs.prefill_max_context,
    parallel.kv_cache_sharding,
    moe.deepep_v2_draft,
    moe.deepep_v2_budget,
)


def resolve_values(
    values: Mapping[str, Any],
    *,
    given: frozenset[str],
    env: Mapping[str, str],
    platform: Platform,
    model: ModelConfig,
    draft: ModelConfig | None = None,
) -> Resolved:
    """Run every step over parsed argument values (SGLang field names) and freeze the outcome."""
    state = Resolution(dict(values), given, dict(env), platform, model, draft)
    error, stage = None, "done"
    try:
        for step in STEPS:
            step(state)
        checks.check_server_args(state)
    except Rejected as rejection:
        error, stage = rejection.message, rejection.stage
    except ZeroDivisionError as division:  # the engine divides by the same zero
        error, stage = f"ZeroDivisionError: {division}", "resolve"
    state.fill_fallbacks()
    return Resolved(
        accepted=error is None,
        error=error,
        stage=stage,
        values=state.values,
        given=given,
        env=state.env,
        platform=platform,
        model=state.model,
        draft=draft,
        rewrites=tuple(state.rewrites),
        warnings=tuple(state.warnings),
        engine_model=state.engine_model,
    )
