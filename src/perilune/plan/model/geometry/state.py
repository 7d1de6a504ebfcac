"""The recurrent state of one request slot: KDA, GDN and Mamba2. Source: SGLang 0.5.23 configs/mamba_utils.py."""

from __future__ import annotations

from dataclasses import dataclass

from perilune.plan.model.geometry.shape import divide


@dataclass(frozen=True, slots=True)
class StateShape:
    """One recurrent layer's state before it is split over attention TP.

    Temporal state is value heads x value dim x key dim; the convolution window is (kernel - 1) x channels, where
    channels are value heads x value dim + 2 x key heads x key dim.
    """

    kind: str  # kda | gdn | mamba2
    value_heads: int
    value_dim: int
    key_heads: int
    key_dim: int
    conv_kernel: int

    def channels(self, attn_tp: int) -> int:
        """Convolution channels of one rank; raises Indivisible with the engine's text."""
        values = self.value_heads * self.value_dim
        if self.kind == "kda":
            keys = self.key_heads * self.key_dim
            return divide(values, attn_tp, "value channels") + 2 * divide(keys, attn_tp, "key channels")
        groups = self.key_heads if self.key_heads % attn_tp == 0 else attn_tp
        return divide(values + 2 * groups * self.key_dim, attn_tp, "convolution channels")

    def slot_bytes(self, attn_tp: int, ssm_bytes: int, conv_bytes: int) -> int:
        """Bytes of one layer's state per slot on one rank."""
        window = (self.conv_kernel - 1) * self.channels(attn_tp)
        heads = divide(self.value_heads, attn_tp, "value heads")
        return heads * self.value_dim * self.key_dim * ssm_bytes + window * conv_bytes

    def ring_bytes(self, attn_tp: int, cache_len: int, conv_bytes: int) -> int:
        """Bytes of one layer's ReplaySSM ring per slot on one rank, for a ring of `cache_len` tokens."""
        heads = divide(self.value_heads, attn_tp, "value heads")
        keys = -(-self.key_heads // attn_tp) * self.key_dim
        values = heads * self.value_dim
        inputs = (values + keys) * conv_bytes
        if self.kind == "kda":
            return cache_len * (2 * inputs + heads * 4 + heads * self.key_dim * 4)
        copies = 1 if conv_bytes == 4 else 2
        return cache_len * (copies * inputs + heads * 4)

    def slot_formula(self, attn_tp: int, ssm_bytes: int, conv_bytes: int) -> str:
        """`slot_bytes` with the numbers put in."""
        heads = divide(self.value_heads, attn_tp, "value heads")
        return (
            f"{heads} heads x {self.value_dim} x {self.key_dim} x {ssm_bytes} B"
            f" + {self.conv_kernel - 1} x {self.channels(attn_tp):,} channels x {conv_bytes} B"
        )
