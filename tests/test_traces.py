"""Readers of request traces: real rows in, requests out; figures published for whole traces."""

from __future__ import annotations

import csv
import gzip
import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from perilune.rehearse.request import Request
from perilune.rehearse.traces import FORMATS, reuse, sniff, traffic
from perilune.rehearse.traces.turns import turns

DATA = Path(__file__).parent / "data" / "traces"
CONVERSATION = Path(__file__).parents[1] / "benchmarks" / "data" / "mooncake_conversation_trace.jsonl.gz"


def read(name: str | Path, **options: Any) -> list[Request]:
    return list(traffic(DATA / name, **options).requests)


def flat(requests: list[Request]) -> list[tuple[float, int, int]]:
    return [(round(each.arrival_s, 6), each.isl, each.osl) for each in requests]


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("mooncake_conversation.jsonl", "mooncake"),
        ("mooncake_synthetic.jsonl", "mooncake"),
        ("bailian.jsonl", "bailian"),
        ("azure_2023_code.csv", "azure"),
        ("azure_2023_conv.csv", "azure"),
        ("azure_2024_conv.csv", "azure"),
        ("burstgpt_1.csv", "burstgpt"),
        ("burstgpt_3.csv", "burstgpt"),
        ("weka_trace_0026.json", "weka"),
        ("weka_trace_0291.json.gz", "weka"),
        ("weka_flat.csv", "weka-csv"),
        ("tracelab.jsonl", "tracelab"),
        ("vidur_arxiv.csv", "vidur"),
        (".", "weka"),
    ],
)
def test_a_format_is_told_from_the_first_line(name: str, form: str) -> None:
    assert sniff(DATA / name).name == form


def test_every_format_has_a_sample_or_a_table_here() -> None:
    told = {sniff(path).name for path in DATA.iterdir() if path.suffix != ".md"}
    assert set(FORMATS) - told == {"csv", "jsonl"}


