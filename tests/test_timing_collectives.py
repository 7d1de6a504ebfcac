"""What links and collectives cost: which topology a group crosses, and what a flag changes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from perilune.facts.hardware import platform
from perilune.facts.timing import efficiencies, latencies, machines
from perilune.plan.compose import Choice, compose, parse_env, parse_set
from perilune.plan.memory import ledger
from perilune.plan.planned import plan
from perilune.plan.resolve import resolve
from perilune.plan.server import Server
from perilune.rehearse.ticks import SECOND
from perilune.rehearse.timing import ServerCosts, costs_of
from perilune.rehearse.timing.collectives import Exchange, Fabric

US = 1e-6
SHARE = latencies().link_share.value
MIB = 1 << 20


def fabric(flags: str, hardware: str) -> Fabric:
    server = Server.parse(f"sglang serve --model-path moonshotai/Kimi-K3 {flags}")
    return Fabric.of(resolve(server, platform(hardware)), machines()[hardware], latencies())


def costs(flags: str, hardware: str = "b300") -> ServerCosts:
    server = Server.parse(f"sglang serve --model-path moonshotai/Kimi-K3 {flags}")
    return costs_of(ledger(resolve(server, platform(hardware))))


NODES = "--nnodes 4 --node-rank 0 --dist-init-addr a:1"


@pytest.mark.parametrize(
    ("flags", "hardware", "width", "bytes_per_s"),
    [
        ("--tp-size 8", "b300", 8, 0.9e12),  # NVLink 5, one way
        ("--tp-size 8", "h200", 8, 0.45e12),  # NVLink 4
        ("--tp-size 8", "mi350x", 8, 0.538e12),  # seven xGMI links of 153.6 GB/s, both ways
        (f"--tp-size 16 {NODES}", "gb200", 16, 0.9e12),  # MNNVL: the domain goes on over trays
        ("--tp-size 16 --nnodes 2 --node-rank 0 --dist-init-addr a:1", "b200", 16, 50e9),  # RDMA
    ],
)
def test_an_exchange_runs_at_the_speed_of_what_it_crosses(
    flags: str, hardware: str, width: int, bytes_per_s: float
) -> None:
    found = fabric(flags, hardware)
    sent = 256 * MIB
    takes = found.exchange(width, sent) - found.exchange(width, 0)
    assert takes == pytest.approx(sent * (width - 1) / width / (bytes_per_s * SHARE), rel=0.02)


def test_a_small_all_reduce_takes_what_was_published_inside_a_node() -> None:
    """8.5 us for 448 KB on 8 B200 or GB300 in the engine's own kernel; a library's ring takes longer."""
    own = fabric("--tp-size 8", "b200")
    assert own.latency(8, reduces=True) == pytest.approx(8.5 * US)
    assert fabric("--tp-size 8 --disable-custom-all-reduce", "b200").latency(8, reduces=True) > 8.5 * US


def test_a_switch_that_reduces_moves_the_data_once() -> None:
    """Blackwell's NVLink multicast against a ring, which sends everything twice."""
    size = 64 * MIB
    once, twice = fabric("--tp-size 8", "b300"), fabric("--tp-size 8 --disable-custom-all-reduce", "b300")
    ring = 2 * 7 / 8 * size / (0.9e12 * SHARE)
    assert twice.all_reduce(8, size) - twice.all_reduce(8, 0) == pytest.approx(ring, rel=0.01)
    assert once.all_reduce(8, size) - once.all_reduce(8, 0) == pytest.approx(ring * 9 / 14, rel=0.01)


def test_symmetric_memory_spares_the_hops_of_a_ring_across_trays() -> None:
    flags = f"--tp-size 16 {NODES}"
    ring, symmetric = fabric(flags, "gb200"), fabric(f"{flags} --enable-symm-mem", "gb200")
    assert ring.latency(16, reduces=True) == pytest.approx(2 * 15 * 2.7 * US)
    assert symmetric.latency(16, reduces=True) == pytest.approx(latencies().symmetric_us.value * US)


def test_a_pipeline_hands_over_inside_a_node_or_between_nodes() -> None:
    found = fabric("--tp-size 8 --pp-size 2 --nnodes 2 --node-rank 0 --dist-init-addr a:1", "b200")
    assert found.hand_over(MIB, 8) == pytest.approx(1.2 * US + MIB / (0.9e12 * SHARE))
    assert found.hand_over(MIB, 16) == pytest.approx(8 * US + MIB / (50e9 * SHARE))


DCP = "--tp-size 8 --dcp-size 8 --no-dcp-replicate-q-proj"


def exchanged(batch: int) -> float:
    """A ring of seven hops with a batch's queries in the latent: 96 heads of 576 elements of two bytes."""
    return 7 * 1.2 * US + batch * 96 * 576 * 2 * 7 / 8 / (0.9e12 * SHARE)


