"""Diffusion language models, which denoise a block of tokens at a time."""

from __future__ import annotations

from perilune.plan.resolve.speculation.common import not_modelled
from perilune.plan.resolve.state import Resolution

ALGORITHMS = frozenset({"Gemma4Renoise", "JointThreshold", "JointThresholdInDel", "LowConfidence"})
ARCHITECTURES = frozenset(
    {"DiffusionGemmaForBlockDiffusion", "LLaDA2MoeModelLM", "SDARForCausalLM", "SDARMoeForCausalLM"}
)


def diffusion_llm(r: Resolution) -> None:
    """Refuse `--dllm-algorithm` for a model that does not denoise; those that do are not modelled."""
    algorithm = r["dllm_algorithm"]
    if algorithm is None:
        return
    if algorithm not in ALGORITHMS:
        raise r.reject(f"Unknown diffusion LLM algorithm: {algorithm}", error="RuntimeError")
    if r.model.architecture in ARCHITECTURES:
        raise not_modelled("--dllm-algorithm", "Leave it out.")
    if algorithm == "Gemma4Renoise":
        _gemma_requirements(r)
    raise r.reject(f"Unknown diffusion LLM: {r.model.architecture}", error="RuntimeError")


def _gemma_requirements(r: Resolution) -> None:
    if r["device"] != "cuda":
        raise r.reject("DiffusionGemma currently supports CUDA/ROCm GPU execution only")
    if r["pp_size"] > 1:
        raise r.reject("DiffusionGemma does not support pipeline parallelism")
    if r["dcp_size"] > 1 or r["attn_cp_size"] > 1:
        raise r.reject("DiffusionGemma does not support context parallelism")
    if r["quantization"] is not None or r.model.quant_method is not None:
        raise r.reject("DiffusionGemma does not support quantized loading")
    if not (r.model.raw.get("tie_word_embeddings") and r.model.text.get("tie_word_embeddings")):
        raise r.reject("DiffusionGemma requires tied word embeddings")
