"""`perilune rehearse`: the contract of its JSON, its files, its exit codes, and one sentence for unusable input."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from perilune.rehearse.offered import OfferedLoad
from perilune.rehearse.request import Request, Traffic

B300 = "--hardware b300 --mode unified --strategy balanced"
PLAIN = f"{B300} --spec none"
SHORT = "--isl 1024 --osl 64"
TRACES = Path(__file__).parent / "data" / "traces"
POOLED = "--set --mm-feature-transport=cuda_ipc"
MOONCAKE = TRACES / "mooncake_conversation.jsonl"
AZURE = TRACES / "azure_2023_conv.csv"


@pytest.fixture
def perilune(perilune):
    """The command line, with what it says on stderr as one line."""

    def run(command: str):
        done = perilune(command)
        return replace(done, err=" ".join(done.err.split()))

    return run


@pytest.fixture
def plan_file(perilune, tmp_path: Path) -> Path:
    path = tmp_path / "plan.yaml"
    assert perilune(f"plan {PLAIN} --isl 1024 --osl 64 --concurrency 16 -o {path}").code == 0
    return path


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """Thirty requests, two a second, in threes that share their first 512 tokens."""
    path = tmp_path / "trace.jsonl"
    rows = [
        {"timestamp": 500 * number, "input_length": 1024, "output_length": 32, "hash_ids": [number // 3, 100 + number]}
        for number in range(30)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_json_holds_the_contract(perilune) -> None:
    run = perilune(f"rehearse {PLAIN} --concurrency 8 --requests 32 {SHORT} --seed 3 --json")
    found = run.document
    assert run.code == 0
    for name in ("ttft_s", "tpot_s", "itl_s", "e2e_s"):
        assert 0 < found[name]["p50"] <= found[name]["p90"] <= found[name]["p99"] <= found[name]["max"]
        assert found[name]["mean"] > 0
    assert found["requests"] == {"completed": 32, "rejected": 0, "retracted": 0, "unfinished": 0}
    assert found["admitted_max"] == 8
    assert found["cache"] == {"hit_tokens": 0, "prompt_tokens": 32 * 1024}
    assert found["basis"] == "fitted"
    assert found["error_band"][0] < 1 < found["error_band"][1]
    assert found["seed"] == 3
    assert found["output_tokens_per_second"] == pytest.approx(32 * 64 / found["duration_s"])
    assert found["tokens_per_second_per_gpu"] == pytest.approx(32 * 1088 / found["duration_s"] / 8)


def test_the_prompts_of_a_closed_loop_are_those_of_the_published_runs(perilune) -> None:
    for concurrency, prompts in ((1, 16), (16, 80)):
        found = perilune(f"rehearse {PLAIN} --concurrency {concurrency} {SHORT} --json").document
        assert found["requests"]["completed"] == prompts


def test_the_same_seed_gives_the_same_bytes(perilune) -> None:
    command = f"rehearse {B300} --rate 4 --requests 60 {SHORT} --random-range-ratio 0.5 --json"
    assert perilune(command).out == perilune(command).out
    assert perilune(command).out != perilune(f"{command} --seed 1").out


def test_admission_stops_at_the_ledgers_cap(perilune, tmp_path: Path) -> None:
    """Twice as many requests are sent as the ledger admits; the published cap of this recipe is 101, within 5 %."""
    path = tmp_path / "plan.yaml"
    cap = perilune(f"plan {PLAIN} -o {path} --json").document["pools"][0]["memory"]["max_running_requests"]
    found = perilune(f"rehearse {path} --concurrency {2 * cap} --requests {4 * cap} {SHORT} --json").document
    assert cap == pytest.approx(101, rel=0.05)
    assert found["admitted_max"] == found["admitted_cap"] == cap
    assert found["waits_s"]["state_slots"] > 0


def test_a_plan_file_brings_its_own_workload(perilune, plan_file: Path) -> None:
    found = perilune(f"rehearse {plan_file} --json").document
    assert found["traffic"]["concurrency"] == 16
    assert (found["traffic"]["isl"], found["traffic"]["osl"]) == (1024, 64)
    assert found["requests"]["completed"] == 80
    other = perilune(f"rehearse {plan_file} --rate 5 --isl 2048 --requests 10 --json").document
    assert other["traffic"]["kind"] == "open loop"
    assert other["cache"]["prompt_tokens"] == 10 * 2048
    assert other["plan"]["id"] == found["plan"]["id"]


def test_choice_flags_and_the_plan_they_make_are_rehearsed_alike(perilune, plan_file: Path) -> None:
    choice = perilune(f"rehearse {PLAIN} --isl 1024 --osl 64 --concurrency 16 --json")
    assert choice.out == perilune(f"rehearse {plan_file} --json").out


def test_a_trace_is_served_with_its_prefixes(perilune, plan_file: Path, trace: Path) -> None:
    """The first of three leaves no state where they part, the second finds that out, the third may hit."""
    found = perilune(f"rehearse {plan_file} --trace {trace} --json").document
    assert found["requests"]["completed"] == 30
    assert found["cache"]["prompt_tokens"] == 30 * 1024
    assert 0 < found["cache"]["hit_tokens"] <= 10 * 512
    assert found["duration_s"] > 14.5
    fewer = perilune(f"rehearse {plan_file} --trace {trace} --requests 4 --json").document
    assert fewer["requests"]["completed"] == 4


def test_a_folder_of_sessions_is_a_trace(perilune, plan_file: Path, tmp_path: Path) -> None:
    """Two recorded sessions of the WEKA repository have no common clock, so they are served in a closed loop."""
    folder = tmp_path / "sessions"
    folder.mkdir()
    for name in ("weka_trace_0026.json", "weka_trace_0291.json.gz"):
        (folder / name).write_bytes((TRACES / name).read_bytes())
    command = f"rehearse {plan_file} --trace {folder} --concurrency 2 --requests 30 --json"
    own, shared = perilune(command).document, perilune(f"{command} --share-prefix").document
    assert own["requests"]["completed"] == shared["requests"]["completed"] == 30
    assert own["traffic"]["replay"] is None
    assert shared["traffic"]["replay"]["share_prefix"] is True
    assert "no common clock" in perilune(f"rehearse {plan_file} --trace {folder}").err


def test_a_trace_out_of_order_names_the_flag_that_sorts_it(perilune, plan_file: Path, trace: Path) -> None:
    lines = trace.read_text().splitlines()
    trace.write_text("\n".join([*lines[15:], *lines[:15]]) + "\n")
    refused = perilune(f"rehearse {plan_file} --trace {trace}")
    assert refused.code == 2
    assert "trace.jsonl:16: timestamp" in refused.err
    assert "--sort-trace" in refused.err
    found = perilune(f"rehearse {plan_file} --trace {trace} --sort-trace --json").document
    assert found["requests"]["completed"] == 30
    assert found["duration_s"] > 14.5


@pytest.mark.parametrize(("speed", "least", "most"), [(2, 7.2, 9), (0.5, 29, 31)])
def test_a_trace_runs_faster_or_slower(
    perilune, plan_file: Path, trace: Path, speed: float, least: float, most: float
) -> None:
    """Its last request comes after 14.5 s."""
    found = perilune(f"rehearse {plan_file} --trace {trace} --trace-speed {speed} --json").document
    assert least < found["duration_s"] < most


def test_the_steps_of_a_mooncake_clock_may_stay(perilune, plan_file: Path) -> None:
    """In the published sample, requests come every three seconds, several at once."""
    command = f"rehearse {plan_file} --trace {MOONCAKE} --requests 20 --records"
    arrivals = []
    for name, extra in (("spread", ""), ("steps", "--no-spread")):
        path = plan_file.parent / name
        assert perilune(f"{command} {path} {extra}").code == 0
        arrivals.append([json.loads(line)["arrival_s"] for line in path.read_text().splitlines()])
    assert len(set(arrivals[0])) == 20
    assert {arrival % 3 for arrival in arrivals[1]} == {0}


def test_bursts_wait_longer_than_the_same_rate_without(perilune, plan_file: Path) -> None:
    command = f"rehearse {plan_file} --rate 6 --requests 200 --json"
    even, poisson, bursty = (perilune(f"{command} --arrival-cv {cv}").document for cv in (0, 1, 5))
    assert poisson["ttft_s"] == perilune(command).document["ttft_s"]
    assert even["ttft_s"]["p90"] < poisson["ttft_s"]["p90"] < bursty["ttft_s"]["p90"]


def test_sessions_find_their_context_and_the_system_prompt(perilune, plan_file: Path) -> None:
    """Four turns of 512 + 64 tokens after 2,048: prompts of 2,560, 3,136, 3,712 and 4,288 tokens."""
    command = f"rehearse {plan_file} --concurrency 4 --turns 4 --isl 512 --osl 64 --requests 40 --json"
    alone = perilune(command).document
    found = perilune(f"{command} --system-tokens 2048 --think-time 20").document
    assert alone["requests"]["completed"] == found["requests"]["completed"] == 40
    assert found["cache"]["prompt_tokens"] == 10 * (2560 + 3136 + 3712 + 4288)
    assert found["cache"]["hit_tokens"] > alone["cache"]["hit_tokens"] > 0
    assert found["duration_s"] > alone["duration_s"]
    assert found["traffic"]["sessions"] == {"turns": 4, "system_tokens": 2048, "system_prompts": 1, "think_s": 20.0}
    many = perilune(f"{command} --system-tokens 2048 --system-prompts 10").document
    assert many["cache"]["hit_tokens"] < found["cache"]["hit_tokens"]
    assert perilune(f"{command} --requests 37").document["requests"]["completed"] == 40, "sessions are whole"


@pytest.mark.parametrize(
    ("load", "planned_for"),
    [
        (f"{SHORT} --concurrency 16", f"{SHORT} --concurrency 16"),
        (f"{SHORT} --rate 2", SHORT),
        ("--isl 500 --osl 100 --rate 2 --turns 3 --system-tokens 1000", "--isl 2100 --osl 100"),
        (f"{SHORT} --concurrency 2 --images 1 --image-size 1920x1080", "--isl 3715 --osl 64 --concurrency 2"),
    ],
)
def test_a_choice_is_planned_for_its_load(perilune, tmp_path: Path, load: str, planned_for: str) -> None:
    """Of sessions it is the mean prompt: 1,000 + 500, 1,600 + 500, 2,200 + 500. 1920 x 1080 is 2,691 tokens."""
    path = tmp_path / "plan.yaml"
    perilune(f"plan {B300} --spec dspark {planned_for} -o {path}")
    chosen = perilune(f"rehearse {B300} --spec dspark {load} --requests 6 --json").document
    from_file = perilune(f"rehearse {path} {load} --requests 6 --json").document
    assert chosen["plan"] == from_file["plan"]
    assert chosen["ttft_s"] == from_file["ttft_s"]


def test_more_servers_share_the_load(perilune, plan_file: Path) -> None:
    one = perilune(f"rehearse {plan_file} --json").document
    two = perilune(f"rehearse {plan_file} --replicas 2 --json").document
    assert [replica["name"] for replica in two["replicas"]] == ["unified-0", "unified-1"]
    assert two["gpus"] == 2 * one["gpus"]
    assert two["ttft_s"]["p90"] < one["ttft_s"]["p90"]
    assert sum(replica["completed"] for replica in two["replicas"]) == 80


def test_a_pair_is_rehearsed_with_its_transfers(perilune) -> None:
    pair = f"--hardware b300 --mode pd --strategy balanced --concurrency 32 --requests 64 {SHORT}"
    found = perilune(f"rehearse {pair} --prefill-replicas 2 --decode-replicas 3 --router round_robin --json").document
    assert [one["name"] for one in found["replicas"]] == ["prefill-0", "prefill-1", "decode-0", "decode-1", "decode-2"]
    assert found["requests"]["completed"] == 64
    assert found["gpus"] == 40
    assert found["router"] == "round_robin"
    assert "transfer" in found["waits_s"]
    assert [pool["replicas"] for pool in found["plan"]["pools"]] == [2, 3]
    assert perilune(f"rehearse {pair} --replicas 2").code == 2


def test_a_server_that_fails_delays_but_loses_nothing(perilune, plan_file: Path) -> None:
    command = f"rehearse {plan_file} --replicas 2 --rate 8 --requests 80 --router round_robin --json"
    whole = perilune(command).document
    found = perilune(f"{command} --fail unified-1@2+5").document
    assert found["requests"]["completed"] == 80
    assert found["settings"]["failures"].startswith("unified-1 at 2 s for 5 s")
    assert found["ttft_s"]["max"] > whole["ttft_s"]["max"]
    lost = perilune(f"{command} --fail unified-1@2+5 --lost fail").document["requests"]
    assert lost["completed"] < 80
    assert sum(lost.values()) == 80 + lost["retracted"]


def test_images_cost_time_and_tokens(perilune, plan_file: Path) -> None:
    plain, seen = (
        perilune(f"rehearse {plan_file} --concurrency 1 --requests 4 {images} --json").document
        for images in ("", "--images 2 --image-size 1920x1080")
    )
    assert seen["cache"]["prompt_tokens"] > plain["cache"]["prompt_tokens"]
    assert seen["ttft_s"]["p50"] > plain["ttft_s"]["p50"]
    assert seen["traffic"]["image_size"] == [1920, 1080]


def test_encoders_of_their_own_take_images_off_the_servers(perilune, plan_file: Path) -> None:
    command = f"rehearse {plan_file} --concurrency 8 --requests 40 --images 4 --image-size 1920x1080 --json"
    own, apart = (perilune(f"{command} {extra}").document for extra in ("", "--encoders 4"))
    assert apart["gpus"] == own["gpus"] + 4
    assert apart["waits_s"]["encoder"] > 0
    assert apart["e2e_s"]["p50"] < own["e2e_s"]["p50"]


@pytest.mark.parametrize(
    ("extra", "length", "assumed"),
    [
        ("", 4.5, True),
        ("--env SGLANG_SIMULATE_ACC_LEN=3.5", 3.5, False),
        ("--env SGLANG_SIMULATE_ACC_LEN=3.5 --acceptance-length 2.5", 2.5, False),
    ],
)
def test_an_acceptance_length_says_where_it_comes_from(perilune, extra: str, length: float, assumed: bool) -> None:
    command = f"rehearse {B300} --spec dspark --concurrency 4 --requests 8 {SHORT} {extra}"
    found = perilune(f"{command} --json").document["acceptance"]
    assert (found["length"], found["assumed"]) == (length, assumed)
    assert (f"Assumed: a speculative step yields {length:g} tokens" in perilune(command).out) is assumed


def test_more_accepted_tokens_are_faster(perilune) -> None:
    times = [
        perilune(
            f"rehearse {B300} --spec dspark --concurrency 4 --requests 8 {SHORT} --acceptance-length {length} --json"
        ).document["tpot_s"]["p50"]
        for length in (1, 2, 4)
    ]
    assert times == sorted(times, reverse=True)
    assert times[0] > 3 * times[2]


@pytest.mark.parametrize(("ttft_ms", "code", "met"), [(60_000, 0, True), (0.001, 1, False)])
def test_a_missed_slo_is_a_finding(perilune, plan_file: Path, ttft_ms: float, code: int, met: bool) -> None:
    run = perilune(f"rehearse {plan_file} --slo-ttft-ms {ttft_ms} --json")
    assert (run.code, run.document["slo"]["met"]) == (code, met)


def test_a_plan_that_would_not_boot_is_a_finding(perilune) -> None:
    run = perilune(f"rehearse {PLAIN} --set mem-fraction-static=0.5 --concurrency 1 {SHORT}")
    assert run.code == 1
    assert "would not boot" in run.err
    assert run.out == ""


A3 = "--hardware a3 --mode unified --strategy balanced --quant w4a8"


def test_the_variant_that_boots_is_named_and_rehearsed(perilune) -> None:
    """Weights, draft and loading overrun an Ascend A3 die; splitting the shared experts makes room."""
    refused = perilune(f"rehearse {A3} --concurrency 2 --requests 2 {SHORT}")
    edit = "add --enable-shared-experts-attn-tp and --enable-dense-mlp-attn-tp"
    assert refused.code == 1
    assert f"--corrected takes it: {edit}." in refused.err
    none = perilune(f"rehearse --hardware gb200 --mode unified --preset peak-capacity --gpus 8 --concurrency 2 {SHORT}")
    assert none.code == 1
    assert "Spread it over 16 GPUs: write --tp-size 16 --nnodes 4." in none.err
    served = perilune(f"rehearse {A3} --concurrency 2 --requests 2 {SHORT} --corrected --json")
    assert served.code == 0
    assert served.document["settings"] == {"corrected": edit}
    assert "--enable-dense-mlp-attn-tp" in served.document["plan"]["pools"][0]["command"]


def test_requests_over_the_context_are_rejected_not_served(perilune) -> None:
    run = perilune(f"rehearse {PLAIN} --set context-length=2048 --rate 1 --requests 3 --isl 4096 --osl 64 --json")
    assert run.document["requests"]["rejected"] == 3
    assert run.code == 1
    assert run.document["notes"]


def test_every_file_is_written(perilune, plan_file: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    run = perilune(
        f"rehearse {plan_file} --html {out}/r.html --plots {out}/plots --trace-out {out}/t.json --records {out}/r.jsonl"
    )
    assert run.code == 0
    assert (out / "r.html").read_bytes().startswith(b"<!doctype html>")
    assert len(list((out / "plots").glob("*.png"))) == 5
    assert json.loads((out / "t.json").read_text())["traceEvents"]
    records = [json.loads(line) for line in (out / "r.jsonl").read_text().splitlines()]
    assert [record["index"] for record in records] == list(range(80))
    assert all(record["end"] == "finished" and record["end_s"] > record["first_token_s"] for record in records)
    assert not list(out.glob(".*")), "nothing half-written stays"


def test_files_are_there_though_nobody_reads_the_summary(plan_file: Path, tmp_path: Path) -> None:
    """Standard output that cannot be written, as when a disk is full, costs the summary and not the report."""
    report = tmp_path / "r.html"
    command = [sys.executable, "-m", "perilune", "rehearse", str(plan_file), "--requests", "2", "--html", str(report)]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 2
    assert "The output cannot be written: no space left on device." in done.stderr
    assert report.read_bytes().startswith(b"<!doctype html>")


def test_two_saved_outputs_are_compared(perilune, plan_file: Path, tmp_path: Path) -> None:
    for name, extra in (("a", ""), ("b", "--replicas 2")):
        (tmp_path / f"{name}.json").write_text(perilune(f"rehearse {plan_file} {extra} --json").out)
    run = perilune(f"rehearse --compare {tmp_path}/a.json {tmp_path}/b.json")
    assert run.code == 0
    assert "- unified.replicas: 1 → 2" in run.out
    found = perilune(f"rehearse --compare {tmp_path}/a.json {tmp_path}/b.json --json").document
    assert found["figures"]["gpus"]["ratio"] == 2
    assert perilune(f"rehearse {plan_file} --compare {tmp_path}/a.json {tmp_path}/b.json").code == 2


def test_text_keeps_to_80_columns(perilune, plan_file: Path, trace: Path) -> None:
    for command in (f"rehearse {plan_file}", f"rehearse {plan_file} --trace {trace} --slo-tpot-ms 1", "rehearse -h"):
        wide = [line for line in perilune(command).out.splitlines() if len(line) > 80]
        assert not wide, (command, wide)


UNUSABLE = {
    "no traffic": (f"{PLAIN}", "--concurrency"),
    "no plan": (f"--concurrency 4 {SHORT}", "--hardware"),
    "no lengths": (f"{PLAIN} --concurrency 4", "--isl"),
    "two kinds": (f"{PLAIN} --concurrency 4 --rate 3 {SHORT}", "--rate"),
    "absent trace": (f"{PLAIN} --trace /nowhere/t.jsonl", "/nowhere/t.jsonl"),
    "no trace": (f"{PLAIN} --trace-format azure --concurrency 4 {SHORT}", "--trace"),
    "not a rate": (f"{PLAIN} --rate nan {SHORT}", "nan"),
    "no such pool": (f"{PLAIN} --concurrency 4 {SHORT} --decode-replicas 2", "decode"),
    "too many tokens a step": (f"{B300} --concurrency 4 {SHORT} --acceptance-length 9", "1 to 8"),
    "acceptance is no number": (f"{B300} --concurrency 4 {SHORT} --env SGLANG_SIMULATE_ACC_LEN=x", "ACC_LEN"),
    "ratio of a trace": (f"{PLAIN} --trace {MOONCAKE} --random-range-ratio 0.5", "--random-range-ratio"),
    "images of a trace": (f"{PLAIN} --trace {MOONCAKE} --images 1", "--images"),
    "turns of a trace": (f"{PLAIN} --trace {MOONCAKE} --turns 2", "--turns"),
    "sorted, at a rate": (f"{PLAIN} --trace {MOONCAKE} --sort-trace --rate 1", "--sort-trace"),
    "steps in a closed loop": (f"{PLAIN} --trace {MOONCAKE} --no-spread --concurrency 2", "--no-spread"),
    "steps of another format": (f"{PLAIN} --trace {AZURE} --no-spread", "this is azure"),
    "prompts of another format": (f"{PLAIN} --trace {AZURE} --share-prefix", "this is azure"),
    "no clock to sort by": (f"{PLAIN} --trace {TRACES}/vidur_arxiv.csv --sort-trace --concurrency 2", "--sort-trace"),
    "no clock to speed up": (f"{PLAIN} --trace {AZURE} --trace-speed 2 --concurrency 2", "--trace-speed"),
    "speed of nothing": (f"{PLAIN} --rate 4 {SHORT} --trace-speed 2", "no trace"),
    "no speed": (f"{PLAIN} --trace {MOONCAKE} --trace-speed 0", "above 0"),
    "bursts in a closed loop": (f"{PLAIN} --concurrency 4 {SHORT} --arrival-cv 2", "--rate"),
    "bursts of sessions": (f"{PLAIN} --rate 4 {SHORT} --arrival-cv 2 --turns 2", "--turns"),
    "thinking without turns": (f"{PLAIN} --rate 4 {SHORT} --think-time 2", "--turns"),
    "prompts of no length": (f"{PLAIN} --rate 4 {SHORT} --turns 2 --system-prompts 2", "--system-tokens"),
    "images in sessions": (f"{PLAIN} --rate 4 {SHORT} --turns 2 --images 2", "--images"),
    "endless sessions": (f"{PLAIN} --rate 4 {SHORT} --turns 9999", "fewer turns"),
    "size of no image": (f"{PLAIN} --rate 4 {SHORT} --image-size 9x9", "--images"),
    "no ratio": (f"{PLAIN} --rate 4 {SHORT} --env SGLANG_INIT_NEW_TOKEN_RATIO=nan", "is no number from 0"),
    "half a step": (f"{PLAIN} --rate 4 {SHORT} --env SGLANG_RETRACT_DECODE_STEPS=1.5", "is no whole number from 0"),
    "no pool": (
        f"{PLAIN} {POOLED} --rate 4 {SHORT} --images 1 --env SGLANG_MM_FEATURE_CACHE_MB=-1",
        "leave the variable",
    ),
    "states of any length in long pages": (
        f"{PLAIN} --rate 4 {SHORT} --set --disable-overlap-schedule",
        "Give --mamba-radix-cache-strategy extra_buffer.",
    ),
    "no speculation": (f"{PLAIN} --rate 4 {SHORT} --acceptance-length 2", "does not speculate"),
    "a mix without speculation": (f"{PLAIN} --rate 4 {SHORT} --acceptance-mix 2:1", "does not speculate"),
    "a mix and a length": (
        f"{B300} --rate 4 {SHORT} --spec dspark --acceptance-mix 2:1 --acceptance-length 2",
        "Give one of the two",
    ),
    "no mix": (f"{B300} --rate 4 {SHORT} --spec dspark --acceptance-mix 2", "2.5:30,4.5:70"),
    "no acceptance": (f"{B300} --rate 4 {SHORT} --acceptance-length 0", "above 0"),
    "no requests": (f"{PLAIN} --rate 4 {SHORT} --requests 0", "--requests"),
    "no rate": (f"{PLAIN} --rate 0 {SHORT}", "above 0"),
    "endless rate": (f"{PLAIN} --rate inf {SHORT}", "finite"),
    "too many at once": (f"{PLAIN} --concurrency 1000000000 {SHORT}", "--concurrency"),
    "endless target": (f"{PLAIN} --concurrency 4 {SHORT} --slo-ttft-ms 1e300", "--slo-ttft-ms"),
    "a device": (f"{PLAIN} --concurrency 4 {SHORT} --records /dev/full", "no regular file"),
    "a folder": (f"{PLAIN} --concurrency 4 {SHORT} --html /tmp", "directory"),
    "the trace itself": (f"{PLAIN} --trace {MOONCAKE} --records {MOONCAKE}", "read, or written twice"),
    "nothing": ("", "--hardware"),
    "absent folder": (f"{PLAIN} --concurrency 4 {SHORT} --html /nowhere/r.html", "/nowhere"),
    "one path twice": (f"{PLAIN} --concurrency 4 {SHORT} --html /tmp/x --records /tmp/x", "written twice"),
    "encoders of nothing": (f"{PLAIN} --concurrency 4 {SHORT} --encoders 2", "--images"),
    "no such policy": (f"{PLAIN} --concurrency 4 {SHORT} --router nearest", "round_robin"),
    "no outage": (f"{PLAIN} --concurrency 4 {SHORT} --fail unified-0", "REPLICA@"),
    "nothing lost": (f"{PLAIN} --concurrency 4 {SHORT} --lost fail", "--fail"),
    "no such server": (f"{PLAIN} --concurrency 4 {SHORT} --fail decode-0@1+1", "unified-0"),
    "no such size": (f"{PLAIN} --concurrency 4 {SHORT} --images 1 --image-size 0x9", "pixels"),
    "absent profile": (f"{PLAIN} --concurrency 4 {SHORT} --profile /nowhere/p.yaml", "/nowhere/p.yaml"),
    "half a fleet": (f"--hardware b300 --mode prefill --concurrency 4 {SHORT}", "--mode pd"),
    "absent comparison": ("--compare /nowhere/a.json /nowhere/b.json", "/nowhere/a.json"),
}


@pytest.mark.parametrize("name", UNUSABLE)
def test_unusable_input_ends_in_one_sentence_and_2(perilune, name: str) -> None:
    command, hint = UNUSABLE[name]
    run = perilune(f"rehearse {command}")
    assert run.code == 2, run
    assert hint in run.err
    assert run.out == ""
    assert "defect of perilune" not in run.err


def test_ctrl_c_keeps_what_there_is(perilune, plan_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The signal comes while the 500th of a million requests is made."""
    whole = OfferedLoad.traffic

    def interrupted(load: OfferedLoad) -> Traffic:
        traffic = whole(load)
        return replace(traffic, requests=signalled(traffic.requests))

    def signalled(requests: Iterator[Request]) -> Iterator[Request]:
        for number, request in enumerate(requests):
            if number == 500:
                signal.raise_signal(signal.SIGINT)
            yield request

    monkeypatch.setattr(OfferedLoad, "traffic", interrupted)
    for flags in ("--json", ""):
        run = perilune(f"rehearse {plan_file} --concurrency 8 --requests 1000000 {flags}")
        assert run.code == 130
        assert "Interrupted" in run.out or run.document["interrupted"] is True
    found = perilune(f"rehearse {plan_file} --concurrency 8 --requests 1000000 --json").document
    assert 490 <= found["requests"]["completed"] < 1000
    assert 1 <= found["requests"]["unfinished"] <= 8, "of those that ended, the next may be still to come"
    assert found["ttft_s"]["p50"] > 0
