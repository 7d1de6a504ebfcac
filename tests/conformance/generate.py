"""Seeded command lines over the engine's whole option space, weighted to what matters for Kimi-K3.

A line starts from a published shape of its platform, takes a few flags of the `knobs` of `space.yaml`
and, in one case of four, options from the rest of the catalog. The same seed gives the same lines.
"""

from __future__ import annotations

import random
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec

from perilune.facts.flags import Option, catalog
from perilune.facts.hardware import platform

Case = dict[str, Any]
Knobs = dict[str, tuple[str, ...]]

K3 = ("--trust-remote-code", "--model-path", "moonshotai/Kimi-K3")


class Space(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is drawn from; see `space.yaml`."""

    weights: dict[str, int]
    bases: dict[str, tuple[str, ...]]
    knobs: Knobs
    speculation: tuple[str, ...]
    speculation_knobs: Knobs
    variables: tuple[dict[str, str], ...]
    elsewhere: tuple[str, ...]
    not_drawn: tuple[str, ...]
    memory_knobs: tuple[str, ...]


@cache
def space() -> Space:
    """The option space."""
    return msgspec.yaml.decode(Path(__file__).with_name("space.yaml").read_bytes(), type=Space)


@cache
def rest_of_catalog() -> tuple[Option, ...]:
    """Options outside the knobs whose value can be drawn without touching anything outside the process."""
    known = space()
    return tuple(
        option
        for option in catalog().options
        if option.dest not in known.not_drawn
        and not any(part in option.dest for part in known.elsewhere)
        and not set(option.options) & known.knobs.keys()
        and (option.choices or option.type in (None, "int", "float", "human_readable_int"))
    )


def generate(count: int, seed: int) -> list[Case]:
    """`count` command lines, the same for the same seed."""
    draw = random.Random(seed)
    return [_case(draw, f"generated-{seed}-{index}") for index in range(count)]


def generate_memory(count: int, seed: int) -> list[Case]:
    """`count` command lines with the free memory of a boot, from knobs that move the pools."""
    draw = random.Random(seed)
    return [_memory_case(draw, f"memory-{seed}-{index}") for index in range(count)]


def _memory_case(draw: random.Random, name: str) -> Case:
    known = space()
    case = _start(draw, name, "memory")
    if random.Random(name).random() < 0.75:
        # Every stage is judged in two processes of its own: keep most pipelines short.
        case["argv"] = _with_short_pipeline(case["argv"])
    if draw.random() < 0.5:
        case["argv"] += draw.choice(known.speculation[:3]).split()
        case["argv"] += ["--speculative-dspark-block-size", draw.choice(("3", "7"))] * (draw.random() < 0.3)
    knobs = {flag: known.knobs[flag] for flag in known.memory_knobs}
    for _ in range(draw.choices((0, 1, 2, 3, 4, 6), (8, 20, 27, 22, 15, 8))[0]):
        case["argv"] += _knob(draw, knobs)
    total = platform(case["platform"]).memory_mib / 1024
    before = total - draw.uniform(1.5, 9)
    # Mostly a healthy share stays after the weights; sometimes hardly any.
    left = draw.uniform(0.22, 0.6) if draw.random() < 0.9 else draw.uniform(0.02, 0.2)
    case |= {
        "pre_model_load_gib": round(before, 3),
        "free_after_weights_gib": round(before * left, 3),
        "build_pools": True,
    }
    if draw.random() < 0.05:
        case["kv_cache_quant_algo"] = "FP8"
    return _with_variables(draw, case)


def _with_short_pipeline(words: list[str]) -> list[str]:
    return ["2" if before == "--pp-size" else word for before, word in pairwise(["", *words])]


def _start(draw: random.Random, name: str, kind: str) -> Case:
    weights, bases = space().weights, space().bases
    chosen = draw.choices(tuple(weights), tuple(weights.values()))[0]
    return {"id": name, "kind": kind, "platform": chosen, "argv": [*K3, *draw.choice(bases[chosen]).split()]}


def _with_variables(draw: random.Random, case: Case) -> Case:
    return case | {"env": draw.choice(space().variables)} if draw.random() < 0.06 else case


def _case(draw: random.Random, name: str) -> Case:
    known = space()
    case = _start(draw, name, "arguments")
    words = case["argv"]
    if draw.random() < 0.45:
        words += draw.choice(known.speculation).split()
        if draw.random() < 0.3:
            words += _knob(draw, known.speculation_knobs)
    for _ in range(draw.choices((0, 1, 2, 3, 5, 8), (10, 25, 25, 20, 14, 6))[0]):
        words += _knob(draw, known.knobs)
    if draw.random() < 0.25:
        for option in draw.sample(rest_of_catalog(), draw.randint(1, 2)):
            words += _option(draw, option)
    return _with_variables(draw, case)


def _knob(draw: random.Random, knobs: Knobs) -> list[str]:
    flag = draw.choice(tuple(knobs))
    if not knobs[flag]:
        return [flag]
    value = draw.choice(knobs[flag])
    return [flag, value] if value.startswith("{") else [flag, *value.split()]


def _option(draw: random.Random, option: Option) -> list[str]:
    flag = draw.choice(option.options)
    if not option.takes_value:
        return [flag]
    if option.choices:
        return [flag, str(draw.choice(option.choices))]
    numbers = ("0.1", "0.5", "1.0", "2.0") if option.type == "float" else ("1", "2", "4", "16", "64", "1024")
    return [flag, draw.choice(numbers)]
