"""The Kimi-K3 page, built from the facts."""

from __future__ import annotations

import json
from typing import Literal

from perilune.cookbook.build import tables
from perilune.cookbook.build.calculator import calculator
from perilune.cookbook.build.cells import Lengths, matrix, platform_section, router_section
from perilune.cookbook.build.markup import bullets, words
from perilune.cookbook.page import Dialect, Page
from perilune.cookbook.tables.convert import convert
from perilune.facts.cookbook_page import page as page_facts
from perilune.facts.models import models
from perilune.facts.recipes import catalog, hardware, source_titles
from perilune.plan.model import geometry_of, known_config

Format = Literal["mdx", "markdown"]

TITLE = "Kimi-K3"


def build(form: Format, *, platform: str = "b300", strategy: str = "balanced", lengths: Lengths | None = None) -> str:
    """Return the page; `platform`, `strategy` and `lengths` choose the calculator's example.

    Raises Refused or UnusableInput for a cell that the catalog does not have.
    """
    lengths = lengths or Lengths()
    body = "\n".join(_sections(platform, strategy, lengths))
    if form == "markdown":
        return f"# {TITLE}\n\n{body}"
    head = f"---\ntitle: {TITLE}\ndescription: {json.dumps(_description(), ensure_ascii=False)}\n---\n\n"
    return convert(Page(head + body, Dialect.MDX), "jsx").page.text


def _description() -> str:
    return (
        f"Deploy Kimi-K3 with SGLang on {len(hardware())} platforms — deployment matrix, exact commands, "
        "capacity levers and the sizing of its two memory pools."
    )


def _sections(platform: str, strategy: str, lengths: Lengths) -> list[str]:
    return [
        _introduction(),
        "## Deployment matrix\n",
        matrix(),
        "## Mamba ratio calculator\n",
        calculator(platform, strategy, lengths),
        "## Capacity levers\n",
        "Each lever trades precision or cache behaviour for capacity: measure accuracy again on your workload.\n",
        tables.capacity_levers(),
        "## Per-platform notes\n",
        tables.platform_notes(),
        "## AMD ROCm/AITER environment\n",
        tables.amd_environment(),
        "## Vision\n",
        "### VLM feature transport\n",
        tables.vlm_transport(),
        "### VLM compatibility\n",
        tables.vlm_features(),
        "## Large-scale presets\n",
        tables.large_scale_presets(),
        "### Scaling a preset\n",
        tables.preset_scaling(),
        "## PD disaggregation\n",
        "Prefill and decode run on nodes of their own, and the router sends a request to one of each:\n",
        router_section(),
        "### Ascend A3 pool layout\n",
        tables.a3_pool_layout(),
        "## Commands\n",
        *(platform_section(name, lengths) for name in hardware()),
        "## Good to know\n",
        bullets(words(statement) for statement in page_facts().statements),
        "## Sources\n",
        bullets(words(title) for title in source_titles((*page_facts().sources, *catalog().sources))),
    ]


def _introduction() -> str:
    target = catalog().models["mxfp4"]
    geometry = geometry_of(known_config(target))
    model = models()[target]
    checkpoints = ", ".join(f"`{name}` ({quant})" for quant, name in catalog().models.items())
    return (
        f"[{TITLE}](https://huggingface.co/{target}) has {geometry.total_parameters:,} parameters "
        f"({words(model.published_parameters or '')}); its MXFP4 checkpoint holds "
        f"{geometry.checkpoint_bytes:,} bytes of tensors. Checkpoints: {checkpoints}.\n"
    )
