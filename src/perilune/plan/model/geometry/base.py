"""A model's geometry: every tensor group, what full attention keeps per token, what a recurrent slot holds."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from perilune.errors import UnusableInput
from perilune.plan.model.config import ModelConfig
from perilune.plan.model.geometry.cache import Cache
from perilune.plan.model.geometry.experts import Experts
from perilune.plan.model.geometry.state import StateShape
from perilune.plan.model.geometry.tensors import Tensors, Units


@dataclass(frozen=True, eq=False)
class Geometry:
    """What a checkpoint holds and what serving it keeps. Layer indices are 0-based and ascending."""

    config: ModelConfig
    num_layers: int
    linear_layers: tuple[int, ...]  # recurrent layers, which hold state
    full_layers: tuple[int, ...]  # layers that hold KV
    tensors: tuple[Tensors, ...]
    units: tuple[Units, ...] = ()  # heads and groups, which no split may cut
    experts: Experts | None = None
    state: StateShape | None = None
    cache: Cache | None = None
    excluded: str | None = None  # what the checkpoint holds besides, such as MTP layers
    source: str = ""

    @cached_property
    def total_parameters(self) -> int:
        """Elements in the checkpoint, without what `excluded` names."""
        return sum(t.parameters for t in self.tensors) + (self.experts.parameters if self.experts else 0)

    @cached_property
    def checkpoint_bytes(self) -> int:
        """Tensor bytes of the checkpoint, without what `excluded` names."""
        routed = self.experts.checkpoint_bytes if self.experts else 0
        return sum(t.checkpoint_bytes for t in self.tensors) + routed

    @cached_property
    def checkpoint_tensors(self) -> int:
        """Named tensors of the checkpoint, without what `excluded` names."""
        routed = self.experts.checkpoint_tensors if self.experts else 0
        return sum(t.checkpoint_tensors for t in self.tensors) + routed

    def state_bytes_per_slot(
        self, attn_tp: int, ssm_bytes: int = 4, conv_bytes: int = 2, layers: int | None = None
    ) -> int:
        """Bytes of one recurrent state slot on one rank, over `layers` recurrent layers (all by default).

        0 for a model without recurrent layers. Raises Indivisible when attention TP does not divide the heads.
        """
        if self.state is None:
            return 0
        return self.state.slot_bytes(attn_tp, ssm_bytes, conv_bytes) * self._linear(layers)

    def ring_bytes_per_slot(self, attn_tp: int, cache_len: int, layers: int | None = None, conv_bytes: int = 2) -> int:
        """Bytes of one slot's ReplaySSM ring of `cache_len` tokens on one rank; 0 without recurrent layers."""
        if self.state is None:
            return 0
        return self.state.ring_bytes(attn_tp, cache_len, conv_bytes) * self._linear(layers)

    def kv_bytes_per_token(self, kv_bytes: int, layers: int | None = None, attn_tp: int = 1) -> int:
        """KV bytes per token on one rank over `layers` attention layers (all by default); `kv_bytes` per element."""
        if self.cache is None:
            return 0
        return self.cache.token_bytes(kv_bytes, attn_tp) * (len(self.full_layers) if layers is None else layers)

    def state_formula(self, attn_tp: int, ssm_bytes: int = 4, conv_bytes: int = 2) -> str:
        """How a slot's bytes come about, with the numbers put in."""
        if self.state is None:
            return "no recurrent layers"
        layer = self.state.slot_formula(attn_tp, ssm_bytes, conv_bytes)
        return f"{len(self.linear_layers)} {self.state.kind.upper()} layers x ({layer})"

    def kv_formula(self, kv_bytes: int, attn_tp: int = 1) -> str:
        """How a token's KV bytes come about, with the numbers put in."""
        if self.cache is None:
            return "no attention layers"
        return f"{len(self.full_layers)} layers x ({self.cache.formula(kv_bytes, attn_tp)})"

    def _linear(self, layers: int | None) -> int:
        count = len(self.linear_layers) if layers is None else layers
        if not 0 <= count <= self.num_layers:
            raise UnusableInput(f"{count} recurrent layers were asked of a model with {self.num_layers} layers.")
        return count
