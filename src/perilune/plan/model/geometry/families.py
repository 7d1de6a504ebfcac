"""Which module knows the geometry of which architecture."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from perilune.errors import UnusableInput
from perilune.plan.model.config import ModelConfig
from perilune.plan.model.geometry import (
    deepseek_v3,
    drafts,
    glm5_next,
    kimi_k3,
    kimi_linear,
    llama,
    nemotron_h,
    qwen3_5,
    qwen3_next,
)
from perilune.plan.model.geometry.base import Geometry

_FAMILIES = (kimi_k3, kimi_linear, qwen3_next, qwen3_5, nemotron_h, glm5_next, deepseek_v3, llama, drafts)
_BUILDERS: dict[str, Callable[[ModelConfig], Geometry]] = {
    name: family.build for family in _FAMILIES for name in family.ARCHITECTURES
}
SUPPORTED = tuple(_BUILDERS)


@lru_cache(maxsize=64)
def geometry_of(config: ModelConfig) -> Geometry:
    """The geometry of a config; raises UnusableInput for an unknown architecture or a field that cannot be used."""
    build = _BUILDERS.get(config.architecture)
    if build is None:
        raise UnusableInput(
            f"The architecture {config.architecture[:80]!r} is not known.",
            where=f"{config.path} config architectures",
            fix=f"Known: {', '.join(SUPPORTED)}.",
        )
    return build(config)
