"""CUDA graph capture: what is captured per phase, and what rules it out.

Source: SGLang 0.5.23 `arg_groups/cuda_graph_hook.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from perilune.errors import UnusableInput
from perilune.plan.model.traits import has_kda
from perilune.plan.resolve import machine
from perilune.plan.resolve.engine_model import engine_model
from perilune.plan.resolve.graph_config import (
    BACKENDS,
    BREAKABLE,
    DISABLED,
    FULL,
    PHASES,
    GraphConfig,
    Phase,
    default_graphs,
    prefill_sizes,
)
from perilune.plan.resolve.state import Resolution
from perilune.plan.resolve.view import attention_backends

BREAKABLE_A2A_BACKENDS = frozenset({"none", "deepep", "megamoe", "flashinfer"})
BREAKABLE_MULTIMODAL_ARCHITECTURES = frozenset(
    {
        "Glm5NextForConditionalGeneration",
        "KimiK25ForConditionalGeneration",
        "KimiK3ForConditionalGeneration",
        "Qwen3_5ForConditionalGeneration",
        "Qwen3_5MoeForConditionalGeneration",
    }
)
DEFAULT_PREFILL_MAX = 2048
PHASE_FLAGS: Mapping[str, tuple[Phase, str]] = {
    "cuda_graph_backend_decode": ("decode", "backend"),
    "cuda_graph_backend_prefill": ("prefill", "backend"),
    "cuda_graph_max_bs_decode": ("decode", "max_bs"),
    "cuda_graph_max_bs_prefill": ("prefill", "max_bs"),
    "cuda_graph_max_seq_len_prefill": ("prefill", "max_seq_len"),
    "cuda_graph_bs_decode": ("decode", "bs"),
    "cuda_graph_bs_prefill": ("prefill", "bs"),
    "cuda_graph_prefill_max_context": ("prefill", "max_context_size"),
}


def set_phase(r: Resolution, phase: Phase, reason: str, **changes: Any) -> None:
    """Decide some settings of one phase."""
    graphs: GraphConfig = r["cuda_graph_config"]
    r.set("cuda_graph_config", graphs.with_phase(phase, **changes), reason)


def disable_graphs(r: Resolution, reason: str) -> None:
    """Turn graphs off in both phases."""
    for phase in PHASES:
        set_phase(r, phase, reason, backend=DISABLED)


def cuda_graph_config(r: Resolution) -> None:
    """Read the graph flags (JSON wins over flags, flags over switches); drop what cannot be captured."""
    default = default_graphs(cuda=machine.is_cuda(r.platform))
    r.values["cuda_graph_config"] = default.with_locked(_fixed_by_user(r))
    _disable_incompatible_prefill(r)
    _align_for_deepep(r)
    _follow_pd_role(r)
    for phase in PHASES:
        backend = getattr(r["cuda_graph_config"], phase).backend
        if backend not in BACKENDS:
            raise r.reject(f"--cuda-graph-config[{phase}].backend={backend!r} not allowed; allowed: {BACKENDS}")
    if r["cuda_graph_config"].prefill.backend == FULL:
        r.warn("Full prefill graphs are experimental; breakable ones are meant for production.")


def prefill_graph_for_trtllm_mla(r: Resolution) -> None:
    """Turn the default prefill graph off for DeepSeek-V3 on trtllm_mla, where it slows prefill down."""
    graphs: GraphConfig = r["cuda_graph_config"]
    if (
        ("prefill", "backend") not in graphs.locked
        and graphs.prefill.backend != DISABLED
        and r.model.architecture == "DeepseekV3ForCausalLM"
        and attention_backends(r)[0] == "trtllm_mla"
    ):
        r.warn("Prefill CUDA graphs are off: they would slow trtllm_mla down.")
        set_phase(r, "prefill", "A captured prefill makes trtllm_mla use a slower kernel.", backend=DISABLED)


def prefill_cp_default(r: Resolution) -> None:
    """With prefill context parallelism, capture breakable prefill graphs where that is supported."""
    if not r["enable_prefill_cp"]:
        return
    if ("prefill", "backend") not in r["cuda_graph_config"].locked and supports_prefill_cp_graph(r):
        set_phase(r, "prefill", "This prefill context parallelism can be captured.", backend=BREAKABLE)
        _disable_incompatible_prefill(r)
        _follow_pd_role(r)
        _align_for_deepep(r)
    if r["cuda_graph_config"].prefill.backend != BREAKABLE:
        r.warn("Prefill CUDA graphs are not captured under this prefill context parallelism.")


def prefill_max_context(r: Resolution) -> None:
    """Round the prefill graph's context limit up to whole pages and hold it against the model's context."""
    asked = r["cuda_graph_config"].prefill.max_context_size
    if asked is None:
        return
    if asked <= 0:
        raise r.reject("--cuda-graph-prefill-max-context must be a positive integer")
    page = r["page_size"]
    aligned = -(-asked // page) * page
    context = engine_model(r).context_length
    if aligned > context > 0:
        raise r.reject(
            f"--cuda-graph-prefill-max-context exceeds the model context length: aligned size {aligned} > {context}"
        )
    set_phase(r, "prefill", f"Whole pages of {page} tokens.", max_context_size=aligned)


def supports_prefill_cp_graph(r: Resolution) -> bool:
    """Whether breakable graphs can capture this prefill context parallelism."""
    if not (r["enable_prefill_cp"] and r["pp_size"] == 1 and r["attn_cp_size"] == r["tp_size"]):
        return False
    pair = (r["cp_strategy"], attention_backends(r)[0])
    if pair == ("interleave", "dsa"):
        return bool(
            r["dp_size"] == 1
            and r["ep_size"] == 1
            and r["attn_cp_size"] > 1
            and r.model.architecture == "Glm5NextForConditionalGeneration"
        )
    return pair == ("zigzag", "trtllm_mha")


def _fixed_by_user(r: Resolution) -> dict[tuple[Phase, str], Any]:
    """Settings the user fixed, weakest source first so that a stronger one overwrites it."""
    fixed: dict[tuple[Phase, str], Any] = {}
    if r["disable_cuda_graph"]:
        fixed |= {("decode", "backend"): DISABLED, ("prefill", "backend"): DISABLED}
    if r["disable_prefill_cuda_graph"]:
        fixed["prefill", "backend"] = DISABLED
    if r["disable_decode_cuda_graph"]:
        fixed["decode", "backend"] = DISABLED
    for flag, setting in PHASE_FLAGS.items():
        value = r[flag]
        if value is not None:
            fixed[setting] = tuple(value) if isinstance(value, list) else value
    for phase in PHASES:
        for name, value in ((r["cuda_graph_config"] or {}).get(phase) or {}).items():
            fixed[phase, name] = value if name == "backend" else _json_number(phase, name, value)
    return fixed


def _json_number(phase: Phase, name: str, value: Any) -> Any:
    """Check a setting that came as JSON: a whole number, a list of them for `bs`, or null."""
    numbers = value if name == "bs" and isinstance(value, list) else [value]
    plain = all(isinstance(n, int) and not isinstance(n, bool) for n in numbers)
    if value is not None and not (plain and (name == "bs") == isinstance(value, list)):
        kind = "a list of whole numbers" if name == "bs" else "a whole number"
        raise UnusableInput(f"{name} must be {kind}.", where=f"--cuda-graph-config[{phase}]")
    return tuple(value) if isinstance(value, list) else value


def _disable_incompatible_prefill(r: Resolution) -> None:
    graphs: GraphConfig = r["cuda_graph_config"]
    if ("prefill", "backend") in graphs.locked or graphs.prefill.backend != BREAKABLE:
        return
    if r["pp_size"] > 1:
        set_phase(r, "prefill", "Off by default under pipeline parallelism.", backend=DISABLED)
        return
    for obstacle in _obstacles(r):
        if obstacle:
            r.warn(f"Prefill CUDA graphs are off: they do not work with {obstacle}.")
        reason = f"Not compatible with {obstacle or 'prefill context parallelism'}."
        set_phase(r, "prefill", reason, backend=DISABLED)
        return


def _obstacles(r: Resolution) -> Iterator[str]:
    """What rules a breakable prefill graph out, in the engine's order; an empty text is not warned of."""
    architecture = r.model.architecture
    if has_kda(r.model) and architecture != "Glm5NextForConditionalGeneration":
        yield "KDA linear attention"
    if r["attn_cp_size"] > 1 and not supports_prefill_cp_graph(r):
        yield ""
    if r["dcp_size"] > 1:
        yield "decode context parallelism"
    if r["enable_two_batch_overlap"]:
        yield "two-batch overlap"
    if r["moe_a2a_backend"] not in BREAKABLE_A2A_BACKENDS:
        yield f"the {r['moe_a2a_backend']} MoE all-to-all"
    if engine_model(r).is_multimodal and architecture not in BREAKABLE_MULTIMODAL_ARCHITECTURES:
        yield "this multimodal model"


def _align_for_deepep(r: Resolution) -> None:
    """DeepEP can hang when a captured token count is not a multiple of 8."""
    prefill = r["cuda_graph_config"].prefill
    if r["moe_a2a_backend"] != "deepep" or prefill.backend != BREAKABLE:
        return
    sizes = prefill_sizes(prefill.max_bs or DEFAULT_PREFILL_MAX) if prefill.bs is None else prefill.bs
    aligned = tuple(sorted({-(-size // 8) * 8 for size in sizes}))
    if aligned != tuple(sorted(sizes)):
        set_phase(r, "prefill", "DeepEP needs multiples of 8 tokens.", bs=aligned, max_bs=aligned[-1])


def _follow_pd_role(r: Resolution) -> None:
    """A prefill server needs no decode graphs, a decode server no prefill graphs."""
    unused: dict[str, Phase] = {"prefill": "decode", "decode": "prefill"}
    phase = unused.get(r["disaggregation_mode"])
    if phase is not None and (phase, "backend") not in r["cuda_graph_config"].locked:
        role = r["disaggregation_mode"]
        set_phase(r, phase, f"A {role} server of a PD pair runs no {phase}.", backend=DISABLED)
