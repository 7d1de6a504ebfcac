"""Sweeps: grids, resume, processes, Ctrl-C, the frontier, and what is shown of it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from perilune.cli.main import cli
from perilune.errors import PeriluneError, UnusableInput
from perilune.rehearse.offered import OfferedLoad
from perilune.rehearse.sweep import Point, Servers, points, run
from perilune.rehearse.sweep.export import _picture, frontier_png, sweep_document, sweep_html
from perilune.rehearse.sweep.frontier import series, swept
from perilune.rehearse.sweep.store import Store, keys_of
from perilune.rehearse.sweep.text import sweep_lines

FLAGS = ("--hardware", "b300", "--isl", "2048", "--osl", "128", "--requests", "8")
TRACES = Path(__file__).parent / "data" / "traces"
GRID = (*FLAGS, "--strategy", "low-latency,balanced", "--concurrency", "1,4")


def sweep(*flags: str) -> Result:
    """`perilune sweep` in this process."""
    return CliRunner().invoke(cli, ["sweep", *flags])


def stdout(*flags: str) -> str:
    found = sweep("--jobs", "1", *flags)
    assert found.exception is None, found.output
    return found.stdout


def process(*flags: str, **options: Any) -> subprocess.Popen[bytes]:
    """`perilune sweep` in a process of its own."""
    command = [sys.executable, "-m", "perilune", "sweep", *flags]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)


def point(concurrency: int, strategy: str = "balanced") -> Point:
    load = OfferedLoad(concurrency=concurrency, isl=2048, osl=128, requests=8)
    return Point(load=load, choice={"hardware": "b300", "strategy": strategy})


def made(*figures: tuple[float, float] | None) -> Any:
    """Finished points with these TPOTs and throughputs."""
    results = [
        {"refused": "no"}
        if each is None
        else {"tpot_s": {"p50": each[0]}, "tokens_per_second_per_gpu": each[1], "gpus": 8}
        for each in figures
    ]
    return swept([point(n + 1) for n in range(len(results))], results)


def test_every_combination_is_a_point() -> None:
    document = json.loads(stdout(*GRID, "--replicas", "1,2", "--json"))
    told = [
        (each["point"]["choice"]["strategy"], each["gpus"], each["requests"]["completed"])
        for each in document["points"]
    ]
    assert told == [(name, gpus, 8) for name in ("low-latency", "balanced") for gpus in (8, 8, 16, 16)]
    assert any(each["frontier"] for each in document["points"])


def test_a_point_is_the_rehearsal_of_the_same_flags() -> None:
    flags = (*FLAGS, "--strategy", "balanced", "--concurrency", "4")
    alone = json.loads(CliRunner().invoke(cli, ["rehearse", *flags, "--json"]).stdout)
    (found,) = json.loads(stdout(*flags, "--json"))["points"]
    for name in ("ttft_s", "tpot_s", "tokens_per_second_per_gpu", "admitted_max", "duration_s", "requests"):
        assert found[name] == alone[name]
    assert found["tokens_per_second_per_user"] == pytest.approx(1 / alone["tpot_s"]["p50"])


def test_prefill_to_decode_is_an_axis() -> None:
    flags = (*FLAGS, "--mode", "pd", "--pd", "1:1,1:2", "--concurrency", "4")
    assert [each["gpus"] for each in json.loads(stdout(*flags, "--json"))["points"]] == [16, 24]


def test_help_and_errors_name_every_lever_as_it_is_called_and_as_it_is_written() -> None:
    told = "".join(sweep("--help").stdout.split())
    refusal = sweep(*GRID, "--lever", "more").exception
    assert isinstance(refusal, UnusableInput)
    for name, written in (
        ("lazy", "--mamba-radix-cache-strategy extra_buffer_lazy"),
        ("state-bf16", "--mamba-ssm-dtype bfloat16"),
        ("kv-fp8", "--kv-cache-dtype fp8_e4m3"),
        ("fraction-0.92", "--mem-fraction-static 0.92"),
        ("skip-lock", "SGLANG_OPT_MAMBA_SKIP_DECODE_LOCK=1"),
    ):
        assert f"{name}({written.replace(' ', '')})" in told
        assert f"{name} ({written})" in str(refusal.fix)


def test_a_point_that_admits_fewer_than_asked_is_marked() -> None:
    """B300 low-latency with speculation admits 41 of these (KDA states), so 23 of 64 wait."""
    flags = ("--hardware", "b300", "--strategy", "low-latency", "--isl", "8192", "--osl", "1024", "--requests", "64")
    lines = stdout(*flags, "--concurrency", "1,64").splitlines()
    one, many = (next(line for line in lines if f"N={number} " in line) for number in (1, 64))
    assert one.split()[-2:] == ["1", "1"]
    assert many.split()[-2:] == ["41<", "41~"]
    assert "<  The ledger admits fewer than N: the others wait, which is in their TTFT." in lines


def test_what_the_band_of_memory_may_change_is_said() -> None:
    """MI350X Balanced with speculation: its plan admits 26 within 14 to 31."""
    flags = ("--hardware", "mi350x", "--strategy", "balanced", "--isl", "8192", "--osl", "64", "--requests", "64")
    planned = CliRunner().invoke(cli, ["plan", *flags[:-2], "--concurrency", "64"]).stdout
    text = stdout(*flags, "--concurrency", "1,64")
    cap, low, high = re.findall(r"(\d+) may be (\d+) to (\d+)", text)[0]
    assert " ".join(planned.split()).count(f"{low} to {high}") >= 1
    one, many = (next(line for line in text.splitlines() if f"N={number} " in line) for number in (1, 64))
    assert "~" not in one
    assert many.split()[-2:] == [f"{cap}<", f"{cap}~"]


def test_a_sweep_and_a_search_count_dies_where_a_rank_has_one() -> None:
    flags = ("--hardware", "a3", "--isl", "2048", "--osl", "16")
    assert "a  as planned: 64 dies" in stdout(*flags, "--corrected", "--requests", "4", "--concurrency", "1")
    search = ("plan", "--search", "--jobs", "1", *flags, "--concurrency", "4", "--tpot-ms", "400", "--gpus", "256")
    text = " ".join(CliRunner().invoke(cli, search).stdout.split())
    assert "on 64 dies" in text
    assert "tokens/s per die" in text


def test_no_label_of_the_page_leaves_its_picture() -> None:
    text = _picture(made((0.01, 123_456.0), (0.02, 200_000.0)))
    width = int(re.findall(r'viewBox="0 0 (\d+) ', text)[0])
    labels = re.findall(r'<text x="([\d.]+)" y="([\d.]+)" text-anchor="(\w+)">([\d,]+)<', text)
    assert len(labels) == 10
    for x, y, anchor, label in labels:
        wide = 7 * len(label)  # digits of 12 pixels
        left = float(x) - wide * {"end": 1.0, "middle": 0.5}[anchor]
        assert left >= 0
        assert left + wide <= width
        assert float(y) >= 11


def test_levers_are_an_axis() -> None:
    flags = (*FLAGS, "--lever", "none,lazy,state-bf16", "--concurrency", "100000")
    caps = [each["admitted_cap"] for each in json.loads(stdout(*flags, "--json"))["points"]]
    assert caps[0] < caps[1]
    assert caps[0] < caps[2]


def test_rates_follow_concurrencies() -> None:
    found = json.loads(stdout(*FLAGS, "--concurrency", "2", "--rate", "0.5,1.5", "--json"))["points"]
    assert [(each["point"]["load"].get("concurrency"), each["point"]["load"].get("rate")) for each in found] == [
        (2, None),
        (None, 0.5),
        (None, 1.5),
    ]


def test_a_trace_is_a_load() -> None:
    trace = str(TRACES / "mooncake_conversation.jsonl")
    (found,) = json.loads(stdout("--hardware", "b300", "--trace", trace, "--requests", "5", "--json"))["points"]
    assert found["requests"]["completed"] == 5
    flags = ("--hardware", "b300", "--trace", trace, "--requests", "5", "--isl", "8192", "--osl", "1024", "--json")
    (made_for,) = json.loads(stdout(*flags))["points"]
    alone = json.loads(CliRunner().invoke(cli, ["rehearse", *flags]).stdout)
    assert (made_for["ttft_s"], made_for["admitted_cap"]) == (alone["ttft_s"], alone["admitted_cap"])


@pytest.mark.parametrize(
    "flags",
    [
        ("--concurrency", "2", "--turns", "3", "--isl", "500", "--osl", "50", "--system-tokens", "1000"),
        ("--rate", "3", "--arrival-cv", "4", "--isl", "500", "--osl", "50"),
        ("--concurrency", "2", "--images", "2", "--isl", "500", "--osl", "50"),
        ("--trace", str(TRACES / "mooncake_conversation.jsonl"), "--no-spread", "--trace-speed", "2"),
        ("--trace", str(TRACES / "weka_trace_0026.json"), "--share-prefix", "--concurrency", "1"),
    ],
)
def test_traffic_is_described_as_for_rehearse(flags: Sequence[str]) -> None:
    flags = ("--hardware", "b300", "--requests", "12", *flags, "--json")
    (found,) = json.loads(stdout(*flags))["points"]
    alone = json.loads(CliRunner().invoke(cli, ["rehearse", *flags]).stdout)
    for name in ("ttft_s", "e2e_s", "admitted_cap", "duration_s", "requests", "cache"):
        assert found[name] == alone[name]


def test_a_plan_file_brings_its_workload(tmp_path: Path) -> None:
    plan = tmp_path / "plan.yaml"
    flags = ["--hardware", "b300", "--isl", "2048", "--osl", "128", "--concurrency", "3", "-o", str(plan)]
    CliRunner().invoke(cli, ["plan", *flags])
    (found,) = json.loads(stdout(str(plan), "--requests", "6", "--json"))["points"]
    assert found["point"]["load"] == {
        "concurrency": 3, "isl": 2048, "osl": 128, "requests": 6, "range_ratio": 1.0, "images": 0,
        "image_size": [1024, 1024], "seed": 0,
    }  # fmt: skip


def test_what_the_catalog_forbids_is_a_refused_point() -> None:
    found = json.loads(stdout(*FLAGS, "--quant", "mxfp4,w4a8", "--concurrency", "2", "--json"))["points"]
    assert "refused" not in found[0]
    assert "w4a8" in found[1]["refused"]


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        ((), "Say which hardware to sweep."),
        (FLAGS[:2], "No traffic was described."),
        ((*GRID[:-1], "1,x"), "'x' is not a valid integer range."),
        ((*GRID[:-1], "1,,2"), "'1,,2' is no list of 1 to 1000 values with commas between."),
        ((*GRID, "--rate", "nan"), "'nan' must be a finite number above 0 up to 1,000,000."),
        ((*GRID, "--pd", "3"), "'3' is not P:D, such as 1:3."),
        ((*GRID, "--pd", "1:2", "--replicas", "2"), "A plan has one pool or two."),
        ((*GRID, "--pd", "1:2"), "The plan has one pool."),
        ((*GRID, "--lever", "more"), "Unknown lever 'more'."),
        ((*GRID, "--router", "best"), "'best' is no policy."),
        ((*GRID, "--hardware", "abacus"), "abacus"),
        ((*GRID, "--html", "/absent/there.html"), "Its folder does not exist."),
        ((*GRID, "--html", "/dev/null"), "This is no regular file, so it is not replaced."),
        ((*GRID, "--html", "/tmp/same", "--resume", "/tmp/same"), "It is read, or written twice."),
        ((*GRID, "--sort-trace"), "There is no trace."),
        ((*FLAGS, "--concurrency", "1", "--spec", "none", "--acceptance-length", "2"), "No point speculates."),
        ((*GRID, "--arrival-cv", "2"), "Give --rate"),
        ((*FLAGS, "--concurrency", ",".join(str(n) for n in range(1, 900)), "--replicas",
          ",".join(str(n) for n in range(1, 900))), "The grid has 808,201 points; 100,000 are the most."),
    ],
)  # fmt: skip
def test_what_cannot_be_swept(flags: Sequence[str], told: str) -> None:
    found = sweep("--jobs", "1", *flags)
    assert found.exception is not None
    error = found.exception
    assert told in (str(error) if isinstance(error, PeriluneError) else found.output)


def test_the_number_of_processes_changes_no_byte(tmp_path: Path) -> None:
    outputs = []
    for jobs in ("1", "3"):
        folder = tmp_path / jobs
        folder.mkdir()
        files = ("--html", str(folder / "a.html"), "--plots", str(folder), "--resume", str(folder / "a.jsonl"))
        made = process(*GRID, "--json", "--jobs", jobs, *files)
        out, err = made.communicate(timeout=120)
        assert made.returncode == 0, err
        outputs.append((out, *(path.read_bytes() for path in sorted(folder.iterdir()))))
    assert outputs[0] == outputs[1]
    assert len(outputs[0]) == 4


def test_finished_points_are_not_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = tmp_path / "points.jsonl"
    first, missing = run([point(1), point(2)], store=store)
    assert missing == 0
    ran = []

    def counted(one: Point) -> dict[str, Any]:
        ran.append(one)
        return {"refused": "new"}

    monkeypatch.setattr("perilune.rehearse.sweep.rehearsed", counted)
    again, _ = run([point(1), point(2), point(3)], store=store)
    assert ran == [point(3)]
    assert [one.result for one in again[:2]] == [one.result for one in first]
    assert len(store.read_text().splitlines()) == 3


@pytest.mark.parametrize(
    "other",
    [
        point(2),
        point(1, "low-latency"),
        Point(load=point(1).load, choice=point(1).choice, servers=Servers(unified=2)),
        Point(load=point(1).load, choice=point(1).choice, lever="lazy"),
        Point(load=OfferedLoad(concurrency=1, isl=2048, osl=128, requests=8, seed=1), choice=point(1).choice),
    ],
)
def test_a_point_is_known_by_all_that_goes_in(other: Point) -> None:
    assert len(set(keys_of([point(1), other, point(1)]))) == 2


def test_a_changed_trace_is_another_point(tmp_path: Path) -> None:
    keys = []
    for name, osl in (("a", 5), ("b", 6)):
        trace = tmp_path / name / "trace.csv"
        trace.parent.mkdir()
        trace.write_text(f"isl,osl,arrival_s\n100,{osl},0\n")
        load = OfferedLoad(trace=trace)
        keys += keys_of([Point(load=load, choice={"hardware": "b300"})])
    assert keys[0] != keys[1]


def test_a_point_that_was_being_written_is_run_again(tmp_path: Path) -> None:
    store = tmp_path / "points.jsonl"
    run([point(1), point(2)], store=store)
    whole = store.read_bytes()
    store.write_bytes(whole[:-20])
    run([point(1), point(2)], store=store)
    assert store.read_bytes() == whole


@pytest.mark.parametrize("text", ["no points\n", '{"key":1}\n', '{"key":"a","point":{},"resul\n', "half a line"])
def test_a_file_of_something_else_is_left_alone(tmp_path: Path, text: str) -> None:
    store = tmp_path / "points.jsonl"
    store.write_text(text)
    with pytest.raises(UnusableInput, match="Choose another file"):
        run([point(1)], store=store)
    assert store.read_text() == text


def test_two_sweeps_do_not_share_a_file(tmp_path: Path) -> None:
    store = tmp_path / "points.jsonl"
    held = Store(store)
    try:
        with pytest.raises(UnusableInput, match="Another sweep is writing"):
            run([point(1)], store=store)
    finally:
        held.close()
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UnusableInput):
        run([point(1)], store=tmp_path / "pipe")


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_an_interrupt_keeps_what_is_finished(tmp_path: Path, jobs: str) -> None:
    store = tmp_path / "points.jsonl"
    loads = ",".join(str(n) for n in range(100, 160))
    grid = ("--hardware", "b300", "--isl", "8192", "--osl", "1024", "--requests", "2000", "--concurrency", loads)
    # Whoever runs the tests in the background has Ctrl-C ignored, which a child would inherit.
    before = signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        running = process(*grid, "--jobs", jobs, "--resume", str(store), start_new_session=True)
    finally:
        signal.signal(signal.SIGINT, before)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not (store.exists() and store.stat().st_size):
        time.sleep(0.05)
    os.killpg(running.pid, signal.SIGINT)
    out, err = running.communicate(timeout=30)
    assert running.returncode == 130
    assert b"Traceback" not in err
    assert b"Interrupted: " in out
    lines = store.read_text().splitlines()
    assert 0 < len(lines) < 60
    assert all("result" in json.loads(line) for line in lines)


def test_the_frontier_is_what_no_other_point_beats() -> None:
    found = made((0.01, 100), (0.02, 300), (0.02, 300), (0.015, 90), (0.04, 200), None, (0.05, 400))
    assert [one.best for one in found] == [True, True, True, False, False, False, True]
    assert [round(one.interactivity or 0) for one in found] == [100, 50, 50, 67, 25, 0, 20]


def test_series_are_named_by_what_tells_them_apart() -> None:
    grid = points(
        point(1),
        {"hardware": ["b300"], "strategy": ["balanced", "low-latency"]},
        [Servers(prefill=1, decode=2), Servers(prefill=2, decode=2)],
        ["none"],
        [point(1).load, point(2).load],
    )
    found = swept(grid, [{"refused": "x"}] * len(grid))
    assert [(each.letter, each.name, len(each.points)) for each in series(found)] == [
        ("a", "balanced, 1 prefill + 2 decode", 2),
        ("b", "balanced, 2 prefill + 2 decode", 2),
        ("c", "low-latency, 1 prefill + 2 decode", 2),
        ("d", "low-latency, 2 prefill + 2 decode", 2),
    ]


def test_what_is_shown_fits_80_columns_and_names_no_script() -> None:
    text = stdout(*GRID, "--quant", "mxfp4,w4a8")
    assert max(len(line) for line in text.splitlines()) <= 80
    assert "refused: " in text
    assert "Predicted, not measured" in text
    found, missing = run([point(1), point(4), Point(load=point(1).load, choice={"hardware": "b300", "quant": "w4a8"})])
    page = sweep_html(found, missing).decode()
    assert page.count("<circle") == 2
    assert "<script" not in page
    assert "http" not in page.replace("http-equiv", "")
    assert frontier_png(found).startswith(b"\x89PNG")
    assert sweep_document(found, 3)["interrupted"] is True


def test_nothing_served_is_said() -> None:
    found = made(None)
    assert "No point was served." in [line.text for line in sweep_lines(found, 0)]
    assert "No point was served." in sweep_html(found, 0).decode()
    assert frontier_png(found).startswith(b"\x89PNG")