@pytest.mark.parametrize("batch", [1, 64])
def test_dcp_exchanges_partial_outputs_as_its_backend_does(batch: int) -> None:
    """On 24 layers: gathered and scattered, exchanged at once, or by one kernel of 8.5 us."""
    gathered, at_once, fused = (
        costs(f"{DCP} --dcp-comm-backend {backend}").decode(batch, batch)[0] / SECOND
        for backend in ("ag_rs", "a2a", "fi_a2a")
    )
    assert gathered - at_once == pytest.approx(24 * exchanged(batch), rel=0.01)
    assert at_once - fused == pytest.approx(24 * (exchanged(batch) - 8.5 * US), rel=0.01, abs=US)


def test_replicated_queries_are_not_gathered_but_read_whole() -> None:
    """Seven eighths of the projections from 1,536 to 96 heads of 192, and of those into the latent (128 x 512)."""
    once = f"{DCP} --dcp-comm-backend a2a"
    whole = once.replace("--no-dcp-replicate", "--dcp-replicate")
    gathered, read = (costs(flags).decode(1, 1)[0] / SECOND for flags in (once, whole))
    weights = 24 * 96 * (1536 * 192 + 128 * 512) * 2 * 7 / 8
    reached = 7.75e12 * efficiencies().fits["b300"].efficiency.memory
    assert read - gathered == pytest.approx(weights / reached - 24 * exchanged(1), rel=0.02)


def exchange(flags: str, hardware: str = "b300") -> tuple[Exchange, Fabric]:
    """What the layers of the first stage exchange under these flags."""
    stage = costs(flags, hardware)._stages[0]
    return stage._exchange, stage._fabric


def test_tokens_are_dispatched_to_experts_and_combined_over_the_network() -> None:
    """16 copies of a token's latent row (3,584 elements), in one byte there and in two back, on 92 layers.

    Of 16 GPUs each sends its sixteenth of the tokens: once over NVLink between trays, once over the NICs.
    """
    tokens = 4096
    layers, near = exchange(f"--tp-size 16 --ep-size 16 --moe-a2a-backend deepep {NODES}", "gb200")
    far = replace(near, domain=4, nic=50e9 * SHARE)
    without = replace(layers, moe=0)
    spent = [layers.prefill(one, tokens, tokens) - without.prefill(one, tokens, tokens) for one in (near, far)]
    sent = tokens / 16 * 16 * 3584 * 3
    hops = 2 * 15 * 2.7, 2 * (3 * 1.2 + 3 * 8)
    for took, speed, way in zip(spent, (0.9e12, 50e9), hops, strict=True):
        assert took == pytest.approx(92 * (sent * 15 / 16 / (speed * SHARE) + way * US), rel=0.01)


def test_a_prefill_chunk_gathers_its_keys_under_dcp() -> None:
    """On 24 layers, 576 elements of two bytes a token."""
    layers, links = exchange(DCP)
    tokens = 16_384
    without = replace(layers, full=0)
    gathered = 7 * 1.2 * US + tokens * 576 * 2 * 7 / 8 / (0.9e12 * SHARE)
    took = layers.prefill(links, tokens, tokens) - without.prefill(links, tokens, tokens)
    assert took == pytest.approx(24 * gathered, rel=0.01)


def test_attention_dp_ranks_gather_their_tokens_for_the_experts() -> None:
    """All tokens' hidden states (7,168 elements) on each of 93 layers, besides what every layout sums."""
    layers, links = exchange(f"--tp-size 16 --attn-dp-size 2 {NODES}", "gb200")
    assert layers.shape.dp_attention
    local, total = 2048, 4096
    row = 7168 * 2
    summed = 93 * links.all_reduce(8, local * row) + 92 * links.all_reduce(16, total * (3584 + 7168) * 2)
    summed += links.all_reduce(16, total * row)
    gathered = 15 * 2.7 * US + total * row * 15 / 16 / (0.9e12 * SHARE)
    assert layers.prefill(links, local, total) - summed == pytest.approx(93 * gathered, rel=0.01)


def test_a_transfer_over_nvlink_is_faster_than_over_the_nics() -> None:
    choice = Choice(hardware="gb300", mode="pd", strategy="balanced")
    edits = (
        parse_set("--disaggregation-transfer-backend=mooncake"),
        parse_env("SGLANG_MOONCAKE_CUSTOM_MEM_POOL=NVLINK"),
    )
    over_nics, over_nvlink = (
        costs_of(plan(compose(replace(choice, overrides=changed))).pools[0].ledger) for changed in (edits[:1], edits)
    )
    start = latencies().transfer_start_us.value * US
    times = [one.transfer(100_000) / SECOND - start for one in (over_nics, over_nvlink)]
    assert times[0] / times[1] == pytest.approx(0.9e12 / 100e9, rel=0.01)
