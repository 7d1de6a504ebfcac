"""What full attention keeps per token. Source: SGLang 0.5.23 model_executor/pool_configurator.py."""

from __future__ import annotations

from dataclasses import dataclass

INDEX_SCALE_BLOCK = 128  # indexer elements that share one F32 scale


@dataclass(frozen=True, slots=True)
class LatentCache:
    """MLA: one latent row per token and layer, whole on every rank."""

    latent: int  # kv_lora_rank
    rope: int  # the extra key dims stored beside it
    index_dim: int = 0  # width of a sparse-attention indexer's keys, FP8 with F32 scales
    index_pool: int = 1  # tokens that share one indexer key

    def token_bytes(self, kv_bytes: int, attn_tp: int) -> int:
        """Bytes per token and layer."""
        return (self.latent + self.rope) * kv_bytes + self.index_bytes

    @property
    def index_bytes(self) -> int:
        """Bytes per token and layer of the indexer's keys."""
        return -(-(self.index_dim + self.index_dim // INDEX_SCALE_BLOCK * 4) // self.index_pool)

    def formula(self, kv_bytes: int, attn_tp: int) -> str:
        """`token_bytes` with the numbers put in."""
        index = f" + {self.index_bytes} B of indexer keys" if self.index_dim else ""
        return f"({self.latent} + {self.rope}) x {kv_bytes} B{index}"


@dataclass(frozen=True, slots=True)
class HeadCache:
    """Per-head KV: keys and values of each KV head, split over attention TP down to one head."""

    kv_heads: int
    head_dim: int
    value_dim: int

    def token_bytes(self, kv_bytes: int, attn_tp: int) -> int:
        """Bytes per token and layer on one rank."""
        return self.heads(attn_tp) * (self.head_dim + self.value_dim) * kv_bytes

    def heads(self, attn_tp: int) -> int:
        """KV heads one rank keeps: at least one, replicated where there are more ranks than heads."""
        return max(1, self.kv_heads // attn_tp)

    def formula(self, kv_bytes: int, attn_tp: int) -> str:
        """`token_bytes` with the numbers put in."""
        return f"{self.heads(attn_tp)} KV heads x ({self.head_dim} + {self.value_dim}) x {kv_bytes} B"


Cache = LatentCache | HeadCache
