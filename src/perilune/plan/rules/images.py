"""Container images: their names, what they are built for, and builds known to fail."""

from __future__ import annotations

import re
from collections.abc import Iterator

from perilune.facts.rule_names import rule_names
from perilune.plan.rules.edits import Edit
from perilune.plan.rules.rule import PAGE, Says, rule
from perilune.plan.rules.subject import Subject

NVFP4 = "nvfp4"
SELF_HOSTED = "DYN_SELF_HOST_METADATA"
LAST_WITHOUT_K3 = (1, 2, 1)
_DYNAMO = re.compile(r"ai-dynamo/[\w.-]+:v?(\d{1,4})\.(\d{1,4})\.(\d{1,4})(?![\d.])")


def _serves_nvfp4(s: Subject) -> bool:
    return s.parsed and NVFP4 in s.resolved.model.path.lower()


def _right(s: Subject) -> str:
    """What to use instead: the platform's image for the checkpoint."""
    images = s.platform.images
    name = images[NVFP4] if NVFP4 in images and _serves_nvfp4(s) else next(iter(images.values()), None)
    return f"Use {name}." if name else f"Use an image built for {s.platform.label}."


@rule("image-floating", "advice", "sgl-project/sglang issue 32924")
def floating(s: Subject) -> Iterator[Says]:
    """A tag moves: two nodes, or two days, may run different builds."""
    if not s.image or "@sha256:" in s.image or "$" in s.image or s.template:
        return
    tag = s.image.rpartition("/")[2].partition(":")[2]
    named = f"is named by its tag {tag}" if tag else "has no tag, which means latest"
    yield Says(
        f"The image {named}: two starts, or two nodes, may get different builds.",
        "Name it by digest: IMAGE@sha256:...",
        ("image",),
    )


@rule("image-bad", "error", "known bad builds")
def bad(s: Subject) -> Iterator[Says]:
    """A build that is known to fail."""
    for one in rule_names().bad_images:
        if s.image and one.match in s.image:
            yield Says(
                f"The image {s.image} is known to fail: {one.why}.",
                f"Use {one.use}.",
                ("image",),
                source=one.source,
            )


@rule("image-platform", "error", PAGE)
def image_platform(s: Subject) -> Iterator[Says]:
    """An image built for another kind of accelerator; the general ones have no Kimi-K3 on AMD."""
    if not s.image:
        return
    kind = next((one.kind for one in rule_names().images if one.match in s.image), None)
    if kind is not None and kind != s.platform.kind:
        yield Says(f"The image {s.image} is not built for {s.platform.label}.", _right(s), ("image",))


@rule("image-nvfp4", "advice", PAGE)
def nvfp4(s: Subject) -> Iterator[Says]:
    """The NVFP4 checkpoints need a build with pull request 35077."""
    if not s.image or not _serves_nvfp4(s) or not s.is_k3 or s.platform.family != "blackwell":
        return
    if NVFP4 not in s.image:
        yield Says(
            f"The NVFP4 checkpoint needs a build with pull request 35077; {s.image} may not have it.",
            _right(s),
            ("image",),
        )


@rule("image-hopper-build", "advice", PAGE)
def hopper_build(s: Subject) -> Iterator[Says]:
    """H100 needs the SM90a build of the Kimi-K3 image."""
    if (
        s.platform.id == "h100"
        and s.parsed
        and s.is_k3
        and s.image
        and not s.template
        and "sm90" not in s.image.lower()
    ):
        yield Says(
            "H100 needs the SM90a build of the Kimi-K3 image, and nothing in the name says that this is one.",
            "Use an image built for SM90a.",
            ("image",),
        )


@rule("image-dynamo", "advice", "ai-dynamo/dynamo pull request 14617")
def dynamo(s: Subject) -> Iterator[Says]:
    """Frontends of Dynamo up to 1.2.1 have no tokenizer for Kimi-K3: the model never registers."""
    found = _DYNAMO.search(s.image or "")
    if not found or not s.parsed or not s.is_k3 or s.on_env(SELF_HOSTED):
        return
    if tuple(map(int, found.groups())) <= LAST_WITHOUT_K3:
        yield Says(
            f"The frontend of Dynamo {'.'.join(found.groups())} has no tokenizer for Kimi-K3: clients get 404.",
            flags=("image", SELF_HOSTED),
            edits=(Edit("env", SELF_HOSTED, "1"),),
        )


RULES = (floating, bad, image_platform, nvfp4, hopper_build, dynamo)
