"""Large-scale presets: what one emits for N GPUs, laid over a unified cell."""

from __future__ import annotations

from perilune.errors import Refused, UnusableInput
from perilune.facts.hardware import Platform
from perilune.facts.options import Preset, presets
from perilune.facts.recipes import assignments, catalog, words
from perilune.plan.compose.conditions import Situation, first_refusal, refuse
from perilune.plan.compose.flags import Flag, Flags, before_host, parse, replaced
from perilune.plan.compose.overlays import Env


def preset_named(name: str) -> Preset:
    """The preset called `name`; raises UnusableInput naming the known ones."""
    found = presets().preset(name)
    if found is None:
        known = " ".join(preset.id for preset in presets().presets)
        raise UnusableInput(f"Unknown value {name[:60]!r}.", where="--preset", fix=f"Known: {known}.")
    return found


def preset_gpus(asked: int | None, platform: Platform) -> int:
    """GPUs of a preset on a platform: what was asked, or the page's size; raises Refused for others."""
    gpus = presets().default_gpus.get(platform.id, presets().gpus[0]) if asked is None else asked
    if gpus not in presets().gpus:
        nearest = min(presets().gpus, key=lambda size: abs(size - gpus))
        sizes = " ".join(map(str, presets().gpus))
        raise Refused(
            f"The presets come at {sizes} GPUs, not {gpus}.",
            where="--gpus",
            fix=f"Nearest: --gpus {nearest}.",
        )
    return gpus


def check_preset(preset: Preset, now: Situation) -> None:
    """Raise Refused where the platform, the role or another option excludes the preset."""
    refusal = first_refusal((*presets().refused, *preset.refused), now)
    if refusal is not None:
        raise refuse(refusal, f"--preset {preset.id}", now)


def emitted(preset: Preset, gpus: int, platform: Platform) -> Flags:
    """The flags of a preset at a size, in the page's order, node flags included."""
    groups = gpus // presets().attention_tp
    nodes = gpus // platform.gpus_per_node
    node = catalog().multi_node
    flags = [Flag("--tp-size", (str(gpus),)), Flag("--ep-size", (str(gpus),))]
    if groups > 1:
        flags += [Flag("--attn-dp-size", (str(groups),)), Flag("--enable-dp-lm-head")]
    if preset.dcp_size is not None:
        flags.append(Flag("--dcp-size", (str(preset.dcp_size),)))
    if nodes > 1:
        flags += node_flags(nodes, node.head)
    return (*flags, *parse(words(presets().tail)))


def node_flags(nodes: int, head: str) -> Flags:
    """The three flags of a server that spans nodes; `head` is the placeholder of its head node."""
    node = catalog().multi_node
    return (
        Flag("--nnodes", (str(nodes),)),
        Flag("--node-rank", (node.rank,)),
        Flag("--dist-init-addr", (f"{head}:{node.port}",)),
    )


def apply_preset(flags: Flags, env: Env, preset: Preset, gpus: int, platform: Platform) -> tuple[Flags, Env]:
    """Lay a preset over a command: its flags replace those it strips, new ones precede `--host`."""
    added = emitted(preset, gpus, platform)
    kept, rest = replaced(flags, words(presets().strip), added)
    own = assignments(presets().env)
    names = {name for name, _ in own}
    return before_host(kept, rest), tuple(pair for pair in env if pair[0] not in names) + own
