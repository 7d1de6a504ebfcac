"""What the catalog forbids: the reason and the nearest allowed choice, in one sentence."""

from __future__ import annotations

import pytest

from perilune.errors import Refused, UnusableInput
from perilune.plan.compose import Choice, compose
from perilune.plan.compose.knobs import knobs


def fields(text: str) -> dict[str, object]:
    """A choice written as `b300 mode=pd gpus=16`."""
    hardware, *rest = text.split()
    named = dict(word.split("=") for word in rest)
    return {"hardware": hardware} | {k: int(v) if v.isdigit() else v for k, v in named.items()}


def refusal(**choice: object) -> str:
    with pytest.raises(Refused) as caught:
        compose(Choice(**choice))  # type: ignore[arg-type]
    return str(caught.value)


def complaint(**choice: object) -> str:
    with pytest.raises(UnusableInput) as caught:
        compose(Choice(**choice))  # type: ignore[arg-type]
    return str(caught.value)


@pytest.mark.parametrize(
    ("choice", "reason", "nearest"),
    [
        # quantization
        ("h200 quant=nvfp4", "only for Blackwell", "--quant mxfp4"),
        ("mi355x quant=nvfp4", "only for Blackwell", "--quant mxfp4"),
        ("a3 quant=mxfp4", "ModelSlim W4A8", "--quant w4a8"),
        ("a3 quant=nvfp4", "only for Blackwell", "--quant mxfp4"),
        ("b300 quant=w4a8", "Ascend A3 checkpoint", "--quant mxfp4"),
        # speculation
        ("b300 mode=prefill prefill_strategy=long-context spec=dspark", "single pipeline stage", "none"),
        ("b200 mode=prefill spec=dspark", "single pipeline stage", "none"),
        ("gb200 mode=decode strategy=low-latency spec=dspark", "single pipeline stage", "none"),
        ("gb200 mode=pd strategy=low-latency spec=dspark", "single pipeline stage", "none"),
        ("mi350x spec=dflash", "Blackwell only", "--spec dspark"),
        ("h100 spec=dflash", "Blackwell only", "--spec dspark"),
        ("b200 spec=dflash", "does not re-lay", "--spec dspark"),
        ("gb200 mode=decode strategy=high-throughput spec=dflash", "data-parallel attention", "dspark"),
        ("a3 spec=dflash", "DSPARK only", "--spec dspark"),
        ("950 spec=none", "DSPARK only", "--spec dspark"),
        ("a3 mode=pd spec=none", "DSPARK only", "--spec dspark"),
        # HiCache and vision
        ("a3 hicache=l2", "cannot hold the KDA state", "--hicache off"),
        ("950 hicache=l3", "cannot hold the KDA state", "--hicache off"),
        ("b300 mode=decode vlm_transport=cpu", "processed on prefill", "--vlm-transport auto"),
        ("a3 vlm_transport=cpu", "no VLM transport on Ascend", "--vlm-transport auto"),
        # cells that do not exist
        ("h100 mode=pd", "No prefill recipe is published for H100", "--mode unified or decode"),
        ("mi355x mode=prefill", "No prefill recipe", "PD pairs exist on b300 gb300 b200 gb200 a3"),
        ("950 mode=pd", "No prefill recipe", "--mode unified"),
        ("a3 strategy=low-latency", "No low-latency recipe", "--strategy balanced"),
        ("a3 mode=pd prefill_strategy=long-context", "No long-context recipe", "--prefill-strategy default"),
        ("mi350x strategy=high-throughput", "No high-throughput recipe", "--strategy balanced"),
        ("gb200 mode=pd strategy=low-latency prefill_strategy=long-context", "PP2 x TP8", "default, or"),
        # presets
        ("h200 preset=peak-throughput", "SM100 and SM103 only", "--hardware b300"),
        ("mi355x preset=peak-capacity", "SM100 and SM103 only", "--hardware b300"),
        ("a3 preset=peak-throughput", "SM100 and SM103 only", "--hardware b300"),
        ("b300 mode=pd preset=peak-throughput", "unified serving", "--mode unified"),
        ("b300 preset=peak-capacity hicache=l3", "not aware of DCP ranks", "--hicache l2"),
        ("b300 preset=peak-capacity spec=dflash hicache=l2", "no speculation but DSPARK", "--spec dspark"),
        ("b300 preset=peak-throughput gpus=16 spec=dflash", "data-parallel attention", "dspark"),
        ("b300 preset=peak-throughput gpus=24", "8 16 32 64 GPUs, not 24", "--gpus 16"),
        ("b300 gpus=16", "runs on 8 GPUs", "--preset peak-throughput"),
        ("h200 gpus=32", "runs on 16 GPUs", "--gpus 16"),
    ],
)  # fmt: skip
def test_a_forbidden_choice_says_why_and_what_instead(choice: str, reason: str, nearest: str) -> None:
    said = refusal(**fields(choice))
    assert reason in said
    assert nearest in said


