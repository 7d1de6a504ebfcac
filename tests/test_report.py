"""What a rehearsal found, as text, JSON, plots, a trace and a comparison."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from PIL import Image

from perilune.errors import UnusableInput
from perilune.rehearse.acceptance import Acceptance
from perilune.rehearse.offered import Talk
from perilune.rehearse.outcome import Counts, Distribution
from perilune.rehearse.report import document, summary
from perilune.rehearse.report.compare import comparison, comparison_lines
from perilune.rehearse.report.perfetto import chrome_trace
from perilune.rehearse.report.phrases import remarks
from perilune.rehearse.report.plots import plots
from perilune.rehearse.report.text import change, resampled, share, short_time, sparkline
from perilune.rehearse.tally import Targets
from report_samples import (
    BALANCED,
    HOSTILE,
    distribution,
    hostile_rehearsal,
    outcome,
    pool,
    published_rehearsal,
    rehearsal,
    replica,
)

CONTRACT = {
    "ttft_s", "tpot_s", "itl_s", "e2e_s", "tokens_per_second_per_gpu", "output_tokens_per_second", "duration_s",
    "requests", "admitted_max", "waits_s", "cache", "basis", "error_band",
}  # fmt: skip
NOTHING = Distribution(0, 0.0, 0.0, 0.0, 0.0, 0.0)


def text_of(run: Any) -> str:
    return "\n".join(line.text for line in summary(run))


def empty_rehearsal() -> Any:
    """Nothing was served."""
    made = replace(
        outcome(), requests=Counts(0, 3, 0, 0), ttft_s=NOTHING, tpot_s=NOTHING, itl_s=NOTHING, e2e_s=NOTHING,
        prompt_tokens=0, output_tokens=0, hit_tokens=0, waits_s={}, duration_s=0.0, admitted_max=0,
    )  # fmt: skip
    series = replace(made.series, running=(), queued=(), kv_used=(), slots_used=(), prompt_tokens=(), output_tokens=())
    lanes = tuple(replace(one, series=series, spans=()) for one in made.replicas)
    return rehearsal(outcome=replace(made, series=series, replicas=lanes))


RUNS = {
    "fleet": rehearsal,
    "published": published_rehearsal,
    "hostile": hostile_rehearsal,
    "nothing served": empty_rehearsal,
    "interrupted": lambda: rehearsal(outcome=replace(outcome(), interrupted=True)),
}


@pytest.mark.parametrize("name", RUNS)
def test_the_summary_keeps_to_80_printable_columns(name: str) -> None:
    for line in summary(RUNS[name]()):
        assert len(line.text) <= 80, line
        assert line.text.isprintable(), line


def test_the_summary_says_what_a_tired_engineer_asks() -> None:
    text = text_of(rehearsal())
    for said in (
        "2 servers of 8 GPUs, TP8 × DCP8",
        "closed loop of 128 requests, 320 in all, of 8,192 input + 1,024 output",
        "Predicted, not measured.",
        "15 % shorter to 20 % longer",
        "TTFT              3.99 s      4.96 s",
        "TPOT             38.2 ms     47.4 ms",
        "439 tokens/s per GPU",
        "72 % within TTFT 5.00 s, TPOT 50.0 ms",
        "is missed",
        "at most 128 at once; the ledger admits 202, not reached",
        "prefill of others 6.1 %",
        "12 % of 2,621,440 prompt tokens",
    ):
        assert said in text


def test_a_cap_that_was_reached_names_what_binds() -> None:
    made = published_rehearsal()
    text = " ".join(text_of(replace(made, outcome=replace(made.outcome, admitted_max=101))).split())
    assert "the ledger admits 101, reached: the KDA state pool binds; published of this command: 101 a server" in text


def said_of(**changes: Any) -> str:
    """The summary of one pool that ran up to 202 requests, with changes to the pool, on one line."""
    run = rehearsal(pools=(pool(**changes),), outcome=replace(outcome(), admitted_max=202))
    return " ".join(text_of(run).split())


def test_the_band_of_what_is_admitted_is_told_beside_that_of_step_times() -> None:
    band = "202 (within the error of predicted memory 150 to 230)"
    text = said_of(cap_band=(150, 230))
    assert f"15 % shorter to 20 % longer, if as many requests are admitted as here: {band}." in text
    assert f"the ledger admits {band}, reached" in text
    assert "no boot to 230" in said_of(cap_band=(0, 230))
    for exact in (None, (202, 202)):
        text = said_of(cap_band=exact)
        assert "15 % shorter to 20 % longer." in text
        assert "the ledger admits 202, reached" in text
    low = text_of(rehearsal(pools=(pool(cap_band=(150, 230)),)))  # 128 at most: no less at either end
    assert "if as many" not in low
    assert document(rehearsal(pools=(pool(cap_band=(150, 230)),)))["plan"]["pools"][0]["cap_band"] == [150, 230]


def test_latencies_that_look_odd_are_explained() -> None:
    made = outcome()
    assert remarks(rehearsal()) == []
    alike = replace(made, e2e_s=Distribution(320, 46.0, 46.0, 46.0, 46.1, 46.1))
    (told,) = remarks(rehearsal(outcome=alike))
    assert told.endswith("alike in length; those of real ones lie further apart (--random-range-ratio).")
    (told,) = remarks(rehearsal(outcome=alike, acceptance=Acceptance(4.5, "as given", assumed=False)))
    assert "alike in length and acceptance" in told
    assert "--acceptance-mix" in told
    still = replace(made, itl_s=replace(made.itl_s, max=22.0), requests=Counts(320, 0, 0, 0))
    assert remarks(rehearsal(outcome=still)) == [
        "ITL, max: an answer stood still for 22.0 s: waiting prompts are prefilled before answers go on."
    ]
    (told,) = remarks(rehearsal(outcome=replace(still, requests=Counts(320, 0, 2, 0))))
    assert told.endswith("before answers go on, or the request was retracted.")


def test_a_peak_of_means_is_called_one() -> None:
    assert "peaks are of means over 3.50 s" in text_of(rehearsal())


def test_dies_are_not_called_gpus() -> None:
    text = text_of(rehearsal(pools=(pool(platform="a3", gpus=16),)))
    assert "2 servers of 16 dies, TP8" in text
    assert "439 tokens/s per die" in text


def test_a_measurement_stands_beside_the_prediction_of_the_same_workload_only() -> None:
    """B300 Balanced at 64, MXFP4: 11.6 s, 40.19 ms, 1,395 tokens/s per GPU on the Kimi-K3 page."""
    text = text_of(published_rehearsal())
    assert "64                11.6 s     40.2 ms       1,395  SGLang 0.5.18" in text
    assert "predicted          -66 %      -5.0 %       -37 %  against it" in text
    assert "Unlike this plan" not in text
    assert "against it" not in text_of(rehearsal())
    assert "1,395" in text_of(rehearsal())


@pytest.mark.parametrize(
    ("command", "env", "differs", "against"),
    [
        (BALANCED, {}, (), True),
        ((*BALANCED, "--port", "31000"), {}, (), True),
        ((*BALANCED, "--mamba-full-memory-ratio", "8.82"), {}, ("with --mamba-full-memory-ratio 7.21",), True),
        ((*BALANCED, "--kv-cache-dtype", "fp8_e4m3"), {}, ("without --kv-cache-dtype",), False),
        ((*BALANCED, "--disable-radix-cache"), {"A": "b"}, ("without --disable-radix-cache", "without A"), False),
        (tuple(word for word in BALANCED if word != "--trust-remote-code"), {}, ("with --trust-remote-code",), False),
        (("docker", "run", "--gpus", "all", *BALANCED), {}, (), True),
    ],
)
def test_a_measurement_of_another_command_says_so(
    command: tuple[str, ...], env: dict[str, str], differs: tuple[str, ...], against: bool
) -> None:
    """What was measured is the recipe of the page; a flag that only sizes the pools tells nothing below the cap."""
    made = published_rehearsal()
    run = replace(made, pools=(replace(made.pools[0], command=command, env=env),))
    (found,) = run.published
    assert (found.same, found.comparable, found.differs) == (True, against, differs)
    assert (run.published_cap == 101) is (not differs)
    text = " ".join(text_of(run).split())
    assert ("against it" in text) is against
    assert (f"Unlike this plan, it was measured {', '.join(differs)}." in text) is bool(differs)


@pytest.mark.parametrize(
    "changes",
    [
        {"concurrency": 32}, {"requests": 64}, {"isl": 8000}, {"range_ratio": 0.5}, {"images": 1},
        {"talk": Talk(turns=2)},
    ],
)  # fmt: skip
def test_a_measurement_of_another_workload_is_not_compared(changes: dict[str, Any]) -> None:
    made = published_rehearsal()
    (found,) = replace(made, load=replace(made.load, **changes)).published
    assert not found.same
    (found,) = replace(made, settings={"failures": "unified-0 at 1 s for 5 s"}).published
    assert not found.same


def test_a_pair_is_told_by_role() -> None:
    """Two prefill servers and one decode server, 32 requests on each of them at the most."""
    found = outcome((replica("prefill", 0), replica("prefill", 1), replica("decode", 0)))
    pools = (pool("prefill", replicas=2, cap=128), pool("decode", replicas=1, cap=128))
    text = text_of(rehearsal(pools=pools, outcome=found))
    assert "prefill: at most 64 at once on a server; the ledger admits 64 there" in text
    assert "decode: at most 128 at once; the ledger admits 128, reached" in text
    lines = {line.split("  ")[0]: line for line in text.splitlines()}
    assert lines["at prefill"].endswith("peak 64")
    assert lines["at decode"].endswith("peak 32")
    assert "running" not in lines


@pytest.mark.parametrize(
    ("goodput", "slo", "met"),
    [
        ({"share": 0.9}, Targets(ttft_s=1.0), True),
        ({"share": 0.899}, Targets(ttft_s=1.0), False),
        ({}, Targets(tpot_s=1.0), False),
        ({"share": 0.1}, None, None),
    ],
)
def test_an_slo_is_met_by_nine_requests_in_ten(
    goodput: dict[str, float], slo: Targets | None, met: bool | None
) -> None:
    assert rehearsal(outcome=replace(outcome(), goodput=goodput), slo=slo).slo_met is met


def test_the_document_holds_the_contract() -> None:
    made = json.loads(msgspec.json.encode(document(rehearsal())))
    assert made.keys() >= CONTRACT
    for name in ("ttft_s", "tpot_s", "itl_s", "e2e_s"):
        assert made[name].keys() >= {"mean", "p50", "p90", "p99", "max"}
    assert made["requests"] == {"completed": 320, "rejected": 0, "retracted": 2, "unfinished": 0}
    assert made["cache"] == {"hit_tokens": 327_680, "prompt_tokens": 2_621_440}
    assert made["error_band"] == [0.85, 1.2]
    assert made["tokens_per_second_per_gpu"] == pytest.approx(320 * 9216 / 420 / 16)


def test_what_was_not_served_has_no_latency() -> None:
    made = json.loads(msgspec.json.encode(document(empty_rehearsal())))
    assert made["ttft_s"] == {"count": 0, "mean": None, "p50": None, "p90": None, "p99": None, "max": None}
    assert made["slo"]["met"] is False
    assert made["tokens_per_second_per_gpu"] == 0


@pytest.mark.parametrize("name", RUNS)
def test_equal_rehearsals_give_equal_bytes(name: str) -> None:
    one, other = RUNS[name](), RUNS[name]()
    assert msgspec.json.encode(document(one)) == msgspec.json.encode(document(other))
    assert chrome_trace(one) == chrome_trace(other)
    assert plots(one) == plots(other)


def test_the_plan_is_told_by_its_commands_and_counts() -> None:
    one = rehearsal()
    other = rehearsal(pools=(replace(one.pools[0], replicas=3),))
    assert one.plan_id == rehearsal(router="random").plan_id
    assert one.plan_id != other.plan_id


@pytest.mark.parametrize("name", ["fleet", "hostile"])
def test_the_plots_are_pictures(name: str) -> None:
    made = plots(RUNS[name]())
    assert set(made) == {"latency.png", "load.png", "pools.png", "throughput.png", "servers.png"}
    for raw in made.values():
        picture = Image.open(io.BytesIO(raw))
        assert picture.format == "PNG"
        assert min(picture.size) > 200
        assert len(picture.convert("RGB").getcolors(1 << 24) or ()) > 20, "it is blank"
        assert picture.info == {"Description": "predicted by perilune rehearse", "dpi": picture.info["dpi"]}


def test_nothing_is_plotted_of_nothing() -> None:
    assert plots(empty_rehearsal()) == {}


@pytest.mark.parametrize("name", RUNS)
def test_the_trace_is_one_that_chrome_and_perfetto_load(name: str) -> None:
    """Fields by phase as the Trace Event Format lists them."""
    run = RUNS[name]()
    made = json.loads(chrome_trace(run))
    needed = {"M": {"name", "pid", "tid", "args"}, "C": {"name", "pid", "ts", "args"}}
    needed["X"] = {"name", "cat", "pid", "tid", "ts", "dur", "args"}
    for event in made["traceEvents"]:
        assert event.keys() >= needed[event["ph"]]
        assert event.get("dur", 0) >= 0
        assert event.get("ts", 0) >= 0
        if event["ph"] == "C":
            assert all(isinstance(value, int | float) for value in event["args"].values())
    named = [e for e in made["traceEvents"] if e["name"] == "process_name"]
    assert len(named) == 1 + len(run.outcome.replicas)
    slices = [e for e in made["traceEvents"] if e["ph"] == "X"]
    assert len(slices) == sum(len(one.spans) for one in run.outcome.replicas)


def test_a_slice_lasts_what_the_step_lasted() -> None:
    events = json.loads(chrome_trace(rehearsal()))["traceEvents"]
    first = next(event for event in events if event["ph"] == "X")
    assert (first["name"], first["ts"], first["dur"]) == ("prefill", 0, 400_000)
    assert first["args"] == {"requests": 2, "tokens": 16384}


def saved(path: Path, run: Any) -> Path:
    path.write_bytes(msgspec.json.encode(document(run)))
    return path


def test_a_comparison_gives_ratios_and_what_differs(tmp_path: Path) -> None:
    one = rehearsal()
    pool = replace(one.pools[0], command=("sglang", "serve", "--tp-size", "8", "--mamba-ssm-dtype", "bfloat16"))
    other = rehearsal(
        pools=(pool,), outcome=replace(one.outcome, ttft_s=distribution(2.0), error_band=(0.9, 1.1), seed=8)
    )
    found = comparison(saved(tmp_path / "a.json", one), saved(tmp_path / "b.json", other))
    assert found["figures"]["ttft_s.p50"]["ratio"] == pytest.approx(2.0 / 4.2)
    assert found["figures"]["tpot_s.p50"]["ratio"] == 1
    assert found["figures"]["requests.rejected"]["ratio"] is None
    assert found["differs"] == {
        "seed": {"a": 7, "b": 8},
        "error_band": {"a": [0.85, 1.2], "b": [0.9, 1.1]},
        "unified.command.--dcp-size": {"a": "8", "b": None},
        "unified.command.--mamba-ssm-dtype": {"a": None, "b": "bfloat16"},
    }
    assert len(found["cautions"]) == 2
    text = [line.text for line in comparison_lines(found)]
    assert any(line.split() == ["TTFT", "p50", "3.99", "s", "1.90", "s", "-52", "%"] for line in text)
    assert all(len(line) <= 80 and line.isprintable() for line in text)


def test_a_comparison_with_itself_has_nothing_to_say(tmp_path: Path) -> None:
    path = saved(tmp_path / "a.json", rehearsal())
    found = comparison(path, path)
    assert (found["differs"], found["cautions"]) == ({}, [])


def test_a_comparison_of_hostile_names_is_printable(tmp_path: Path) -> None:
    found = comparison(saved(tmp_path / "a.json", hostile_rehearsal()), saved(tmp_path / "b.json", empty_rehearsal()))
    for line in comparison_lines(found):
        assert line.text.isprintable()
        assert len(line.text) <= 80


@pytest.mark.parametrize(
    ("raw", "hint"),
    [
        (b"", "not a saved rehearsal"),
        (b"{", "not a saved rehearsal"),
        (b"[1]", "not a saved rehearsal"),
        (b"\xff\xfe", "not a saved rehearsal"),
        (b"[" * 100_000, "not a saved rehearsal"),
        (b'{"rehearsal": 9}', "version 9"),
        (b'{"rehearsal": 1}', "missing required field"),
        (b'{"rehearsal": "1"}', "$.rehearsal"),
        (b'{"perilune": 1, "model": "x"}', "perilune rehearse --json"),
    ],
)
def test_what_is_no_saved_rehearsal_is_refused(tmp_path: Path, raw: bytes, hint: str) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(raw)
    with pytest.raises(UnusableInput) as caught:
        comparison(path, path)
    assert hint in str(caught.value)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (0.00284, "2.84 ms"), (0.0402, "40.2 ms"), (0.378, "378 ms"), (0.99951, "1.00 s"),
     (11.635, "11.6 s"), (420, "420 s"), (600, "10 min"), (86_400, "24 h 00 min")],
)  # fmt: skip
def test_times_have_three_figures_and_a_unit(seconds: float, text: str) -> None:
    assert short_time(seconds) == text


def test_small_shares_and_changes_are_not_rounded_away() -> None:
    assert [share(part) for part in (0, 0.0004, 0.061, 0.374, 1)] == ["0.0 %", "under 0.1 %", "6.1 %", "37 %", "100 %"]
    assert [change(ratio) for ratio in (0.5, 0.95, 1.0, 1.2)] == ["-50 %", "-5.0 %", "+0.0 %", "+20 %"]


@pytest.mark.parametrize(("length", "count"), [(512, 54), (10, 54), (107, 54), (54, 54)])
def test_resampling_keeps_the_area(length: int, count: int) -> None:
    values = [float(index % 7) for index in range(length)]
    found = resampled(values, count)
    assert len(found) == min(length, count)
    assert sum(found) / len(found) == pytest.approx(sum(values) / len(values))


def test_a_sparkline_is_blank_where_nothing_is() -> None:
    assert sparkline([0, 1, 4, 8], 10, 8) == " ▂▅█"


def test_the_hostile_text_is_there_and_harmless() -> None:
    text = text_of(hostile_rehearsal())
    assert "onerror=alert(1)" in text
    assert "\x1b" not in text
    assert "\x1b" in HOSTILE
