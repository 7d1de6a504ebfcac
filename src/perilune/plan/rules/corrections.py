"""What to change in a command that the engine refuses: known edits, each proved by resolving again."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from perilune.plan.memory import Basis, Ledger, Measured, ledger
from perilune.plan.resolve import resolve
from perilune.plan.server import Server

Edit = Callable[[Server, Ledger], Server]
MOST_EDITS = 4
MOST_FRACTION = 95  # hundredths of --mem-fraction-static that still leave room for graphs
NO_ROOM = r"Loaded weights leave no GPU memory|Not enough GPU memory for hybrid"


@dataclass(frozen=True, slots=True)
class Correction:
    """A server that the engine accepts, and the edits that led there (as one would type them)."""

    server: Server
    edits: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Known:
    """One remedy: the error it answers, the edit in words, and the edit."""

    error: re.Pattern[str]
    says: str
    edit: Edit


def _set(flag: str, value: str | None = None) -> Edit:
    return lambda server, _: server.set(flag, value)


def _unset(*flags: str) -> Edit:
    def edit(server: Server, _: Ledger) -> Server:
        for flag in flags:
            server = server.unset(flag)
        return server

    return edit


def _raise_fraction(server: Server, found: Ledger) -> Server:
    """The least memory fraction, in hundredths, at which the pools fit."""
    start = int(float(found.resolved["mem_fraction_static"] or 0) * 100) + 1
    for hundredths in range(start, MOST_FRACTION + 1):
        tried = server.set("--mem-fraction-static", f"{hundredths / 100:.2f}")
        if again(tried, found).boots:
            return tried
    return server


def _longer_ring(server: Server, found: Ledger) -> Server:
    draft = int(found.resolved["speculative_num_draft_tokens"] or 1)
    return server.set("--linear-replayssm-cache-len", 1 << (2 * draft - 1).bit_length())


SHARED_WHOLE = "SGLANG_K3_SHARED_EXPERTS_ATTN_TP"


def _split_shared(server: Server, _: Ledger) -> Server:
    """Say with flags what two variables said to the image the recipe was written for."""
    if SHARED_WHOLE not in server.environment:
        return server
    return server.set("--enable-shared-experts-attn-tp").set("--enable-dense-mlp-attn-tp")


def _known(error: str, says: str, edit: Edit) -> _Known:
    return _Known(re.compile(error), says, edit)


KNOWN = (
    _known(
        NO_ROOM,
        "add --enable-shared-experts-attn-tp and --enable-dense-mlp-attn-tp",
        _split_shared,
    ),
    _known(NO_ROOM, "raise --mem-fraction-static", _raise_fraction),
    _known(
        r"with dp attention requires --enable-dp-lm-head",
        "add --enable-dp-lm-head",
        _set("--enable-dp-lm-head"),
    ),
    _known(
        r"extra_buffer_lazy unsupported under PD|Lazy extra buffer requires overlap",
        "write --mamba-radix-cache-strategy extra_buffer",
        _set("--mamba-radix-cache-strategy", "extra_buffer"),
    ),
    _known(
        r"enable-hierarchical-cache and disable-radix-cache",
        "remove --enable-hierarchical-cache",
        _unset("--enable-hierarchical-cache", "--hicache-storage-backend"),
    ),
    _known(
        r"enable-linear-replayssm-spec is not supported on a PD prefill",
        "remove --enable-linear-replayssm-spec",
        _unset("--enable-linear-replayssm-spec"),
    ),
    _known(
        r"HiCache with --dcp-size > 1 only supports DSPARK|L3 with DCP",
        "remove --dcp-size",
        _unset("--dcp-size", "--dcp-comm-backend"),
    ),
    _known(
        r"pipeline parallelism requires PD prefill|pipeline parallelism",
        "remove the speculation flags",
        _unset(
            "--speculative-algorithm",
            "--speculative-draft-model-path",
            "--speculative-dspark-block-size",
            "--speculative-dflash-block-size",
            "--enable-linear-replayssm-spec",
        ),
    ),
    _known(r"spec-verify ring too small", "write a longer --linear-replayssm-cache-len", _longer_ring),
    _known(
        r"no_buffer do not support overlap schedule",
        "add --disable-overlap-schedule",
        _set("--disable-overlap-schedule"),
    ),
    _known(
        r"linear-attn-(decode|verify)-backend flashinfer on SM100",
        "write --mamba-ssm-dtype bfloat16",
        _set("--mamba-ssm-dtype", "bfloat16"),
    ),
    _known(r"only affects the decode context-parallel", "remove --dcp-comm-backend", _unset("--dcp-comm-backend")),
    _known(r"requires --dcp-size > 1", "remove --dcp-replicate-q-proj", _unset("--dcp-replicate-q-proj")),
    _known(
        r"must be 'cutedsl_mla' or 'aiter'",
        "remove the attention backend flags",
        _unset("--attention-backend", "--decode-attention-backend", "--prefill-attention-backend"),
    ),
    _known(
        r"only supports kv-cache-dtype of fp8_e4m3|NVFP4 prefill supports",
        "write --kv-cache-dtype fp8_e4m3",
        _set("--kv-cache-dtype", "fp8_e4m3"),
    ),
)


def again(server: Server, found: Ledger) -> Ledger:
    """The ledger of an edited server, on the machine and with the boot-log figures of `found`."""
    was, memory = found.resolved, found.memory
    measured = Measured(memory.before_gib, memory.free_gib) if memory and memory.basis is Basis.EXACT else None
    return ledger(resolve(server, was.platform, model=was.model, draft=was.draft), measured)


def correct(server: Server, found: Ledger) -> Correction | None:
    """The nearest server that boots, by at most four known edits; None where no known edit helps."""
    edits: list[str] = []
    tried: list[str] = []
    while not found.boots and len(edits) < MOST_EDITS:
        error = found.error or found.allocation_error or ""
        remedy = next((k for k in KNOWN if k.error.search(error) and k.says not in tried), None)
        if remedy is None:
            return None
        tried.append(remedy.says)
        edited = remedy.edit(server, found)
        if edited == server:
            continue
        server = edited
        edits.append(remedy.says)
        found = again(server, found)
    return Correction(server, tuple(edits)) if found.boots else None
