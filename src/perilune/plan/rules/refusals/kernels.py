"""Attention, KV, MoE and vision."""

from __future__ import annotations

from perilune.plan.memory import Ledger
from perilune.plan.rules.families import ATTENTION
from perilune.plan.rules.refusals.known import Known, known
from perilune.plan.rules.refusals.remedies import unset, write
from perilune.plan.server import Server


def _whole_pages(server: Server, found: Ledger) -> Server:
    chunk, page = found.resolved["chunked_prefill_size"], found.resolved["page_size"]
    return server.set("--chunked-prefill-size", max(chunk // page, 1) * page) if chunk and page else server


KERNELS: tuple[Known, ...] = (
    known(
        "attention-platform",
        r"MLA backend is only supported on Blackwell",
        "The kernel exists on Blackwell only.",
        "remove the attention backend flags",
        unset(*ATTENTION),
        ATTENTION,
    ),
    known(
        "kv-dtype",
        r"only supports kv-cache-dtype of fp8_e4m3|NVFP4 prefill supports",
        "The MLA kernels read fp8_e4m3 or bf16 only.",
        "write --kv-cache-dtype fp8_e4m3",
        write("--kv-cache-dtype", "fp8_e4m3"),
        ("--kv-cache-dtype",),
    ),
    known(
        "kv-chunk-page",
        r"chunked_prefill_size must be divisible by page_size",
        "A prefill chunk is whole pages.",
        "write a --chunked-prefill-size in whole pages",
        _whole_pages,
        ("--chunked-prefill-size", "--page-size"),
    ),
    known(
        "kv-sharding",
        r"--enable-kv-cache-sharding is only supported on PD prefill",
        "A rank holds only its stripe of each page, which decoding cannot use.",
        "remove --enable-kv-cache-sharding",
        unset("--enable-kv-cache-sharding"),
        ("--enable-kv-cache-sharding",),
    ),
    known(
        "moe-a2a",
        r"FlashInfer MegaMOE currently supports|DeepEP v2 MoE is not validated|Flashinfer MoE A2A requires",
        "This all-to-all does not take this model or layout.",
        "remove --moe-a2a-backend",
        unset("--moe-a2a-backend"),
        ("--moe-a2a-backend",),
    ),
    known(
        "moe-shared-experts",
        r"--shared-experts-tp-size",
        "Shared experts are split apart only beside an EP all-to-all, by a divisor of the attention TP size.",
        "remove --shared-experts-tp-size",
        unset("--shared-experts-tp-size"),
        ("--shared-experts-tp-size",),
    ),
    known(
        "moe-overlap",
        r"enabling two batch overlap without an EP a2a",
        "Two batches overlap only beside an EP all-to-all or attention DP.",
        "remove --enable-two-batch-overlap",
        unset("--enable-two-batch-overlap"),
        ("--enable-two-batch-overlap",),
    ),
    known(
        "moe-checkpoint-platform",
        r"quantization is currently not supported in ROCm",
        "The kernels of this checkpoint's format exist on NVIDIA only.",
        "write --model-path moonshotai/Kimi-K3",
        write("--model-path", "moonshotai/Kimi-K3"),
        ("--model-path",),
        lambda found: found.resolved.model.is_kimi_k3,
    ),
    known(
        "vision-ipc-platform",
        r"--mm-feature-transport=\w+ requires NVIDIA CUDA",
        "Other accelerators cannot open the handles: the first image would fail with an invalid device pointer.",
        "write --mm-feature-transport cpu",
        write("--mm-feature-transport", "cpu"),
        ("--mm-feature-transport",),
    ),
    known(
        "vision-language-only",
        r"--language-model-only does not support",
        "The model cannot be served without its vision tower.",
        "remove --language-model-only",
        unset("--language-model-only"),
        ("--language-model-only",),
    ),
)
