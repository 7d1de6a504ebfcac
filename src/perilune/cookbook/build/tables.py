"""The eight tables of the Kimi-K3 page, from the catalog."""

from __future__ import annotations

from perilune.cookbook.build.markup import code, sentence, table, words
from perilune.facts.cookbook_page import AmdEnv, Lever, page
from perilune.facts.hardware import platforms
from perilune.facts.options import presets

SPECULATION = {"none": "no speculation", "dspark": "DSPARK", "dflash": "DFLASH"}
SELECTIONS = {"auto": "Auto", "cpu": "CPU"}


def capacity_levers() -> str:
    """What each lever of capacity does."""
    return table(("Lever", "Effect"), [(_lever(lever), words(lever.effect)) for lever in page().capacity_levers])


def _lever(lever: Lever) -> str:
    written = code(lever.flags or lever.env)
    if lever.range is None:
        return written
    return f"{written} {lever.range[0]:.2f}–{lever.range[1]:.2f}"


def platform_notes() -> str:
    """What to know of each platform."""
    rows = []
    for note in page().platform_notes:
        labels = " / ".join(platforms()[name].label for name in note.hardware)
        said = " ".join(sentence(text) for text in note.notes)
        rows.append((f"{words(labels)} {words(note.topology)}", words(note.layout), words(said)))
    return table(("Platform", "Topology", "Notes"), rows)


def amd_environment() -> str:
    """The variables of ROCm on gfx950."""
    rows = [(_variable(entry), _default(entry), words(entry.effect)) for entry in page().amd_environment]
    return table(("Env var", "Default", "Effect"), rows)


def _variable(entry: AmdEnv) -> str:
    return code(f"{entry.name}={entry.value}" if entry.default is None else entry.name)


def _default(entry: AmdEnv) -> str:
    return "unset" if entry.default is None else code(entry.default)


def a3_pool_layout() -> str:
    """The two pools of Ascend A3."""
    pools = page().a3_pd_pools
    rows = []
    for pool in pools:
        graphs = "no CUDA graph" if pool.graphs == "none" else pool.graphs
        said = f"{pool.nodes} nodes, {pool.layout}, {SPECULATION[pool.speculation]}, {graphs}"
        rows.append((f"{pool.role.capitalize()} pool", words(said)))
    rows.append(("Total", f"{sum(pool.nodes for pool in pools)} nodes"))
    return table(("Pool layout", "A3 Series (2P4D)"), rows)


def vlm_transport() -> str:
    """Which path image features take."""
    rows = [
        (f"{SELECTIONS[entry.selection]} · {words(entry.where)}", words(entry.path)) for entry in page().vlm_transport
    ]
    return table(("Picker selection", "Processor-to-scheduler feature path"), rows)


def vlm_features() -> str:
    """How Kimi-K3 behaves with each vision feature."""
    rows = [(words(entry.feature), words(entry.behaviour)) for entry in page().vlm_features]
    return table(("Feature", "K3 behavior"), rows)


def large_scale_presets() -> str:
    """What the presets trade."""
    shapes = {row.preset: row.shape for row in page().preset_rows}
    rows = [
        (f"**{words(preset.title)}** — {words(shapes[preset.id])}", words(preset.trades), words(preset.pick_for))
        for preset in presets().presets
    ]
    return table(("Preset", "What it trades", "Pick it for"), rows)


def preset_scaling() -> str:
    """The shape of a preset at each size."""
    rows = [
        (
            str(row.gpus),
            f"{row.nodes_of_8}×8",
            f"{row.nodes_of_4}×4",
            str(row.tp_size),
            str(row.attn_dp_size),
        )
        for row in page().preset_scaling
    ]
    header = ("GPUs", "B200/B300 nodes", "GB200/GB300 nodes", "`--tp-size` / `--ep-size`", "`--attn-dp-size`")
    return table(header, rows)
