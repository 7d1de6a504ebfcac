"""Mutated command lines: whatever is pasted, the answer is a value or one clear sentence, never a crash."""

from __future__ import annotations

import random
import shlex
import time

import pytest

from perilune.errors import PeriluneError, UnusableInput
from perilune.facts.flags import catalog
from perilune.facts.hardware import platform, platforms
from perilune.plan.memory import Measured, ledger
from perilune.plan.resolve import resolve
from perilune.plan.server import Server

LINES = 20_000
CHUNK = 2_000

BASES = (
    "sglang serve --model-path moonshotai/Kimi-K3 --tp-size 8 --mem-fraction-static 0.85",
    "NCCL_CUMEM_ENABLE=1 sglang serve moonshotai/Kimi-K3 --tp 8 --dcp-size 8 --mamba-full-memory-ratio 7.21",
    "python3 -m sglang.launch_server --model moonshotai/Kimi-K3 --tp-size 16 --dcp-size 16 --nnodes 2 --node-rank 0"
    " --speculative-algorithm DSPARK --speculative-draft-model-path RadixArk/Kimi-K3-DSpark"
    " --enable-linear-replayssm-spec",
    "docker run --gpus all -e HF_TOKEN=x lmsysorg/sglang:kimi-k3 sglang serve --model-path moonshotai/Kimi-K3"
    " --tp-size 8 --pp-size 2 --chunked-prefill-size 8192",
    "SGLANG_RAGGED_VERIFY_MODE=compact sglang serve --model-path moonshotai/Kimi-K3 --tp-size 8 --attn-dp-size 8"
    " --enable-dp-lm-head --moe-a2a-backend megamoe --moe-runner-backend deep_gemm",
    "sglang serve --model-path moonshotai/Kimi-K3 --tp-size 8 --disaggregation-mode decode"
    " --disaggregation-transfer-backend mooncake --max-running-requests 32 --kv-cache-dtype fp8_e4m3",
    "sglang serve --model-path moonshotai/Kimi-K3 --tp-size 64 --attn-dp-size 4 --moe-a2a-backend deepep --device npu",
    "sglang serve --model-path meta-llama/Llama-3.3-70B-Instruct --tp-size 8 --page-size 16",
    "--tp-size 8 --max-mamba-cache-size 300 --enable-hierarchical-cache --hicache-ratio 2",
)
NASTY = (
    "",
    "0",
    "-1",
    "1",
    "3",
    "7",
    "8",
    "nan",
    "inf",
    "-inf",
    "1e308",
    "1e-320",
    "0.0",
    "1.0",
    "99999999999999999999",
    "9" * 5000,
    "281474976710656",
    "8.5",
    "1Ki",
    "1.5T",
    "auto",
    "none",
    "None",
    "true",
    "{}",
    "[]",
    "[1,2",
    '{"decode": {"bs": [0, -1, 1000000]}}',
    '{"prefill": {"max_bs": null}}',
    '{"decode": {"max_bs": "x"}}',
    "[" * 3000 + "]" * 3000,
    "<node0-ip>",
    "$HOME",
    "`id`",
    "$(id)",
    "../../etc/passwd",
    "模型/🦜",
    "\ud800",
    "a b",
    "\u202e",
    "--tp-size",
    "'",
)
NUMBERS: dict[str, tuple[str, ...]] = {
    "int": ("0", "1", "2", "3", "7", "8", "16", "64", "100", "4096", "65536", "-1", "-7", "281474976710656"),
    "human_readable_int": ("0", "1", "100", "4096", "32k", "1Mi", "-1", "281474976710656"),
    "float": ("0", "1e-320", "0.0001", "0.5", "0.97", "1", "1.5", "1e6", "1e300", "-1", "nan"),
}
CHARACTERS = " \t\n\\\"'`$#;&|<>()=-_,.:{}[]0128eE\0é🦜"
VARIABLES = (
    "SGLANG_RAGGED_VERIFY_MODE",
    "SGLANG_MAMBA_SSM_DTYPE",
    "SGLANG_MAMBA_CONV_DTYPE",
    "SGLANG_VLM_CACHE_SIZE_MB",
    "SGLANG_MM_FEATURE_CACHE_MB",
    "SGLANG_PP_LAYER_PARTITION",
    "SGLANG_OPT_MAMBA_SKIP_DECODE_LOCK",
    "SGLANG_USE_AITER",
    "SGL_ENABLE_JIT_DEEPGEMM",
)


