"""Speculative decoding."""

from __future__ import annotations

from perilune.plan.memory import Ledger
from perilune.plan.rules.families import SPECULATION
from perilune.plan.rules.refusals.known import Known, known
from perilune.plan.rules.refusals.remedies import unset, unset_env, write
from perilune.plan.server import Server


def _longer_ring(server: Server, found: Ledger) -> Server:
    draft = int(found.resolved["speculative_num_draft_tokens"] or 1)
    return server.set("--linear-replayssm-cache-len", 1 << (2 * draft - 1).bit_length())


def _window(server: Server, _: Ledger) -> Server:
    return server.unset("--speculative-num-draft-tokens")


REFUSED: tuple[Known, ...] = (
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
        write("--speculative-draft-model-path", "RadixArk/Kimi-K3-DSpark"),
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
