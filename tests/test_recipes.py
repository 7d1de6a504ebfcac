"""The recipe catalog: complete, sourced, spelled as the engine spells, quick to load."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter

import pytest

from perilune.errors import UnusableInput
from perilune.facts import cookbook_page, measurements, options
from perilune.facts.flags import options as engine_options
from perilune.facts.hardware import platforms
from perilune.facts.recipes import (
    all_recipes,
    catalog,
    find_recipe,
    hardware,
    recipes_of,
    source_titles,
    sources,
    words,
)
from perilune.plan.compose.flags import Flag, number, parse

EVERYWHERE = "0.0.0.0"  # noqa: S104 - the published bind address

PUBLISHED = {  # recipes per role
    "b300": (3, 2, 3),
    "gb300": (3, 2, 3),
    "b200": (3, 2, 3),
    "gb200": (3, 2, 3),
    "h200": (3, 0, 3),
    "h100": (3, 0, 3),
    "mi350x": (1, 0, 1),
    "mi355x": (1, 0, 1),
    "a3": (1, 1, 1),
    "950": (1, 0, 0),
}


@pytest.mark.parametrize(("name", "counts"), PUBLISHED.items())
def test_every_platform_has_its_published_recipes(name: str, counts: tuple[int, int, int]) -> None:
    found = Counter(recipe.role for recipe in recipes_of(name))
    assert (found["unified"], found["prefill"], found["decode"]) == counts


def test_fifty_full_recipes_and_the_partial_a3_pair() -> None:
    completeness = Counter(recipe.cell.completeness for recipe in all_recipes())
    assert completeness == {"full": 50, "partial": 2}
    partial = {recipe.id for recipe in all_recipes() if recipe.cell.completeness == "partial"}
    assert partial == {"a3/prefill/default", "a3/decode/balanced"}
    assert len({recipe.id for recipe in all_recipes()}) == 52


def test_only_two_recipes_are_verified() -> None:
    verified = {recipe.id for recipe in all_recipes() if recipe.cell.verification == "verified"}
    assert verified == {"b300/unified/low-latency", "b300/unified/balanced"}


def test_large_scale_recipes_are_the_blackwell_high_throughput_ones() -> None:
    found = {recipe.id for recipe in all_recipes() if recipe.cell.large_scale}
    assert found == {f"{name}/unified/high-throughput" for name in ("b300", "gb300", "b200", "gb200")}


@pytest.mark.parametrize("recipe", all_recipes(), ids=lambda recipe: recipe.id)
def test_a_recipe_is_spelled_canonically_and_fills_its_nodes(recipe: object) -> None:
    assert isinstance(recipe, type(all_recipes()[0]))
    flags = parse(recipe.argv)
    for flag in flags:
        if not flag.name.startswith("<"):
            assert engine_options()[flag.name].name == flag.name
    assert len({flag.name for flag in flags}) == len(flags)
    ranks = number(flags, "--tp-size", 1) * number(flags, "--pp-size", 1)
    assert ranks == recipe.cell.nodes * platforms()[recipe.hardware].gpus_per_node
    assert flags[-2:] == (
        Flag("--host", (EVERYWHERE,)),
        Flag("--port", ("30100" if recipe.role == "decode" else "30000",)),
    )
    assert all(name in sources() for name in recipe.sources)


def test_published_values_of_partial_recipes_are_on_their_command() -> None:
    for recipe in all_recipes():
        flags = parse(recipe.argv)
        assert all(flag in flags for flag in parse(words(recipe.cell.published)))


def test_the_page_wins_and_the_entry_says_that_sources_disagree() -> None:
    a3 = find_recipe("a3", "unified", "balanced")
    assert a3 is not None
    assert "--attn-dp-size" in a3.argv
    assert {"attention-DP spelling", "PD on A3"} <= {d.topic for d in a3.disputed}
    fused = next(entry for entry in cookbook_page.page().amd_environment if "FUSED" in entry.name)
    assert fused.name == "SGLANG_ROCM_K3_KDA_FUSED_BACKEND"
    assert "SGLANG_K3_KDA_FUSED_BACKEND" in fused.disputed
    assert find_recipe("950", "decode", "balanced") is None
    assert any("PD" in d.topic for d in recipes_of("950")[0].disputed)


def test_an_unknown_platform_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UnusableInput, match=r"Known: b300 gb300 b200"):
        recipes_of("tpu")


def test_every_source_is_named_plainly() -> None:
    assert source_titles(("page", "page", "config"))[0] == "SGLang cookbook, Kimi-K3 page, state of 2026-10-28"
    assert len(source_titles(("page", "page", "config"))) == 2
    assert all("/" not in source.title or "sglang" in source.title for source in sources().values())


def test_everything_with_sources_names_known_ones() -> None:
    found = measurements.measurements()
    entries = (
        catalog().sources,
        options.presets().sources,
        cookbook_page.page().sources,
        found.method.sources,
        *(entry.sources for entry in (*found.cards, *found.admission_caps, *found.figures)),
    )
    assert all(name in sources() for names in entries for name in names)


def test_the_eight_tables_are_complete() -> None:
    page = cookbook_page.page()
    counts = [
        len(page.capacity_levers),
        len(page.platform_notes),
        len(page.amd_environment),
        len(page.a3_pd_pools),
        len(page.vlm_transport),
        len(page.vlm_features),
        len(page.preset_rows),
        len(page.preset_scaling),
    ]
    assert counts == [5, 9, 4, 2, 4, 5, 2, 3]
    assert {name for note in page.platform_notes for name in note.hardware} == set(hardware())


@pytest.mark.parametrize("row", cookbook_page.page().preset_scaling, ids=lambda row: f"{row.gpus} GPUs")
def test_the_scaling_table_follows_the_preset_rule(row: cookbook_page.PresetScale) -> None:
    assert (row.tp_size, row.ep_size, row.attn_dp_size) == (row.gpus, row.gpus, row.gpus // 8)
    assert (row.nodes_of_8, row.nodes_of_4) == (row.gpus // 8, row.gpus // 4)


def test_measurements_name_recipes_and_agree_with_themselves() -> None:
    known = {recipe.id for recipe in all_recipes()}
    found = measurements.measurements()
    for card in found.cards:
        assert card.cell in known
        for point in card.points:
            assert point.interactivity == pytest.approx(1000 / point.tpot_ms, rel=0.005)
    caps = [(cap.quant, cap.spec, cap.requests) for cap in found.admission_caps]
    assert caps == [
        ("mxfp4", "none", 101),
        ("mxfp4", "dspark", 68),
        ("nvfp4", "none", 91),
        ("nvfp4", "dspark", 60),
    ]
    ((cap, added),) = measurements.published_caps("b300/unified/balanced", "mxfp4", "none")
    assert (cap.says, cap.caps, added) == ("admits 101 requests", True, "")
    assert (
        measurements.published_cards("b300/unified/balanced", "nvfp4", "dspark")[0][1] == "--max-running-requests 256"
    )
    assert measurements.published_caps("h100/unified/balanced", "mxfp4", "none") == ()


def test_overlay_defaults_and_knob_options_are_unique() -> None:
    for overlay in options.overlays():
        assert sum(option.default for option in overlay.options) == 1
        assert len({option.id for option in overlay.options}) == len(overlay.options)
    for knob in options.knobs().values():
        assert len({option.id for option in knob.options}) == len(knob.options)
        for option in knob.options:
            assert all(flag.name in engine_options() for flag in parse(words(option.add)))


LOAD = """
import json, time
from perilune.facts import cookbook_page, measurements, options, recipes
import yaml, msgspec
start = time.process_time()
recipes.catalog(); recipes.recipes_of("b200"); options.overlays(); options.presets()
one = time.process_time() - start
recipes.all_recipes(); options.knobs(); cookbook_page.page(); measurements.measurements(); recipes.sources()
print(json.dumps([one, time.process_time() - start]))
"""


def test_a_plan_needs_little_time_to_load_its_facts() -> None:
    done = subprocess.run([sys.executable, "-c", LOAD], capture_output=True, text=True, check=True)
    one_platform, everything = json.loads(done.stdout)
    assert one_platform < 0.1  # seconds of CPU; about 0.02 on an idle machine
    assert everything < 0.4
