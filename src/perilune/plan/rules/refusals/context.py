"""Prefix caches beyond the GPU's own, and decode context parallelism."""

from __future__ import annotations

from perilune.plan.rules.families import ATTENTION
from perilune.plan.rules.refusals.known import Known, known
from perilune.plan.rules.refusals.remedies import nearest_divisor, then, unset, write

CONTEXT: tuple[Known, ...] = (
    known(
        "hicache-radix-off",
        r"enable-hierarchical-cache and disable-radix-cache",
        "Host tiers extend the prefix cache, which is off (on a PD decode server by default).",
        "remove --enable-hierarchical-cache",
        unset("--enable-hierarchical-cache", "--hicache-storage-backend"),
        ("--enable-hierarchical-cache", "--disable-radix-cache"),
    ),
    known(
        "pd-decode-radix",
        r"--disaggregation-decode-enable-radix-cache is incompatible",
        "The experimental prefix cache of a decode server takes neither HiSparse nor the fake transfer.",
        "remove --disaggregation-decode-enable-radix-cache",
        unset("--disaggregation-decode-enable-radix-cache"),
        ("--disaggregation-decode-enable-radix-cache",),
    ),
    known(
        "hicache-dcp",
        r"HiCache with --dcp-size > 1 only supports DSPARK|L3 with DCP|HiCache.*dcp|LMCache.*dcp"
        r"|--enable-lmcache with --dcp-size",
        "Under DCP, HiCache takes no speculation but DSPARK, no LMCache and no buffer_only storage tier.",
        "remove --dcp-size",
        unset("--dcp-size", "--dcp-comm-backend", "--dcp-replicate-q-proj"),
        ("--enable-hierarchical-cache", "--dcp-size"),
    ),
    known(
        "dcp-backend",
        r"must be 'cutedsl_mla' or 'aiter'",
        "On AMD only AITER's decode kernel knows DCP, and it must be asked for.",
        "write --decode-attention-backend aiter",
        then(unset(*ATTENTION), write("--decode-attention-backend", "aiter")),
        ATTENTION,
        lambda found: found.resolved.platform.kind == "hip",
    ),
    known(
        "dcp-backend",
        r"must be 'cutedsl_mla' or 'aiter'",
        "Only these two decode kernels know DCP; unset, the engine picks the right one on Blackwell.",
        "remove the attention backend flags",
        unset(*ATTENTION),
        ATTENTION,
    ),
    known(
        "dcp-comm",
        r"only affects the decode context-parallel",
        "There is no DCP group whose exchange could be chosen.",
        "remove --dcp-comm-backend",
        unset("--dcp-comm-backend"),
        ("--dcp-comm-backend",),
    ),
    known(
        "dcp-comm",
        r"--dcp-comm-backend fi_a2a delegates",
        "FlashInfer's exchange needs Blackwell and one NVLink domain.",
        "remove --dcp-comm-backend",
        unset("--dcp-comm-backend"),
        ("--dcp-comm-backend",),
    ),
    known(
        "dcp-replicate-q",
        r"--dcp-replicate-q-proj (requires|only applies)",
        "The projection is replicated only under DCP with an all-to-all exchange.",
        "remove --dcp-replicate-q-proj",
        unset("--dcp-replicate-q-proj"),
        ("--dcp-replicate-q-proj",),
    ),
    known(
        "dcp-prefill-cp",
        r"--dcp-size > 1 does not support --enable-prefill-cp",
        "Decode and prefill context parallelism exclude each other.",
        "remove the prefill CP flags",
        unset("--enable-prefill-cp", "--cp-strategy", "--attn-cp-size"),
        ("--enable-prefill-cp",),
    ),
    known(
        "dcp-host-pool",
        r"retraction-backup=host_pool does not support",
        "The host pool of retracted requests is not laid out for DCP.",
        "remove --disaggregation-decode-retraction-backup",
        unset("--disaggregation-decode-retraction-backup", "--disaggregation-decode-host-receive-threshold"),
        ("--disaggregation-decode-retraction-backup",),
    ),
    known(
        "dcp-platform",
        r"NPU decode context parallelism is|CuteDSL MLA backend is only supported on Blackwell",
        "For this model DCP needs Blackwell, or MI35x with the aiter backend.",
        "remove --dcp-size",
        then(unset("--dcp-size", "--dcp-comm-backend", "--dcp-replicate-q-proj"), unset(*ATTENTION)),
        ("--dcp-size", *ATTENTION),
    ),
    known(
        "dcp-divides",
        r"(dcp_size|decode.context.parallel).*divi|divi.*(dcp_size|decode.context.parallel)",
        "DCP groups are cut from TP groups, so the TP size is a multiple of the DCP size.",
        "write a --dcp-size that divides the TP size",
        nearest_divisor("--dcp-size", "tp_size"),
        ("--dcp-size", "--tp-size"),
    ),
)
