"""Results of three load tools, hostile files, and a profile that a rehearsal takes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from perilune.cli.calibrate import calibrate as command
from perilune.errors import UnusableInput
from perilune.facts.timing import efficiencies
from perilune.plan.compose import Choice, compose
from perilune.plan.planned import Plan, plan
from perilune.rehearse.calibration.calibrate import calibrate
from perilune.rehearse.calibration.fit import median_errors
from perilune.rehearse.calibration.results import Result, read_results
from perilune.rehearse.timing import costs_of
from perilune.rehearse.timing.basis import BOUNDS
from perilune.rehearse.timing.profile import Profile, calibrated, read_profile, write_profile

DATA = Path(__file__).parent / "data" / "results"
BENCH, AIPERF, GUIDELLM = "bench_serving.jsonl", "profile_export_aiperf.json", "guidellm_benchmarks.json"
CHOICE = ("--hardware", "b300", "--mode", "unified", "--strategy", "low-latency", "--spec", "none")


def low_latency(spec: str = "none") -> Plan:
    return plan(compose(Choice(hardware="b300", mode="unified", strategy="low-latency", spec=spec)))


def shown(result: Result) -> tuple[object, ...]:
    return (
        *(result.concurrency, result.rate, result.requests, result.isl, result.osl),
        *(result.ttft_s, result.tpot_s, result.tokens_per_s),
    )


ONE = (1, None, 16, 8192, 1024, 0.378, 0.00851, 1016.0)
SIXTEEN = (16, None, 80, 8192, 1024, 3.539, 0.01947, 6280.0)


@pytest.mark.parametrize(
    ("name", "tool", "runs"),
    [
        (BENCH, "sglang.bench_serving", [ONE, SIXTEEN]),
        (AIPERF, "aiperf", [SIXTEEN]),
        (GUIDELLM, "guidellm", [ONE, SIXTEEN]),
    ],
)
def test_each_tools_file_is_recognised(name: str, tool: str, runs: list[tuple[object, ...]]) -> None:
    found = read_results(DATA / name)
    assert {result.tool for result in found} == {tool}
    assert [shown(result) for result in found] == [pytest.approx(run) for run in runs]


def bench(**changes: Any) -> str:
    """The first line of the bench_serving file with changes; None takes a field out."""
    line = json.loads((DATA / BENCH).read_text().splitlines()[0]) | changes
    return json.dumps({name: value for name, value in line.items() if name not in changes or value is not None})


def edited(name: str, *path: str | int, value: Any) -> str:
    """A tool's file with one value replaced."""
    document = inner = json.loads((DATA / name).read_text())
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return json.dumps(document)


def test_an_open_loop_and_drawn_lengths_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "rate.jsonl"
    path.write_text(bench(request_rate=2.5, max_concurrency=None, random_range_ratio=0.5))
    (found,) = read_results(path)
    assert (found.concurrency, found.rate, found.range_ratio, found.isl) == (None, 2.5, 0.5, 8192)


def test_without_a_limit_all_requests_come_at_once(tmp_path: Path) -> None:
    path = tmp_path / "burst.jsonl"
    path.write_text(bench(max_concurrency=None, random_range_ratio=0.0))
    (found,) = read_results(path)
    assert (found.concurrency, found.rate, found.range_ratio) == (16, None, 0.0)


def test_runs_that_the_plan_would_refuse_tell_nothing(tmp_path: Path) -> None:
    path = tmp_path / "long.jsonl"
    path.write_text(bench(random_input_len=2_000_000))
    with pytest.raises(UnusableInput, match="No request of this run would be served"):
        calibrate(low_latency(), read_results(path))


def test_answers_of_one_token_have_no_time_between_tokens(tmp_path: Path) -> None:
    path = tmp_path / "one.jsonl"
    path.write_text(bench(random_output_len=1, median_tpot_ms=0.0))
    (found,) = read_results(path)
    assert (found.osl, found.tpot_s) == (1, None)