def mutated(draw: random.Random) -> str | list[str]:
    """A command line that started sensible and had a few things done to it."""
    words = shlex.split(draw.choice(BASES))
    for _ in range(draw.choice((1, 1, 2, 3, 5))):
        _add_option(draw, words)
    for _ in range(draw.choice((0, 0, 0, 1, 2))):
        draw.choice((_change_word, _drop_word, _swap_words, _add_variable, _add_variable))(draw, words)
    if draw.random() < 0.6:
        return words
    text = shlex.join(words)
    for _ in range(draw.choice((0, 1, 3))):
        at = draw.randrange(len(text) + 1)
        text = text[:at] + draw.choice(CHARACTERS) + text[at + draw.randint(0, 1) :]
    return text


def _add_option(draw: random.Random, words: list[str]) -> None:
    option = draw.choice(catalog().options)
    words.append(draw.choice(option.options))
    if not option.takes_value:
        return
    choices = tuple(map(str, option.choices or ())) or NUMBERS.get(str(option.type), NASTY)
    words.append(draw.choice(choices if draw.random() < 0.85 else NASTY))


def _change_word(draw: random.Random, words: list[str]) -> None:
    if words:
        words[draw.randrange(len(words))] = draw.choice(NASTY)


def _drop_word(draw: random.Random, words: list[str]) -> None:
    if words:
        del words[draw.randrange(len(words))]


def _swap_words(draw: random.Random, words: list[str]) -> None:
    if len(words) > 1:
        i, j = draw.sample(range(len(words)), 2)
        words[i], words[j] = words[j], words[i]


def _add_variable(draw: random.Random, words: list[str]) -> None:
    words.insert(0, f"{draw.choice(VARIABLES)}={draw.choice(NASTY)}")


def read(command: str | list[str], name: str, *, measured: bool) -> None:
    """Everything that happens to a pasted command. Only our own errors may come out, as one line."""
    try:
        server = Server.parse(command)
        assert Server.parse(server.format()) == server
        server.display()
        resolved = resolve(server, platform(name))
        figures = Measured(60.0, 20.0) if measured else None
        ledger(resolved, figures).to_json((8192, 1024))
    except PeriluneError as error:
        text = str(error)
        assert text
        assert len(text) < 2_000


@pytest.mark.parametrize("seed", range(LINES // CHUNK))
def test_mutated_command_lines_never_crash(seed: int) -> None:
    draw = random.Random(seed)
    names = tuple(platforms())
    for _ in range(CHUNK):
        command, name = mutated(draw), draw.choice(names)
        try:
            read(command, name, measured=draw.random() < 0.5)
        except Exception as error:
            pytest.fail(f"{type(error).__name__}: {error}\non {name}: {command!r:.3000}")


ONCE_CRASHED = {
    "an option of dashes only": ("a3", "sglang serve moonshotai/Kimi-K3 --=x"),
    "a device with a long name": ("mi355x", f"sglang serve moonshotai/Kimi-K3 --device {'[' * 6_000}"),
    "DCP wider than TP": ("mi350x", "sglang serve meta-llama/Llama-3.3-70B-Instruct --tp-size 8 --dcp-size 65536"),
}


@pytest.mark.parametrize("what", ONCE_CRASHED)
def test_a_line_that_once_crashed(what: str) -> None:
    name, command = ONCE_CRASHED[what]
    read(command, name, measured=False)


@pytest.mark.parametrize(
    "command",
    [
        "sglang serve --host " + "x" * 10_000_000,
        "x" * 10_000_000,
        "'" * 9_999_999,
        "\\\n" * 5_000_000,
        "sglang serve " + "--tp-size 8 " * 900_000,
    ],
    ids=["one long value", "one long word", "quotes", "continuations", "many flags"],
)
def test_ten_megabytes_get_one_sentence_quickly(command: str) -> None:
    started = time.perf_counter()
    with pytest.raises(UnusableInput, match="characters; the most that is read"):
        Server.parse(command)
    assert time.perf_counter() - started < 0.5


@pytest.mark.parametrize(
    "text",
    ["'" * 262_143, "\\\n" * 131_000, "$(" * 131_000, '"\\' * 131_000, "<a" * 131_000, "2>" * 131_000, "# " * 131_000],
    ids=["quotes", "continuations", "substitutions", "escapes", "placeholders", "redirections", "comments"],
)
def test_the_longest_text_that_is_read_is_read_quickly(text: str) -> None:
    started = time.process_time()
    with pytest.raises(UnusableInput):
        Server.parse(text)
    assert time.process_time() - started < 2
