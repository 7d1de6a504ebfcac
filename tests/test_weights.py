"""Weights: what one GPU holds, for every way of splitting a model, and why."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perilune.errors import Refused, UnusableInput
from perilune.facts.models import models
from perilune.plan.model import (
    Indivisible,
    ParallelShape,
    geometry_of,
    known_config,
    parse_config,
    replicated_query,
    resident_weights,
    weight_bytes,
)
from weights_table import CASES, DEEPSEEK, DSPARK, K3, LLAMA, NANO, NVIDIA, QWEN, RED_HAT, WeightCase, constructed_bytes

GIB = 1 << 30
B300 = {"sm": 103, "moe_runner": "flashinfer_mxfp4"}


def gib(name: str, stage: int = 0, **shape: object) -> float:
    """GiB of weights of one GPU, to two digits."""
    return round(weight_bytes(geometry_of(known_config(name)), ParallelShape(**shape), stage) / GIB, 2)  # type: ignore[arg-type]


def groups(name: str, **shape: object) -> dict[str, int]:
    """Bytes of one GPU by group."""
    found = resident_weights(geometry_of(known_config(name)), ParallelShape(**shape))  # type: ignore[arg-type]
    return {group.name: group.bytes for group in found}


@pytest.mark.parametrize("weights", CASES, ids=lambda c: c.id)
def test_bytes_the_engine_allocates(weights: WeightCase) -> None:
    assert constructed_bytes(weights) == weights.engine_bytes


class TestKimiK3:
    def test_the_groups_of_a_b300_at_tp8(self) -> None:
        found = {name: round(size / GIB, 2) for name, size in groups(K3, tp=8, **B300).items()}
        assert found == {
            "routed experts": 168.39,
            "latent projections": 8.81,
            "KDA attention": 7.23,
            "shared experts": 2.83,
            "MLA attention": 1.89,
            "expert zero biases": 1.34,
            "router": 1.1,
            "vision": 0.83,
            "embedding": 0.27,
            "lm_head": 0.27,
            "dense MLP": 0.17,
            "absorbed MLA copies": 0.07,
            "attention residual": 0.01,
            "norms": 0.0,
        }

    @pytest.mark.parametrize(
        ("name", "shape", "expected"),
        [
            (K3, {"tp": 8, **B300}, 193.22),
            (K3, {"tp": 16, "sm": 100, "moe_runner": "flashinfer_mxfp4"}, 131.04),
            (K3, {"tp": 16, "ep": 16, "sm": 90, "moe_runner": "marlin"}, 101.81),
            (NVIDIA, {"tp": 8, "sm": 103, "moe_runner": "flashinfer_trtllm"}, 197.39),
            (RED_HAT, {"tp": 8, "sm": 103, "moe_runner": "flashinfer_trtllm"}, 201.79),
            (DSPARK, {"tp": 8}, 1.33),
            (DSPARK, {"tp": 16}, 1.11),
        ],
    )
    def test_a_gpu_after_loading(self, name: str, shape: dict[str, object], expected: float) -> None:
        assert gib(name, **shape) == expected

    def test_without_an_mxfp4_runner_hopper_expands_the_experts_to_bf16(self) -> None:
        expanded = groups(K3, tp=16, ep=16, sm=90)["routed experts"]
        assert expanded == groups(K3, tp=16, ep=16, sm=90, moe_runner="marlin")["routed experts"] * 64 // 17

    @pytest.mark.parametrize(("wide", "padded"), [(True, 512), (False, 384)])
    def test_rocm_pads_experts_to_256_unless_told(self, wide: bool, padded: int) -> None:
        shape = {"tp": 8, "kind": "hip", "sm": None, "aiter_wide_padding": wide}
        assert groups(K3, **shape)["routed experts"] == 92 * 896 * 3 * 3584 * padded * 17 // 32
        assert "expert zero biases" not in groups(K3, **shape)

    def test_redundant_experts_are_held_too(self) -> None:
        plain = groups(K3, tp=8, ep=8, **B300)["routed experts"]
        more = groups(K3, tp=8, ep=8, redundant_experts=32, **B300)["routed experts"]
        assert more * 896 == plain * 928

    def test_query_weights_that_dcp_gathers_are_counted_apart(self) -> None:
        g = geometry_of(known_config(K3))
        copied = replicated_query(g, ParallelShape(tp=8, dcp=8))
        assert copied is not None
        assert copied.bytes == 24 * 2 * (96 * 192 * 1536 + 96 * 128 * 512)
        assert copied.formula == "24 x 18,432 x 1,536 x 2 B (q_b_proj) + 24 x 12,288 x 512 x 2 B (w_kc)"
        assert replicated_query(g, ParallelShape(tp=8)) is None
        assert replicated_query(geometry_of(known_config(NVIDIA)), ParallelShape(tp=8, dcp=8)) is None
        assert replicated_query(geometry_of(known_config(LLAMA)), ParallelShape(tp=8, dcp=8)) is None


class TestOtherModels:
    def test_fused_shared_experts_are_split_like_routed_ones(self) -> None:
        apart = groups(DEEPSEEK, tp=8, ep=4)["shared experts"]
        fused = groups(DEEPSEEK, tp=8, ep=4, fused_shared_experts=True)["shared experts"]
        assert fused > 3.9 * apart

    def test_a_tied_head_is_stored_once(self) -> None:
        raw = {**known_config(LLAMA).raw, "tie_word_embeddings": True}
        tied = geometry_of(parse_config(raw, "config.json"))
        assert geometry_of(known_config(LLAMA)).total_parameters - tied.total_parameters == 128_256 * 8_192

    @pytest.mark.parametrize(
        ("shape", "rows"),
        [({"tp": 8}, 31_040), ({"tp": 8, "attn_dp": 2}, 248_320), ({"tp": 8, "embed_replicated": True}, 31_040)],
    )
    def test_qwen_keeps_its_embedding_whole_under_attention_dp(self, shape: dict[str, object], rows: int) -> None:
        assert groups(QWEN, **shape)["embedding"] == rows * 4096 * 2

    @pytest.mark.parametrize(
        ("shape", "rows"),
        [
            ({"tp": 8}, 20_480),
            ({"tp": 8, "attn_dp": 2}, 40_960),
            ({"tp": 6}, 27_328),
            ({"tp": 8, "embed_replicated": True}, 163_840),
        ],
    )
    def test_kimi_splits_its_embedding_over_attention_tp(self, shape: dict[str, object], rows: int) -> None:
        assert groups(K3, **shape)["embedding"] == rows * 7168 * 2

    @pytest.mark.parametrize(
        ("name", "shape", "width"),
        [
            (K3, {"tp": 8, "attn_dp": 4}, 8),
            (K3, {"tp": 8, "attn_dp": 4, "dense_mlp_attn_tp": True}, 2),
            (K3, {"tp": 8, "dense_mlp_attn_tp": True}, 8),
            (K3, {"tp": 8, "attn_dp": 8, "moe_dense_tp": 1}, 8),
            (DEEPSEEK, {"tp": 8, "attn_dp": 8}, 8),
            (DEEPSEEK, {"tp": 8, "attn_dp": 8, "moe_dense_tp": 1}, 1),
        ],
    )
    def test_what_the_dense_mlp_is_split_over(self, name: str, shape: dict[str, object], width: int) -> None:
        assert groups(name, **shape)["dense MLP"] * width == groups(name, tp=1)["dense MLP"]


class TestShapesThatCannotBe:
    @pytest.mark.parametrize(
        ("name", "shape", "said"),
        [
            (K3, {"tp": 5}, "is not divisible by 5"),
            (K3, {"tp": 7}, "is not divisible by 7"),
            (K3, {"tp": 10, "ep": 10}, "is not divisible by 10"),
            (K3, {"tp": 9, "ep": 9}, "is not divisible by 9"),
            (LLAMA, {"tp": 3}, "is not divisible by 3"),
            (QWEN, {"tp": 12}, "is not divisible by 12"),
            (DSPARK, {"tp": 12}, "is not divisible by 12"),
            (K3, {"tp": 64}, "96 is not divisible by 64"),
            (QWEN, {"tp": 32}, "16 is not divisible by 32"),
            (NANO, {"tp": 16}, "8 is not divisible by 16"),
        ],
    )
    def test_a_width_that_does_not_divide_the_model(self, name: str, shape: dict[str, int], said: str) -> None:
        with pytest.raises(Indivisible, match=said) as caught:
            resident_weights(geometry_of(known_config(name)), ParallelShape(**shape))
        assert caught.value.where
        assert isinstance(caught.value, Refused)

    @pytest.mark.parametrize(
        "shape", [{"tp": 0}, {"tp": 8, "attn_dp": 3}, {"tp": 8, "ep": 5}, {"tp": 8, "pp": -1}, {"tp": 1 << 20}]
    )
    def test_widths_that_do_not_fit_each_other(self, shape: dict[str, int]) -> None:
        with pytest.raises(UnusableInput):
            ParallelShape(**shape)

    def test_a_stage_that_is_not_there(self) -> None:
        for stage in (2, -1):
            with pytest.raises(UnusableInput, match=f"Stage {stage} is not one of 2"):
                resident_weights(geometry_of(known_config(K3)), ParallelShape(tp=8, pp=2), stage)


DIVISORS = st.sampled_from([1, 2, 4, 8])


@settings(deadline=None)
@given(st.sampled_from(sorted(models())), DIVISORS, DIVISORS, DIVISORS)
def test_all_gpus_together_hold_at_least_the_model_and_every_line_adds_up(name: str, tp: int, ep: int, pp: int) -> None:
    g = geometry_of(known_config(name))
    if tp % ep or pp > g.num_layers:
        return
    shape = ParallelShape(tp=tp, ep=ep, pp=pp, moe_runner="deep_gemm")
    held = 0
    for stage in range(pp):
        found = resident_weights(g, shape, stage)
        assert [x.bytes for x in found] == sorted((x.bytes for x in found), reverse=True)
        for group in found:
            assert group.formula
            assert group.sharding
            if group.parts:
                assert group.bytes == sum(part.bytes for part in group.parts)
            held += group.bytes
    unloaded = sum(t.checkpoint_bytes for t in g.tensors if t.resident is None)
    assert held * tp >= g.checkpoint_bytes - unloaded


@settings(deadline=None)
@given(st.sampled_from([2, 4, 8]))
def test_more_tensor_parallelism_never_holds_more(tp: int) -> None:
    for name in models():
        g = geometry_of(known_config(name))
        smaller, larger = (ParallelShape(tp=width, moe_runner="deep_gemm") for width in (tp, tp // 2))
        assert weight_bytes(g, smaller) <= weight_bytes(g, larger)
