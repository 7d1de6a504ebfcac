"""Context parallelism: of decode (DCP), of prefill (CP), and of MoE data groups.

Source: SGLang 0.5.23 `arg_groups/parallel_hook.py`, `cp_tp_group_sharing_hook.py`.
"""

from __future__ import annotations

from typing import Final

from perilune.plan.resolve import machine
from perilune.plan.resolve.state import Resolution

ALL_TO_ALL: Final = ("a2a", "fi_a2a")
NEMOTRON_H: Final = frozenset({"nemotron_h", "nemotron_h_puzzle"})
GROUP_SHARING: Final = "Glm5NextForConditionalGeneration"


def decode_context_parallelism(r: Resolution) -> None:
    """Choose how DCP ranks exchange attention results, and refuse what DCP lacks."""
    size = r["dcp_size"]
    if r["dcp_comm_backend"] is None:
        r.set("dcp_comm_backend", *_dcp_exchange(r))
    backend = r["dcp_comm_backend"]
    if size < 1:
        raise r.reject(
            "Decode context parallel size (--dcp-size / --decode-context-parallel-size) must be >= 1, but "
            f"got dcp_size={size}."
        )
    if size > 1 and r["enable_prefill_cp"]:
        raise r.reject("--dcp-size > 1 does not support --enable-prefill-cp.")
    if backend in ALL_TO_ALL and size <= 1:
        raise r.reject(
            f"--dcp-comm-backend {backend} only affects the decode context-parallel attention reduction and "
            f"therefore requires --dcp-size / --decode-context-parallel-size > 1, but got dcp_size={size}."
        )
    if backend == "fi_a2a" and not machine.is_cuda(r.platform):
        raise r.reject(
            "--dcp-comm-backend fi_a2a delegates the exchange to FlashInfer's MNNVL All-to-All kernel, which "
            "requires Blackwell and a DCP group within one MNNVL domain. Use 'a2a' or 'ag_rs' elsewhere, or "
            "leave the flag unset to resolve it."
        )
    if r["dcp_replicate_q_proj"]:
        if size <= 1:
            raise r.reject("--dcp-replicate-q-proj requires --dcp-size > 1.")
        if backend not in ALL_TO_ALL:
            raise r.reject(
                "--dcp-replicate-q-proj only applies to the a2a/fi_a2a DCP communication backend (it removes "
                f"the head-dim Q all-gather); got --dcp-comm-backend={backend}."
            )


def context_parallelism(r: Resolution) -> None:
    """Check prefill CP and MoE data parallelism against the model and the rank layout."""
    _drop_scattered_input(r)
    if r["enable_prefill_cp"]:
        _check_prefill_cp(r)
    _check_layout(r)


def _dcp_exchange(r: Resolution) -> tuple[str, str]:
    """The default exchange and why."""
    size = r["dcp_size"]
    if size <= 1:
        return "ag_rs", "There is no DCP group."
    if machine.is_sm100(r.platform):
        if machine.has_fabric(r.platform):
            return "fi_a2a", "The NVLink fabric reaches every DCP rank."
        per_node = r["tp_size"] // max(r["nnodes"] // r["pp_size"], 1)
        if per_node % size == 0:
            return "fi_a2a", "Every DCP group lies within one node."
    if machine.is_npu(r.platform):
        return "ag_rs", "The only exchange on Ascend."
    return "a2a", "FlashInfer's all-to-all does not reach every DCP rank."


def _drop_scattered_input(r: Resolution) -> None:
    nemotron = r.model.text.get("model_type") in NEMOTRON_H
    if nemotron and r["attn_cp_size"] > 1:
        raise r.reject("Nemotron-H does not support --attn-cp-size > 1")
    if r["enable_attn_tp_input_scattered"] and (nemotron or r.model.is_kimi_k3):
        r.warn(f"Input-scattered attention is off: {r.model.architecture} does not implement it.")
        r.set("enable_attn_tp_input_scattered", False, "The model does not implement it.")


def _check_prefill_cp(r: Resolution) -> None:
    architecture = r.model.architecture
    if machine.is_hip(r.platform):
        raise r.reject(f"Prefill CP on HIP is only supported for DeepseekV4ForCausalLM, got {architecture!r}.")
    if architecture == GROUP_SHARING and r["attn_cp_size"] > 1:
        _share_tp_group(r)
    if r["cp_strategy"] is None:
        raise r.reject("--cp-strategy must be set when --enable-prefill-cp is enabled.")


