"""Composition: the page's worked examples token for token, and the rules behind them."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from perilune.plan.compose import Choice, compose, parse_set
from perilune.plan.compose.flags import Flag, parse
from perilune.plan.deployment import Deployment, Pool
from perilune.plan.server import Server

EXAMPLES = Path(__file__).parent / "data" / "compose"

WORKED = {
    "b300-unified-low-latency-dspark": (Choice(hardware="b300", strategy="low-latency"), "unified", 1),
    "b300-unified-balanced-dspark": (Choice(hardware="b300", strategy="balanced"), "unified", 1),
    "b200-unified-balanced-nospec": (Choice(hardware="b200", spec="none"), "unified", 2),
    "b200-unified-balanced-dspark": (Choice(hardware="b200", spec="dspark"), "unified", 2),
    "gb300-prefill-default-dspark": (Choice(hardware="gb300", mode="pd"), "prefill", 2),
    "gb300-decode-balanced-dspark": (Choice(hardware="gb300", mode="pd"), "decode", 2),
    "a3-prefill-default-nospec": (Choice(hardware="a3", mode="pd"), "prefill", 2),
    "a3-decode-balanced-dspark": (Choice(hardware="a3", mode="pd"), "decode", 4),
    "950-unified-balanced-dspark": (Choice(hardware="950"), "unified", 4),
    "mi355x-unified-balanced-dspark": (Choice(hardware="mi355x"), "unified", 1),
    "h200-unified-high-throughput-dspark": (
        Choice(hardware="h200", strategy="high-throughput"),
        "unified",
        4,
    ),
    "b200-peak-throughput-32-dspark": (
        Choice(hardware="b200", strategy="high-throughput", preset="peak-throughput", gpus=32),
        "unified",
        4,
    ),
    "b200-peak-capacity-32-dspark": (
        Choice(hardware="b200", strategy="high-throughput", preset="peak-capacity", gpus=32),
        "unified",
        4,
    ),
}


def pool_of(deployment: Deployment, role: str) -> Pool:
    found = deployment.pool(role)
    assert found is not None
    return found


def only_pool(**choice: object) -> Pool:
    return compose(Choice(**choice)).pools[0]  # type: ignore[arg-type]


@pytest.mark.parametrize("name", WORKED)
def test_a_worked_example_comes_out_token_for_token(name: str) -> None:
    choice, role, nodes = WORKED[name]
    pool = pool_of(compose(choice), role)
    assert pool.server == Server.parse((EXAMPLES / f"{name}.txt").read_text())
    assert (pool.nodes, len(pool.servers)) == (nodes, nodes)


def test_every_example_file_is_used() -> None:
    assert {path.stem for path in EXAMPLES.iterdir()} == set(WORKED)


@pytest.mark.parametrize(
    ("choice", "flags", "gone"),
    [
        # DSPARK folds the pipeline of the B200 unified cells; L3 leaves DCP out of the fold.
        ({"hardware": "b200", "strategy": "low-latency"}, "--tp-size 16", "--pp-size --dcp-size --ep-size"),
        ({"hardware": "b200"}, "--tp-size 16 --dcp-size 16 --ep-size 16", "--pp-size"),
        ({"hardware": "b200", "hicache": "l2"}, "--dcp-size 16 --enable-hierarchical-cache", "--pp-size"),
        ({"hardware": "b200", "hicache": "l3"}, "--tp-size 16 --ep-size 16", "--dcp-size --pp-size"),
        ({"hardware": "b200", "spec": "none", "hicache": "l3"}, "--pp-size 2 --ep-size 8", "--dcp-size"),
        # NVFP4 pins its one runner, in place of a pinned one.
        ({"hardware": "b200", "quant": "nvfp4"}, "--moe-runner-backend flashinfer_trtllm", ""),
        ({"hardware": "b300", "quant": "nvfp4"}, "--moe-runner-backend flashinfer_trtllm", ""),
        # DFLASH and HiCache: L2 drops DCP, which DSPARK keeps.
        ({"hardware": "b300", "spec": "dflash"}, "--dcp-size 8 --speculative-dflash-block-size 8", ""),
        (
            {"hardware": "b300", "spec": "dflash", "hicache": "l2"},
            "--enable-hierarchical-cache",
            "--dcp-size",
        ),
        ({"hardware": "b300", "hicache": "l2"}, "--dcp-size 8 --enable-hierarchical-cache", ""),
        (
            {"hardware": "mi355x", "hicache": "l3"},
            "--hicache-storage-backend mooncake",
            "--dcp-size --dcp-comm-backend",
        ),
        ({"hardware": "b300", "vlm_transport": "cpu"}, "--mm-feature-transport cpu", ""),
    ],
)
def test_overlays_strip_and_add(choice: dict[str, str], flags: str, gone: str) -> None:
    written = parse(only_pool(**choice).server.argv)
    for flag in parse(flags.split()):
        assert flag in written
    assert not {flag.name for flag in written} & set(gone.split())
    assert len({flag.name for flag in written}) == len(written)


def test_overlay_flags_replace_in_place_or_go_to_the_end_in_overlay_order() -> None:
    argv = only_pool(hardware="b200", quant="nvfp4", vlm_transport="cpu", hicache="l3").server.argv
    names = [flag.name for flag in parse(argv)]
    assert names[names.index("--ep-size") + 1] == "--moe-runner-backend"
    tail = names[names.index("--port") + 1 :]
    assert tail == [
        "--mm-feature-transport",
        "--speculative-algorithm",
        "--speculative-draft-model-path",
        "--speculative-dspark-block-size",
        "--enable-linear-replayssm-spec",
        "--enable-hierarchical-cache",
        "--hicache-storage-backend",
    ]


@pytest.mark.parametrize(
    ("choice", "name", "given"),
    [
        ({"hardware": "mi355x", "spec": "none"}, "SGLANG_MLA_DECODE_TUNE", "1"),
        ({"hardware": "b300", "hicache": "l3"}, "SGLANG_HICACHE_MOONCAKE_CONFIG_PATH", "<mooncake.json>"),
    ],
)
def test_overlay_environment_follows_that_of_the_cell(choice: dict[str, str], name: str, given: str) -> None:
    assert only_pool(**choice).server.env[-1] == (name, given)


@pytest.mark.parametrize(
    ("choice", "model", "image"),
    [
        ({"hardware": "b300"}, "moonshotai/Kimi-K3", "lmsysorg/sglang:kimi-k3"),
        (
            {"hardware": "b300", "quant": "nvfp4"},
            "nvidia/Kimi-K3-NVFP4",
            "lmsysorg/sglang:dev-dev-kimi-k3-nvfp4",
        ),
        ({"hardware": "a3"}, "sgl-npu/Kimi-K3-W4A8", "quay.io/ascend/sglang:main-cann9.0.0-a3"),
    ],
)
def test_the_checkpoint_and_image_follow_quantization(choice: dict[str, str], model: str, image: str) -> None:
    deployment = compose(Choice(**choice))  # type: ignore[arg-type]
    assert deployment.model == model
    assert deployment.pools[0].image == image
    assert deployment.pools[0].server.value("--model-path") == model


def test_a_pd_pair_is_one_deployment_with_its_router() -> None:
    deployment = compose(
        Choice(hardware="b300", mode="pd", strategy="high-throughput", prefill_strategy="long-context")
    )
    assert [pool.recipe for pool in deployment.pools] == [
        "b300/prefill/long-context",
        "b300/decode/high-throughput",
    ]
    assert deployment.router is not None
    assert " ".join(deployment.router) == (
        "python3 -m sglang_router.launch_router --pd-disaggregation "
        "--prefill http://<prefill-host>:30000 8998 --decode http://<decode-host>:30100 "
        "--host 0.0.0.0 --port 8000 --disable-circuit-breaker --health-check-interval-secs 999999"
    )
    assert (deployment.nodes, deployment.gpus) == (2, 16)


def test_speculation_of_a_pipelined_prefill_gives_way_with_a_note() -> None:
    deployment = compose(Choice(hardware="b200", mode="pd", spec="dspark"))
    prefill, decode = deployment.pools
    assert (prefill.spec, decode.spec) == ("none", "dspark")
    assert any("single pipeline stage" in note for note in prefill.notes)


def test_gb200_low_latency_decode_gets_the_prefill_it_can_pair_with() -> None:
    deployment = compose(Choice(hardware="gb200", mode="pd", strategy="low-latency"))
    prefill, decode = deployment.pools
    for pool in (prefill, decode):
        assert (pool.server.value("--tp-size"), pool.server.value("--pp-size")) == ("8", "2")
    assert (prefill.nodes, prefill.server.value("--mamba-full-memory-ratio")) == (4, "0.72")
    assert decode.spec == "none"
    assert any("2919" in note for note in deployment.notes)


def test_the_stages_of_every_composed_pair_fit() -> None:
    for name in ("b300", "gb300", "b200", "gb200", "a3"):
        for strategy in ("low-latency", "balanced", "high-throughput") if name != "a3" else ("balanced",):
            prefill, decode = compose(Choice(hardware=name, mode="pd", strategy=strategy)).pools
            assert decode.server.value("--pp-size") in (None, prefill.server.value("--pp-size"))


def test_a3_names_the_values_that_were_never_published() -> None:
    deployment = compose(Choice(hardware="a3", mode="pd"))
    unknown = [(role, found.placeholder) for role, found in deployment.unpublished]
    assert unknown == [
        ("prefill", "<flag that disables CUDA graphs>"),
        ("prefill", "<value not seen>"),
        ("prefill", "<store-port>"),
        ("decode", "<value not seen>"),
        ("decode", "<store-port>"),
    ]
    assert deployment.gpus == 32 + 64
    assert [pool.nodes for pool in deployment.pools] == [2, 4]


@pytest.mark.parametrize(
    ("choice", "cap"),
    [
        ({"hardware": "b300", "concurrency": 64}, "64"),
        ({"hardware": "b300", "concurrency": 64, "spec": "none"}, None),
        ({"hardware": "b300", "mode": "pd", "concurrency": 64}, "128"),
        ({"hardware": "a3", "mode": "pd", "concurrency": 32}, "64"),
        ({"hardware": "a3", "concurrency": 200}, "64"),  # the recipe pins it together with the state pool
        ({"hardware": "950", "concurrency": 64}, "64"),
        ({"hardware": "950"}, "32"),
        ({"hardware": "950", "concurrency": 64, "overrides": (parse_set("max-running-requests=48"),)}, "48"),
        ({"hardware": "b300"}, None),
    ],
)
def test_a_known_concurrency_sets_the_request_cap_under_speculation(choice: dict[str, object], cap: str | None) -> None:
    for pool in compose(Choice(**choice)).pools:  # type: ignore[arg-type]
        assert pool.server.value("--max-running-requests") == cap


def test_a_cap_above_the_recipes_decode_graphs_is_said() -> None:
    notes = " ".join(compose(Choice(hardware="950", concurrency=64)).pools[0].notes)
    assert "--max-running-requests 64 is the concurrency; the recipe has 32." in notes
    assert "decode graphs end at 32 requests" in notes
    assert "graphs end" not in " ".join(compose(Choice(hardware="950", concurrency=32)).pools[0].notes)


@pytest.mark.parametrize(
    ("choice", "verification"),
    [
        ({"strategy": "low-latency"}, "verified"),
        ({"strategy": "balanced", "spec": "none", "quant": "nvfp4"}, "verified"),
        ({"strategy": "high-throughput"}, "in-progress"),
        ({"strategy": "balanced", "hicache": "l2"}, "in-progress"),
        ({"strategy": "balanced", "vlm_transport": "cpu"}, "in-progress"),
        ({"strategy": "balanced", "preset": "peak-throughput"}, "in-progress"),
        ({"strategy": "balanced", "knobs": (("eplb", "off"),)}, "in-progress"),
        ({"strategy": "balanced", "overrides": (parse_set("page-size=32"),)}, "in-progress"),
    ],
)
def test_only_the_published_command_is_verified(choice: dict[str, object], verification: str) -> None:
    pool = only_pool(hardware="b300", **choice)
    assert pool.verification == verification
    assert pool.notes[0].startswith("Verified" if verification == "verified" else "Not verified")


def test_node_flags_stand_once_and_only_where_a_server_spans_nodes() -> None:
    for name in ("b300", "gb300", "b200", "gb200", "h200", "h100", "mi355x", "a3", "950"):
        pool = only_pool(hardware=name)
        names = [flag.name for flag in parse(pool.server.argv)]
        assert names.count("--nnodes") == names.count("--node-rank") == (1 if pool.nodes > 1 else 0)


def test_every_node_gets_its_own_rank() -> None:
    servers = only_pool(hardware="h100").servers
    assert [server.value("--node-rank") for server in servers] == ["0", "1", "2", "3"]


def test_a_deployment_reads_back_from_json_as_an_equal_value() -> None:
    deployment = compose(Choice(hardware="a3", mode="pd", isl=8192, osl=1024, concurrency=16))
    assert msgspec.json.decode(msgspec.json.encode(deployment), type=Deployment) == deployment


def test_parse_keeps_values_with_blanks_and_stand_ins_apart() -> None:
    words = ["--chunked-prefill-size", "1", "<flag that disables CUDA graphs>", "--x", '{"a": 1}']
    assert parse(words) == (
        Flag("--chunked-prefill-size", ("1",)),
        Flag("<flag that disables CUDA graphs>"),
        Flag("--x", ('{"a": 1}',)),
    )
