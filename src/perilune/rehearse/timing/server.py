"""Step times of one planned server, in ticks."""

from __future__ import annotations

from perilune.errors import UnusableInput
from perilune.facts.timing import latencies, machines
from perilune.plan.memory import Ledger
from perilune.rehearse.costs import Basis
from perilune.rehearse.ticks import TOKEN, ticks
from perilune.rehearse.timing.basis import Efficient, efficient
from perilune.rehearse.timing.collectives import US, link_bytes_per_s, over_nvlink
from perilune.rehearse.timing.encoder import encoder_of
from perilune.rehearse.timing.parts import hand_over_of, stages_of
from perilune.rehearse.timing.work import verify_width


class ServerCosts:
    """`Costs` of one server. Answers are kept: a second call with the same counts is one dictionary look-up."""

    def __init__(self, ledger: Ledger, found: Efficient) -> None:
        """Count the work of every stage; raises UnusableInput for a server that would not boot."""
        terms, resolved = ledger.terms, ledger.resolved
        if terms is None or not ledger.boots:
            reason = ledger.error or ledger.allocation_error or "the engine refuses it."
            raise UnusableInput(f"No step times without a server that boots: {reason}", where="rehearse")
        machine, known = machines()[resolved.platform.id], latencies()
        self._found = found
        self._stages = stages_of(ledger, terms, found.efficiency)
        self._hand_over = hand_over_of(ledger)
        self._encode = encoder_of(resolved, found.efficiency)
        self._width = verify_width(resolved)
        self._row = max(stage.kv_cell for stage in terms.stages) / terms.pool.dcp
        self._slot = terms.pool.slot_bytes
        wire = link_bytes_per_s(resolved.platform, machine) if over_nvlink(resolved) else machine.nic.value
        self._wire = wire * known.link_share.value
        self._host, self._storage = machine.host.value, machine.storage.value
        self._start = ticks(known.transfer_start_us.value * US)
        self._decode: dict[tuple[int, int], tuple[int, int]] = {}
        self._chunk: dict[tuple[int, int], tuple[int, int]] = {}

    @property
    def basis(self) -> Basis:
        """Whether the efficiencies were fitted to this platform, borrowed, or calibrated."""
        return self._found.basis

    @property
    def error_band(self) -> tuple[float, float]:
        """Factors below and above a predicted time."""
        return self._found.band

    @property
    def said(self) -> str:
        """Where the efficiencies come from, as a sentence."""
        return self._found.said

    def decode(self, local: int, total: int) -> tuple[int, int]:
        """(base, per_milli) of one decode step, in ticks."""
        key = (local, total)
        found = self._decode.get(key)
        if found is None:
            found = self._decode[key] = self._decode_of(local, total)
        return found

    def chunk(self, local: int, total: int, pairs: int) -> int:
        """Ticks of one prefill chunk."""
        key = (local, total)
        found = self._chunk.get(key)
        if found is None:
            found = self._chunk[key] = self._chunk_of(local, total)
        return found[0] + found[1] * pairs

    def encode(self, image_tokens: int, *, graph: bool) -> int:
        """Ticks of the vision tower on one image; raises UnusableInput for a model without one."""
        return self._encode(image_tokens, graph)

    def transfer(self, tokens: int) -> int:
        """Ticks of one request's KV and state from a prefill to a decode server.

        GPUs send side by side, so the time is that of the GPU that holds most.
        """
        return self._start + ticks(self._held(tokens) / self._wire)

    def host_load(self, tokens: int, *, storage: bool) -> int:
        """Ticks of KV and state of `tokens` from host memory; from storage, to host memory first."""
        size = self._held(tokens)
        return ticks(size / self._host + (size / self._storage if storage else 0.0))

    def _held(self, tokens: int) -> float:
        """Bytes of one request on the GPU of a stage that holds most."""
        return tokens * self._row + self._slot

    def _decode_of(self, local: int, total: int) -> tuple[int, int]:
        found = [stage.decode(local, total) for stage in self._stages]
        base = max(base for base, _ in found) + self._hand_over(local * self._width)
        return ticks(base), ticks(max(per for _, per in found) / TOKEN)

    def _chunk_of(self, local: int, total: int) -> tuple[int, int]:
        found = [stage.chunk(local, total) for stage in self._stages]
        base = max(base for base, _ in found) + self._hand_over(local)
        return ticks(base), ticks(max(per for _, per in found))


def costs_of(ledger: Ledger, profile: Efficient | None = None) -> ServerCosts:
    """The step times of a planned server.

    Efficiencies are the shipped ones of its platform, or those of a user's own profile. Raises UnusableInput for a
    server that would not boot.
    """
    return ServerCosts(ledger, profile or efficient(ledger.resolved.platform.id))
