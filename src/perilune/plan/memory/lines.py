"""The ledger's lines for one GPU of a PP stage. They add up to the device's memory, to the byte."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from perilune.facts.hardware import Platform
from perilune.plan.memory.figures import Basis, Figure
from perilune.plan.memory.pools import GIB, PoolInputs, Sizing
from perilune.plan.memory.predict import FreeMemory, Residue, overhead
from perilune.plan.memory.terms import Terms
from perilune.plan.memory.usage import Budgeted, Unbudgeted, budgeted, unbudgeted

if TYPE_CHECKING:
    from perilune.plan.memory.ledger import Ledger, StageLedger

CONFIGURATOR = "SGLang 0.5.23 mem_cache/kv_cache_configurator.py"
POOLS = "SGLang 0.5.23 mem_cache/memory_pool.py"
BOOT_LOG = "boot log"


def stage_lines(ledger: Ledger, stage: StageLedger) -> tuple[Figure, ...]:
    """The lines of one stage in order, from what is gone before loading to what is left over."""
    memory, terms, inputs = ledger.memory, ledger.terms, ledger.inputs
    if memory is None or terms is None or inputs is None:
        return ()
    loads = ledger.error_stage != "load"  # where loading fails, nothing is kept for later
    found = [*_before_pools(memory, stage), *(_reserves(ledger, memory, inputs, stage) if loads else ())]
    if ledger.sizing is None or stage.allocated is None:
        left = memory.total_bytes - sum(_bytes(line) for line in found)
        short = "missing before any pool" if loads else "missing to load"
        label = "left for the pools" if left >= 0 else short
        found.append(_line("rest", label, left, "device total - every line above", CONFIGURATOR, memory.basis))
        return tuple(found)
    paid, extra = stage_usage(ledger, stage)
    found += _state(terms, inputs, ledger.sizing, stage, paid)
    found += _kv(terms, ledger.sizing, stage, paid)
    found += _nobody(terms, ledger.sizing, stage, extra)
    left = memory.total_bytes - sum(_bytes(line) for line in found)
    found.append(_line("slack", "left over", left, "device total - every line above", CONFIGURATOR, memory.basis))
    return tuple(found)


def stage_usage(ledger: Ledger, stage: StageLedger) -> tuple[Budgeted, Unbudgeted]:
    """The stage's pools, as budgeted and as not. Only for a ledger whose sizing succeeded."""
    terms, inputs, sizing, found = ledger.terms, ledger.inputs, ledger.sizing, stage.allocated
    if terms is None or inputs is None or sizing is None or found is None:
        raise ValueError("a ledger without sizing has no pools")
    paid = budgeted(inputs, terms.allocation, stage.stage, sizing, found)
    return paid, unbudgeted(terms.allocation, stage.stage, sizing, found, paid, terms.late_bytes)


def reserve_bytes(i: PoolInputs) -> int:
    """P x (1 - f): what sizing leaves untouched for graphs and activations."""
    return int(i.before_gib * (1 - i.fraction) * GIB)


def _before_pools(memory: FreeMemory, stage: StageLedger) -> Iterator[Figure]:
    total = memory.total_bytes
    before, after = int(memory.before_gib * GIB), int(stage.free_gib * GIB)
    measured = memory.basis is Basis.EXACT
    yield _line(
        "context",
        "contexts, NCCL",
        total - before,
        f"{total / GIB:.2f} GiB - {memory.before_gib:g} GiB free before loading",
        BOOT_LOG if measured else overhead_source(stage.platform),
        Basis.EXACT if measured else Basis.PUBLISHED,
        ("device_total", "free_before_load_gib"),
    )
    for kind, groups in (("weights", stage.weights.target), ("draft_weights", stage.weights.draft)):
        for group in groups:
            yield _line(
                f"{kind}.{group.name.replace(' ', '_')}",
                group.name if kind == "weights" else f"draft {group.name}",
                group.bytes,
                f"{group.formula}; {group.sharding}",
                "model geometry",
                Basis.EXACT,
            )
    other = before - after - stage.weights.bytes
    yield _line(
        "weights_other",
        "loaded besides" if other >= 0 else "less than computed",
        other,
        f"{memory.before_gib:.4g} - {stage.free_gib:.4g} GiB taken by loading - "
        f"{stage.weights.bytes / GIB:.2f} GiB of computed weights"
        if memory.left is None
        else f"{memory.left.gib} GiB, a fit",
        BOOT_LOG if memory.left is None else residue_source(memory.left),
        memory.basis,
    )


def overhead_source(platform: Platform) -> str:
    """Where the figure of memory gone before loading comes from, and how far to trust it."""
    found = overhead(platform.id)
    trust = f"{found.confidence} confidence, {found.low_gib:g} to {found.high_gib:g} GiB"
    return f"{found.source}: {found.how} ({trust})"


def residue_source(found: Residue) -> str:
    """Where the figure of memory that loading leaves behind comes from, and how far to trust it."""
    return f"{found.how} ({found.confidence} confidence, {found.low_gib:g} to {found.high_gib:g} GiB)"


