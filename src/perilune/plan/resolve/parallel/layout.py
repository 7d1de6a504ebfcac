"""Data-parallel attention and the layouts that exclude it.

Source: SGLang 0.5.23 `arg_groups/parallel_hook.py`, `overrides.py`, `layernorm_sp_hook.py`.
"""

from __future__ import annotations

from typing import Final

from perilune.plan.resolve.graph_config import DISABLED, PHASES, GraphConfig, prefill_sizes
from perilune.plan.resolve.graphs import set_phase
from perilune.plan.resolve.state import Rejected, Resolution
from perilune.plan.resolve.view import dp_ranks, runs_attention_dp

CONSERVATIVENESS: Final = 0.3  # how much less memory a DP rank keeps back for running requests
GRAPH_REGISTER: Final = "NCCL_GRAPH_REGISTER"


def deprecated_dp_attention(r: Resolution) -> None:
    """Read `--dp-size N --enable-dp-attention` as `--attn-dp-size N`."""
    if not r["enable_dp_attention"]:
        return
    reason = "--enable-dp-attention turns --dp-size N into --attn-dp-size N."
    if r["attn_dp_size"] == 1:
        r.set("attn_dp_size", r["dp_size"], reason)
        r.set("dp_size", 1, reason)
    r.set("enable_dp_attention", False, reason)


def dwdp(r: Resolution) -> None:
    """Lay out distributed weight data parallelism, which fixes nearly every other dimension."""
    size = r["dwdp_size"]
    if size <= 1:
        return
    refusals = (
        (size != r["tp_size"], f"dwdp_size ({size}) must equal tp_size ({r['tp_size']})"),
        (
            r["disaggregation_mode"] not in ("null", "prefill"),
            "DWDP requires --disaggregation-mode null or prefill",
        ),
        (r["enable_eplb"], "EPLB dynamic migration conflicts with static DWDP partitioning"),
        (
            r["speculative_algorithm"] is not None,
            "DWDP does not support speculative decoding (MTP/draft workers)",
        ),
        (r["pp_size"] != 1, "DWDP requires pp_size == 1"),
        (
            r["enable_two_batch_overlap"],
            "DWDP's prefetch event protocol does not support two-batch overlap",
        ),
    )
    for applies, text in refusals:
        if applies:
            raise _assertion(r, text)
    if r["disaggregation_mode"] == "null":
        r.warn("DWDP on a server that also decodes fetches all remote experts on every decode step.")
    forced = {
        "attn_dp_size": size,
        "dp_size": 1,
        "enable_dp_attention_local_control_broadcast": True,
        "enable_dp_lm_head": True,
        "moe_dense_tp_size": 1,
        "ep_size": size,
        "moe_dp_size": 1,
        "moe_a2a_backend": "none",
        "disable_cuda_graph": True,
    }
    for name, value in forced.items():
        r.set(name, value, "Fixed by distributed weight data parallelism (--dwdp-size).")
    r.env["SGLANG_SCHEDULER_SKIP_ALL_GATHER"] = "True"


def data_parallelism(r: Resolution) -> None:
    """Check the data-parallel layout and share the prefill chunk among the attention-DP ranks."""
    groups = r["attn_dp_size"]
    if groups < 1:
        raise r.reject(f"--attn-dp-size must be positive (got {groups}).")
    if groups > 1 and r["dp_size"] > 1:
        raise r.reject(
            f"--dp-size {r['dp_size']} with --attn-dp-size {groups}: data-parallel replicas combined with "
            "attention data parallelism are not supported."
        )
    if dp_ranks(r) == 1 and r["ep_join_mode"] != "scale":
        r.set("enable_dp_lm_head", False, "There is a single DP rank.")
    if r["mm_enable_dp_encoder"] and r["tp_size"] == 1:
        r.warn("--mm-enable-dp-encoder has nothing to distribute at TP 1.")
    if runs_attention_dp(r):
        _share_prefill_chunk(r)
    _lm_head(r)
    if _graphs_capture_collectives(r):
        _keep_nccl_from_registering(r)


def pipeline_overlap(r: Resolution) -> None:
    """Pipeline stages cannot overlap scheduling with the forward pass."""
    if r["pp_size"] > 1:
        r.warn("The overlap scheduler is off: it does not work with pipeline parallelism.")
        r.set("disable_overlap_schedule", True, "Not compatible with pipeline parallelism.")


