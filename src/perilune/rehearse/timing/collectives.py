"""Collectives of one step: how many, over which group, and what each costs in latency and bytes.

Sources: SGLang 0.5.23 models/kimi_k3.py and layers/communication/k3_ar_fusion.py (which sums are fused), and
layers/dcp/comm.py (what DCP exchanges per attention layer).
"""

from __future__ import annotations

from dataclasses import dataclass

from perilune.facts.hardware import Platform
from perilune.facts.timing import Latencies, Machine
from perilune.plan.model import ParallelShape
from perilune.plan.resolve.state import Resolved

US = 1e-6
FUSED_SM = (100, 103)  # where the engine probes for the fused all-reduce


@dataclass(frozen=True, slots=True)
class Fabric:
    """The links of a platform, and how collectives run over them."""

    gpus_per_node: int
    domain: int  # GPUs on the scale-up fabric
    link: float  # bytes per second, one way, of one GPU on the scale-up fabric, as large messages reach it
    nic: float
    latencies: Latencies
    fused: bool  # the engine's own all-reduce, inside a node
    multicast: bool  # switches that reduce and multicast (NVLink on Blackwell)
    symmetric: bool  # --enable-symm-mem

    @classmethod
    def of(cls, resolved: Resolved, machine: Machine, latencies: Latencies) -> Fabric:
        """The fabric that a server's flags leave it."""
        platform = resolved.platform
        share = latencies.link_share.value
        return cls(
            gpus_per_node=platform.gpus_per_node,
            domain=platform.scale_up_domain,
            link=link_bytes_per_s(platform, machine) * share,
            nic=machine.nic.value * share,
            latencies=latencies,
            fused=platform.kind != "npu"
            and not resolved["disable_custom_all_reduce"]
            and not resolved["enable_symm_mem"],
            multicast=platform.kind == "cuda" and platform.sm in FUSED_SM,
            symmetric=bool(resolved["enable_symm_mem"]),
        )

    def latency(self, width: int, *, reduces: bool = False) -> float:
        """Seconds of a collective of a few bytes over `width` GPUs.

        An all-reduce inside a node runs in the engine's own kernels unless they are off; else the library sends
        around a ring, n - 1 hops (twice for an all-reduce), or once over symmetric memory.
        """
        known = self.latencies
        if width <= 1:
            return 0.0
        if reduces and self.fused and self._in_node(width):
            return known.fused_all_reduce_us.value * US
        if self.symmetric and self._in_domain(width):
            return known.symmetric_us.value * US
        if self._in_node(width):
            hops = (width - 1) * known.node_hop_us.value
        elif self._in_domain(width):
            hops = (width - 1) * known.domain_hop_us.value
        else:
            nodes = -(-width // self.gpus_per_node)
            inside = min(width, self.gpus_per_node) - 1
            hops = inside * known.node_hop_us.value + (nodes - 1) * known.network_hop_us.value
        return hops * (2 if reduces else 1) * US

    def all_reduce(self, width: int, size: float) -> float:
        """Seconds of an all-reduce of `size` bytes: through the switch's multicast once, else around in two halves."""
        if width <= 1:
            return 0.0
        multicast = self.multicast and self.fused and self._in_node(width)
        times = (width + 1) / width if multicast else 2 * (width - 1) / width
        return self.latency(width, reduces=True) + size * times / self._shared(width)

    def gather(self, width: int, size: float) -> float:
        """Seconds of an all-gather or a reduce-scatter of `size` bytes in all."""
        if width <= 1:
            return 0.0
        return self.latency(width) + size * (width - 1) / width / self._shared(width)

    def exchange(self, width: int, size: float) -> float:
        """Seconds of an all-to-all in which each GPU sends `size` bytes, every part to another."""
        if width <= 1:
            return 0.0
        return self.latency(width) + size * (width - 1) / width / self._own(width)

    def _in_node(self, width: int) -> bool:
        return width <= self.gpus_per_node

    def _in_domain(self, width: int) -> bool:
        return width <= max(self.domain, self.gpus_per_node)

    def _own(self, width: int) -> float:
        """Bytes per second of what one GPU alone sends."""
        return self.link if self._in_domain(width) else self.nic

    def _shared(self, width: int) -> float:
        """Bytes per second where the GPUs of a node share out what leaves it over all their NICs."""
        return self.link if self._in_domain(width) else min(self.link, self.nic * self.gpus_per_node)

    def hand_over(self, size: float, span: int) -> float:
        """Seconds from one pipeline stage to the next; `span` GPUs hold both stages."""
        known = self.latencies
        hop = known.node_hop_us if self._in_node(span) else known.domain_hop_us
        start = (hop if self._in_domain(span) else known.network_hop_us).value * US
        return start + size / self._own(span)


def over_nvlink(resolved: Resolved) -> bool:
    """Whether PD transfers go over the scale-up fabric and not the NICs: Mooncake's pool of memory made for that."""
    backend, pool = resolved["disaggregation_transfer_backend"], resolved.env.get("SGLANG_MOONCAKE_CUSTOM_MEM_POOL")
    return backend == "mooncake" and pool in ("NVLINK", "INTRA_NODE_NVLINK")


def link_bytes_per_s(platform: Platform, machine: Machine) -> float:
    """A GPU's scale-up link, one way."""
    if machine.link is not None:
        return machine.link.value
    return platform.accelerator.link_bytes_per_s or machine.nic.value


@dataclass(frozen=True, slots=True)
class Exchange:
    """What the layers of a stage exchange, in bytes per token."""

    shape: ParallelShape
    layers: int
    moe: int
    full: int
    hidden: int  # bytes of one token's hidden state
    latent: int  # bytes of one token's routed experts' input
    top_k: int
    query: int  # bytes of one token's queries in the latent, over a DCP group's heads; 0 without DCP
    row: int  # bytes of one token's KV of one layer
    backend: str  # --dcp-comm-backend
    replicated_query: bool
    shared: bool  # shared experts are summed beside the latent

    def decode(self, fabric: Fabric, local: float, total: float) -> float:
        """Seconds of one decode step's collectives, for tokens of one attention-DP rank and of all."""
        return self._layers(fabric, local, total) + self.full * self._dcp_decode(fabric, local)

    def prefill(self, fabric: Fabric, local: float, total: float) -> float:
        """Seconds of one prefill chunk's collectives. DCP gathers every chunk's keys."""
        gathered = fabric.gather(self.shape.dcp, local * self.row) if self.shape.dcp > 1 else 0.0
        return self._layers(fabric, local, total) + self.full * gathered

    def _layers(self, fabric: Fabric, local: float, total: float) -> float:
        s = self.shape
        attention = fabric.all_reduce(s.attn_tp, local * self.hidden)
        if s.expert_a2a:
            return self.layers * attention + self.moe * self._routed(fabric, local)
        summed = self.latent + (self.hidden if self.shared else 0) if self.latent else self.hidden
        moe = fabric.all_reduce(s.tp, total * summed)
        dense = fabric.all_reduce(s.tp, total * self.hidden)
        spread = fabric.gather(s.tp, total * self.hidden) if s.dp_attention else 0.0
        return self.layers * (attention + spread) + self.moe * moe + (self.layers - self.moe) * dense

    def _routed(self, fabric: Fabric, local: float) -> float:
        """Dispatch in 8 bits and combine in 16 of this GPU's share of the tokens to the experts' GPUs."""
        mine = local / self.shape.attn_tp
        copies = min(self.top_k, self.shape.ep)
        width = self.latent or self.hidden
        dispatch = fabric.exchange(self.shape.ep, mine * copies * width / 2)
        return dispatch + fabric.exchange(self.shape.ep, mine * copies * width)

    def _dcp_decode(self, fabric: Fabric, local: float) -> float:
        """Queries gathered unless replicated; then partial outputs, exchanged at once or gathered and scattered."""
        width = self.shape.dcp
        if width <= 1:
            return 0.0
        query = 0.0 if self.replicated_query else fabric.gather(width, local * self.query)
        if self.backend == "fi_a2a":
            return query + fabric.latencies.fused_all_reduce_us.value * US
        if self.backend == "a2a":
            return query + fabric.exchange(width, local * self.query)
        return query + 2 * fabric.gather(width, local * self.query)
