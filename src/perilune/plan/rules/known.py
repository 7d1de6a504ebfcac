"""The engine's own refusals by subject: what each means in plain words, and the edit that answers it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from perilune.facts.flags import closest_flag, renamed_flag, renames
from perilune.plan.commandline.occurrences import matching
from perilune.plan.memory import Ledger
from perilune.plan.memory.pools import rest_gib
from perilune.plan.rules.edits import apply_edits
from perilune.plan.rules.releases import renaming
from perilune.plan.rules.subject import sized
from perilune.plan.server import Server

Remedy = Callable[[Server, Ledger], Server]
Applies = Callable[[Ledger], bool]
KEPT = frozenset({"--model-path", "--tp-size"})
MOST_FRACTION = 95  # hundredths of --mem-fraction-static that still leave room for graphs
AITER_OPT = "SGLANG_AITER_K3_OPT"
SHARED_WHOLE = "SGLANG_K3_SHARED_EXPERTS_ATTN_TP"
ATTENTION = ("--attention-backend", "--decode-attention-backend", "--prefill-attention-backend")
SPECULATION = (
    "--speculative-algorithm",
    "--speculative-draft-model-path",
    "--speculative-dspark-block-size",
    "--speculative-dflash-block-size",
    "--speculative-num-draft-tokens",
    "--speculative-num-steps",
    "--speculative-eagle-topk",
    "--speculative-draft-attention-backend",
    "--enable-linear-replayssm-spec",
)


def _always(_: Ledger) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Known:
    """One class of refusal: the error it answers, why the engine refuses, the edit in words, and the edit.

    `remedy` is None where nothing can be changed without knowing what was meant.
    """

    id: str
    error: re.Pattern[str]
    why: str
    says: str = ""
    remedy: Remedy | None = None
    flags: tuple[str, ...] = ()
    applies: Applies = _always  # tells causes apart that share one text

    def answers(self, error: str, found: Ledger) -> bool:
        """Whether a refusal is of this class."""
        return bool(self.error.search(error)) and self.applies(found)


def _set(flag: str, value: str | None = None) -> Remedy:
    return lambda server, _: server.set(flag, value)


def _unset(*flags: str) -> Remedy:
    def edit(server: Server, _: Ledger) -> Server:
        for flag in flags:
            server = server.unset(flag)
        return server

    return edit


def _unset_env(name: str) -> Remedy:
    return lambda server, _: server.with_env({name: None})


def _then(*remedies: Remedy) -> Remedy:
    def edit(server: Server, found: Ledger) -> Server:
        for remedy in remedies:
            server = remedy(server, found)
        return server

    return edit


def raise_fraction(server: Server, found: Ledger) -> Server:
    """The least memory fraction, in hundredths, at which the pools fit; the server itself where none does."""
    start = int(float(found.resolved["mem_fraction_static"] or 0) * 100) + 1
    for hundredths in range(start, MOST_FRACTION + 1):
        tried = server.set("--mem-fraction-static", f"{hundredths / 100:.2f}")
        if sized(tried, found).boots:
            return tried
    return server


def _longer_ring(server: Server, found: Ledger) -> Server:
    draft = int(found.resolved["speculative_num_draft_tokens"] or 1)
    return server.set("--linear-replayssm-cache-len", 1 << (2 * draft - 1).bit_length())


def _split_shared(server: Server, _: Ledger) -> Server:
    """Say with flags what two variables said to the image the recipe was written for."""
    if SHARED_WHOLE not in server.environment:
        return server
    return server.set("--enable-shared-experts-attn-tp").set("--enable-dense-mlp-attn-tp")


def _spell(server: Server, _: Ledger) -> Server:
    """Write today's name for each flag that is gone, and the nearest one for each that never was."""
    for flag in server.flags:
        if flag.option is not None:
            continue
        rename = renamed_flag(flag.spelled)
        if rename is not None and rename.status == "gone":
            server = apply_edits(server, renaming(rename, flag.spelled))
            continue
        near = closest_flag(flag.spelled)
        if near is not None and not matching(flag.spelled):
            words = list(server.argv)
            words[flag.position] = words[flag.position].replace(flag.spelled, near, 1)
            server = Server(tuple(words), server.env, server.program, server.wrapper)
    return server


