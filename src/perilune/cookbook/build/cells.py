"""The deployment matrix, and the command of every cell."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from perilune.cookbook.build.markup import bullets, fence, sentence, table, words
from perilune.cookbook.lint.parity import corrected
from perilune.facts.hardware import Platform, platform
from perilune.facts.recipes import Recipe, catalog, hardware, recipes_of
from perilune.plan.compose import Choice, RecipeRow, commands, compose, recipes
from perilune.plan.deployment import Deployment
from perilune.plan.server import Server

COLUMNS = (
    ("unified", "low-latency"),
    ("unified", "balanced"),
    ("unified", "high-throughput"),
    ("prefill", "default"),
    ("prefill", "long-context"),
    ("decode", "low-latency"),
    ("decode", "balanced"),
    ("decode", "high-throughput"),
)
VERIFIED = {"verified": "served on final weights", "in-progress": "a starting point to verify"}


@dataclass(frozen=True)
class Lengths:
    """Tokens of an average request; None leaves the catalog's own average."""

    isl: int | None = None
    osl: int | None = None

    @property
    def tokens(self) -> int:
        """Input and output together."""
        return catalog().average_request_tokens if self.isl is None or self.osl is None else self.isl + self.osl


def title(strategy: str) -> str:
    """Return a strategy or role as the page writes it."""
    return "-".join(word.capitalize() for word in strategy.split("-"))


def matrix() -> str:
    """One row a platform and role, one column a strategy: the parallel shape and the GPUs."""
    rows = []
    for name in hardware():
        found = {(row.role, row.strategy): row for row in recipes(name)}
        for role in ("unified", "prefill", "decode"):
            named = [
                (strategy, found[role, strategy]) for r, strategy in COLUMNS if r == role and (role, strategy) in found
            ]
            if named:
                shapes = "; ".join(f"{title(strategy)} {_shape(row)}" for strategy, row in named)
                rows.append((words(platform(name).label), title(role), words(shapes)))
    return table(("Platform", "PD Mode", "Strategies: shape, nodes × GPUs"), rows)


def _shape(row: RecipeRow) -> str:
    return f"{row.shape} ({row.nodes}×{row.gpus // row.nodes})"


def choice(recipe: Recipe, lengths: Lengths) -> Choice:
    """Return the choice that composes one cell alone."""
    prefill = recipe.role == "prefill"
    return Choice(
        hardware=recipe.hardware,
        mode=recipe.role,
        strategy=None if prefill else recipe.strategy,
        prefill_strategy=recipe.strategy if prefill else None,
        isl=lengths.isl,
        osl=lengths.osl,
    )


def platform_section(name: str, lengths: Lengths) -> str:
    """The commands of one platform, with what to know of each."""
    place = platform(name)
    parts = [f"### {words(place.label)}\n", _platform_facts(place)]
    parts += [cell_section(recipe, lengths) for recipe in recipes_of(name)]
    return "\n".join(parts)


def _platform_facts(place: Platform) -> str:
    accelerator = place.accelerator
    images = ", ".join(f"`{image}` ({quant})" for quant, image in place.images.items())
    facts = [
        f"{place.gpus_per_node} accelerators of {accelerator.nominal_gb:g} GB in a node "
        f"({accelerator.memory_mib:,} MiB each as the driver reports it).",
        f"Fabric: {sentence(place.fabric)}",
    ]
    listed = [words(fact) for fact in facts]
    return bullets([*listed, f"Images: {images}."] if images else listed)


def cell_section(recipe: Recipe, lengths: Lengths) -> str:
    """One cell: its command, corrected where the engine refuses the published one, and its notes."""
    deployment = compose(choice(recipe, lengths))
    pool = deployment.pools[0]
    server = pool.servers[0]
    better = corrected(server, recipe.hardware)
    heading = f"#### {title(recipe.role)} · {title(recipe.strategy)}\n"
    published = not pool.unpublished
    text = (better[0] if better else server).format(one_per_line=True)
    block = fence(text) if published else fence(text, "text Command")
    notes = list(_cell_notes(recipe, deployment, server, better))
    return "\n".join([heading, block, bullets(notes)])


def _cell_notes(recipe: Recipe, deployment: Deployment, server: Server, better: list[Server]) -> Iterator[str]:
    pool = deployment.pools[0]
    yield words(f"{pool.nodes} × {pool.gpus // pool.nodes} accelerators; {VERIFIED[recipe.cell.verification]}.")
    if better:
        added = [flag.name for flag in better[0].flags if not server.has(flag.name)]
        yield words(f"The published command is refused by the engine; corrected here with {' '.join(added)}.")
    if pool.nodes > 1:
        yield words(
            f"Run it on every one of the {pool.nodes} nodes; --node-rank counts from 0, and every node is given "
            "the head's address."
        )
    for unknown in pool.unpublished:
        yield words(f"{unknown.placeholder}: {unknown.what}; no source publishes it.")
    for note in (*recipe.cell.notes, *pool.hints):
        yield words(sentence(note))


def router_section() -> str:
    """The router of a PD pair, as the catalog composes it on the first platform that has one."""
    deployment = compose(Choice(hardware="b300", mode="pd"))
    block = next(block for block in commands(deployment) if block.pool == "router")
    return fence(block.text)
