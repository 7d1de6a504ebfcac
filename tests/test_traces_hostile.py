"""Traces that are no traces: one clear error with file, line and field, or a documented handling; never a hang."""

from __future__ import annotations

import gzip
import os
import random
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from perilune.errors import UnusableInput
from perilune.rehearse.traces import sniff, traffic
from perilune.rehearse.traces.source import LINE_BYTES

SAMPLES = Path(__file__).parent / "data" / "traces"
MOONCAKE = '{"timestamp":%s,"input_length":%s,"output_length":%s,"hash_ids":%s}\n'
AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
BURST = "Timestamp,Request tokens,Response tokens\n"
WEKA = '{"block_size":64,"hash_id_scope":"local","requests":[%s]}\n'
CALL = '{"t":0,"type":"n","in":%s,"out":5,"hash_ids":%s}'


def mooncake(timestamp: object = 0, isl: object = 600, osl: object = 5, ids: object = "[1,2]") -> str:
    return MOONCAKE % (timestamp, isl, osl, ids)


def refused(path: Path, **options: Any) -> str:
    with pytest.raises(UnusableInput) as caught:
        list(traffic(path, **options).requests)
    return str(caught.value).replace(str(path), "FILE")


CASES = [
    ("empty", "", "FILE: The file is empty."),
    ("blank", "\n\n  \n", "FILE: The file is empty."),
    ("prose", "Once upon a time\n", "FILE: No trace format is like this file, with columns Once upon a time."),
    ("number", "{1}\n", "with a first line that is no JSON object"),
    ("other keys", '{"a":1}\n', "No trace format is like this file, with keys a."),
    ("header only", AZURE, "FILE: The trace holds no request that can be served."),
    ("failures only", BURST + "1,5,0\n", "no request that can be served; 1 row left out"),
    ("back in time", mooncake(9000) + mooncake(8000), "FILE:2: timestamp: The request comes 1 s before"),
    ("negative time", mooncake(-1), "FILE:1: timestamp: The time must be 0"),
    ("huge time", mooncake("1e300"), "FILE:1: timestamp: The time must be 0"),
    ("years later", mooncake() + mooncake("9e11"), "FILE:2: timestamp: The request comes 10,417 days after the first"),
    ("a lake of lines", mooncake() + "\n" * 1_000_002, "FILE:1000002: More than 1,000,000 lines in a row are empty."),
    ("time is text", mooncake('"now"'), "FILE:1: The row does not fit the format: expected `float`, got `str`"),
    ("not a number", mooncake() + mooncake("NaN"), "FILE:2: The line is no JSON object"),
    ("negative prompt", mooncake(isl=-5), "FILE:1: input_length: The tokens must be 0 to 100,000,000, not -5."),
    ("huge answer", mooncake(osl=10**9), "FILE:1: output_length: The tokens must be"),
    ("absurd answer", mooncake(osl="9" * 4000), "FILE:1: output_length: The tokens must be"),
    ("fraction", mooncake(isl=1.5), "FILE:1: The row does not fit the format: expected `int`, got `float`"),
    ("missing field", mooncake() + '{"timestamp":1,"input_length":4}\n', "FILE:2: The row does not fit the format: "),
    ("ids are text", mooncake(ids='["a"]'), "expected `int`, got `str` - at `$.hash_ids[0]`"),
    ("too many blocks", mooncake(isl=100, osl=5, ids="[1,2]"), "FILE:1: hash_ids: 2 blocks of 512 tokens are more"),
    ("mixed", mooncake() + "Timestamp,1,1\n", "FILE:2: The line is no JSON object"),
    ("broken within", mooncake() + '{"timestamp":1,"inp\n' + mooncake(3), "FILE:2: The line is no JSON object"),
    ("array", mooncake() + "[1]\n", "FILE:2: The row does not fit the format: expected `object`, got `array`."),
    ("deep", mooncake() + '{"x":' + "[" * 5000 + "]" * 5000 + "}\n", "FILE:2: The line is nested too deeply."),
    ("date", AZURE + "yesterday,5,5\n", "FILE:2: TIMESTAMP: 'yesterday' is no date and time."),
    ("year 0", AZURE + "0000-01-01 00:00:00,5,5\n", "FILE:2: TIMESTAMP:"),
    ("words for tokens", AZURE + "2024-05-10 00:00:00,many,5\n", "FILE:2: ContextTokens: 'many' is no number."),
    ("underscores", AZURE + "2024-05-10 00:00:00,1_0,5\n", "FILE:2: ContextTokens: '1_0' is no number."),
    ("infinite", BURST + "inf,5,5\n", "FILE:2: Timestamp: 'inf' is no number."),
    ("nan", BURST + "nan,5,5\n", "FILE:2: Timestamp: 'nan' is no number."),
    ("half a token", BURST + "1,5.5,5\n", "FILE:2: Request tokens: '5.5' is no whole number."),
    ("short row", BURST + "1,5\n2,5,5\n", "FILE:2: The row has 2 fields; the header has 3."),
    ("long row", BURST + "1,5,5,5\n", "FILE:2: The row has 4 fields; the header has 3."),
    ("column twice", "Timestamp,Request tokens,Response tokens,Timestamp\n1,2,3,4\n", "the column Timestamp twice"),
    ("csv turns JSON", BURST + mooncake(), "FILE:2: The row has"),
    ("arrivals on some", "isl,osl,arrival_s\n5,5,1\n5,5,\n", "FILE:3: arrival_s: Some rows have an arrival and some"),
    ("unknown key", '{"isl":5,"osl":5,"arrival":3}\n', "FILE:1: The row does not fit the format: object con"),
    ("blocks of nothing", '{"isl":5,"osl":5,"arrival_s":1,"blocks":[1]}\n', "FILE:1: block_tokens: Blocks need"),
    ("images beyond", '{"isl":5,"osl":5,"arrival_s":1,"images":[9]}\n', "FILE:1: images: Each image has a token"),
    ("no clock", "isl,osl\n5,5\n", "FILE: The trace does not say when requests come. Give a rate or a concurrency."),
    ("ids of nobody", WEKA % (CALL % (64, "[-1]")), "FILE:1: hash_ids: A local id is 0 to 2**40 - 1."),
    ("weka blocks", WEKA % (CALL % (64, "[1,2,3]")), "FILE:1: hash_ids: 3 blocks of 64 tokens are more than the 69"),
    ("weka type", WEKA % '{"t":0,"type":"z"}', "FILE:1: The row does not fit the format: invalid value 'z'"),
    ("weka clocks", 2 * (WEKA % (CALL % (64, "[]"))), "The sessions of the trace have no common clock. Give a rate"),
    ("weka scope", '{"block_size":64,"hash_id_scope":"?","requests":[]}\n', "invalid enum value '?'"),
    ("weka over lines", '{\n"block_size": 64,\n"requests": [\n}\n', "The file is no session: JSON is malformed"),
    ("cached too much", '{"session_id":"a","input_tokens_total":5,"prefix_tokens":9,"output_tokens":1,'
     '"timing_events":[{"event_type":"text","timestamp":"2026-06-01T05:40:29Z"}]}\n', "FILE:1: prefix_tokens: The"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "told"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_what_is_wrong_is_said(tmp_path: Path, text: str, told: str) -> None:
    path = tmp_path / "trace"
    path.write_text(text)
    assert told in refused(path)


@pytest.mark.parametrize(
    ("raw", "told"),
    [
        (b"\x7fELF\0\0\0\n", "FILE:1: The file is binary, not a trace."),
        ("Timestamp\n".encode("utf-16"), "FILE:1: The file is UTF-16 text; a trace is UTF-8."),
        (AZURE.encode() + b"\xff,1,1\n", "FILE:2: The line is not UTF-8 text."),
        (mooncake().encode() + b'{"timestamp":1,"x":"\xff"}\n', "FILE:2: The"),
        (gzip.compress(mooncake().encode() * 1000)[:-20], "FILE: The file cannot be read: "),
        (b"\x1f\x8bnot gzip at all", "FILE: The file cannot be read: "),
        (b'{"timestamp":' + b" " * LINE_BYTES + b"0}\n", f"The line is longer than the {LINE_BYTES:,} bytes"),
        (gzip.compress(mooncake().encode() + (b" " * 10**6 + b"\n") * 32), "unpacks to more than 200 times its size"),
    ],
    ids=["binary", "utf-16", "latin-1", "latin-1 in JSON", "gzip cut", "gzip not", "long line", "bomb"],
)
def test_what_is_no_text_is_said(tmp_path: Path, raw: bytes, told: str) -> None:
    path = tmp_path / "trace"
    path.write_bytes(raw)
    named = {"format": "mooncake"} if b"timestamp" in raw[:20] else {}
    assert told in refused(path, **named)


def test_what_is_no_file_is_said(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    assert refused(pipe) == "FILE: This is no regular file."
    assert refused(tmp_path / "absent") == "FILE: The file cannot be read: no such file or directory."
    (tmp_path / "folder").mkdir()
    assert refused(tmp_path / "folder") == "FILE: The folder holds no session: no *.json or *.json.gz."
    assert refused(tmp_path / "folder", format="azure") == "FILE: This is no regular file."
    assert "FILE: The file cannot be read" in refused(Path("a\0b"))


@pytest.mark.parametrize(
    ("text", "left"),
    [
        (mooncake() + mooncake(1000) + '{"timestamp":2000,"input_le', 2),
        (BURST + "1,5,5\n2,5,5\n3,5", 2),
        (AZURE + "2024-05-10 00:00:00,5,5\n2024-05-10 00:0", 1),
    ],
    ids=["mooncake", "burstgpt", "azure"],
)
def test_a_last_line_that_ends_too_early_is_left_out_and_told(tmp_path: Path, text: str, left: int) -> None:
    path = tmp_path / "trace"
    path.write_text(text)
    found = traffic(path)
    assert len(list(found.requests)) == left
    assert any("the file ends within it" in note for note in found.notes)


def test_a_file_out_of_order_can_be_sorted(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(BURST + "9,1,1\n3,2,1\n5,3,1\n3,4,1\n")
    assert [each.isl for each in traffic(path, sort=True).requests] == [2, 4, 3, 1]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"format": "parquet"}, "There is no trace format 'parquet'; there are mooncake, bailian,"),
        ({"limit": 0}, "limit: It must be at least 1, not 0."),
        ({"speedup": 0.0}, "speedup: It must be over 0"),
        ({"speedup": float("nan")}, "speedup: It must be over 0"),
        ({"rate": -1.0}, "rate: It must be over 0"),
        ({"rate": 1.0, "concurrency": 3}, "A rate and a concurrency exclude each other."),
        ({"share_prefix": True}, "A mooncake trace has no tool and system prompts to share."),
        ({"format": "azure"}, "The table has no column TIMESTAMP"),
    ],
)
def test_options_that_cannot_be_honoured(tmp_path: Path, options: dict[str, Any], told: str) -> None:
    path = tmp_path / "trace"
    path.write_text(mooncake())
    assert told in refused(path, **options)