def layernorm_sp(r: Resolution) -> None:
    """Sequence-parallel LayerNorm exists for two architectures, neither of which is modelled."""
    muse_prefill = r["enable_megamoe_for_layernorm_sp"]
    if muse_prefill and not r["enable_layernorm_sp"]:
        raise r.reject("--enable-megamoe-for-layernorm-sp requires --enable-layernorm-sp.")
    if muse_prefill:
        raise r.reject("--enable-megamoe-for-layernorm-sp supports only Muse Spark.")
    if r["enable_layernorm_sp"]:
        raise r.reject(
            "--enable-layernorm-sp is only supported for ['MuseSparkForConditionalGeneration', "
            f"'Qwen3ForCausalLM']; got {r.model.architecture}."
        )


def _assertion(r: Resolution, text: str) -> Rejected:
    return r.reject(text, error="AssertionError")


def _share_prefill_chunk(r: Resolution) -> None:
    groups = r["attn_dp_size"]
    r.set(
        "schedule_conservativeness",
        r["schedule_conservativeness"] * CONSERVATIVENESS,
        "Attention DP ranks each see a share of the load.",
    )
    if r.flag_env("SGLANG_RUST_SERVER"):
        r.set("enable_dp_attention_local_control_broadcast", True, "The Rust server addresses each DP rank.")
    if r["tp_size"] % groups:
        raise _assertion(r, "")
    chunk = r["chunked_prefill_size"] // groups
    r.set("chunked_prefill_size", chunk, f"Shared by {groups} attention-DP ranks.")
    r.warn(f"Under attention DP every rank prefills chunks of {chunk} tokens.")
    graphs: GraphConfig = r["cuda_graph_config"]
    limit = graphs.prefill.max_bs
    if (
        graphs.prefill.backend != DISABLED
        and limit is not None
        and limit > chunk
        and ("prefill", "max_bs") not in graphs.locked
    ):
        reason = "No DP rank prefills more than its chunk."
        if ("prefill", "bs") in graphs.locked:
            set_phase(r, "prefill", reason, max_bs=chunk)
        else:
            set_phase(r, "prefill", reason, max_bs=chunk, bs=prefill_sizes(chunk))


def _lm_head(r: Resolution) -> None:
    """Settle how the output projection is spread, and check that its layout fits the ranks."""
    tp, groups = r["tp_size"], r["attn_dp_size"]
    if r["enable_tp_lm_head_all_to_all"] is None:
        pays = (
            r["disaggregation_mode"] == "decode"
            and groups > 1
            and tp == groups
            and r["attn_cp_size"] == 1
            and not r["enable_dp_lm_head"]
        )
        r.set(
            "enable_tp_lm_head_all_to_all",
            pays,
            "On for decode servers whose ranks are all attention-DP ranks.",
        )
    if r["enable_dp_lm_head"] and not runs_attention_dp(r):
        raise _assertion(r, "--enable-dp-lm-head requires attention DP (--attn-dp-size).")
    if not r["enable_tp_lm_head_all_to_all"]:
        return
    flag = "--enable-tp-lm-head-all-to-all"
    if not runs_attention_dp(r):
        raise _assertion(r, f"{flag} requires attention DP (--attn-dp-size).")
    if r["enable_dp_lm_head"]:
        raise _assertion(r, f"{flag} uses a TP-sharded LM head and is incompatible with --enable-dp-lm-head.")
    if tp != groups:
        raise _assertion(
            r,
            f"{flag} currently requires tp_size == attn_dp_size, got tp_size={tp}, attn_dp_size={groups}.",
        )
    if r["attn_cp_size"] != 1:
        raise _assertion(r, f"{flag} currently requires attn_cp_size == 1, got {r['attn_cp_size']}.")


def _graphs_capture_collectives(r: Resolution) -> bool:
    several_ranks = max(r["tp_size"], r["ep_size"], r["dp_size"]) > 1
    graphs: GraphConfig = r["cuda_graph_config"]
    return several_ranks and any(getattr(graphs, phase).backend != DISABLED for phase in PHASES)


def _keep_nccl_from_registering(r: Resolution) -> None:
    """Replayed collectives can hang on registered buffers, so registration is off unless it was asked for."""
    setting = r.env.setdefault(GRAPH_REGISTER, "0")
    if setting != "0":
        r.warn(f"{GRAPH_REGISTER}={setting}: replaying captured collectives can hang.")
