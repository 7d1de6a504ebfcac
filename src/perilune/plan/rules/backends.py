"""Attention and MoE kernels: choices that cancel a better one, cannot run, or cost what they were to save."""

from __future__ import annotations

from collections.abc import Iterator

from perilune.plan.rules.edits import Edit, remove, write
from perilune.plan.rules.families import ATTENTION
from perilune.plan.rules.rule import PAGE, Says, rule
from perilune.plan.rules.subject import Subject

RUNNER, A2A = "--moe-runner-backend", "--moe-a2a-backend"
DISPATCH = "SGLANG_DEEPEP_NUM_MAX_DISPATCH_TOKENS_PER_RANK"
MEGA_MOE_LIMIT = "SGLANG_OPT_DEEPGEMM_MEGA_MOE_NUM_MAX_TOKENS_PER_RANK"
BLACKWELL_MOE = frozenset({"flashinfer_mxfp4", "flashinfer_trtllm", "flashinfer_cutedsl"})


def _nvfp4(s: Subject) -> bool:
    model = s.resolved.model
    return "nvfp4" in model.path.lower() or "nvfp4" in (model.quant_format or "").lower()


@rule("attention-set", "advice", PAGE)
def attention_set(s: Subject) -> Iterator[Says]:
    """Prefill and decode attention resolve as a set on Blackwell; writing one of them cancels the other's choice."""
    written = [flag for flag in ATTENTION if s.wrote(flag)]
    if not s.accepted or not s.is_k3 or s.platform.family != "blackwell" or s["dcp_size"] > 1 or len(written) != 1:
        return
    plain = s.again(remove(*ATTENTION)).resolved
    before = (plain["prefill_attention_backend"], plain["decode_attention_backend"], plain["attention_backend"])
    now = (s["prefill_attention_backend"], s["decode_attention_backend"], s["attention_backend"])
    if plain.accepted and before != now:
        yield Says(
            f"{written[0]} {s.value(written[0])} cancels the choice of the others, which go together: "
            f"unset, the engine takes {plain['attention_backend'] or plain['decode_attention_backend']} throughout.",
            flags=(written[0],),
            edits=remove(written[0]),
        )


@rule("moe-runner-blackwell", "advice", PAGE)
def runner_blackwell(s: Subject) -> Iterator[Says]:
    """On Blackwell the engine picks the MXFP4 kernel itself."""
    written = s.value(RUNNER)
    if not s.accepted or not s.is_k3 or s.platform.family != "blackwell" or written in (None, "auto"):
        return
    if not s.resolved.model.is_mxfp4 or s["moe_a2a_backend"] != "none":
        return
    best = s.again(remove(RUNNER)).resolved
    if best.accepted and best["moe_runner_backend"] not in (written, "auto"):
        yield Says(
            f"{RUNNER} {written} replaces {best['moe_runner_backend']}, which the engine picks for this checkpoint.",
            flags=(RUNNER,),
            edits=remove(RUNNER),
        )


@rule("moe-runner-nvfp4", "error", PAGE)
def runner_nvfp4(s: Subject) -> Iterator[Says]:
    """The NVFP4 checkpoints need --moe-runner-backend flashinfer_trtllm: auto fails while graphs are captured."""
    if not s.accepted or not s.is_k3 or not _nvfp4(s) or s.platform.family != "blackwell":
        return
    if s["moe_runner_backend"] != "flashinfer_trtllm" and s["moe_a2a_backend"] == "none":
        yield Says(
            f"{RUNNER} {s['moe_runner_backend']} does not run this NVFP4 checkpoint: "
            "auto fails at graph capture and flashinfer_cutlass lacks the activation.",
            flags=(RUNNER, "--model-path"),
            edits=(write(RUNNER, "flashinfer_trtllm"),),
        )


@rule("moe-checkpoint-platform", "error", PAGE)
def checkpoint_platform(s: Subject) -> Iterator[Says]:
    """The platform has no kernels for the checkpoint: NVFP4 off Blackwell, MXFP4 on A3, W4A8 elsewhere."""
    if not s.accepted or not s.is_k3:
        return
    model, here = s.resolved.model, s.platform
    w4a8 = "w4a8" in model.path.lower() or model.quant_method == "modelslim"
    wrong = (
        (_nvfp4(s) and here.family != "blackwell", "NVFP4", "exist on Blackwell only", "moonshotai/Kimi-K3"),
        (w4a8 and here.id != "a3", "ModelSlim W4A8", "exist on Ascend A3 only", "moonshotai/Kimi-K3"),
        (model.is_mxfp4 and not w4a8 and here.id == "a3", "MXFP4", "do not exist on A3", "sgl-npu/Kimi-K3-W4A8"),
    )
    for applies, name, where, instead in wrong:
        if applies:
            flags = ("--model-path", "--quantization")
            edits: tuple[Edit, ...] = (write("--model-path", instead),)
            if w4a8 and s.wrote("--quantization"):
                edits = (*edits, *remove("--quantization"))
            yield Says(f"Kernels for {name} {where}; this is {here.label}.", flags=flags, edits=edits)