def _share_tp_group(r: Resolution) -> None:
    """GLM-5.3-Flash prefills with the TP group as its CP group; little else combines with that."""
    cp, tp = r["attn_cp_size"], r["tp_size"]
    if cp != tp:
        raise r.reject(
            f"CP-TP group sharing requires --attn-cp-size == --tp-size, got attn_cp_size={cp}, tp_size={tp}."
        )
    if r["cp_strategy"] != "interleave":
        raise r.reject("CP-TP group sharing requires --cp-strategy interleave.")
    algorithm = r["speculative_algorithm"]
    native_mtp = (
        algorithm is not None
        and algorithm.upper() in ("EAGLE", "NEXTN")
        and r["speculative_draft_model_path"] in (None, r["model_path"])
        and r["speculative_eagle_topk"] in (None, 1)
    )
    if algorithm not in (None, "DFLASH") and not native_mtp:
        raise r.reject("CP/TP group sharing only supports DFLASH or native MTP with top-k 1.")
    mode = r["disaggregation_mode"]
    unsupported = [
        ("enable-dsa-cache-layer-split", r["enable_dsa_cache_layer_split"]),
        ("dcp-size > 1", r["dcp_size"] > 1),
        ("enable-mixed-chunk", r["enable_mixed_chunk"]),
        ("moe-dp-size > 1", r["moe_dp_size"] > 1),
    ]
    if mode != "null":
        unsupported += [
            ("disaggregation-mode decode", mode == "decode"),
            (
                "disaggregation-transfer-backend != mooncake",
                r["disaggregation_transfer_backend"] != "mooncake",
            ),
            ("speculative-algorithm != DFLASH", algorithm != "DFLASH"),
            ("pp-size > 1", r["pp_size"] > 1),
            ("dp-size > 1", r["dp_size"] > 1),
            ("ep-size > 1", r["ep_size"] > 1),
        ]
    for what, applies in unsupported:
        if applies:
            raise r.reject(f"--{what} is not supported with CP-TP group sharing.")
    if mode == "prefill" and r.flag_env("SGLANG_DISAGG_STAGING_BUFFER"):
        raise r.reject("SGLANG_DISAGG_STAGING_BUFFER is not supported with CP-TP group sharing.")
    for name, heads in _recurrent_heads(r).items():
        if heads % tp:
            raise r.reject(f"{name}={heads} must be divisible by --tp-size={tp}.")
    r.set("enable_cp_tp_group_sharing", True, "This model's prefill CP group is its TP group.")


def _recurrent_heads(r: Resolution) -> dict[str, int]:
    """The head counts that the recurrent layers split over the TP group."""
    fields = r.model.fields
    if fields.has("linear_num_key_heads"):
        names = ("linear_num_key_heads", "linear_num_value_heads")
        return {name: fields.integer(name) for name in names}
    if fields.has("linear_num_heads"):
        return {"num_heads": fields.integer("linear_num_heads")}
    return {"num_heads": fields.section("linear_attn_config").integer("num_heads")}


def _check_layout(r: Resolution) -> None:
    tp, cp, moe_dp, ep = r["tp_size"], r["attn_cp_size"], r["moe_dp_size"], r["ep_size"]
    no_aiter = (
        bool(r["enable_aiter_allreduce_fusion"]),
        "Aiter allreduce fusion is not supported with context parallelism",
    )
    refusals: list[tuple[bool, str]] = []
    if cp > 1:
        refusals += [
            (tp % cp != 0, "tp_size must be divisible by attn_cp_size"),
            (
                tp % (r["attn_dp_size"] * cp) != 0,
                "tp_size must be divisible by attn_dp_size * attn_cp_size",
            ),
            no_aiter,
        ]
    if moe_dp > 1:
        refusals += [
            (tp % moe_dp != 0, "tp_size must be divisible by moe_dp_size"),
            (ep * moe_dp > tp, "ep_size * moe_dp_size must be less than or equal to tp_size"),
            (r["pp_size"] != 1, "PP is not supported with context parallelism"),
            (ep > 1 and ep * moe_dp != tp, "ep_size * moe_dp_size must be equal to tp_size"),
            no_aiter,
        ]
    if cp != moe_dp:
        refusals.append((moe_dp != 1, "attn_cp_size != moe_dp_size is only supported when moe_dp_size == 1"))
    for applies, text in refusals:
        if applies:
            raise r.reject(text, error="AssertionError")
