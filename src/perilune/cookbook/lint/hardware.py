"""Rules on hardware: memory sizes are the accelerator's own, FP4 is named only where there is FP4."""

from __future__ import annotations

import re
from collections.abc import Iterator

from perilune.cookbook.lint.finding import PageFinding, at
from perilune.cookbook.lint.platforms import pattern_of
from perilune.cookbook.lint.source import Source
from perilune.facts.hardware import Platform, platforms

GIB_PER_GB = 1e9 / 2**30
_SIZE = r"(\d{2,4}(?:\.\d+)?)[ \u00a0]?(GB|GiB)\b"


def memory_sizes(source: Source) -> Iterator[PageFinding]:
    """`H200 (141 GB)` and the like agree with the catalog."""
    for piece in source.prose:
        for place in platforms().values():
            for size, unit in _sizes(piece.text, place):
                if not _is_memory_of(place, float(size), unit):
                    yield at(
                        piece.line,
                        "memory-size",
                        f"{place.label} is given {size} {unit}; its accelerator has "
                        f"{place.accelerator.nominal_gb:g} GB ({place.memory_mib:,} MiB as the driver reports it).",
                        f"Write {place.accelerator.nominal_gb:g} GB.",
                        source=place.accelerator.memory_source,
                    )


def _sizes(text: str, place: Platform) -> Iterator[tuple[str, str]]:
    name = pattern_of(place.id)
    for match in re.finditer(rf"{name}(?:s|,)?\s*[(\[:–—-]?\s*{_SIZE}(?!/s)", text, re.IGNORECASE):
        yield match[1], match[2]
    for match in re.finditer(rf"(?<![\d.]){_SIZE}\s+{name}", text, re.IGNORECASE):
        yield match[1], match[2]


def _is_memory_of(place: Platform, size: float, unit: str) -> bool:
    accelerator = place.accelerator
    gigabytes = size if unit.lower() == "gb" else size / GIB_PER_GB
    gibibytes = place.memory_mib / 1024
    known = (accelerator.nominal_gb, place.memory_mib * 2**20 / 1e9)
    return any(abs(gigabytes - value) <= 1.5 for value in known) or abs(size - gibibytes) <= 1.0


def fp4_where_there_is_fp4(source: Source) -> Iterator[PageFinding]:
    """`FP4 on H100`: no accelerator without FP4 arithmetic is given FP4."""
    lacking = [place for place in platforms().values() if place.accelerator.fp4_flops is None]
    for piece in source.prose:
        for place in lacking:
            name = pattern_of(place.id)
            fp4 = r"(?:NV|MX)?FP4(?![A-Za-z0-9])"
            if re.search(
                rf"{name}[\s(/,:-]+{fp4}|{fp4}[\s(/:-]+(?:on\s+)?(?:the\s+)?{name}", piece.text, re.IGNORECASE
            ):
                yield at(
                    piece.line,
                    "fp4-platform",
                    f"FP4 is named for {place.label}, which has no FP4 arithmetic.",
                    "Name the format it computes in, or say that the weights are dequantised.",
                    source=place.accelerator.source,
                )
