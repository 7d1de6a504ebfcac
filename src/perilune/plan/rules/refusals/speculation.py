"""Speculative decoding."""

from __future__ import annotations

from perilune.plan.memory import Ledger
from perilune.plan.resolve import DEFAULT_DRAFT
from perilune.plan.rules.families import SPECULATION
from perilune.plan.rules.refusals.known import Known, known
from perilune.plan.rules.refusals.remedies import unset, unset_env, write
from perilune.plan.server import Server

GROWN = ("EAGLE", "EAGLE3", "NEXTN", "STANDALONE")  # algorithms whose draft grows step by step
SHAPE = {
    "--speculative-num-steps": "speculative_num_steps",
    "--speculative-eagle-topk": "speculative_eagle_topk",
    "--speculative-num-draft-tokens": "speculative_num_draft_tokens",
}
DEFAULT_STEPS = 3
UNSHAPED = r"between instances of 'NoneType' and 'int'|^AssertionError:?\s*$"


def _longer_ring(server: Server, found: Ledger) -> Server:
    draft = int(found.resolved["speculative_num_draft_tokens"] or 1)
    return server.set("--linear-replayssm-cache-len", 1 << (2 * draft - 1).bit_length())


def _window(server: Server, _: Ledger) -> Server:
    return server.unset("--speculative-num-draft-tokens")


def _half_shaped(found: Ledger) -> bool:
    """Whether some of the steps, width and tokens of an EAGLE draft are given, and not what must be."""
    r = found.resolved
    if r["speculative_algorithm"] not in GROWN:
        return False
    given = [field in r.given for field in SHAPE.values()]
    return any(given) and not (given[0] and given[1])


def _half_shaped_without_draft(found: Ledger) -> bool:
    r = found.resolved
    return _half_shaped(found) and r.model.is_kimi_k3 and "speculative_draft_model_path" not in r.given


def _whole_shape(server: Server, found: Ledger) -> Server:
    """Steps, width and tokens together: what is given stays, a chain of the steps is the rest."""
    steps, topk, tokens = (found.resolved[field] if field in found.resolved.given else None for field in SHAPE.values())
    steps = steps or max((tokens or DEFAULT_STEPS + 1) - 1, 1)
    for flag, value in zip(SHAPE, (steps, topk or 1, tokens or steps + 1), strict=True):
        server = server.set(flag, value)
    return server


def _dspark(server: Server, _: Ledger) -> Server:
    """DSPARK with its draft, whose shape is its own."""
    for flag in SHAPE:
        server = server.unset(flag)
    return server.set("--speculative-algorithm", "DSPARK").set("--speculative-draft-model-path", DEFAULT_DRAFT)