def test_lengths_of_other_datasets_are_means(tmp_path: Path) -> None:
    path = tmp_path / "sharegpt.jsonl"
    path.write_text(bench(dataset_name="sharegpt", total_input_tokens=16 * 300, total_output_tokens=16 * 40))
    (found,) = read_results(path)
    assert (found.isl, found.osl, found.range_ratio) == (300, 40, 1.0)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "holds no run"),
        ("{}", "No known load tool"),
        ("[1]", "no JSON object"),
        ("{", "cannot be read as JSON"),
        (bench() + "\n{", "line 2: It cannot be read as JSON"),
        ("[" * 100_000, "cannot be read|nested too deeply"),
        (bench(median_ttft_ms=float("nan")), "median_ttft_ms is nan"),
        (bench(median_ttft_ms=-1), "median_ttft_ms is -1"),
        (bench(median_tpot_ms="8"), "median_tpot_ms is '8'"),
        (bench(completed=None), "completed is missing"),
        (bench(median_ttft_ms=None), "median_ttft_ms is missing"),
        (bench(median_tpot_ms=None), "median_tpot_ms is missing"),
        (bench(total_throughput=None, input_throughput=None, output_throughput=None), "total_throughput is missing"),
        (edited(AIPERF, "time_to_first_token", value=None), "time_to_first_token is missing"),
        (edited(AIPERF, "inter_token_latency", value=None), "inter_token_latency is missing"),
        (edited(AIPERF, "inter_token_latency", "p50", value=None), "p50 is missing"),
        (edited(GUIDELLM, "benchmarks", 0, "metrics", "inter_token_latency_ms", value=None), "latency_ms.*missing"),
        (edited(GUIDELLM, "benchmarks", 0, "metrics", "tokens_per_second", value=None), "tokens_per_second.*missing"),
        (bench(completed=1.5), "not a whole number"),
        (bench(completed=True), "completed is True"),
        (bench(random_range_ratio=1.5), "above 1"),
        (bench(random_input_len=10**9), "cannot be used"),
        (edited(AIPERF, "input_config", "phases", 1, value={"kind": "profiling", "type": "poisson"}), "neither a conc"),
        (bench(max_concurrency=10**9), "cannot be used"),
        (bench(request_rate=2.0), "a rate and a limit"),
        (bench(request_rate="trace"), "replayed a trace"),
        (edited(AIPERF, "is_complete", value=False), "did not complete"),
        (edited(AIPERF, "time_to_first_token", "unit", value="parsecs"), "no unit of time"),
        (edited(AIPERF, "input_config", "phases", value=[]), "0 profiling phases"),
        (edited(AIPERF, "input_config", "phases", 1, "type", value="fixed_schedule"), "cannot be repeated"),
        (edited(AIPERF, "request_count", value=3), "request_count is missing"),
        (edited(GUIDELLM, "benchmarks", value=[]), "no list of runs"),
        (edited(GUIDELLM, "benchmarks", value=[7]), "Run 1 of benchmarks"),
        (edited(GUIDELLM, "benchmarks", 1, "config", "strategy", "type_", value="trace_replay"), "cannot be repeated"),
        (edited(GUIDELLM, "benchmarks", 1, "metrics", "request_totals", "successful", value=0), "successful is 0"),
    ],
)
def test_what_cannot_be_used_is_named(text: str, says: str, tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    path.write_text(text)
    with pytest.raises(UnusableInput, match=says) as error:
        read_results(path)
    assert "results.json" in str(error.value)


def test_bytes_that_are_no_text_are_named(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    path.write_bytes(b'{"a": "\xff"}')
    with pytest.raises(UnusableInput, match="not UTF-8"):
        read_results(path)


def test_calibration_finds_a_slower_machine() -> None:
    """Runs of a machine whose memory is slower: TPOT a quarter longer, TTFT as published."""
    runs = [
        Result(r.source, r.tool, r.concurrency, r.rate, r.requests, r.isl, r.osl, 1.0, r.ttft_s, r.tpot_s * 1.25, None)
        for r in read_results(DATA / BENCH)
        if r.tpot_s is not None
    ]
    found = calibrate(low_latency(), runs)
    before, after = median_errors(found.before)[1], median_errors(found.after)[1]
    assert before is not None
    assert after is not None
    assert after < 0.5 * before
    shipped, fitted = efficiencies().fits["b300"].efficiency, found.profile.efficiency
    assert fitted.memory < shipped.memory
    assert fitted.layer_us > shipped.layer_us
    assert fitted.quantize_us == pytest.approx(shipped.quantize_us, rel=0.01)  # nothing here tells it
    for name, (low, high) in BOUNDS.items():
        assert low <= getattr(fitted, name) <= high


def test_speculation_needs_an_acceptance_length() -> None:
    with pytest.raises(UnusableInput, match="how many tokens a step yielded"):
        calibrate(low_latency("dspark"), read_results(DATA / AIPERF))


def test_a_profile_is_written_and_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert calibrated("b300") is None
    done = CliRunner().invoke(command, [str(DATA / AIPERF), *CHOICE], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    place = tmp_path / "perilune" / "timing-b300.yaml"
    assert str(place) in done.output.replace("\n", "")
    found = calibrated("b300")
    assert found is not None
    costs = costs_of(low_latency().pools[0].ledger, found)
    assert costs.basis == "calibrated"
    assert str(place) in costs.said
    assert costs.error_band == (read_profile(place).below, read_profile(place).above)


def test_the_json_names_profile_errors_and_runs(tmp_path: Path) -> None:
    target = tmp_path / "mine.yaml"
    files = [str(DATA / BENCH), str(DATA / GUIDELLM)]
    done = CliRunner().invoke(command, [*files, *CHOICE, "-o", str(target), "--json"], catch_exceptions=False)
    document = json.loads(done.output)
    assert document["profile"] == str(target)
    assert len(document["runs"]) == 4
    assert document["runs"][0]["measured"]["tpot_s"] == pytest.approx(0.00851)
    assert document["median_error_after"]["tpot_s"] < 0.1
    assert read_profile(target).results == 4


@pytest.mark.parametrize("factor", [1e-9, 0.25, 60.0])
def test_runs_of_something_else_leave_no_profile(factor: float, tmp_path: Path) -> None:
    """No efficiency makes a server four times as fast or 50 times as slow: a band that wide would say nothing."""
    runs = [
        replace(r, ttft_s=None, tpot_s=(r.tpot_s or 0.0) * factor, tokens_per_s=None)
        for r in read_results(DATA / BENCH)
    ]
    with pytest.raises(UnusableInput, match="times off what this run measured"):
        calibrate(low_latency(), runs)


@pytest.mark.parametrize(("longer", "off"), [(1.0, 1.25), (1.8, 1.3)])
def test_a_band_holds_the_runs_it_was_fitted_to(longer: float, off: float) -> None:
    runs = [replace(r, tpot_s=(r.tpot_s or 0.0) * longer) for r in read_results(DATA / BENCH)]
    found = calibrate(low_latency(), runs)
    for one in found.after:
        for error in one.errors:
            assert error is None or found.profile.below <= 1 / (1 + error) <= found.profile.above
    assert found.profile.above >= off


def other_runs(tmp_path: Path, *changes: dict[str, Any]) -> str:
    """The two runs of bench_serving, each with its changes, as a file."""
    lines = [json.loads(line) for line in (DATA / BENCH).read_text().splitlines()]
    path = tmp_path / "other.jsonl"
    path.write_text("\n".join(json.dumps(line | each) for line, each in zip(lines, changes, strict=True)))
    return str(path)


def test_a_fit_that_explains_little_says_so_first_and_installs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    slower = ({"median_tpot_ms": 8.51 * 1.8}, {"median_tpot_ms": 19.47 * 1.8})  # at the same throughput
    runs, target = other_runs(tmp_path, *slower), tmp_path / "mine.yaml"
    done = CliRunner().invoke(command, [runs, *CHOICE], standalone_mode=False)
    assert done.return_value == 1
    assert done.output.startswith("After the fit a run is still more than 30% off.")
    assert "No profile was written." in done.output
    assert calibrated("b300") is None
    done = CliRunner().invoke(command, [runs, *CHOICE, "-o", str(target)], standalone_mode=False)
    assert done.return_value == 1
    assert read_profile(target).above > 1.3


def test_runs_of_another_platform_are_doubted_although_they_can_be_fitted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs of B300 said to be of MI350X, which was measured to take about twice as long."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    flags = ("--hardware", "mi350x", "--mode", "unified", "--strategy", "balanced", "--spec", "none")
    done = CliRunner().invoke(command, [str(DATA / BENCH), *flags], standalone_mode=False)
    assert done.return_value == 1
    assert "times off what published runs of MI350X let expect." in done.output.split("\n\n")[0].replace("\n", " ")
    assert calibrated("mi350x") is None


def test_the_measured_acceptance_is_not_lost(tmp_path: Path) -> None:
    choice = [*CHOICE[:-1], "dspark"]
    faster = (
        {"median_tpot_ms": 2.9, "total_throughput": 2_800.0, "accept_length": 4.3},
        {"median_tpot_ms": 10.5, "total_throughput": 10_300.0, "accept_length": 4.3},
    )
    runs = other_runs(tmp_path, *faster)
    done = CliRunner().invoke(command, [runs, *choice, "-o", str(tmp_path / "mine.yaml")], standalone_mode=False)
    told = " ".join(done.output.split())
    assert "The runs yielded 4.3 tokens a speculative step." in told
    assert "rehearse with --acceptance-length 4.3." in told
    done = CliRunner().invoke(command, [runs, *choice, "-o", str(tmp_path / "mine.yaml"), "--json"])
    assert [run["acceptance_length"] for run in json.loads(done.output)["runs"]] == [4.3, 4.3]


def test_results_are_not_written_over(tmp_path: Path) -> None:
    results = tmp_path / BENCH
    results.write_bytes((DATA / BENCH).read_bytes())
    done = CliRunner().invoke(command, [str(results), *CHOICE, "-o", str(results)])
    assert isinstance(done.exception, UnusableInput)
    assert results.read_bytes() == (DATA / BENCH).read_bytes()


def written(path: Path) -> Path:
    """A profile on disk."""
    shipped = efficiencies().fits["b300"].efficiency
    write_profile(
        Profile(perilune_profile=1, platform="b300", efficiency=shipped, below=0.9, above=1.1, results=1), path
    )
    return path


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (("platform: b300", "platform: b3000"), "not known"),
        (("memory: 0.8", "memory: 7.8"), "outside"),
        (("memory: 0.8", "memory: fast"), "no profile"),
        (("perilune_profile: 1", "perilune_profile: 9"), "version 9"),
        (("below: 0", "below: 1"), "no factors around 1"),
        (("results: 1", "results: 1\nextra: 2"), "no profile"),
    ],
)
def test_a_profile_that_cannot_be_used_is_refused(change: tuple[str, str], says: str, tmp_path: Path) -> None:
    path = written(tmp_path / "mine.yaml")
    text = path.read_text()
    assert change[0] in text
    path.write_text(text.replace(*change))
    with pytest.raises(UnusableInput, match=says):
        read_profile(path)


def test_a_profile_of_another_platform_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "mine.yaml")
    with pytest.raises(UnusableInput, match="not of h200"):
        calibrated("h200", path)