def _reserves(ledger: Ledger, memory: FreeMemory, inputs: PoolInputs, stage: StageLedger) -> Iterator[Figure]:
    mm = int(inputs.mm_gib * GIB)
    if mm:
        yield _line(
            "multimodal",
            "multimodal features",
            mm,
            f"{inputs.mm_gib * 1024:g} MiB",
            f"{CONFIGURATOR}, SGLANG_VLM_CACHE_SIZE_MB, SGLANG_MM_FEATURE_CACHE_MB",
        )
    reserve = reserve_bytes(inputs)
    formula = f"{inputs.before_gib:g} GiB x (1 - {inputs.fraction:g})"
    if ledger.sizing is not None:
        taken = stage_usage(ledger, stage)[1].total
        reserve -= taken
        formula += f" - {taken / GIB:.2f} GiB that no budget covers"
    yield _line(
        "graphs",
        "graphs, activations",
        reserve,
        formula,
        f"{CONFIGURATOR}, --mem-fraction-static",
        memory.basis,
        ("free_before_load_gib", "mem_fraction_static"),
    )


def _state(terms: Terms, i: PoolInputs, sizing: Sizing, stage: StageLedger, paid: Budgeted) -> Iterator[Figure]:
    if terms.state is None or sizing.slots is None:
        return
    n, layer = stage.stage.linear_layers, terms.state.layer
    slot = n * (layer.conv_bytes + layer.ssm_bytes)
    basis = stage.basis
    yield _line(
        "state.slots",
        "state slots",
        paid.slots,
        f"{sizing.slots:,} slots x {slot:,} B",
        POOLS,
        basis,
        ("max_mamba_cache_size", "state_bytes_per_slot"),
    )
    yield _line("state.padding", "state padding slot", paid.padding, f"1 slot x {slot:,} B", POOLS)
    if paid.ring:
        per_slot = n * layer.spec_ring_bytes
        rows = paid.ring // per_slot if per_slot else 0
        yield _line(
            "state.ring",
            "ReplaySSM rings",
            paid.ring,
            f"{rows:,} rings x {per_slot:,} B",
            POOLS,
            basis,
            ("max_mamba_cache_size", "ring_bytes_per_slot"),
        )
    if paid.steps:
        each = n * i.draft_tokens * (layer.ssm_bytes + layer.conv_bytes)
        yield _line(
            "state.steps",
            "states per draft token",
            paid.steps,
            f"({sizing.requests:,} requests + 1) x {i.draft_tokens} x {n * (layer.ssm_bytes + layer.conv_bytes):,} B"
            if paid.steps == each * (sizing.requests + 1)
            else f"the reserved part of {sizing.requests + 1:,} x {each:,} B",
            POOLS,
            basis,
            ("max_running_requests",),
        )


def _kv(terms: Terms, sizing: Sizing, stage: StageLedger, paid: Budgeted) -> Iterator[Figure]:
    if paid.kv:
        yield _line(
            "kv.tokens",
            "KV pool",
            paid.kv,
            f"{sizing.tokens:,} rows x {stage.stage.kv_cell:,} B",
            POOLS,
            stage.basis,
            ("max_total_num_tokens",),
        )
    if paid.draft_kv:
        rows = terms.allocation.draft_rows_charged
        yield _line(
            "kv.draft",
            "draft KV pool",
            paid.draft_kv,
            f"{sizing.tokens:,} rows x {rows} x {stage.stage.draft_cell:,} B",
            POOLS,
            stage.basis,
            ("max_total_num_tokens",),
        )


def _nobody(terms: Terms, sizing: Sizing, stage: StageLedger, extra: Unbudgeted) -> Iterator[Figure]:
    found, built = stage.allocated, terms.allocation
    if found is None:
        return
    slots = found.slots - (sizing.slots or 0)
    parts: Iterable[tuple[str, str, int, str]] = (
        (
            "spare_slots",
            "PD in-transfer slots",
            extra.spare_slots,
            f"{slots:,} slots: max({sizing.slots or 0:,}, ({sizing.requests:,} requests + "
            f"{built.extra_rows}) x {1 + built.tracking_slots}) built, {sizing.slots or 0:,} budgeted",
        ),
        (
            "verify",
            "verification windows",
            extra.verify,
            f"{found.verified_rows + 1:,} rows x {built.spec_tokens} draft tokens",
        ),
        ("windows", "longer conv windows", extra.windows, f"+{built.spec_tokens - 1} steps in every slot"),
        ("decode_ring", "decode rings", extra.decode_ring, f"{found.slots + 1:,} rings"),
        ("checkpoint", "int8 checkpoints", extra.checkpoint, "a second pool of quantised states"),
        (
            "req_to_token",
            "request table",
            extra.req_to_token,
            f"{found.request_rows:,} rows x {built.row_tokens:,} tokens x 4 B",
        ),
        ("padding_page", "KV padding page", extra.padding_page, f"{built.page} rows"),
        ("draft_rows", "draft KV rows beyond", extra.draft_rows, "the draft pool spans rows x DCP"),
        ("symmetric", "symmetric memory", extra.symmetric, "SGLANG_SYMM_MEM_PREALLOC_GB_SIZE"),
    )
    for name, label, size, formula in parts:
        if size:
            yield _line(f"nobody.{name}", label, size, formula, f"{POOLS}; in no budget", stage.basis)


def _line(
    name: str,
    label: str,
    size: int,
    formula: str,
    source: str,
    basis: Basis = Basis.EXACT,
    inputs: tuple[str, ...] = (),
) -> Figure:
    return Figure(name, label, size, "B", formula, source, basis, inputs)


def _bytes(line: Figure) -> int:
    return line.value if isinstance(line.value, int) else 0
