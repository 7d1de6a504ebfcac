"""Platforms and accelerators: the figures that plans rest on, and their sources."""

from __future__ import annotations

import pytest

from perilune.errors import UnusableInput
from perilune.facts.hardware import platform, platforms

PLATFORMS = {
    # id: kind, capability, driver MiB, GPUs a node, scale-up domain, family
    "b300": ("cuda", 103, 275_040, 8, 8, "blackwell"),
    "gb300": ("cuda", 103, 284_208, 4, 72, "blackwell"),
    "b200": ("cuda", 100, 183_359, 8, 8, "blackwell"),
    "gb200": ("cuda", 100, 189_471, 4, 72, "blackwell"),
    "h200": ("cuda", 90, 143_771, 8, 8, "hopper"),
    "h100": ("cuda", 90, 81_559, 8, 8, "hopper"),
    "mi350x": ("hip", None, 294_896, 8, 8, "amd"),
    "mi355x": ("hip", None, 294_896, 8, 8, "amd"),
    "a3": ("npu", None, 63_488, 16, 768, "npu"),
    "950": ("npu", None, 131_072, 8, 8, "npu"),
}


@pytest.mark.parametrize("name", PLATFORMS)
def test_the_figures_of_a_platform(name: str) -> None:
    found = platform(name)
    figures = (
        found.kind,
        found.sm,
        found.memory_mib,
        found.gpus_per_node,
        found.scale_up_domain,
        found.family,
    )
    assert figures == PLATFORMS[name]


def test_the_catalog_holds_these_platforms_in_this_order() -> None:
    assert list(platforms()) == list(PLATFORMS)


@pytest.mark.parametrize("name", PLATFORMS)
def test_every_entry_says_where_it_comes_from(name: str) -> None:
    found = platform(name)
    for text in (
        found.source,
        found.accelerator.source,
        found.accelerator.memory_source,
        found.accelerator.hbm_source,
    ):
        assert len(text) > 8
    for level in (found.confidence, found.accelerator.confidence, found.accelerator.memory_confidence):
        assert level in ("high", "medium", "low")
    assert found.images
    assert 1e12 < found.accelerator.hbm_bytes_per_s < 10e12


def test_a_recalled_figure_is_never_trusted_much() -> None:
    for found in platforms().values():
        if "unverified" in found.accelerator.source or "recalled" in found.accelerator.source:
            assert found.accelerator.confidence == "low"


@pytest.mark.parametrize(("written", "meant"), [("B300", "b300"), (" npu ", "a3"), ("a5", "950"), ("950PR", "950")])
def test_other_spellings(written: str, meant: str) -> None:
    assert platform(written).id == meant


def test_an_unknown_platform_names_the_known_ones() -> None:
    with pytest.raises(UnusableInput, match=r"Unknown platform 'b400'.*b300 gb300"):
        platform("b400")
