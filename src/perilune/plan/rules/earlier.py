"""What releases before the modelled one refuse or change, although the modelled one takes it."""

from __future__ import annotations

from collections.abc import Iterator

from perilune.facts.history import JUDGED
from perilune.plan.rules.edits import Edit, remove, write
from perilune.plan.rules.families import SPECULATION
from perilune.plan.rules.releases import before
from perilune.plan.rules.rule import COMPARED, Says, rule
from perilune.plan.rules.speculation import dspark_instead
from perilune.plan.rules.subject import Subject

CHECKS = f"argument checks of {COMPARED} compared"
DCP = ("--dcp-size", "--dcp-comm-backend", "--dcp-replicate-q-proj")
RADIX, TRANSFER = "--disaggregation-decode-enable-radix-cache", "--disaggregation-transfer-backend"
A2A, RUNNER, SYMMETRIC = "--moe-a2a-backend", "--moe-runner-backend", "--enable-symm-mem"
KDA_MODELS = ("KimiK3ForConditionalGeneration", "KimiLinearForCausalLM")


def _without(s: Subject, *flags: str) -> tuple[Edit, ...]:
    """The edits that remove those of `flags` that are written."""
    return remove(*(flag for flag in flags if s.wrote(flag)))


def _refused(s: Subject, what: str, flags: tuple[str, ...], edits: tuple[Edit, ...]) -> Says:
    """What the release asked about refuses, and the modelled one takes."""
    return Says(f"SGLang {s.engine} refuses {what}, which {JUDGED} takes.", flags=flags, edits=edits)


@rule("earlier-dflash", "error", f"Kimi-K3 model code of {COMPARED}", until="0.5.21")
def dflash(s: Subject) -> Iterator[Says]:
    """The Kimi-K3 model gives DFLASH the layers it reads from 0.5.21 on only."""
    if s.parsed and s.is_k3 and s["speculative_algorithm"] == "DFLASH":
        yield Says(
            f"SGLang {s.engine} has no DFLASH hooks in the Kimi-K3 model; it knows DSPARK or none.",
            flags=("--speculative-algorithm",),
            edits=dspark_instead(s),
        )


@rule("earlier-pipeline", "error", CHECKS, until="0.5.21")
def pipeline(s: Subject) -> Iterator[Says]:
    """DSPARK beside pipeline stages is refused on a PD prefill server too before 0.5.21."""
    if s.parsed and s.role == "prefill" and s["speculative_algorithm"] == "DSPARK" and s["pp_size"] > 1:
        yield _refused(
            s,
            f"DSPARK with --pp-size {s['pp_size']} on a prefill server",
            ("--speculative-algorithm", "--pp-size"),
            _without(s, *SPECULATION),
        )


@rule("earlier-dspark-a2a", "error", CHECKS, until="0.5.21")
def dspark_a2a(s: Subject) -> Iterator[Says]:
    """DSPARK with attention DP takes mori from 0.5.21 on, and MegaMoE from 0.5.18 on."""
    chosen = s["moe_a2a_backend"]
    if not s.accepted or s["speculative_algorithm"] != "DSPARK" or s["attn_dp_size"] < 2 or s.platform.kind == "npu":
        return
    if chosen == "mori" or (chosen == "megamoe" and before(s.engine, "0.5.18")):
        yield _refused(
            s,
            f"{A2A} {chosen} with DSPARK and attention DP",
            (A2A, "--speculative-algorithm"),
            _without(s, A2A, *((RUNNER,) if s.value(RUNNER) == "deep_gemm" else ())),
        )


@rule("earlier-dspark-ascend", "error", CHECKS, until="0.5.18")
def dspark_ascend(s: Subject) -> Iterator[Says]:
    """DSPARK runs on Ascend from 0.5.18 on."""
    if s.parsed and s["speculative_algorithm"] == "DSPARK" and s.platform.kind == "npu":
        yield _refused(s, "DSPARK on Ascend", ("--speculative-algorithm",), _without(s, *SPECULATION))


