"""Pieces that several model families share: token tables, MLA, grouped-query attention, MLPs, routers, KDA."""

from __future__ import annotations

from dataclasses import dataclass

from perilune.plan.model.config import ModelConfig
from perilune.plan.model.fields import Fields
from perilune.plan.model.geometry.storage import BF16, F32, Storage
from perilune.plan.model.geometry.tensors import (
    EMBEDDING,
    FIRST,
    LAST,
    LM_HEAD,
    WHOLE,
    Owner,
    Split,
    Tensors,
)

MAX_DIM = 1 << 24
DENSE = ("dense TP", "dense MLP")
SHARED = ("shared-expert TP", "shared experts")
SHARED_TP = ("TP", "shared experts")
QUERY_PROJECTIONS = ("q_b_proj", "q_proj")
W_KC = "w_kc"


def token_tables(config: ModelConfig, head: Storage = BF16, embedding: Split = EMBEDDING) -> list[Tensors]:
    """Input embedding, final norm, and the output head unless it is tied to the embedding."""
    vocab, hidden = config.vocab_size, config.hidden_size
    found = [
        Tensors("embed_tokens", "embedding", vocab, hidden, FIRST, embedding),
        Tensors("final norm", "norms", hidden, 1, LAST),
    ]
    tied = config.fields.flag("tie_word_embeddings", default=bool(config.raw.get("tie_word_embeddings") is True))
    if not tied:
        found.append(Tensors("lm_head", "lm_head", vocab, hidden, LAST, LM_HEAD, stored=head, resident=head))
    return found


def layer_norms(config: ModelConfig, owner: Owner, count: int = 2) -> list[Tensors]:
    """The norms before attention and MLP."""
    return [Tensors("layer norms", "norms", config.hidden_size, 1, owner, count=count)]


@dataclass(frozen=True, slots=True)
class Mla:
    """Sizes of multi-head latent attention."""

    heads: int
    q_rank: int  # 0: queries come straight from the hidden state
    kv_rank: int
    nope: int
    rope: int
    value: int

    @classmethod
    def read(cls, f: Fields, heads: int) -> Mla:
        """Read the sizes; raises UnusableInput naming a missing or absurd one."""
        return cls(
            heads=heads,
            q_rank=f.integer("q_lora_rank", low=0, high=MAX_DIM, default=0),
            kv_rank=f.integer("kv_lora_rank", high=MAX_DIM),
            nope=f.integer("qk_nope_head_dim", high=MAX_DIM),
            rope=f.integer("qk_rope_head_dim", low=0, high=MAX_DIM, default=0),
            value=f.integer("v_head_dim", high=MAX_DIM),
        )


def mla(
    m: Mla,
    hidden: int,
    owner: Owner,
    stored: Storage = BF16,
    *,
    over: str = "attention TP",
    gate: bool = False,
) -> list[Tensors]:
    """Latent attention: down-projections and their norms are whole on every GPU, the rest is split by heads.

    The engine keeps `kv_b_proj` a second time, as the two matrices it absorbs into the query and the output.
    """
    group = "MLA attention"
    rows, cols = Split("rows", over), Split("cols", over)

    def matrix(name: str, n_rows: int, n_cols: int, split: Split) -> Tensors:
        return Tensors(name, group, n_rows, n_cols, owner, split, stored=stored, resident=stored)

    query = m.nope + m.rope
    found = []
    if m.q_rank:
        found += [
            matrix("q_a_proj", m.q_rank, hidden, WHOLE),
            Tensors("q_a_layernorm", group, m.q_rank, 1, owner),
            matrix("q_b_proj", m.heads * query, m.q_rank, rows),
        ]
    else:
        found.append(matrix("q_proj", m.heads * query, hidden, rows))
    pair, copies = m.heads * (m.nope + m.value), "absorbed MLA copies"
    found += [
        matrix("kv_a_proj", m.kv_rank + m.rope, hidden, WHOLE),
        Tensors("kv_a_layernorm", group, m.kv_rank, 1, owner),
        matrix("kv_b_proj", pair, m.kv_rank, rows),
        matrix("o_proj", hidden, m.heads * m.value, cols),
        Tensors(W_KC, copies, m.heads * m.nope, m.kv_rank, owner, rows, stored=None),
        Tensors("w_vc", copies, m.heads * m.value, m.kv_rank, owner, rows, stored=None),
    ]
    if gate:
        found.append(matrix("g_proj", m.heads * m.value, hidden, rows))
    return found