def _today(server: Server, _: Ledger) -> Server:
    """Write today's value for each one that was renamed."""
    for rename in renames().values:
        if rename.flag and rename.status == "gone" and server.value(rename.flag) == rename.old:
            server = server.set(rename.flag, rename.to)
    return server


def _nearest_divisor(flag: str, of: str) -> Remedy:
    """The largest value of `flag`, not above the present one, that divides the field `of`."""

    def edit(server: Server, found: Ledger) -> Server:
        whole = int(found.resolved[of] or 1)
        present = server.value(flag) or "1"
        size = int(present) if present.isdigit() else 1
        best = next((n for n in range(min(size, whole), 0, -1) if whole % n == 0), 1)
        return server.unset(flag) if best == 1 else server.set(flag, best)

    return edit


def _whole_pages(server: Server, found: Ledger) -> Server:
    chunk, page = found.resolved["chunked_prefill_size"], found.resolved["page_size"]
    return server.set("--chunked-prefill-size", max(chunk // page, 1) * page) if chunk and page else server


def _long_enough_track(server: Server, found: Ledger) -> Server:
    page = int(found.resolved["page_size"] or 1)
    return server.set("--mamba-track-interval", max(256, page) // page * page)


def _window(server: Server, _: Ledger) -> Server:
    return server.unset("--speculative-num-draft-tokens")


def _pinned(found: Ledger) -> bool:
    """Whether a pin takes more than there is."""
    return found.inputs is not None and found.inputs.given_slots is not None and rest_gib(found.inputs) > 0


def _per_request(found: Ledger) -> bool:
    """Whether the state pool follows --max-running-requests and takes more than there is."""
    i = found.inputs
    return i is not None and i.given_slots is None and i.radix_off and i.asked is not None and rest_gib(i) > 0


def _fewer_requests(server: Server, found: Ledger) -> Server:
    """The most requests, by halves, with which the pools fit."""
    asked = int(found.resolved["max_running_requests"] or 1)
    while asked > 1:
        asked //= 2
        tried = server.set("--max-running-requests", asked)
        if sized(tried, found).boots:
            return tried
    return server


def remove_named(server: Server, found: Ledger) -> Server:
    """The command without the first flag that the error names, other than the model and the TP size, if that helps."""
    error = refusal(found)
    for flag in server.flags:
        if flag.name in KEPT or not {flag.name, flag.spelled, flag.name[2:].replace("-", "_")} & words_of(error):
            continue
        tried = server.unset(flag.name)
        if refusal(sized(tried, found)) != error:
            return tried
    return server


def refusal(found: Ledger) -> str:
    """The engine's text, empty when it boots."""
    return found.error or found.allocation_error or ""


def words_of(error: str) -> frozenset[str]:
    """The flags and fields that a text names."""
    return frozenset(re.findall(r"-{0,2}[a-z][a-z0-9_-]+", error))


def _before_memory(found: Ledger) -> bool:
    return found.error_stage in ("parse", "resolve", "check")


def _without_aiter_opt(found: Ledger) -> bool:
    return found.resolved.platform.kind == "hip" and found.resolved.model.is_kimi_k3 and not _aiter_opt(found)


def _aiter_opt(found: Ledger) -> bool:
    return found.resolved.env.get(AITER_OPT, "").lower() in ("1", "true", "yes", "y")


def _eplb_alone(found: Ledger) -> bool:
    return bool(found.resolved["enable_eplb"]) and found.resolved["ep_size"] <= 1


def _dp_uneven(found: Ledger) -> bool:
    return bool(found.resolved["tp_size"] % max(found.resolved["attn_dp_size"], found.resolved["dp_size"], 1))


def _known(
    name: str,
    error: str,
    why: str,
    says: str = "",
    remedy: Remedy | None = None,
    flags: tuple[str, ...] = (),
    applies: Applies = _always,
) -> Known:
    return Known(name, re.compile(error), why, says, remedy, flags, applies)


NO_ROOM = r"Loaded weights leave no GPU memory|Not enough GPU memory for hybrid"

KNOWN: tuple[Known, ...] = (
    # spelling
    _known(
        "flag-gone",
        r"unrecognized arguments|ambiguous option",
        "This release does not have the flag.",
        "write today's name of the flag",
        _spell,
    ),
    _known("flag-value", r"invalid choice", "The flag does not take this value.", "write today's value", _today),
    # memory
    _known(
        "state-pin-large",
        NO_ROOM,
        "The pinned slots take all the memory that the weights and --mem-fraction-static leave.",
        "remove --max-mamba-cache-size",
        _unset("--max-mamba-cache-size"),
        ("--max-mamba-cache-size",),
        _pinned,
    ),
    _known(
        "state-requests-large",
        NO_ROOM,
        "Without a radix cache every request of --max-running-requests has a state slot, and they take all there is.",
        "lower --max-running-requests",
        _fewer_requests,
        ("--max-running-requests",),
        _per_request,
    ),
    _known(
        "amd-aiter-opt",
        NO_ROOM,
        "Without SGLANG_AITER_K3_OPT the weights take much more of an MI35x.",
        "set SGLANG_AITER_K3_OPT=1",
        lambda server, _: server.with_env({AITER_OPT: "1"}),
        (AITER_OPT,),
        _without_aiter_opt,
    ),
    _known(
        "memory-fraction-low",
        NO_ROOM,
        "The fraction keeps free memory times (1 - fraction) for graphs and activations, and the weights leave less.",
        "add --enable-shared-experts-attn-tp and --enable-dense-mlp-attn-tp",
        _split_shared,
        ("--mem-fraction-static",),
    ),
    _known(
        "memory-fraction-low",
        NO_ROOM + r"|Please try to increase --mem-fraction-static",
        "The fraction keeps free memory times (1 - fraction) for graphs and activations, and the weights leave less.",
        "raise --mem-fraction-static",
        raise_fraction,
        ("--mem-fraction-static",),
    ),
    _known(
        "state-pool-small",
        r"state cache is too small to serve any requests",
        "One request needs more state slots than the pool has.",
        "remove --max-mamba-cache-size and --mamba-full-memory-ratio",
        _unset("--max-mamba-cache-size", "--mamba-full-memory-ratio"),
        ("--max-mamba-cache-size", "--mamba-full-memory-ratio"),
    ),
    _known(
        "memory-weights",
        r"^Loading runs out of memory",
        "The shared experts and the dense MLP are whole on every GPU, for this release reads flags, not the variables.",
        "add --enable-shared-experts-attn-tp and --enable-dense-mlp-attn-tp",
        _split_shared,
        ("--tp-size",),
        lambda found: SHARED_WHOLE in found.resolved.env,
    ),
    _known(
        "memory-weights",
        r"^Loading runs out of memory",
        "The weights alone are more than one GPU holds; only more GPUs to a server, expert parallelism or a smaller "
        "checkpoint help.",
        flags=("--tp-size", "--pp-size", "--ep-size"),
    ),
    # speculation
    _known(
        "spec-dp-lm-head",
        r"with dp attention requires --enable-dp-lm-head",
        "The draft's head is sharded with DP attention.",
        "add --enable-dp-lm-head",
        _set("--enable-dp-lm-head"),
        ("--attn-dp-size",),
    ),
    _known(
        "spec-dp-a2a",
        r"with dp attention supports moe_a2a_backend",
        "Beside DP attention DSPARK runs with the built-in TP MoE, MegaMoE or mori only.",
        "remove --moe-a2a-backend and --deepep-mode",
        _unset("--moe-a2a-backend", "--deepep-mode"),
        ("--moe-a2a-backend",),
    ),
    _known(
        "spec-pipeline",
        r"pipeline parallelism requires PD prefill|only supports pp_size == 1"
        r"|Pipeline parallelism currently only supports EAGLE|only supported on prefill nodes",
        "The draft lives on the last pipeline stage; only a PD prefill server may combine DSPARK with stages.",
        "remove the speculation flags",
        _unset(*SPECULATION),
        ("--speculative-algorithm", "--pp-size"),
    ),
    _known(
        "spec-draft-missing",
        r"requires setting --speculative-draft-model-path",
        "The checkpoint brings no draft of its own.",
        "write --speculative-draft-model-path RadixArk/Kimi-K3-DSpark",
        _set("--speculative-draft-model-path", "RadixArk/Kimi-K3-DSpark"),
        ("--speculative-algorithm",),
    ),
    _known(
        "spec-window",
        r"speculative_num_draft_tokens must equal",
        "The verify window follows from the draft's block size.",
        "remove --speculative-num-draft-tokens",
        _window,
        ("--speculative-num-draft-tokens",),
    ),
    _known(
        "spec-topk",
        r"speculative_eagle_topk.* > 1 with page_size",
        "A draft tree needs pages of one token, or another attention backend.",
        "write --speculative-eagle-topk 1",
        _set("--speculative-eagle-topk", "1"),
        ("--speculative-eagle-topk", "--speculative-algorithm"),
    ),
    _known(
        "spec-topk",
        r"speculative_eagle_topk.* > 1 with page_size",
        "A draft tree needs pages of one token, or another attention backend.",
        "remove the speculation flags",
        _unset(*SPECULATION),
        ("--speculative-algorithm",),
    ),
    _known(
        "spec-algorithm-platform",
        r"[Ss]peculative decoding only supports",
        "The algorithm has no kernels on this platform.",
        "remove the speculation flags",
        _unset(*SPECULATION),
        ("--speculative-algorithm",),
    ),
    _known(
        "spec-ragged-dcp",
        r"DCP \+ DSPARK currently requires SGLANG_RAGGED_VERIFY_MODE=static",
        "Only the static verify layout is validated under DCP.",
        "remove SGLANG_RAGGED_VERIFY_MODE",
        _unset_env("SGLANG_RAGGED_VERIFY_MODE"),
        ("SGLANG_RAGGED_VERIFY_MODE",),
    ),
    _known(
        "spec-ragged-a2a",
        r"RAGGED_VERIFY_MODE.*static",
        "Only the static verify layout works here.",
        "remove SGLANG_RAGGED_VERIFY_MODE",
        _unset_env("SGLANG_RAGGED_VERIFY_MODE"),
        ("SGLANG_RAGGED_VERIFY_MODE",),
    ),
    _known(
        "spec-replay-prefill",
        r"enable-linear-replayssm-spec is not supported on a PD prefill",
        "The ring is scratch of verification, which a prefill server never does.",
        "remove --enable-linear-replayssm-spec",
        _unset("--enable-linear-replayssm-spec"),
        ("--enable-linear-replayssm-spec",),
    ),
    _known(
        "spec-replay-ring",
        r"spec-verify ring",
        "The ring must be a power of two and hold two verify windows.",
        "write a longer --linear-replayssm-cache-len",
        _longer_ring,
        ("--linear-replayssm-cache-len",),
    ),
    _known(
        "spec-replay-exclusive",
        r"--enable-linear-replayssm requires --mamba-radix-cache-strategy no_buffer"
        r"|enable-linear-replayssm-spec.*(incompatible|together|with) .*--enable-linear-replayssm\b",
        "The decode ring and state snapshots cannot share one buffer.",
        "remove --enable-linear-replayssm",
        _unset("--enable-linear-replayssm"),
        ("--enable-linear-replayssm",),
    ),
    _known(
        "spec-replay-backend",
        r"--enable-linear-replayssm(-spec)?.*(requires|linear-attn)",
        "The ring is written by the Triton decode kernel only.",
        "remove the linear-attention backend flags",
        _unset("--linear-attn-decode-backend", "--linear-attn-verify-backend", "--linear-attn-backend"),
        ("--enable-linear-replayssm-spec", "--enable-linear-replayssm", "--linear-attn-decode-backend"),
    ),
    # state pool
    _known(
        "state-lazy-pd",
        r"extra_buffer_lazy unsupported under PD",
        "The lazy buffer is not wired for PD.",
        "write --mamba-radix-cache-strategy extra_buffer",
        _set("--mamba-radix-cache-strategy", "extra_buffer"),
        ("--mamba-radix-cache-strategy",),
    ),
    _known(
        "state-lazy-overlap",
        r"Lazy extra buffer requires overlap",
        "The lazy buffer exists with the overlap schedule only, which pipeline stages turn off.",
        "write --mamba-radix-cache-strategy extra_buffer",
        _set("--mamba-radix-cache-strategy", "extra_buffer"),
        ("--mamba-radix-cache-strategy",),
    ),
    _known(
        "state-no-buffer",
        r"no_buffer do not support overlap schedule|no_buffer only supports page_size=1"
        r"|no_buffer do not support trtllm_mha|Page size must be 1 for MambaRadixCache",
        "no_buffer needs the overlap schedule off, pages of one token and an attention backend that has them.",
        "remove --mamba-radix-cache-strategy no_buffer, which leaves extra_buffer",
        _unset("--mamba-radix-cache-strategy"),
        ("--mamba-radix-cache-strategy",),
    ),
    _known(
        "state-extra-buffer",
        r"extra_buffer is not supported for",
        "Snapshots are written by the Triton kernel only.",
        "remove --linear-attn-backend",
        _unset("--linear-attn-backend"),
        ("--linear-attn-backend", "--mamba-radix-cache-strategy"),
    ),
    _known(
        "moe-eplb",
        r"^AssertionError: $|EPLB",
        "Experts are rebalanced between EP ranks, and there is only one.",
        "remove --enable-eplb",
        _unset("--enable-eplb"),
        ("--enable-eplb",),
        _eplb_alone,
    ),
    _known(
        "parallel-dp-divides",
        r"^AssertionError: $",
        "Attention TP is the TP size divided by attention DP.",
        "write an --attn-dp-size that divides the TP size",
        _nearest_divisor("--attn-dp-size", "tp_size"),
        ("--attn-dp-size", "--dp-size"),
        _dp_uneven,
    ),
    _known(
        "state-track-interval",
        r"^AssertionError: $",
        "--mamba-track-interval must be at least the verify window and a multiple of the page size.",
        "write a --mamba-track-interval in whole pages",
        _long_enough_track,
        ("--mamba-track-interval",),
    ),
    _known(
        "state-rounding",
        r"[Ss]tochastic rounding",
        "Stochastic rounding needs a float16 state, and with the Triton kernel SM100.",
        "remove --enable-mamba-cache-stochastic-rounding",
        _unset("--enable-mamba-cache-stochastic-rounding"),
        ("--enable-mamba-cache-stochastic-rounding",),
    ),
    _known(
        "state-flashinfer-dtype",
        r"linear-attn-(decode|verify)-backend flashinfer on SM100",
        "FlashInfer's kernel reads a bfloat16 state on SM100.",
        "write --mamba-ssm-dtype bfloat16",
        _set("--mamba-ssm-dtype", "bfloat16"),
        ("--linear-attn-decode-backend", "--linear-attn-verify-backend"),
    ),
    _known(
        "state-flashkda",
        r"FlashKDA is prefill-only",
        "FlashKDA has a prefill kernel only.",
        "remove --linear-attn-decode-backend",
        _unset("--linear-attn-decode-backend"),
        ("--linear-attn-decode-backend",),
    ),
    _known(
        "state-int8",
        r"enable-int8-mamba-checkpoint",
        "Host tiers and other caches cannot read int8 states.",
        "remove --enable-int8-mamba-checkpoint",
        _unset("--enable-int8-mamba-checkpoint"),
        ("--enable-int8-mamba-checkpoint",),
    ),
    _known(
        "state-path-limit",
        r"--mamba-max-states-per-path must be",
        "The limit is -1 for none, or a positive number.",
        "remove --mamba-max-states-per-path",
        _unset("--mamba-max-states-per-path"),
        ("--mamba-max-states-per-path",),
    ),
    # HiCache
    _known(
        "hicache-radix-off",
        r"enable-hierarchical-cache and disable-radix-cache",
        "Host tiers extend the prefix cache, which is off (on a PD decode server by default).",
        "remove --enable-hierarchical-cache",
        _unset("--enable-hierarchical-cache", "--hicache-storage-backend"),
        ("--enable-hierarchical-cache", "--disable-radix-cache"),
    ),
    _known(
        "hicache-dcp",
        r"HiCache with --dcp-size > 1 only supports DSPARK|L3 with DCP|HiCache.*dcp|LMCache.*dcp",
        "Under DCP, HiCache takes no speculation but DSPARK, and no buffer_only storage tier.",
        "remove --dcp-size",
        _unset("--dcp-size", "--dcp-comm-backend", "--dcp-replicate-q-proj"),
        ("--enable-hierarchical-cache", "--dcp-size"),
    ),
    # DCP
    _known(
        "dcp-backend",
        r"must be 'cutedsl_mla' or 'aiter'",
        "Only these two decode kernels know DCP; unset, the engine picks the right one on Blackwell.",
        "remove the attention backend flags",
        _unset(*ATTENTION),
        ATTENTION,
    ),
    _known(
        "dcp-comm",
        r"only affects the decode context-parallel",
        "There is no DCP group whose exchange could be chosen.",
        "remove --dcp-comm-backend",
        _unset("--dcp-comm-backend"),
        ("--dcp-comm-backend",),
    ),
    _known(
        "dcp-comm",
        r"--dcp-comm-backend fi_a2a delegates",
        "FlashInfer's exchange needs Blackwell and one NVLink domain.",
        "remove --dcp-comm-backend",
        _unset("--dcp-comm-backend"),
        ("--dcp-comm-backend",),
    ),
    _known(
        "dcp-replicate-q",
        r"--dcp-replicate-q-proj (requires|only applies)",
        "The projection is replicated only under DCP with an all-to-all exchange.",
        "remove --dcp-replicate-q-proj",
        _unset("--dcp-replicate-q-proj"),
        ("--dcp-replicate-q-proj",),
    ),
    _known(
        "dcp-prefill-cp",
        r"--dcp-size > 1 does not support --enable-prefill-cp",
        "Decode and prefill context parallelism exclude each other.",
        "remove the prefill CP flags",
        _unset("--enable-prefill-cp", "--cp-strategy", "--attn-cp-size"),
        ("--enable-prefill-cp",),
    ),
    _known(
        "dcp-host-pool",
        r"retraction-backup=host_pool does not support",
        "The host pool of retracted requests is not laid out for DCP.",
        "remove --disaggregation-decode-retraction-backup",
        _unset("--disaggregation-decode-retraction-backup", "--disaggregation-decode-host-receive-threshold"),
        ("--disaggregation-decode-retraction-backup",),
    ),
    _known(
        "dcp-platform",
        r"NPU decode context parallelism is|CuteDSL MLA backend is only supported on Blackwell",
        "For this model DCP needs Blackwell, or MI35x with the aiter backend.",
        "remove --dcp-size",
        _then(_unset("--dcp-size", "--dcp-comm-backend", "--dcp-replicate-q-proj"), _unset(*ATTENTION)),
        ("--dcp-size", *ATTENTION),
    ),
    _known(
        "dcp-divides",
        r"dcp_size|decode.context.parallel",
        "DCP groups are cut from TP groups, so the TP size is a multiple of the DCP size.",
        "write a --dcp-size that divides the TP size",
        _nearest_divisor("--dcp-size", "tp_size"),
        ("--dcp-size", "--tp-size"),
    ),
    # attention and KV
    _known(
        "attention-platform",
        r"MLA backend is only supported on Blackwell",
        "The kernel exists on Blackwell only.",
        "remove the attention backend flags",
        _unset(*ATTENTION),
        ATTENTION,
    ),
    _known(
        "kv-dtype",
        r"only supports kv-cache-dtype of fp8_e4m3|NVFP4 prefill supports",
        "The MLA kernels read fp8_e4m3 or bf16 only.",
        "write --kv-cache-dtype fp8_e4m3",
        _set("--kv-cache-dtype", "fp8_e4m3"),
        ("--kv-cache-dtype",),
    ),
    _known(
        "kv-chunk-page",
        r"chunked_prefill_size must be divisible by page_size",
        "A prefill chunk is whole pages.",
        "write a --chunked-prefill-size in whole pages",
        _whole_pages,
        ("--chunked-prefill-size", "--page-size"),
    ),
    _known(
        "kv-sharding",
        r"--enable-kv-cache-sharding is only supported on PD prefill",
        "A rank holds only its stripe of each page, which decoding cannot use.",
        "remove --enable-kv-cache-sharding",
        _unset("--enable-kv-cache-sharding"),
        ("--enable-kv-cache-sharding",),
    ),
    # MoE
    _known(
        "moe-a2a",
        r"FlashInfer MegaMOE currently supports|DeepEP v2 MoE is not validated|Flashinfer MoE A2A requires",
        "This all-to-all does not take this model or layout.",
        "remove --moe-a2a-backend",
        _unset("--moe-a2a-backend"),
        ("--moe-a2a-backend",),
    ),
    _known(
        "moe-shared-experts",
        r"--shared-experts-tp-size",
        "Shared experts are split apart only beside an EP all-to-all, by a divisor of the attention TP size.",
        "remove --shared-experts-tp-size",
        _unset("--shared-experts-tp-size"),
        ("--shared-experts-tp-size",),
    ),
    _known(
        "moe-overlap",
        r"enabling two batch overlap without an EP a2a",
        "Two batches overlap only beside an EP all-to-all or attention DP.",
        "remove --enable-two-batch-overlap",
        _unset("--enable-two-batch-overlap"),
        ("--enable-two-batch-overlap",),
    ),
    # parallelism
    _known(
        "parallel-dp",
        r"data-parallel replicas combined with",
        "A server is replicated or its attention is split, not both.",
        "remove --dp-size",
        _unset("--dp-size", "--enable-dp-attention"),
        ("--attn-dp-size", "--dp-size"),
    ),
    _known(
        "parallel-dp",
        r"--attn-dp-size must be positive",
        "Attention DP of 0 means nothing.",
        "remove --attn-dp-size",
        _unset("--attn-dp-size", "--enable-dp-lm-head"),
        ("--attn-dp-size",),
    ),
    _known(
        "parallel-dp-nodes",
        r"multi-node data-parallel replicas are not supported",
        "Replicas live on one node.",
        "remove --dp-size",
        _unset("--dp-size"),
        ("--dp-size",),
    ),
    _known(
        "parallel-nodes",
        r"nnodes|number of nodes",
        "The ranks (TP x PP) are spread evenly over the nodes.",
        "write an --nnodes that divides the ranks",
        flags=("--nnodes", "--tp-size", "--pp-size"),
    ),
    _known(
        "parallel-layernorm",
        r"--enable-layernorm-sp is only supported",
        "The model has no sequence-parallel LayerNorm.",
        "remove --enable-layernorm-sp",
        _unset("--enable-layernorm-sp"),
        ("--enable-layernorm-sp",),
    ),
    _known(
        "parallel-heads",
        r"AssertionError: .*(heads|divisible)|is not divisible by|Weight .* is not divisible",
        "A tensor of the model does not divide into this many parts.",
        "write a --tp-size that divides its heads and widths",
        flags=("--tp-size", "--ep-size", "--attn-dp-size"),
    ),
    # vision
    _known(
        "vision-language-only",
        r"--language-model-only does not support",
        "The model cannot be served without its vision tower.",
        "remove --language-model-only",
        _unset("--language-model-only"),
        ("--language-model-only",),
    ),
    _known("engine-refuses", r"", "", "remove what the text names", remove_named, (), _before_memory),
)


def known_refusal(error: str, found: Ledger) -> Known | None:
    """The first class an error belongs to."""
    return next((known for known in KNOWN if known.answers(error, found)), None)
