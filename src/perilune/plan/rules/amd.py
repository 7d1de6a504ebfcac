"""AMD: switches of AITER and of the fused KDA kernel, and the transfer between nodes."""

from __future__ import annotations

import re
from collections.abc import Iterator

from perilune.plan.rules.edits import Edit
from perilune.plan.rules.rule import PAGE, Says, rule
from perilune.plan.rules.subject import Subject

FUSED = "SGLANG_ROCM_K3_KDA_FUSED_BACKEND"
A8W4, A4W4 = "AITER_SITUV2_A8W4", "AITER_SITUV2_A4W4"
_DATED = re.compile(r"(20\d{6})")
FIRST_DATED = 20260903  # of the images that know the Kimi-K3 switches
PINNED_DATED = 20260916


def image_date(s: Subject) -> int | None:
    """The date in an image's tag, as a number."""
    found = _DATED.search((s.image or "").rpartition(":")[2])
    return int(found[1]) if found else None


@rule("amd-situ-both", "rewrite", PAGE)
def situ_both(s: Subject) -> Iterator[Says]:
    """With both SiTU variants set, A8W4 wins."""
    if s.on_env(A8W4) and s.on_env(A4W4):
        yield Says(f"{A8W4} and {A4W4} are both set: A8W4 wins.", flags=(A4W4,), edits=(Edit("unset-env", A4W4),))


@rule("amd-fused-kda-value", "rewrite", PAGE)
def fused_value(s: Subject) -> Iterator[Says]:
    """The fused KDA kernel is armed by the value `aiter` exactly."""
    value = s.env.get(FUSED)
    if value not in (None, "", "aiter"):
        yield Says(
            f"{FUSED}={value[:40]} does not arm the fused kernel: only the value `aiter` does.",
            flags=(FUSED,),
            edits=(Edit("env", FUSED, "aiter"),),
        )


@rule("amd-fused-kda-image", "advice", PAGE)
def fused_image(s: Subject) -> Iterator[Says]:
    """The pinned image of 2026-09-16 lacks a fix of the fused KDA kernel (pull request 39066)."""
    date = image_date(s)
    if s.env.get(FUSED) == "aiter" and s.platform.kind == "hip" and date is not None and date <= PINNED_DATED:
        yield Says(
            f"The image of {date} lacks the fix of pull request 39066 for the fused KDA kernel.",
            flags=(FUSED,),
            edits=(Edit("unset-env", FUSED),),
        )


@rule("amd-image-age", "advice", PAGE)
def image_age(s: Subject) -> Iterator[Says]:
    """Images before 2026-09-03 ignore the Kimi-K3 switches; DCP with AITER needs the one of 2026-09-16."""
    date = image_date(s)
    if s.platform.kind != "hip" or date is None:
        return
    switches = [name for name in s.env if name.startswith(("AITER_SITUV2", "SGLANG_AITER_K3", "AITER_FLYDSL"))]
    if switches and date < FIRST_DATED:
        yield Says(
            f"The image of {date} ignores {switches[0]}, which came with 20260903.",
            "Use a later image.",
            (switches[0],),
        )
    if s.parsed and s["dcp_size"] > 1 and date < PINNED_DATED:
        yield Says(
            f"DCP with AITER needs pull requests 34432 and 38941, which the image of {date} may lack.",
            "Use lmsysorg/sglang-rocm:v0.5.19-rocm720-mi35x-20260916.",
            ("--dcp-size",),
        )


@rule("amd-hip-transport", "advice", "AMD-AGI/Infera pull request 19")
def hip_transport(s: Subject) -> Iterator[Says]:
    """Mooncake's HIP transport breaks a transfer between nodes."""
    if not s.parsed or s.platform.kind != "hip" or s.role == "unified":
        return
    if s["disaggregation_transfer_backend"] == "mooncake" and s.env.get("MC_ENABLE_HIP_TRANSPORT") != "0":
        yield Says(
            "Mooncake prefers its HIP transport, which fails between nodes.",
            "If prefill and decode are on different nodes, set MC_ENABLE_HIP_TRANSPORT=0.",
            ("MC_ENABLE_HIP_TRANSPORT", "--disaggregation-transfer-backend"),
            (Edit("env", "MC_ENABLE_HIP_TRANSPORT", "0"),),
        )


@rule("amd-gfx942", "error", "vllm-project/vllm issue 51964")
def gfx942(s: Subject) -> Iterator[Says]:
    """Kimi-K3 needs the kernels of gfx950 (MI350X, MI355X); images and variables for gfx942 do not have them."""
    marks = ("gfx942", "mi30x", "mi300", "mi308", "mi325")
    where = next((mark for mark in marks if mark in (s.image or "").lower()), None)
    version = s.env.get("HSA_OVERRIDE_GFX_VERSION", "")
    if s.parsed and s.is_k3 and (where or version.startswith("9.4")):
        yield Says(
            f"Kimi-K3 cannot run on gfx942 ({where or 'HSA_OVERRIDE_GFX_VERSION=' + version}): it needs gfx950.",
            "Use MI350X or MI355X with an image for mi35x.",
            ("image",) if where else ("HSA_OVERRIDE_GFX_VERSION",),
        )


RULES = (situ_both, fused_value, fused_image, image_age, hip_transport, gfx942)