@rule("earlier-dcp-storage", "error", CHECKS, until="0.5.23")
def dcp_storage(s: Subject) -> Iterator[Says]:
    """A storage tier of HiCache under DCP is taken from 0.5.23 on."""
    storage = s["hicache_storage_backend"]
    if s.accepted and s["enable_hierarchical_cache"] and storage and s["dcp_size"] > 1:
        yield _refused(
            s,
            f"--hicache-storage-backend {storage} with --dcp-size {s['dcp_size']}",
            ("--hicache-storage-backend", "--dcp-size"),
            _without(s, *DCP),
        )


@rule("earlier-dcp-draft", "error", CHECKS, until="0.5.18")
def dcp_draft(s: Subject) -> Iterator[Says]:
    """HiCache under DCP takes DSPARK from 0.5.18 on."""
    if s.accepted and s["enable_hierarchical_cache"] and s["dcp_size"] > 1 and s.speculates:
        yield _refused(
            s,
            f"HiCache with --dcp-size {s['dcp_size']} and {s['speculative_algorithm']}",
            ("--enable-hierarchical-cache", "--dcp-size"),
            _without(s, *DCP),
        )


@rule("earlier-decode-radix-dcp", "error", CHECKS, until="0.5.21")
def decode_radix_dcp(s: Subject) -> Iterator[Says]:
    """A PD decode server under DCP may keep a prefix cache from 0.5.21 on."""
    if s.accepted and s.role == "decode" and s["dcp_size"] > 1 and s.wrote(RADIX):
        yield _refused(s, f"{RADIX} with --dcp-size {s['dcp_size']}", (RADIX, "--dcp-size"), remove(RADIX))


@rule("earlier-decode-radix-draft", "error", CHECKS, until="0.5.23")
def decode_radix_draft(s: Subject) -> Iterator[Says]:
    """A PD decode server with a prefix cache may speculate from 0.5.23 on, with DSPARK from 0.5.21 on."""
    algorithm = s["speculative_algorithm"]
    if not s.accepted or s.role != "decode" or algorithm is None or not s.wrote(RADIX):
        return
    if algorithm != "DSPARK" or before(s.engine, "0.5.21"):
        yield _refused(s, f"{RADIX} with {algorithm}", (RADIX, "--speculative-algorithm"), remove(RADIX))


@rule("earlier-decode-transfer", "error", CHECKS, until="0.5.22")
def decode_transfer(s: Subject) -> Iterator[Says]:
    """A PD decode server under DCP receives over mori and ascend from 0.5.22 on, and over fake from 0.5.19 on."""
    chosen = s["disaggregation_transfer_backend"]
    if not s.accepted or s.role != "decode" or s["dcp_size"] < 2:
        return
    if chosen in ("mori", "ascend") or (chosen == "fake" and before(s.engine, "0.5.19")):
        yield _refused(
            s,
            f"{TRANSFER} {chosen} with --dcp-size {s['dcp_size']} on a decode server",
            (TRANSFER, "--dcp-size"),
            (write(TRANSFER, "nixl"),),
        )


@rule("earlier-symmetric", "rewrite", CHECKS, until="0.5.19")
def symmetric(s: Subject) -> Iterator[Says]:
    """Beside CUDA graphs, Kimi models turn --enable-symm-mem off before 0.5.19."""
    phases = (s.value("--cuda-graph-backend-decode"), s.value("--cuda-graph-backend-prefill"))
    eager = s.wrote("--disable-cuda-graph") or phases == ("disabled", "disabled")
    if s.accepted and s["enable_symm_mem"] and s.resolved.model.architecture in KDA_MODELS and not eager:
        yield Says(
            f"SGLang {s.engine} turns {SYMMETRIC} off for this model, for CUDA graphs are on.",
            flags=(SYMMETRIC,),
            edits=remove(SYMMETRIC),
        )


RULES = (
    dflash,
    pipeline,
    dspark_a2a,
    dspark_ascend,
    dcp_storage,
    dcp_draft,
    decode_radix_dcp,
    decode_radix_draft,
    decode_transfer,
    symmetric,
)