def test_a_large_file_is_streamed(tmp_path: Path) -> None:
    path = tmp_path / "large.csv"
    with path.open("w") as file:
        file.write(BURST)
        for block in range(1000):
            file.write(f"{block},100,10\n" * 10_000)
    tracemalloc.start()
    try:
        taken = sum(1 for _ in traffic(path, limit=200_000).requests)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert taken == 200_000
    assert peak < 2**20 < path.stat().st_size / 50


@pytest.mark.parametrize("name", sorted(path.name for path in SAMPLES.iterdir() if path.suffix != ".md"))
def test_damaged_files_are_read_or_refused(tmp_path: Path, name: str) -> None:
    rng = random.Random(name)
    raw = (SAMPLES / name).read_bytes()
    path = tmp_path / "damaged"
    told = []
    for _ in range(150):
        damaged = bytearray(raw)
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(len(damaged))
            match rng.randrange(4):
                case 0:
                    damaged[at] = rng.randrange(256)
                case 1:
                    del damaged[at : at + rng.randint(1, 40)]
                case 2:
                    damaged[at:at] = rng.choice((b"-", b"9" * 30, b"null", b"\n", b'"', b",", b"{", b"NaN", b"\xff"))
                case _:
                    damaged[at:at] = damaged[: rng.randint(1, 200)]
        path.write_bytes(damaged)
        try:
            requests = list(traffic(path, format=sniff(SAMPLES / name).name, rate=1.0).requests)
        except UnusableInput as error:
            told.append(str(error))
        else:
            assert all(request.isl > 0 and request.osl > 0 and request.arrival_s >= 0 for request in requests)
    assert told
    assert all(text.startswith(str(path)) for text in told)
