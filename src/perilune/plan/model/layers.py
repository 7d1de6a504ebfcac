"""Which layers of a text model are recurrent, and which hold KV."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from perilune.plan.model.fields import Fields

MAX_LAYERS = 10_000
BLOCKS = {"M": "mamba", "E": "moe", "*": "attention", "-": "mlp"}
DEFAULT_ATTENTION_INTERVAL = 4


@dataclass(frozen=True, slots=True)
class LayerPlan:
    """0-based, ascending layer indices. `kind` is kda, gdn, mamba2, or None for pure attention."""

    count: int
    kind: str | None
    linear: tuple[int, ...]
    full: tuple[int, ...]
    blocks: tuple[str, ...] = ()  # one name per layer, for models that list them (mamba, moe, attention, mlp)


def plan_layers(f: Fields) -> LayerPlan:
    """Read the layer plan of a text section; raises UnusableInput naming the field that cannot be used."""
    if f.has("hybrid_override_pattern") or f.has("layers_block_type"):
        return _from_blocks(f)
    count = f.integer("num_hidden_layers", high=MAX_LAYERS)
    kind, linear = _recurrent(f, count)
    recurrent = set(linear)
    return LayerPlan(count, kind, linear, tuple(i for i in range(count) if i not in recurrent))


def _recurrent(f: Fields, count: int) -> tuple[str | None, tuple[int, ...]]:
    section = f.values.get("linear_attn_config")
    if isinstance(section, Mapping) and section.get("kda_layers"):
        first = 0 if f.values.get("model_type") == "glm5_next_text" else 1
        listed = f.section("linear_attn_config").integers("kda_layers", low=first, high=count - 1 + first)
        return "kda", tuple(sorted({i - first for i in listed}))
    if f.has("linear_num_heads"):
        return "kda", _named(f, count, "linear_attention")
    if f.has("linear_num_value_heads"):
        every = f.integer("full_attention_interval", high=MAX_LAYERS, default=DEFAULT_ATTENTION_INTERVAL)
        return "gdn", tuple(i for i in range(count) if (i + 1) % every)
    return None, ()


def _named(f: Fields, count: int, name: str) -> tuple[int, ...]:
    if not f.has("layer_types"):
        return tuple(i for i in range(count) if i % DEFAULT_ATTENTION_INTERVAL != DEFAULT_ATTENTION_INTERVAL - 1)
    names = f.names("layer_types", at_most=MAX_LAYERS)
    if len(names) != count:
        raise f.bad("layer_types", f"lists {len(names)} layers, but num_hidden_layers is {count}")
    return tuple(i for i, each in enumerate(names) if each == name)


def _from_blocks(f: Fields) -> LayerPlan:
    """A Mamba2 hybrid spells out its layers, as letters or as names."""
    if f.has("layers_block_type"):
        field = "layers_block_type"
        blocks = f.names(field, at_most=MAX_LAYERS)
    else:
        field = "hybrid_override_pattern"
        pattern = f.values[field]
        if not isinstance(pattern, str) or len(pattern) > MAX_LAYERS:
            raise f.bad(field, f"must be a text of at most {MAX_LAYERS} letters")
        blocks = tuple(BLOCKS.get(letter, letter) for letter in pattern)
    unknown = sorted(set(blocks) - set(BLOCKS.values()))
    if unknown or not blocks:
        what = f"holds {unknown[0]!r}" if unknown else "is empty"
        raise f.bad(field, f"{what}; known layers are {', '.join(BLOCKS.values())}")
    if f.has("num_hidden_layers") and f.integer("num_hidden_layers", high=MAX_LAYERS) != len(blocks):
        raise f.bad("num_hidden_layers", f"is {f.values['num_hidden_layers']}, but {field} lists {len(blocks)} layers")

    def of(name: str) -> tuple[int, ...]:
        return tuple(i for i, block in enumerate(blocks) if block == name)

    return LayerPlan(len(blocks), "mamba2", of("mamba"), of("attention"), blocks)
