"""Weight bytes one GPU holds on each PP stage, target and draft, from the models' geometry."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

from perilune.plan.model.geometry import (
    Geometry,
    ParallelShape,
    WeightGroup,
    geometry_of,
    resident_weights,
)
from perilune.plan.resolve.state import Resolved


@dataclass(frozen=True, eq=False)
class StageWeights:
    """Groups of one stage, largest first, and the draft's."""

    target: tuple[WeightGroup, ...]
    draft: tuple[WeightGroup, ...]

    @cached_property
    def target_bytes(self) -> int:
        """Bytes of the target's groups."""
        return sum(group.bytes for group in self.target)

    @cached_property
    def draft_bytes(self) -> int:
        """Bytes of the draft's groups."""
        return sum(group.bytes for group in self.draft)

    @property
    def bytes(self) -> int:
        """Bytes of both."""
        return self.target_bytes + self.draft_bytes


def stage_weights(resolved: Resolved, geometry: Geometry) -> tuple[StageWeights, ...]:
    """The weights of every PP stage; raises Indivisible where the engine could not split the model."""
    shape = shape_of(resolved)
    return _stages(geometry, shape, _draft_weights(resolved, shape))


@lru_cache(maxsize=256)
def _stages(geometry: Geometry, shape: ParallelShape, draft: tuple[WeightGroup, ...]) -> tuple[StageWeights, ...]:
    return tuple(StageWeights(resident_weights(geometry, shape, stage), draft) for stage in range(shape.pp))


def shape_of(resolved: Resolved) -> ParallelShape:
    """The parallel shape and loading choices of a resolved server."""
    v, env = resolved.values, resolved.env
    attn_tp = v["tp_size"] // v["attn_dp_size"] // v["attn_cp_size"]
    shared = v["shared_experts_tp_size"]
    if shared is None and v["enable_shared_experts_attn_tp"]:
        shared = attn_tp
    return _shape(
        v["tp_size"],
        v["pp_size"],
        v["ep_size"],
        v["attn_dp_size"],
        v["attn_cp_size"],
        v["dcp_size"],
        env.get("SGLANG_PP_LAYER_PARTITION"),
        v["enable_dp_lm_head"],
        resolved.flag_env("SGLANG_ENABLE_EMBED_REPLICATION"),
        v["moe_dense_tp_size"],
        v["enable_dense_mlp_attn_tp"],
        shared,
        v["ep_num_redundant_experts"],
        v["mm_enable_dp_encoder"],
        v["moe_runner_backend"],
        v["moe_a2a_backend"],
        not resolved.flag_env("SGLANG_AITER_K3_OPT"),
        resolved.platform.kind,
        resolved.platform.sm,
    )


@lru_cache(maxsize=1024)
def _shape(
    tp: int,
    pp: int,
    ep: int,
    attn_dp: int,
    attn_cp: int,
    dcp: int,
    partition: str | None,
    dp_lm_head: bool,
    embed_replicated: bool,
    moe_dense_tp: int | None,
    dense_mlp_attn_tp: bool,
    shared_experts_tp: int | None,
    redundant_experts: int | None,
    encoder_dp: bool,
    moe_runner: str,
    moe_a2a: str,
    aiter_wide_padding: bool,
    kind: str,
    sm: int | None,
) -> ParallelShape:
    return ParallelShape(
        tp=tp,
        pp=pp,
        ep=ep,
        attn_dp=attn_dp,
        attn_cp=attn_cp,
        dcp=max(dcp, 1),
        partition=partition,
        dp_lm_head=bool(dp_lm_head),
        embed_replicated=embed_replicated,
        moe_dense_tp=moe_dense_tp,
        dense_mlp_attn_tp=bool(dense_mlp_attn_tp),
        shared_experts_tp=shared_experts_tp,
        redundant_experts=redundant_experts or 0,
        encoder_dp=bool(encoder_dp),
        moe_runner=moe_runner,
        moe_a2a=moe_a2a,
        aiter_wide_padding=aiter_wide_padding,
        kind=kind,
        sm=sm,
    )


def _draft_weights(resolved: Resolved, target: ParallelShape) -> tuple[WeightGroup, ...]:
    """The draft is whole on every stage and split over the GPUs that split one attention layer."""
    if resolved.draft is None or resolved["speculative_algorithm"] is None:
        return ()
    return resident_weights(geometry_of(resolved.draft), _draft_shape(target), 0)


@lru_cache(maxsize=1024)
def _draft_shape(target: ParallelShape) -> ParallelShape:
    width = target.attn_tp if target.attn_dp > 1 else target.tp
    return ParallelShape(tp=width, moe_runner=target.moe_runner, kind=target.kind, sm=target.sm)