def test_the_whole_conversation_trace_reuses_what_was_published() -> None:
    requests = list(traffic(CONVERSATION).requests)
    found = reuse(requests)
    assert found.requests == 12_031
    assert round(found.prompt_tokens / found.requests, 1) == 12_035.1
    assert round(100 * found.token_share, 1) == 37.4
    assert round(100 * found.block_share, 1) == 36.6
    lengths = sorted(each.isl for each in requests)
    assert (lengths[len(lengths) // 2], lengths[-1]) == (6_909, 126_195)
    assert sum(each.osl for each in requests) / len(requests) == pytest.approx(342.6, abs=0.05)


def test_the_conversation_trace_is_read_in_a_quarter_of_a_second(tmp_path: Path) -> None:
    path = tmp_path / "conversation.jsonl"
    path.write_bytes(gzip.decompress(CONVERSATION.read_bytes()))
    taken = []
    for _ in range(3):
        started = time.perf_counter()
        count = sum(1 for _ in traffic(path).requests)
        taken.append(time.perf_counter() - started)
        assert count == 12_031
    assert min(taken) < 0.25


def test_the_requests_of_a_step_are_spread_within_it() -> None:
    raw, options = list(traffic(CONVERSATION, spread=False).requests), {"seed": 7}
    spread = list(traffic(CONVERSATION, **options).requests)
    assert max(Counter(each.arrival_s for each in raw).values()) == 28
    assert len({each.arrival_s for each in raw}) == 1_180
    assert max(Counter(each.arrival_s for each in spread).values()) == 1
    assert [each.isl for each in spread] == [each.isl for each in raw]
    assert all(0 <= late.arrival_s - step.arrival_s < 3.001 for late, step in zip(spread, raw, strict=True))
    assert [each.arrival_s for each in spread] == sorted(each.arrival_s for each in spread)
    again = list(traffic(CONVERSATION, **options).requests)
    assert [each.arrival_s for each in again] == [each.arrival_s for each in spread]
    other = list(traffic(CONVERSATION, seed=8).requests)
    assert [each.arrival_s for each in other] != [each.arrival_s for each in spread]


def test_a_clock_without_steps_is_left_alone() -> None:
    rows = [json.loads(line) for line in (DATA / "mooncake_synthetic.jsonl").read_text().splitlines()]
    found = traffic(DATA / "mooncake_synthetic.jsonl")
    assert flat(list(found.requests)) == [
        (row["timestamp"] / 1000, row["input_length"], row["output_length"]) for row in rows
    ]
    assert found.notes == []


def test_mooncake_rows_keep_their_blocks() -> None:
    first = read("mooncake_conversation.jsonl")[0]
    assert (first.isl, first.osl, first.blocks, first.block_tokens) == (6_758, 500, tuple(range(14)), 512)


def test_azure_2023_counts_ticks_of_a_ten_millionth() -> None:
    found = read("azure_2023_code.csv")[:3]
    assert [(each.isl, each.osl) for each in found] == [(4_808, 10), (3_180, 8), (110, 27)]
    assert [each.arrival_s for each in found] == pytest.approx([0.0, 0.052, 0.098189], abs=1e-6)


def test_azure_2024_writes_full_seconds_without_a_fraction(tmp_path: Path) -> None:
    path = tmp_path / "azure.csv"
    path.write_text((DATA / "azure_2024_conv.csv").read_text() + "2024-05-10 00:00:01+00:00,300,40\n")
    assert [each.arrival_s for each in read(path)] == pytest.approx([0.0, 0.99007], abs=2e-6)


def test_azure_2025_images_are_told(tmp_path: Path) -> None:
    path = tmp_path / "azure.csv"
    path.write_text("TIMESTAMP,NumImages,ContextTokens,GeneratedTokens\n2024-10-15 00:00:00.0000000,2,900,120\n")
    found = traffic(path)
    assert flat(list(found.requests)) == [(0.0, 900, 120)]
    assert found.notes == ["1 request with images of unknown size, counted as text"]


def test_burstgpt_failures_are_left_out() -> None:
    found = traffic(DATA / "burstgpt_1.csv")
    assert flat(list(found.requests))[:3] == [(0.0, 387, 349), (44.0, 733, 180), (101.0, 1_305, 477)]
    assert found.notes == ["1 row left out: an empty prompt or answer (failed requests)"]


def test_burstgpt_sessions_are_numbers_that_stay() -> None:
    found = [each.session for each in read("burstgpt_3.csv")]
    assert found == [each.session for each in read("burstgpt_3.csv")]
    assert len(set(found)) == 4
    assert {each.session for each in read("burstgpt_1.csv")} == {-1}


def test_bailian_turns_share_the_session_of_the_first_chat() -> None:
    found = read("bailian.jsonl")
    assert flat(found) == [(0.0, 502, 1_494), (1.5, 40, 9), (61.25, 2_020, 300)]
    assert [each.session for each in found] == [0, 3, 0]
    assert {each.block_tokens for each in found} == {16}
    assert reuse(found).hit_tokens == 31 * 16


def test_vidur_needs_a_clock() -> None:
    at_rate = read("vidur_arxiv.csv", rate=2.0, seed=3)
    assert (at_rate[0].isl, at_rate[0].osl, at_rate[0].arrival_s) == (3_772, 54, 0.0)
    assert [each.arrival_s for each in at_rate] == [
        each.arrival_s for each in read("vidur_arxiv.csv", rate=2.0, seed=3)
    ]
    loop = traffic(DATA / "vidur_arxiv.csv", concurrency=4)
    assert (loop.concurrency, len(list(loop.requests))) == (4, 20)


def test_a_weka_turn_comes_a_think_time_after_the_one_before() -> None:
    (head,) = read("weka_trace_0026.json")
    found = list(turns(head))
    assert [(each.arrival_s, each.isl, each.osl, len(each.blocks)) for each in found] == [
        (0.0, 15_291, 2_282, 238),
        (48.0, 17_401, 2_905, 271),
        (4.0, 20_068, 107, 313),
    ]
    assert len({each.session for each in found}) == 1


def test_weka_sub_agents_start_when_their_caller_was_answered() -> None:
    heads = read("weka_trace_0291.json.gz")
    assert [(round(each.arrival_s, 3), len(list(turns(each)))) for each in heads] == [
        (0.0, 20),
        (1_101.357, 5),  # 1,148.013 less 46.656 s; the turn before was answered at 1,100.64
        (1_101.369, 7),
    ]
    assert heads[1].blocks[:2] == heads[2].blocks[:2]
    assert len({each.session for each in heads}) == 1


def test_weka_ids_hold_within_a_session_only(tmp_path: Path) -> None:
    text = (DATA / "weka_trace_0026.json").read_text().strip()
    path = tmp_path / "two.jsonl"
    path.write_text(f"{text}\n{text}\n")
    apart = reuse(traffic(path, concurrency=2).requests)
    once = reuse(traffic(DATA / "weka_trace_0026.json").requests)
    assert apart.hit_tokens == 2 * once.hit_tokens
    common = reuse(traffic(path, concurrency=2, share_prefix=True).requests)
    assert common.hit_tokens - apart.hit_tokens == (11_899 + 2_765) // 64 * 64


def test_a_folder_of_weka_sessions_is_read_by_name(tmp_path: Path) -> None:
    session = json.loads((DATA / "weka_trace_0026.json").read_text())
    (tmp_path / "b.json").write_text(json.dumps(session, indent=1))
    session["requests"] = session["requests"][:1]
    (tmp_path / "a.json").write_text(json.dumps(session))
    (tmp_path / "notes.txt").write_text("not a session")
    heads = read(tmp_path, rate=0.5)
    assert [len(list(turns(each))) for each in heads] == [1, 3]
    assert heads[0].arrival_s == 0 < heads[1].arrival_s


def test_flat_weka_repeats_as_much_as_was_cached() -> None:
    rows = list(csv.DictReader((DATA / "weka_flat.csv").read_text().splitlines()))
    found = reuse(traffic(DATA / "weka_flat.csv", concurrency=1).requests)
    assert found.requests == len(rows)
    assert found.hit_tokens == sum(int(row["prefix_hit_tokens"]) for row in rows)


def test_tracelab_repeats_as_much_as_was_cached_in_the_session() -> None:
    rows = [json.loads(line) for line in (DATA / "tracelab.jsonl").read_text().splitlines()]
    heads = read("tracelab.jsonl")
    assert [len(list(turns(each))) for each in heads] == [9, 10]
    later = [row for row in rows if row["round_index"]]
    assert reuse(heads).hit_tokens == sum(row["prefix_tokens"] // 64 * 64 for row in later)
    claude = list(turns(heads[1]))
    assert claude[1].arrival_s == pytest.approx(50.938 - 31.647)  # last tool result less last tool call


def test_sessions_start_at_a_rate_and_their_helpers_with_them() -> None:
    heads = read("weka_flat.csv", rate=0.001, seed=5)
    assert [each.arrival_s for each in heads] == sorted(each.arrival_s for each in heads)
    assert len(heads) > len({each.session for each in heads}) == 3


@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_plain_rows(tmp_path: Path, form: str) -> None:
    path = tmp_path / f"plain.{form}"
    if form == "csv":
        path.write_text("osl,isl,arrival_s,images,blocks,block_tokens,session\n7,100,5.5,60 20,1 2,64,3\n8,50,6,,,,\n")
    else:
        path.write_text(
            '{"isl":100,"osl":7,"arrival_s":5.5,"images":[60,20],"blocks":[1,2],"block_tokens":64,"session":3}\n'
            '{"isl":50,"osl":8,"arrival_s":6}\n'
        )
    first, second = read(path)
    assert (first.arrival_s, first.isl, first.osl, first.images, first.blocks, first.block_tokens, first.session) == (
        0.0,
        100,
        7,
        (60, 20),
        (1, 2),
        64,
        3,
    )
    assert (second.arrival_s, second.isl, second.osl, second.images, second.session) == (0.5, 50, 8, (), -1)


def test_a_clock_can_run_faster_and_a_trace_end_sooner() -> None:
    slow, fast = read("azure_2023_conv.csv"), read("azure_2023_conv.csv", speedup=2.0, limit=5)
    assert len(fast) == 5
    assert [each.arrival_s for each in fast] == [each.arrival_s / 2 for each in slow[:5]]
    (head,) = read("weka_trace_0026.json", speedup=2.0, limit=2)
    assert [each.arrival_s for each in turns(head)] == [0.0, 24.0]


def test_a_rate_replaces_the_clock() -> None:
    found = [each.arrival_s for each in read(CONVERSATION, rate=10.0)]
    assert found[-1] / len(found) == pytest.approx(0.1, rel=0.05)


def test_files_are_the_same_with_gzip_a_byte_order_mark_and_other_line_ends(tmp_path: Path) -> None:
    raw = (DATA / "azure_2023_conv.csv").read_bytes()
    wanted = flat(read("azure_2023_conv.csv"))
    for number, changed in enumerate(
        (gzip.compress(raw), b"\xef\xbb\xbf" + raw, raw.replace(b"\n", b"\r\n"), raw.rstrip(b"\n"), raw + b"\n")
    ):
        path = tmp_path / f"{number}.csv"
        path.write_bytes(changed)
        assert flat(read(path)) == wanted


def test_lengths_over_any_context_are_the_engines_to_refuse(tmp_path: Path) -> None:
    path = tmp_path / "long.csv"
    path.write_text("isl,osl,arrival_s\n5000000,1,0\n")
    assert read(path)[0].isl == 5_000_000
