"""Large-scale presets on every Blackwell platform, and the Playground knobs."""

from __future__ import annotations

import pytest

from perilune.facts.hardware import platform
from perilune.plan.compose import Choice, compose, parse_knob
from perilune.plan.compose.flags import flatten, parse
from perilune.plan.compose.presets import emitted, preset_named
from perilune.plan.deployment import Pool

TAIL = (
    "--moe-a2a-backend megamoe --moe-runner-backend deep_gemm --kv-cache-dtype fp8_e4m3 "
    "--mamba-ssm-dtype bfloat16 --mamba-radix-cache-strategy extra_buffer_lazy --mem-fraction-static 0.92"
)
GROUPS = {8: "", 16: " --attn-dp-size 2", 32: " --attn-dp-size 4", 64: " --attn-dp-size 8"}
NODES = {"b200": 8, "b300": 8, "gb200": 4, "gb300": 4}  # GPUs of a node
TOKENS_ENV = ("SGLANG_OPT_DEEPGEMM_MEGA_MOE_NUM_MAX_TOKENS_PER_RANK", "20480")


def fields(text: str) -> dict[str, object]:
    """A choice written as `b300 mode=pd`."""
    hardware, *rest = text.split()
    return {"hardware": hardware, **dict(word.split("=") for word in rest)}


def composed(**choice: object) -> Pool:
    return compose(Choice(**choice)).pools[0]  # type: ignore[arg-type]


def expected(preset: str, gpus: int, per_node: int) -> str:
    nodes = gpus // per_node
    return (
        f"--tp-size {gpus} --ep-size {gpus}"
        + (f"{GROUPS[gpus]} --enable-dp-lm-head" if gpus > 8 else "")
        + (" --dcp-size 8" if preset == "peak-capacity" else "")
        + (f" --nnodes {nodes} --node-rank <node-rank> --dist-init-addr <node0-ip>:20000" if nodes > 1 else "")
        + f" {TAIL}"
    )


@pytest.mark.parametrize("preset", ["peak-throughput", "peak-capacity"])
@pytest.mark.parametrize("gpus", GROUPS)
@pytest.mark.parametrize("name", NODES)
def test_what_a_preset_emits(name: str, gpus: int, preset: str) -> None:
    wanted = expected(preset, gpus, NODES[name])
    assert " ".join(flatten(emitted(preset_named(preset), gpus, platform(name)))) == wanted
    pool = composed(hardware=name, strategy="high-throughput", preset=preset, gpus=gpus)
    assert (pool.gpus, pool.nodes) == (gpus, max(1, gpus // NODES[name]))
    written = parse(pool.server.argv)
    assert set(parse(wanted.split())) <= set(written)
    assert len({flag.name for flag in written}) == len(written)
    assert TOKENS_ENV in pool.server.env
    assert not {"--pp-size", "--enable-symm-mem", "--dcp-comm-backend"} & {flag.name for flag in written}
    assert ("--dcp-size" in pool.server.argv) == (preset == "peak-capacity")


@pytest.mark.parametrize("name", NODES)
def test_a_preset_without_a_size_takes_the_size_of_the_page(name: str) -> None:
    assert composed(hardware=name, preset="peak-throughput").gpus == {"b300": 8, "gb300": 8}.get(name, 16)


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        ("b200", "--decode-attention-backend cutedsl_mla --chunked-prefill-size 8192"),
        ("b300", "--disable-custom-all-reduce"),
    ],
)
def test_what_a_preset_keeps_of_its_base(name: str, kept: str) -> None:
    argv = composed(hardware=name, strategy="high-throughput", preset="peak-throughput").server.argv
    assert set(parse(kept.split())) <= set(parse(argv))


def test_eight_gpus_on_a_two_node_base_are_one_node() -> None:
    pool = composed(hardware="b200", strategy="high-throughput", preset="peak-throughput", gpus=8)
    assert "--nnodes" not in pool.server.argv
    assert any("keeps --nnodes 2" in note for note in pool.notes)


def test_a_preset_says_that_it_is_unverified() -> None:
    notes = composed(hardware="b300", preset="peak-capacity").notes
    assert any("No preset has a full serving round" in note for note in notes)
    assert any("Speculation with a preset is experimental" in note for note in notes)