@pytest.mark.parametrize(
    ("knob", "choice", "reason"),
    [
        (("attention-tp", "16"), "b300", "has 8 ranks"),
        (("attention-tp", "16"), "b200 spec=none", "need 32 ranks"),
        (("attention-tp", "8"), "a3", "TP64 and attention DP 4"),
        (("attention-dp", "8"), "gb300", "whole MLA KV"),
        (("attention-dp", "8"), "gb200 mode=prefill", "pipeline stages"),
        (("moe-backend", "megamoe"), "h200", "SM100 or SM103"),
        (("moe-backend", "flashinfer_mxfp4"), "mi355x", "SM100 or SM103"),
        (("moe-backend", "marlin"), "a3", "CUDA kernel"),
        (("megamoe-quant", "w4a4"), "b300", "needs --moe-a2a-backend megamoe"),
        (("ep", "4"), "950", "no expert-parallel size"),
        (("tool-call-parser", "on"), "a3", "not supported on Ascend"),
        (("pd-transfer", "mooncake"), "a3 mode=pd", "memory fabric"),
        (("pd-transfer", "mooncake"), "b300", "reaches no pool"),
        (("hicache-storage", "file"), "b300", "HiCache is off"),
        (("hicache-storage", "file"), "b300 hicache=l2", "under DCP"),
        (("draft-tokens", "4"), "b300 spec=none", "DSPARK, which is not on"),
        (("replayssm", "on"), "b300 mode=prefill", "never verifies"),
        (("situ-activation", "a4w4"), "b300", "inert elsewhere"),
        (("fused-kda-decode", "aiter"), "h200", "inert elsewhere"),
        (("kv-cache-dtype", "fp8"), "950", "off Ascend only"),
        (("decode-radix-cache", "on"), "b300", "reaches no pool"),
    ],
)
def test_a_forbidden_knob_says_why(knob: tuple[str, str], choice: str, reason: str) -> None:
    assert reason in refusal(**fields(choice), knobs=(knob,))


@pytest.mark.parametrize(
    ("choice", "said"),
    [
        ({"hardware": "b400"}, "Unknown platform 'b400'"),
        ({"hardware": "b300", "mode": "disagg"}, "Known: unified pd prefill decode"),
        ({"hardware": "b300", "strategy": "fast"}, "Known: low-latency balanced high-throughput"),
        ({"hardware": "b300", "strategy": "long-context"}, "--mode pd --prefill-strategy long-context"),
        ({"hardware": "b300", "prefill_strategy": "long-context"}, "no prefill pool"),
        ({"hardware": "b300", "mode": "prefill", "strategy": "balanced"}, "--prefill-strategy"),
        ({"hardware": "b300", "quant": "fp4"}, "Known: mxfp4 w4a8 nvfp4"),
        ({"hardware": "b300", "spec": "eagle"}, "Known: none dspark dflash"),
        ({"hardware": "b300", "hicache": "l4"}, "Known: off l2 l3"),
        ({"hardware": "b300", "vlm_transport": "rdma"}, "Known: auto cpu"),
        ({"hardware": "b300", "preset": "peak"}, "Known: peak-throughput peak-capacity"),
        ({"hardware": "b300", "isl": 8192}, "Give --isl and --osl"),
        ({"hardware": "b300", "isl": 0, "osl": 1}, "--isl: 0 is not a whole number"),
        ({"hardware": "b300", "concurrency": -1}, "--concurrency: -1"),
        ({"hardware": "b300", "knobs": (("atention-tp", "8"),)}, "Did you mean attention-tp?"),
        ({"hardware": "b300", "knobs": (("eplb", "maybe"),)}, "Known: off on"),
    ],
)
def test_an_unknown_word_names_the_known_ones(choice: dict[str, object], said: str) -> None:
    assert said in complaint(**choice)


def test_a_default_that_is_forbidden_gives_way_instead_of_refusing() -> None:
    pool = compose(Choice(hardware="gb200", mode="decode", strategy="low-latency")).pools[0]
    assert pool.spec == "none"
    assert any("DSPARK runs on a single pipeline stage" in note for note in pool.notes)


def test_every_refusal_of_a_knob_offers_something() -> None:
    refusals = [r for k in knobs().values() for r in (*k.refused, *(x for o in k.options for x in o.refused))]
    assert refusals
    assert all(r.reason.endswith(".") and r.instead for r in refusals)
