"""Step times: bytes against published model facts, what must never decrease, and the published runs."""

from __future__ import annotations

import random
from functools import cache
from statistics import mean

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perilune.errors import UnusableInput
from perilune.facts.hardware import platform, platforms
from perilune.facts.timing import efficiencies, latencies, machines
from perilune.plan.compose import Choice, compose, parse_env, parse_set
from perilune.plan.memory import ledger
from perilune.plan.planned import plan
from perilune.plan.resolve import resolve
from perilune.plan.server import Server
from perilune.rehearse.calibration.closed_loop import simulate
from perilune.rehearse.calibration.fit import median_errors, residuals, worst_error
from perilune.rehearse.calibration.published import published_targets
from perilune.rehearse.ticks import SECOND, TOKEN
from perilune.rehearse.timing import ServerCosts, costs_of
from perilune.rehearse.timing.work import StageWork, stage_work

HBM = 7.75e12  # B300, bytes per second
MEMORY = efficiencies().fits["b300"].efficiency.memory
COMPUTE = efficiencies().fits["b300"].efficiency.compute


@cache
def costs(
    hardware: str = "b300",
    strategy: str = "low-latency",
    quant: str = "mxfp4",
    spec: str = "none",
    mode: str = "unified",
    pool: int = 0,
    sets: tuple[str, ...] = (),
    env: tuple[str, ...] = (),
) -> ServerCosts:
    """The step times of one recipe with edits."""
    edits = (*map(parse_set, sets), *map(parse_env, env))
    choice = Choice(hardware=hardware, mode=mode, strategy=strategy, quant=quant, spec=spec, overrides=edits)
    return costs_of(plan(compose(choice)).pools[pool].ledger)


def work(flags: str = "--tp-size 8", hardware: str = "b300") -> StageWork:
    """What one GPU of the first stage does under these flags."""
    found = ledger(resolve(Server.parse(f"sglang serve --model-path moonshotai/Kimi-K3 {flags}"), platform(hardware)))
    return stage_work(found.resolved, found.geometry)[0]


# Bytes of the checkpoint's own inventory, BF16: what a decode step reads of it on one of 8 GPUs.
KDA_SPLIT = 60_775_464_960 + 69 * (128 * 12_288 + 7_168 * 96) * 2  # q, k, v, o, g, f_b, b
KDA_WHOLE = 69 * 7_168 * 128 * 2  # f_a
SHARED = 24_310_185_984
ROUTER = 1_181_745_152
LATENT = 9_454_620_672
DENSE = 1_453_326_336
HEAD = 2_348_810_240


@pytest.mark.parametrize(
    ("rows", "published"),
    [
        ("total", LATENT + ROUTER + SHARED / 8 + DENSE / 8),
        ("last", HEAD / 8),
    ],
)
def test_a_decode_step_reads_the_checkpoints_bytes(rows: str, published: float) -> None:
    read = sum(product.size for product in getattr(work().decode, rows))
    assert read == pytest.approx(published, rel=1e-3)


def test_the_attention_layers_read_their_share_of_the_checkpoint() -> None:
    read = sum(product.size for product in work().decode.local)
    mla = 11_145_412_608  # q_a and kv_a of it are whole on every GPU
    whole = 24 * 7_168 * (1_536 + 512 + 64) * 2
    assert read == pytest.approx(KDA_SPLIT / 8 + KDA_WHOLE + (mla - whole) / 8 + whole, rel=0.01)


def test_an_active_token_costs_what_the_model_card_says() -> None:
    # 104.19 billion parameters are active for a token, the input embedding aside; one GPU has them all at TP 1.
    found = work("--tp-size 1 --pp-size 1 --mem-fraction-static 0.9")
    routed = found.routed
    assert routed is not None
    dense = sum(p.macs for group in (found.decode.local, found.decode.total, found.decode.last) for p in group)
    active = dense + routed.layers * routed.top_k * 33_030_144
    assert active == pytest.approx(104_189_614_848, rel=0.005)


