"""Container images and releases."""

from __future__ import annotations

from collections.abc import Iterator

from perilune.facts.history import JUDGED, history, release
from perilune.facts.rule_names import rule_names
from perilune.plan.rules.rule import PAGE, Says, rule
from perilune.plan.rules.subject import Subject

PARSERS = ("--tool-call-parser", "--reasoning-parser")


@rule("image-floating", "advice", "sgl-project/sglang issue 32924")
def floating(s: Subject) -> Iterator[Says]:
    """A tag moves: two nodes, or two days, may run different builds."""
    if s.image and "@sha256:" not in s.image and "$" not in s.image and not s.template:
        tag = s.image.rpartition("/")[2].partition(":")[2] or "latest"
        yield Says(
            f"The image is named by its tag {tag}, which can move to another build between two starts.",
            "Name it by digest: IMAGE@sha256:...",
            ("image",),
        )


@rule("image-bad", "error", "known bad builds")
def bad(s: Subject) -> Iterator[Says]:
    """A build that is known to fail."""
    for one in rule_names().bad_images:
        if s.image and one.match in s.image:
            yield Says(f"Of the image {s.image}: {one.why}.", f"Use {one.use}.", ("image",), source=one.source)


@rule("image-platform", "error", PAGE)
def image_platform(s: Subject) -> Iterator[Says]:
    """An image built for another kind of accelerator; the general ones have no Kimi-K3 on AMD."""
    if not s.image:
        return
    kind = next((one.kind for one in rule_names().images if one.match in s.image), None)
    if "cann" in s.image or "-npu" in s.image:
        kind = "npu"
    elif "rocm" in s.image:
        kind = "hip"
    if kind is not None and kind != s.platform.kind:
        right = next(iter(s.platform.images.values()), "")
        yield Says(f"The image {s.image} is not built for {s.platform.label}.", f"Use {right}.", ("image",))


@rule("image-nvfp4", "advice", PAGE)
def nvfp4(s: Subject) -> Iterator[Says]:
    """The NVFP4 checkpoints need a build with pull request 35077."""
    if not s.image or not s.parsed or not s.is_k3 or s.platform.family != "blackwell":
        return
    if "nvfp4" in s.resolved.model.path.lower() and "nvfp4" not in s.image:
        yield Says(
            f"The NVFP4 checkpoint needs a build with pull request 35077; {s.image} may not have it.",
            f"Use {s.platform.images.get('nvfp4', '')}.",
            ("image",),
        )


@rule("version-unknown", "advice", "releases compared")
def unknown_version(s: Subject) -> Iterator[Says]:
    """The release asked about is not the modelled one: known differences are told, the rest is judged by 0.5.23."""
    if s.engine == JUDGED:
        return
    known = history().versions
    if release(s.engine) is None or s.engine not in known:
        yield Says(
            f"SGLang {s.engine} is not among the releases compared ({known[0]} to {known[-1]}): "
            f"everything here is judged by {JUDGED}.",
            flags=("--sglang",),
        )
    else:
        yield Says(
            f"Flags and variables are judged for {s.engine}; defaults, checks and memory are those of {JUDGED}.",
            flags=("--sglang",),
        )


@rule("version-k3-parser", "advice", "sgl-project/sglang issue 34604", until="0.5.18")
def k3_parser(s: Subject) -> Iterator[Says]:
    """The Kimi-K3 tool-call parser of 0.5.17 fails on values that are not JSON."""
    if s.value("--tool-call-parser") == "kimi_k3":
        yield Says(
            f"The kimi_k3 parser of SGLang {s.engine} fails on values that are not JSON: clients get raw text.",
            "Use a later release.",
            PARSERS,
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
        yield Says("H100 needs the SM90a build of the Kimi-K3 image.", "Check how the image was built.", ("image",))


RULES = (floating, bad, image_platform, nvfp4, unknown_version, k3_parser, hopper_build)
