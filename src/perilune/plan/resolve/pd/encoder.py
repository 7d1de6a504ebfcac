"""Vision encoders on servers of their own, and the network devices that carry KV and embeddings."""

from __future__ import annotations

from perilune.plan.resolve.pd.ib_devices import normalised
from perilune.plan.resolve.state import Resolution

TEXT_ONLY_ARCHITECTURES = (
    "DeepseekV4ForCausalLM",
    "MuseGlimmerForConditionalGeneration",
    "Cosmos3ForConditionalGeneration",
    "Cosmos3EdgeForConditionalGeneration",
)
ENCODER_ARCHITECTURES = frozenset(
    {
        "Dots3NoteForCausalLM",
        "Glm5NextForConditionalGeneration",
        "InternS2PreviewForConditionalGeneration",
        "KimiK25ForConditionalGeneration",
        "KimiK3ForConditionalGeneration",
        "KimiVLForConditionalGeneration",
        "MiMoV2ForCausalLM",
        "MiniMaxM3SparseForConditionalGeneration",
        "MuseSparkForConditionalGeneration",
        "Qwen2AudioForConditionalGeneration",
        "Qwen2VLForConditionalGeneration",
        "Qwen2_5OmniForConditionalGeneration",
        "Qwen2_5_VLForConditionalGeneration",
        "Qwen3OmniMoeForConditionalGeneration",
        "Qwen3VLForConditionalGeneration",
        "Qwen3VLMoeForConditionalGeneration",
        "Qwen3_5ForConditionalGeneration",
        "Qwen3_5MoeForConditionalGeneration",
    }
)


def encoder_disaggregation(r: Resolution) -> None:
    """Settle who encodes images and how embeddings travel; check the RDMA devices that were named."""
    if r["language_model_only"]:
        _check_text_only(r)
    if r["enable_prefix_mm_cache"] and not r["encoder_only"]:
        raise r.reject("--enable-prefix-mm-cache requires --encoder-only to be enabled")
    if r["encoder_only"] and r["language_only"]:
        raise r.reject("Cannot set --encoder-only and --language-only together")
    if r["encoder_only"] and r["disaggregation_mode"] != "null":
        raise r.reject("Cannot set --encoder-only and --disaggregation-mode prefill/decode together")
    _check_devices(r)
    architecture = r.model.architecture
    if r["encoder_transfer_backend"] == "auto":
        sharded_k3 = architecture == "KimiK3ForConditionalGeneration" and r["tp_size"] > 1
        receiver = "zmq_to_tokenizer" if sharded_k3 else "zmq_to_scheduler"
        r.set("encoder_transfer_backend", receiver, f"The receiver of image embeddings for {architecture}.")
    split = r["encoder_only"] or r["language_only"]
    if split and architecture not in ENCODER_ARCHITECTURES:
        raise r.reject(
            f"Model type {architecture} is not supported for encoder disaggregation. Supported "
            "architectures: Qwen2VL, Qwen3VL, Qwen3.5, InternS2, Qwen2Audio, Qwen2.5Omni, Dots3-Note, Kimi, "
            "MiMoV2, GLM5Next, MiniMax-M3, MuseSpark."
        )


def _check_text_only(r: Resolution) -> None:
    for field in (
        "encoder_only",
        "language_only",
        "enable_prefix_mm_cache",
        "enable_broadcast_mm_inputs_process",
        "mm_enable_dp_encoder",
    ):
        if r[field]:
            raise r.reject(f"--language-model-only cannot be combined with --{field.replace('_', '-')}")
    if r["disaggregation_mode"] != "null" and r.model.model_type != "deepseek_v41":
        raise r.reject("--language-model-only is incompatible with --disaggregation-mode prefill/decode")
    architectures = list(r.model.raw["architectures"])
    if set(TEXT_ONLY_ARCHITECTURES).isdisjoint(architectures):
        raise r.reject(
            f"--language-model-only does not support {architectures}. Supported: {list(TEXT_ONLY_ARCHITECTURES)}."
        )


def _check_devices(r: Resolution) -> None:
    moves_kv = r["disaggregation_mode"] in ("prefill", "decode")
    if not (
        (r["disaggregation_transfer_backend"] == "mooncake" and moves_kv) or r["encoder_transfer_backend"] == "mooncake"
    ):
        return
    given = r["disaggregation_ib_device"]
    if given is None:
        if r.env.get("MC_FORCE_TCP") != "1":
            r.warn("No RDMA devices are named for Mooncake; it discovers them by itself.")
        return
    r.set("disaggregation_ib_device", normalised(r, given), "The list of RDMA devices in its normal form.")
    r.warn("Every RDMA device named must exist under /sys/class/infiniband on each node.")