@pytest.mark.parametrize("tokens", [1, 16, 64, 480])
def test_distinct_experts_are_those_that_random_tokens_choose(tokens: int) -> None:
    routed = work().routed
    assert routed is not None
    draw = random.Random(tokens)
    seen = mean(len({e for _ in range(tokens) for e in draw.sample(range(896), 16)}) for _ in range(40))
    assert routed.distinct(tokens) == pytest.approx(seen, rel=0.02)


@pytest.mark.parametrize("tokens", [4, 64, 512])
def test_the_fullest_rank_under_expert_parallelism_is_above_the_mean(tokens: int) -> None:
    routed = work("--tp-size 16 --ep-size 16 --nnodes 4 --node-rank 0 --dist-init-addr a:1", "gb200").routed
    assert routed is not None
    assert routed.local == 56
    draw = random.Random(tokens)
    fullest = []
    for _ in range(60):
        chosen = {e for _ in range(tokens) for e in draw.sample(range(896), 16)}
        fullest.append(max(sum(e // 56 == rank for e in chosen) for rank in range(16)))
    assert routed.distinct(tokens) == pytest.approx(mean(fullest), rel=0.25)
    assert routed.distinct(tokens) >= 56 * (1 - (1 - 16 / 896) ** tokens)


@pytest.mark.parametrize(
    ("strategy", "sets", "bytes_read"),
    [
        ("low-latency", (), 27_648),  # BF16 latent rows of 24 layers, whole on every GPU
        ("low-latency", ("--kv-cache-dtype=fp8_e4m3",), 13_824),
    ],
)
def test_a_stored_token_costs_its_bytes(strategy: str, sets: tuple[str, ...], bytes_read: float) -> None:
    _, per_milli = costs(strategy=strategy, sets=sets).decode(4, 4)
    assert per_milli * TOKEN / SECOND * HBM * MEMORY == pytest.approx(bytes_read, rel=0.01)


def test_under_dcp_a_gpu_computes_every_head_on_its_share_of_the_tokens() -> None:
    """An eighth of the rows, 96 heads on each: the operations outlast the 27,648 / 8 bytes."""
    _, per_milli = costs(strategy="balanced").decode(4, 4)
    operations = 24 * 96 * 2 * (512 + 64 + 512) / 8
    reached = 2.25e15 * efficiencies().fits["b300"].efficiency.compute
    assert per_milli * TOKEN / SECOND == pytest.approx(operations / reached, rel=0.01)
    assert per_milli * TOKEN / SECOND * HBM * MEMORY > 27_648 / 8


def test_a_request_reads_and_writes_its_state() -> None:
    """Beside what the experts and the products cost, one more request costs twice its slot of 449,372,160 / 8 B."""
    sets = ("--mamba-ssm-dtype=bfloat16",)
    wide = costs().decode(40, 40)[0]
    half = costs(sets=sets).decode(40, 40)[0]
    saved = (449_372_160 - 232_298_496) / 8 * 2 * 40
    assert (wide - half) / SECOND * HBM * MEMORY == pytest.approx(saved, rel=0.01)


CONFIGURATIONS = {
    "tp8": {},
    "dcp8": {"strategy": "balanced"},
    "nvfp4 verify": {"quant": "nvfp4", "spec": "dspark"},
    "rocm": {"hardware": "mi350x", "strategy": "balanced", "spec": "dspark"},
    "pp2": {"hardware": "b200", "strategy": "low-latency"},
    "ep16 over rdma": {"hardware": "h200", "strategy": "balanced"},
    "attention dp": {"hardware": "gb200", "strategy": "high-throughput", "mode": "decode"},
}


@pytest.mark.parametrize("name", CONFIGURATIONS)
@settings(max_examples=40, deadline=None)
@given(local=st.integers(1, 700), more=st.integers(1, 100), ranks=st.integers(1, 8))
def test_a_larger_decode_batch_never_takes_less(name: str, local: int, more: int, ranks: int) -> None:
    found = costs(**CONFIGURATIONS[name])  # type: ignore[arg-type]
    base, per = found.decode(local, local * ranks)
    larger, same = found.decode(local + more, (local + more) * ranks)
    assert 0 < base <= larger
    assert 0 < per == same


@pytest.mark.parametrize("name", CONFIGURATIONS)
@settings(max_examples=40, deadline=None)
@given(tokens=st.integers(1, 16_384), more=st.integers(0, 4_096), pairs=st.integers(0, 1 << 33))
def test_a_larger_chunk_never_takes_less(name: str, tokens: int, more: int, pairs: int) -> None:
    found = costs(**CONFIGURATIONS[name])  # type: ignore[arg-type]
    assert found.chunk(tokens, tokens, pairs) <= found.chunk(tokens + more, tokens + more, pairs)
    assert found.chunk(tokens, tokens, pairs) < found.chunk(tokens, tokens, pairs + 1000)


def test_verify_runs_a_block_and_one_more_token() -> None:
    """One verify of 8 tokens reads the experts that 8 tokens choose, beside the draft's own weights."""
    plain, verify = costs().decode(1, 1)[0], costs(spec="dspark").decode(1, 1)[0]
    routed = work().routed
    assert routed is not None
    more = routed.layers * routed.size * (routed.distinct(8) - routed.distinct(1)) / (HBM * MEMORY)
    assert more < (verify - plain) / SECOND < more + 0.002


def test_the_draft_reads_its_own_kv() -> None:
    """Its config has 5 layers and 16 KV heads of 64, keys and values in two bytes: an eighth on every GPU."""
    plain, verify = costs().decode(1, 1)[1], costs(spec="dspark").decode(1, 1)[1]
    row = 5 * 16 * 64 * 2 * 2 / 8
    attended = max(27_648 / (HBM * MEMORY), 8 * 24 * 12 * 2 * (512 + 64 + 512) / (2.25e15 * COMPUTE))
    assert plain * TOKEN / SECOND == pytest.approx(27_648 / (HBM * MEMORY), rel=0.01)
    assert verify * TOKEN / SECOND == pytest.approx(attended + row / (HBM * MEMORY), rel=0.01)


def test_a_verify_without_replay_writes_a_state_for_every_drafted_token() -> None:
    """Seven states of 449,372,160 B on eight GPUs in place of a ring that is smaller than one of them."""
    flags = (
        "sglang serve --model-path moonshotai/Kimi-K3 --tp-size 8 --speculative-algorithm DSPARK "
        "--speculative-draft-model-path RadixArk/Kimi-K3-DSpark --mem-fraction-static 0.85 --max-running-requests 32 "
    )
    more = []
    for last in ("", "--enable-linear-replayssm-spec"):
        found = costs_of(ledger(resolve(Server.parse(flags + last), platform("b300"))))
        more.append((found.decode(32, 32)[0] - found.decode(16, 16)[0]) / SECOND)
    state = 449_372_160 / 8 / (HBM * MEMORY)
    assert 6 * 16 * state < more[0] - more[1] < 7 * 16 * state


@pytest.mark.parametrize(
    ("hardware", "flags", "rate"),
    [
        ("b300", "--tp-size 8", "narrow"),  # FlashInfer quantizes activations to 8 bits on Blackwell
        ("b300", "--tp-size 8 --moe-runner-backend marlin", "wide"),
        ("h200", "--nnodes 2 --node-rank 0 --dist-init-addr a:1 --tp-size 16", "wide"),  # and keeps 16 bits on Hopper
    ],
)
def test_expert_products_run_in_the_format_of_their_runner(hardware: str, flags: str, rate: str) -> None:
    routed = work(flags, hardware).routed
    assert routed is not None
    assert routed.rate == rate


@pytest.mark.parametrize(
    ("sets", "env", "at_least"),
    [
        (("--disable-cuda-graph",), (), 1.5),  # the launches of 93 layers outlast their kernels
        (("--disable-overlap-schedule",), (), 1.1),
        (("--disable-custom-all-reduce",), (), 1.1),
    ],
)
def test_what_the_engine_no_longer_hides_takes_longer(
    sets: tuple[str, ...], env: tuple[str, ...], at_least: float
) -> None:
    assert costs(sets=sets, env=env).decode(1, 1)[0] > at_least * costs().decode(1, 1)[0]


def rocm(*env: str) -> int:
    return costs("mi350x", "balanced", env=env).decode(1, 1)[0]


def test_rocm_switches_have_their_published_effect() -> None:
    fused = rocm() - rocm("SGLANG_ROCM_K3_KDA_FUSED_BACKEND=aiter")
    assert fused / SECOND == pytest.approx(69 * (9.20 - 8.38) * 1e-6, rel=0.01)
    four_bit = rocm("AITER_SITUV2_A8W4=0", "AITER_SITUV2_A4W4=1")
    assert four_bit / rocm() == pytest.approx(537.3 / 530.8, rel=1e-3)


def test_a_transfer_moves_kv_and_state_over_the_nic() -> None:
    found = costs(mode="pd", pool=1)
    share = latencies().link_share.value
    moved = 8_192 * 27_648 + 449_372_160 / 8
    start = latencies().transfer_start_us.value * 1e-6
    assert found.transfer(8_192) / SECOND == pytest.approx(start + moved / (100e9 * share), rel=0.01)
    assert found.host_load(8_192, storage=True) > found.host_load(8_192, storage=False)


def test_an_image_is_patches_through_the_tower() -> None:
    found = costs()
    # 4 patches a token through 401 M parameters on a GPU of 2.25 PF, attention of 27 layers besides
    least = 2 * 4 * 1_024 * 401_214_464 / 2.25e15
    assert found.encode(1_024, graph=True) / SECOND > least
    assert found.encode(1_024, graph=True) < found.encode(4_096, graph=True)
    assert found.encode(16, graph=False) > found.encode(16, graph=True)
    # The kernels of a large image outlast their launches: it is the same then.
    assert found.encode(16_384, graph=False) == found.encode(16_384, graph=True)


def test_every_platform_says_where_its_efficiencies_come_from() -> None:
    read = efficiencies()
    assert set(read.platforms) == set(machines()) == set(platforms())
    for name, reading in read.platforms.items():
        own = read.platforms[reading.of]
        assert reading.below < 1 < reading.above
        if reading.of != name:
            assert (reading.below, reading.above) != (own.below, own.above)
            assert reading.below <= own.below <= 1 <= own.above <= reading.above
    assert costs().basis == "fitted"
    borrowed = costs("h200", "balanced")
    assert borrowed.basis == "borrowed"
    assert "b300" in borrowed.said


@pytest.mark.parametrize(
    ("model", "read"),
    [
        ("meta-llama/Llama-3.3-70B-Instruct", 141.1e9 - 128_256 * 8_192 * 2),  # BF16 checkpoint but the input embedding
        ("Qwen/Qwen3.5-27B", 27.36e9 * 2 - 248_320 * 5_120 * 2 - 0.9e9),  # and the vision tower
    ],
)
def test_a_dense_model_reads_its_checkpoint(model: str, read: float) -> None:
    found = ledger(resolve(Server.parse(f"sglang serve --model-path {model} --tp-size 8"), platform("b300")))
    (stage,) = stage_work(found.resolved, found.geometry)
    shares = (*stage.decode.local, *stage.decode.total, *stage.decode.last)
    assert sum(product.size for product in shares) == pytest.approx(read / 8, rel=0.02)
    assert costs_of(found).decode(1, 1)[0] / SECOND > read / 8 / (HBM * MEMORY)


def test_a_server_that_does_not_boot_has_no_step_times() -> None:
    refused = plan(compose(Choice(hardware="a3", mode="unified", strategy="balanced"))).pools[0].ledger
    with pytest.raises(UnusableInput, match="boots"):
        costs_of(refused)


def test_the_published_runs_are_met() -> None:
    found = []
    for target in published_targets():
        found += residuals([target], efficiencies().fits[target.platform].efficiency, simulate)
    assert len(found) == 12
    for error in median_errors(found):
        assert error is not None
        assert error <= 0.10
    assert worst_error(found) <= 0.30
