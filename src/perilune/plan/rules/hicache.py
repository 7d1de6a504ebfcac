"""Host and storage tiers of the prefix cache."""

from __future__ import annotations

from collections.abc import Iterator

from perilune.plan.rules.edits import remove
from perilune.plan.rules.rule import PAGE, Says, rule
from perilune.plan.rules.subject import Subject

ON = "--enable-hierarchical-cache"


@rule("hicache-ascend", "error", PAGE)
def ascend(s: Subject) -> Iterator[Says]:
    """HiCache on Ascend cannot store recurrent states."""
    inputs = s.ledger.inputs
    if s.accepted and s.wrote(ON) and s.platform.kind == "npu" and inputs is not None and inputs.hybrid:
        yield Says(
            "HiCache on Ascend cannot store the state of linear-attention layers.",
            flags=(ON,),
            edits=remove(*(flag.name for flag in s.server.flags if "hicache" in flag.name or flag.name == ON)),
        )


@rule("hicache-storage-setup", "advice", PAGE)
def storage_setup(s: Subject) -> Iterator[Says]:
    """Mooncake storage needs a master process and a configuration file on every rank."""
    if not s.accepted or s["hicache_storage_backend"] != "mooncake" or s.template:
        return
    known = ("SGLANG_HICACHE_MOONCAKE_CONFIG_PATH", "MOONCAKE_MASTER", "MOONCAKE_CONFIG_PATH")
    if not s.wrote("--hicache-storage-backend-extra-config") and not any(name in s.env for name in known):
        yield Says(
            "Nothing says where Mooncake's master is: storage needs a mooncake_master process and its configuration "
            "on every rank.",
            "Set SGLANG_HICACHE_MOONCAKE_CONFIG_PATH, and start mooncake_master on rank 0.",
            ("--hicache-storage-backend",),
        )


@rule("hicache-draft", "advice", "sgl-project/sglang issue 31600")
def draft(s: Subject) -> Iterator[Says]:
    """Storage may hold the target's KV without the draft's: the accept rate falls after a hit."""
    if s.accepted and s["hicache_storage_backend"] and s.speculates and not s.template:
        yield Says(
            "Storage was reported to keep the target's KV without the draft's: after a hit the accept rate fell "
            "from 0.98 to 0.10.",
            "Watch the accept rate after hits; without storage it does not happen.",
            ("--hicache-storage-backend", "--speculative-algorithm"),
        )


@rule("hicache-host-memory", "advice")
def host_memory(s: Subject) -> Iterator[Says]:
    """--hicache-size counts for every rank, and once more for the states of a hybrid model in builds before the fix."""
    size, inputs = s["hicache_size"], s.ledger.inputs
    if not s.accepted or not s["enable_hierarchical_cache"] or not s.wrote("--hicache-size") or not size:
        return
    ranks = min(s["tp_size"] * s["pp_size"], s.platform.gpus_per_node)
    hybrid = inputs is not None and inputs.hybrid
    twice = f", or {2 * size * ranks:,} GB in a build without pull request 32915" if hybrid else ""
    yield Says(
        f"--hicache-size {size} on {ranks} ranks takes {size * ranks:,} GB of each node's memory{twice}.",
        f"Keep {size * ranks:,} GB free on the host, or lower --hicache-size.",
        ("--hicache-size",),
        source="sgl-project/sglang issue 29034, pull request 32915",
    )


@rule("hicache-state-slots", "advice", "sgl-project/sglang pull request 39436")
def state_slots(s: Subject) -> Iterator[Says]:
    """A prefix is reused from the host only with its state, so the host's state slots bound the hits."""
    sizing, ratio = s.ledger.sizing, s["hicache_ratio"]
    if not s.accepted or not s["enable_hierarchical_cache"] or sizing is None or sizing.slots is None or s.template:
        return
    if s.wrote("--hicache-size") or not ratio:
        return
    host = int(sizing.slots * ratio)
    yield Says(
        f"The host tier holds about {host:,} states ({ratio:g} x {sizing.slots}), so at most {host:,} prefixes can be "
        "reused from it, however much KV it has room for.",
        "Raise --hicache-ratio for a larger working set.",
        ("--hicache-ratio", ON),
    )


RULES = (ascend, storage_setup, draft, host_memory, state_slots)