def grouped_query(
    config: ModelConfig,
    owner: Owner,
    stored: Storage = BF16,
    *,
    over: str = "attention TP",
    gate: bool = False,
    qk_norm: bool = False,
    bias: bool = False,
) -> list[Tensors]:
    """Attention with KV heads shared by groups of query heads; `gate` doubles the query projection."""
    group, hidden, dim = "attention", config.hidden_size, config.head_dim
    queries = config.num_heads * dim * (2 if gate else 1)
    keys = config.num_kv_heads * dim
    rows, cols, split_kv = Split("rows", over), Split("cols", over), Split("rows", over, config.num_kv_heads)

    def matrix(name: str, n_rows: int, n_cols: int, split: Split, count: int = 1) -> Tensors:
        return Tensors(name, group, n_rows, n_cols, owner, split, stored=stored, resident=stored, count=count)

    found = [
        matrix("q_proj", queries, hidden, rows),
        matrix("k_proj and v_proj", keys, hidden, split_kv, 2),
        matrix("o_proj", hidden, config.num_heads * dim, cols),
    ]
    if bias:
        found.append(Tensors("q bias", group, queries, 1, owner, rows))
        found.append(Tensors("k and v bias", group, keys, 1, owner, split_kv, count=2))
    if qk_norm:
        found.append(Tensors("q_norm and k_norm", group, dim, 1, owner, count=2))
    return found


def gated_mlp(
    hidden: int,
    inner: int,
    owner: Owner,
    stored: Storage = BF16,
    kind: tuple[str, str] = DENSE,
    *,
    gated: bool = True,
) -> list[Tensors]:
    """A gate, up and down projection (or up and down), split over TP by the inner size."""
    over, group = kind
    up, name = (2, "gate_proj and up_proj") if gated else (1, "up_proj")
    return [
        Tensors(name, group, inner, hidden, owner, Split("rows", over), stored, stored, count=up),
        Tensors("down_proj", group, hidden, inner, owner, Split("cols", over), stored, stored),
    ]


def router(experts: int, hidden: int, owner: Owner, *, bias: Storage | None = F32) -> list[Tensors]:
    """The router and its correction bias, whole on every GPU."""
    found = [Tensors("router", "router", experts, hidden, owner)]
    if bias is not None:
        found.append(Tensors("e_score_correction_bias", "router", experts, 1, owner, stored=F32, resident=bias))
    return found


@dataclass(frozen=True, slots=True)
class Kda:
    """Sizes of Kimi delta attention."""

    heads: int
    dim: int
    kernel: int

    @property
    def width(self) -> int:
        """Channels of each of q, k and v."""
        return self.heads * self.dim


def kda(k: Kda, hidden: int, owner: Owner, stored: Storage = BF16, *, split: tuple[Split, Split]) -> list[Tensors]:
    """What every KDA layer has: q, k, v and o, the decay pair f_a and f_b, beta, convolutions and small vectors."""
    group = "KDA attention"
    rows, cols = split

    def matrix(name: str, n_rows: int, n_cols: int, how: Split, count: int = 1) -> Tensors:
        return Tensors(name, group, n_rows, n_cols, owner, how, stored=stored, resident=stored, count=count)

    def small(name: str, size: int, per: int, how: Split, kept: Storage, count: int = 1) -> Tensors:
        return Tensors(name, group, size, per, owner, how, stored=F32, resident=kept, count=count)

    return [
        matrix("q_proj, k_proj and v_proj", k.width, hidden, rows, 3),
        matrix("o_proj", hidden, k.width, cols),
        matrix("f_a_proj", k.dim, hidden, WHOLE),
        matrix("f_b_proj", k.width, k.dim, rows),
        matrix("b_proj", k.heads, hidden, rows),
        small("q, k and v conv1d", k.width, k.kernel, rows, F32, 3),
        small("dt_bias", k.width, 1, rows, F32),
        small("o_norm", k.dim, 1, WHOLE, BF16),
    ]