@rule("moe-kernel-platform", "error", PAGE)
def kernel_platform(s: Subject) -> Iterator[Says]:
    """A MoE kernel that the platform lacks: MegaMoE and FlashInfer off Blackwell, Marlin on Ascend, FuseEP off it."""
    if not s.parsed:
        return
    for flag, values in ((RUNNER, BLACKWELL_MOE), (A2A, frozenset({"megamoe"}))):
        written = s.value(flag)
        if written in values and s.platform.family != "blackwell":
            names = (flag, RUNNER) if flag == A2A and s.value(RUNNER) == "deep_gemm" else (flag,)
            better = (write(RUNNER, "marlin"),) if flag == RUNNER and s.platform.family == "hopper" else remove(*names)
            said = f"{flag} {written} needs SM100 or SM103; this is {s.platform.label}."
            yield Says(said, flags=names, edits=better)
    if s.value(RUNNER) == "marlin" and s.platform.kind == "npu":
        yield Says(f"Marlin is a CUDA kernel; this is {s.platform.label}.", flags=(RUNNER,), edits=remove(RUNNER))
    if s.value(A2A) == "ascend_fuseep" and s.platform.kind != "npu":
        said = f"{A2A} ascend_fuseep is an Ascend kernel; this is {s.platform.label}."
        yield Says(said, flags=(A2A,), edits=remove(A2A))


@rule("moe-megamoe-dispatch", "rewrite", PAGE)
def megamoe_dispatch(s: Subject) -> Iterator[Says]:
    """MegaMoE has its own dispatch: DeepEP's token limit does nothing."""
    if s.value(A2A) == "megamoe" and DISPATCH in s.env:
        yield Says(
            f"{DISPATCH} does nothing under MegaMoE, whose own limit is {MEGA_MOE_LIMIT}.",
            flags=(DISPATCH,),
            edits=(Edit("unset-env", DISPATCH),),
        )


@rule("moe-megamoe-flat", "advice", PAGE)
def megamoe_flat(s: Subject) -> Iterator[Says]:
    """On GB200 decode MegaMoE pays with attention DP only."""
    if not s.accepted or s.platform.id != "gb200" or s.role != "decode" or s["moe_a2a_backend"] != "megamoe":
        return
    if s["attn_dp_size"] < 2:
        yield Says(
            "On a GB200 decode server without attention DP, MegaMoE was slower below about 256 requests.",
            "Measure against the run without --moe-a2a-backend.",
            (A2A,),
        )


@rule("moe-deepep-normal", "rewrite")
def deepep_normal(s: Subject) -> Iterator[Says]:
    """--deepep-mode normal turns the CUDA graphs off."""
    if s.accepted and s.value("--deepep-mode") == "normal" and s["moe_a2a_backend"] == "deepep":
        yield Says(
            "--deepep-mode normal cannot be captured: the engine turns the CUDA graphs of both phases off.",
            flags=("--deepep-mode",),
            edits=(write("--deepep-mode", "auto"),),
        )


@rule("moe-eplb-alone", "advice", PAGE)
def eplb_alone(s: Subject) -> Iterator[Says]:
    """EPLB rebalances experts for an EP all-to-all; without one it gains nothing."""
    if s.accepted and s.wrote("--enable-eplb") and s["moe_a2a_backend"] == "none":
        yield Says(
            "--enable-eplb without --moe-a2a-backend has no dispatch to balance.",
            flags=("--enable-eplb",),
            edits=remove("--enable-eplb"),
        )


@rule("moe-a2a-dcp", "advice", PAGE)
def a2a_dcp(s: Subject) -> Iterator[Says]:
    """The buffers of an EP all-to-all take back the KV that DCP gains."""
    if not s.accepted or s["dcp_size"] < 2 or s["moe_a2a_backend"] in ("none", "megamoe"):
        return
    yield Says(
        f"The buffers of {A2A} {s['moe_a2a_backend']} take back the KV that DCP {s['dcp_size']} gains.",
        "Compose the two only to measure.",
        (A2A, "--dcp-size"),
    )


RULES = (
    attention_set,
    runner_blackwell,
    runner_nvfp4,
    checkpoint_platform,
    kernel_platform,
    megamoe_dispatch,
    megamoe_flat,
    deepep_normal,
    eplb_alone,
    a2a_dcp,
)
