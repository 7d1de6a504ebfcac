"""The pool of recurrent states, and the checks without a text of their own."""

from __future__ import annotations

from perilune.plan.memory import Ledger
from perilune.plan.rules.refusals.known import Known, known
from perilune.plan.rules.refusals.remedies import nearest_divisor, unset, write
from perilune.plan.server import Server

STATE_CHUNK = 64  # tokens between states that prefill can keep
ODD_PAGE = f"States are kept every {STATE_CHUNK} tokens: a page divides that or is a multiple of it."


def _long_enough_track(server: Server, found: Ledger) -> Server:
    page, window = int(found.resolved["page_size"] or 1), int(found.resolved["speculative_num_draft_tokens"] or 1)
    return server.set("--mamba-track-interval", -(-max(256, window) // page) * page)


def _eplb_alone(found: Ledger) -> bool:
    return bool(found.resolved["enable_eplb"]) and found.resolved["ep_size"] <= 1


def _dp_uneven(found: Ledger) -> bool:
    return bool(found.resolved["tp_size"] % max(found.resolved["attn_dp_size"], found.resolved["dp_size"], 1))


def _odd_page(found: Ledger) -> bool:
    page = int(found.resolved["page_size"] or 1)
    return bool(STATE_CHUNK % page and page % STATE_CHUNK)


STATE: tuple[Known, ...] = (
    known(
        "state-lazy-pd",
        r"extra_buffer_lazy unsupported under PD",
        "The lazy buffer is not wired for PD.",
        "write --mamba-radix-cache-strategy extra_buffer",
        write("--mamba-radix-cache-strategy", "extra_buffer"),
        ("--mamba-radix-cache-strategy",),
    ),
    known(
        "state-lazy-overlap",
        r"Lazy extra buffer requires overlap",
        "The lazy buffer exists with the overlap schedule only, which pipeline stages turn off.",
        "write --mamba-radix-cache-strategy extra_buffer",
        write("--mamba-radix-cache-strategy", "extra_buffer"),
        ("--mamba-radix-cache-strategy",),
    ),
    known(
        "state-no-buffer",
        r"no_buffer do not support overlap schedule|no_buffer only supports page_size=1"
        r"|no_buffer do not support trtllm_mha|Page size must be 1 for MambaRadixCache",
        "no_buffer needs the overlap schedule off, pages of one token and an attention backend that has them.",
        "remove --mamba-radix-cache-strategy no_buffer, which leaves extra_buffer",
        unset("--mamba-radix-cache-strategy"),
        ("--mamba-radix-cache-strategy",),
    ),
    known(
        "state-extra-buffer",
        r"extra_buffer is not supported for",
        "Snapshots are written by the Triton kernel only.",
        "remove --linear-attn-backend",
        unset("--linear-attn-backend"),
        ("--linear-attn-backend", "--mamba-radix-cache-strategy"),
    ),
    known(
        "moe-eplb",
        r"^AssertionError: $|EPLB",
        "Experts are rebalanced between EP ranks, and there is only one.",
        "remove --enable-eplb",
        unset("--enable-eplb"),
        ("--enable-eplb",),
        _eplb_alone,
    ),
    known(
        "parallel-dp-divides",
        r"^AssertionError: $",
        "The TP size is no multiple of the attention-DP size: attention TP would be no whole number.",
        "write an --attn-dp-size that divides the TP size",
        nearest_divisor("--attn-dp-size", "tp_size"),
        ("--attn-dp-size", "--dp-size"),
        _dp_uneven,
    ),
    known(
        "state-page-size",
        r"For SSM models, either chunk_size or page_size must be divisible",
        ODD_PAGE,
        "remove --page-size",
        unset("--page-size"),
        ("--page-size",),
    ),
    known(
        "state-track-interval",
        r"^AssertionError: $",
        ODD_PAGE,
        "remove --page-size",
        unset("--page-size"),
        ("--page-size", "--mamba-track-interval"),
        _odd_page,
    ),
    known(
        "state-track-interval",
        r"^AssertionError: $",
        "--mamba-track-interval must be at least the verify window and a multiple of the page size.",
        "write a --mamba-track-interval in whole pages",
        _long_enough_track,
        ("--mamba-track-interval",),
    ),
    known(
        "state-rounding",
        r"[Ss]tochastic rounding",
        "Stochastic rounding needs a float16 state, and with the Triton kernel SM100.",
        "remove --enable-mamba-cache-stochastic-rounding",
        unset("--enable-mamba-cache-stochastic-rounding"),
        ("--enable-mamba-cache-stochastic-rounding",),
    ),
    known(
        "state-flashinfer-dtype",
        r"linear-attn-(decode|verify)-backend flashinfer on SM100",
        "FlashInfer's kernel reads a bfloat16 state on SM100.",
        "write --mamba-ssm-dtype bfloat16",
        write("--mamba-ssm-dtype", "bfloat16"),
        ("--linear-attn-decode-backend", "--linear-attn-verify-backend"),
    ),
    known(
        "state-flashkda",
        r"FlashKDA is prefill-only",
        "FlashKDA has a prefill kernel only.",
        "remove --linear-attn-decode-backend",
        unset("--linear-attn-decode-backend"),
        ("--linear-attn-decode-backend",),
    ),
    known(
        "state-int8",
        r"enable-int8-mamba-checkpoint",
        "Host tiers and other caches cannot read int8 states.",
        "remove --enable-int8-mamba-checkpoint",
        unset("--enable-int8-mamba-checkpoint"),
        ("--enable-int8-mamba-checkpoint",),
    ),
    known(
        "state-path-limit",
        r"--mamba-max-states-per-path must be",
        "The limit is -1 for none, or a positive number.",
        "remove --mamba-max-states-per-path",
        unset("--mamba-max-states-per-path"),
        ("--mamba-max-states-per-path",),
    ),
)
