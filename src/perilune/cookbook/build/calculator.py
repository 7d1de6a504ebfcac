"""The mamba ratio calculator, explained with the numbers of one workload."""

from __future__ import annotations

from perilune.cookbook.build.cells import Lengths, title
from perilune.cookbook.build.markup import bullets, fence, table, words
from perilune.facts.hardware import platform
from perilune.plan.compose import Choice, compose
from perilune.plan.compose.flags import parse
from perilune.plan.compose.ratio import ratio_inputs, shown
from perilune.plan.memory import ledger
from perilune.plan.resolve import resolve
from perilune.plan.server import Server

OTHER_LENGTHS = (2_048, 8_192, 16_384, 65_536, 131_072)


def calculator(hardware: str, strategy: str, lengths: Lengths) -> str:
    """The formula, its inputs for one cell, the result, what it admits, and the ratio at other lengths."""
    deployment = compose(Choice(hardware=hardware, strategy=strategy, isl=lengths.isl, osl=lengths.osl))
    server = deployment.pools[0].servers[0]
    place = platform(hardware)
    inputs = ratio_inputs(parse(server.argv), dict(server.env))
    tokens = lengths.tokens
    ratio = inputs.ratio(tokens)
    slots = inputs.slots + inputs.verify_states
    kv = inputs.mla_kv_bytes / inputs.dcp + inputs.draft_kv_bytes
    parts = [
        words(
            "--mamba-full-memory-ratio divides the static memory between the KDA state pool and the MLA KV pool. "
            "The balanced value is what one request costs in one pool over what it costs in the other:"
        ),
        fence("ratio = (S + D) x state_bytes / (L x (mla_kv_bytes / DCP + draft_kv_bytes))", "text Formula"),
        words(f"For {place.label}, {title(strategy)}, with requests of {tokens:,} tokens:"),
        bullets(
            [
                f"`S` = {inputs.slots} state slots per request",
                f"`D` = {inputs.verify_states} verify states of speculation",
                f"`state_bytes` = {inputs.state_bytes:,.0f} bytes of one slot on one rank "
                f"(attention-TP {inputs.attention_tp})",
                f"`mla_kv_bytes` = {inputs.mla_kv_bytes:,} bytes of one token, divided by DCP {inputs.dcp}",
                f"`draft_kv_bytes` = {inputs.draft_kv_bytes:,} bytes of one token, on every rank",
                f"`L` = {tokens:,} tokens, input and output together",
            ]
        ),
    ]
    if ratio is not None:
        parts.append(
            fence(
                f"ratio = {slots} x {inputs.state_bytes:,.0f} / ({tokens:,} x {kv:,.0f}) = {ratio:.4f}, "
                f"written {shown(ratio)}",
                "text Result",
            )
        )
    parts.append(_admits(server, hardware, lengths))
    rows = [(f"{length:,}", shown(value)) for length in OTHER_LENGTHS if (value := inputs.ratio(length)) is not None]
    parts += ["The same cell at other lengths:", table(("Tokens of a request", "`--mamba-full-memory-ratio`"), rows)]
    return "\n\n".join(part.rstrip("\n") for part in parts) + "\n"


def _admits(server: Server, hardware: str, lengths: Lengths) -> str:
    found = ledger(resolve(server, platform(hardware)))
    sizing = found.sizing
    if sizing is None:
        return words(f"The engine would not start this command: {found.error}")
    slots = sizing.state.slots if sizing.state else 0
    said = (
        f"Predicted without a boot log, this command has {slots:,} state slots and room for "
        f"{sizing.logical_tokens:,} KV tokens; the server admits {sizing.requests:,} requests at once "
        f"({_binds(str(sizing.binds))})."
    )
    if lengths.isl is not None and lengths.osl is not None and (load := found.workload(lengths.isl, lengths.osl)):
        said += f" Of requests of {load.tokens:,} tokens, {load.admitted:,} run at once."
    return words(said)


def _binds(pool: str) -> str:
    names = {"state": "the KDA state pool binds", "kv": "the KV pool binds", "asked": "the request limit binds"}
    return names.get(pool, pool)