REFUSED: tuple[Known, ...] = (
    known(
        "spec-draft-shape",
        UNSHAPED,
        "Steps, width and tokens of an EAGLE draft are given together or not at all. Kimi-K3 brings no draft of its "
        "own for it; DSPARK has one, and its shape follows from that.",
        "write DSPARK with its draft",
        _dspark,
        ("--speculative-num-steps", "--speculative-eagle-topk", "--speculative-num-draft-tokens"),
        _half_shaped_without_draft,
    ),
    known(
        "spec-draft-shape",
        UNSHAPED,
        "Steps, width and tokens of an EAGLE draft are given together or not at all.",
        "write --speculative-num-steps, --speculative-eagle-topk and --speculative-num-draft-tokens",
        _whole_shape,
        ("--speculative-num-steps", "--speculative-eagle-topk", "--speculative-num-draft-tokens"),
        _half_shaped,
    ),
    known(
        "spec-dp-lm-head",
        r"with dp attention requires --enable-dp-lm-head",
        "The draft's head is sharded with DP attention.",
        "add --enable-dp-lm-head",
        write("--enable-dp-lm-head"),
        ("--attn-dp-size",),
    ),
    known(
        "spec-dp-a2a",
        r"with dp attention supports moe_a2a_backend",
        "Beside DP attention DSPARK runs with the built-in TP MoE, MegaMoE or mori only.",
        "remove --moe-a2a-backend and --deepep-mode",
        unset("--moe-a2a-backend", "--deepep-mode"),
        ("--moe-a2a-backend",),
    ),
    known(
        "spec-pipeline",
        r"pipeline parallelism requires PD prefill|only supports pp_size == 1"
        r"|Pipeline parallelism currently only supports EAGLE|only supported on prefill nodes",
        "The draft lives on the last pipeline stage; only a PD prefill server may combine DSPARK with stages.",
        "remove the speculation flags",
        unset(*SPECULATION),
        ("--speculative-algorithm", "--pp-size"),
    ),
    known(
        "spec-draft-missing",
        r"requires setting --speculative-draft-model-path",
        "The checkpoint brings no draft of its own.",
        "write --speculative-draft-model-path RadixArk/Kimi-K3-DSpark",
        write("--speculative-draft-model-path", DEFAULT_DRAFT),
        ("--speculative-algorithm",),
    ),
    known(
        "spec-window",
        r"speculative_num_draft_tokens must equal",
        "The verify window follows from the draft's block size.",
        "remove --speculative-num-draft-tokens",
        _window,
        ("--speculative-num-draft-tokens",),
    ),
    known(
        "spec-topk",
        r"speculative_eagle_topk.* > 1 with page_size",
        "A draft tree needs pages of one token, or another attention backend.",
        "write --speculative-eagle-topk 1",
        write("--speculative-eagle-topk", "1"),
        ("--speculative-eagle-topk", "--speculative-algorithm"),
    ),
    known(
        "spec-topk",
        r"speculative_eagle_topk.* > 1 with page_size",
        "A draft tree needs pages of one token, or another attention backend.",
        "remove the speculation flags",
        unset(*SPECULATION),
        ("--speculative-algorithm",),
    ),
    known(
        "spec-algorithm-platform",
        r"[Ss]peculative decoding only supports",
        "The algorithm has no kernels on this platform.",
        "remove the speculation flags",
        unset(*SPECULATION),
        ("--speculative-algorithm",),
    ),
    known(
        "spec-ragged-dcp",
        r"DCP \+ DSPARK currently requires SGLANG_RAGGED_VERIFY_MODE=static",
        "Only the static verify layout is validated under DCP.",
        "remove SGLANG_RAGGED_VERIFY_MODE",
        unset_env("SGLANG_RAGGED_VERIFY_MODE"),
        ("SGLANG_RAGGED_VERIFY_MODE",),
    ),
    known(
        "spec-ragged-a2a",
        r"RAGGED_VERIFY_MODE.*static",
        "Only the static verify layout works here.",
        "remove SGLANG_RAGGED_VERIFY_MODE",
        unset_env("SGLANG_RAGGED_VERIFY_MODE"),
        ("SGLANG_RAGGED_VERIFY_MODE",),
    ),
    known(
        "spec-replay-prefill",
        r"enable-linear-replayssm-spec is not supported on a PD prefill",
        "The ring is scratch of verification, which a prefill server never does.",
        "remove --enable-linear-replayssm-spec",
        unset("--enable-linear-replayssm-spec"),
        ("--enable-linear-replayssm-spec",),
    ),
    known(
        "spec-replay-ring",
        r"spec-verify ring",
        "The ring must be a power of two and hold two verify windows.",
        "write a longer --linear-replayssm-cache-len",
        _longer_ring,
        ("--linear-replayssm-cache-len",),
    ),
    known(
        "spec-replay-exclusive",
        r"--enable-linear-replayssm requires --mamba-radix-cache-strategy no_buffer"
        r"|enable-linear-replayssm-spec.*(incompatible|together|with) .*--enable-linear-replayssm\b",
        "The decode ring and state snapshots cannot share one buffer.",
        "remove --enable-linear-replayssm",
        unset("--enable-linear-replayssm"),
        ("--enable-linear-replayssm",),
    ),
    known(
        "spec-replay-exclusive",
        r"--enable-linear-replayssm is not supported under PD",
        "The decode ring is not wired for PD.",
        "remove --enable-linear-replayssm",
        unset("--enable-linear-replayssm"),
        ("--enable-linear-replayssm",),
    ),
    known(
        "spec-replay-topk",
        r"requires a linear draft chain",
        "The ring holds a chain of drafts, not a tree.",
        "write --speculative-eagle-topk 1",
        write("--speculative-eagle-topk", "1"),
        ("--speculative-eagle-topk", "--enable-linear-replayssm-spec"),
    ),
    known(
        "spec-replay-backend",
        r"--enable-linear-replayssm(-spec)?.*(requires|linear-attn)",
        "The ring is written by the Triton decode kernel only.",
        "remove the linear-attention backend flags",
        unset("--linear-attn-decode-backend", "--linear-attn-verify-backend", "--linear-attn-backend"),
        ("--enable-linear-replayssm-spec", "--enable-linear-replayssm", "--linear-attn-decode-backend"),
    ),
)