@pytest.mark.parametrize(
    ("knob", "choice", "flags", "env"),
    [
        ("attention-tp=8", "gb200", "--tp-size 8", ""),
        ("attention-dp=2", "b300", "--attn-dp-size 2", ""),
        ("moe-backend=deepep", "b200", "--moe-a2a-backend deepep", ""),
        (
            "moe-backend=megamoe",
            "b300",
            "--moe-a2a-backend megamoe",
            "SGLANG_OPT_DEEPGEMM_MEGA_MOE_NUM_MAX_TOKENS_PER_RANK=8320",
        ),
        ("ep=8", "b300", "--ep-size 8", ""),
        ("draft-tokens=3", "b300", "--speculative-dspark-block-size 3", ""),
        ("kv-cache-dtype=fp8", "b300", "--kv-cache-dtype fp8_e4m3", ""),
        ("kda-state-dtype=bf16", "b300", "--mamba-ssm-dtype bfloat16", ""),
        ("prefix-cache=off", "b300", "--disable-radix-cache", ""),
        (
            "kda-radix-strategy=extra_buffer_lazy",
            "b300",
            "--mamba-radix-cache-strategy extra_buffer_lazy",
            "",
        ),
        ("kda-slot-saving=on", "b300", "", "SGLANG_OPT_MAMBA_SKIP_DECODE_LOCK=1"),
        ("ragged-verify=compact", "b300", "", "SGLANG_RAGGED_VERIFY_MODE=compact"),
        ("situ-activation=a4w4", "mi355x", "", "AITER_SITUV2_A4W4=1"),
        ("fused-kda-decode=aiter", "mi355x", "", "SGLANG_ROCM_K3_KDA_FUSED_BACKEND=aiter"),
        ("prefill-graph=breakable", "b300", "--cuda-graph-backend-prefill breakable", ""),
        ("eplb=on", "b200", "--enable-eplb", ""),
        ("pd-transfer=mooncake", "b300 mode=prefill", "--disaggregation-transfer-backend mooncake", ""),
        ("pd-ib-device=mlx5_0", "b300 mode=decode", "--disaggregation-ib-device mlx5_0", ""),
        ("hicache-storage=file", "h200 hicache=l2", "--hicache-storage-backend file", ""),
        ("hicache-write-policy=write_back", "b300 hicache=l2", "--hicache-write-policy write_back", ""),
        ("decode-radix-cache=on", "b300 mode=decode", "--disaggregation-decode-enable-radix-cache", ""),
    ],
)
def test_a_knob_sets_its_flag_once(knob: str, choice: str, flags: str, env: str) -> None:
    pool = composed(**fields(choice), knobs=(parse_knob(knob),))
    written = parse(pool.server.argv)
    assert set(parse(flags.split())) <= set(written)
    assert len({flag.name for flag in written}) == len(written)
    if env:
        name, _, given = env.partition("=")
        assert (name, given) in pool.server.env
        assert [known for known, _ in pool.server.env].count(name) == 1


@pytest.mark.parametrize(
    ("knob", "choice", "gone"),
    [
        ("reasoning-parser=off", "b300", "--reasoning-parser"),
        ("tool-call-parser=off", "b300", "--tool-call-parser"),
        ("replayssm=off", "b300", "--enable-linear-replayssm-spec"),
        (
            "attention-dp=off",
            "gb200 mode=decode strategy=high-throughput",
            "--attn-dp-size",
        ),
        ("moe-backend=deepep", "b200", "--moe-runner-backend"),
        ("ep=1", "b200", "--ep-size"),
    ],
)
def test_a_knob_takes_its_flag_away(knob: str, choice: str, gone: str) -> None:
    before = composed(**fields(choice)).server.argv
    after = composed(**fields(choice), knobs=(parse_knob(knob),)).server.argv
    assert gone in before
    assert gone not in after


def test_knobs_change_the_ratio() -> None:
    plain = composed(hardware="b300").server.value("--mamba-full-memory-ratio")
    fp8 = composed(hardware="b300", knobs=(("kv-cache-dtype", "fp8"),)).server.value("--mamba-full-memory-ratio")
    assert (plain, fp8) == ("5.13", "7.97")


def test_a_knob_can_be_meant_for_one_role() -> None:
    prefill, decode = compose(Choice(hardware="b300", mode="pd", knobs=(("decode:kv-cache-dtype", "fp8"),))).pools
    assert "--kv-cache-dtype" not in prefill.server.argv
    assert decode.server.value("--kv-cache-dtype") == "fp8_e4m3"
