"""A server's command line as a value: every way people write it, and back."""

from __future__ import annotations

import time

import pytest

from perilune.errors import UnusableInput
from perilune.plan.server import Server

COOKBOOK = """\
SGLANG_ENABLE_TP_MEMORY_INBALANCE_CHECK=0 \\
NCCL_CUMEM_ENABLE=1 \\
sglang serve \\
  --trust-remote-code \\
  --model-path moonshotai/Kimi-K3 \\
  --tp-size 8 \\
  --dist-init-addr <node0-ip>:20000 \\
  --json-model-override-args '{"a": 1}'
"""
DOCKER = """\
docker run --gpus all \\
    --shm-size 32g \\
    -p 30000:30000 \\
    -v ~/.cache/huggingface:/root/.cache/huggingface \\
    --env "HF_TOKEN=<your-hf-token>" \\
    -e SGLANG_USE_AITER=1 --env=A='x y' \\
    --ipc=host \\
    lmsysorg/sglang:kimi-k3 \\
    sglang serve \\
    --model-path moonshotai/Kimi-K3 \\
    --tp-size 8
"""

# what is written -> environment of the server, program, arguments
WRITTEN = {
    "sglang serve --tp-size 8": ({}, "sglang serve", "--tp-size 8"),
    "sglang serve --tp-size=8 m": ({}, "sglang serve", "--tp-size=8 m"),
    "/usr/bin/sglang serve --tp 8": ({}, "/usr/bin/sglang serve", "--tp 8"),
    "python -m sglang.launch_server --tp 8": ({}, "python -m sglang.launch_server", "--tp 8"),
    "python3.12 -u -m sglang.launch_server": ({}, "python3.12 -u -m sglang.launch_server", ""),
    "A=1 B='x y' sglang serve": ({"A": "1", "B": "x y"}, "sglang serve", ""),
    "env A=1 B=2 sglang serve": ({"A": "1", "B": "2"}, "sglang serve", ""),
    "export A=1 B=2\nexport C=3\nsglang serve": ({"A": "1", "B": "2", "C": "3"}, "sglang serve", ""),
    "export A=1; A=2 sglang serve": ({"A": "2"}, "sglang serve", ""),
    "numactl -N 0 sglang serve --tp 8": ({}, "sglang serve", "--tp 8"),
    "A= sglang serve": ({"A": ""}, "sglang serve", ""),
    "--tp-size 8 --dcp-size 8": ({}, "", "--tp-size 8 --dcp-size 8"),
    "--tp-size 8\n--dcp-size 8\n": ({}, "", "--tp-size 8 --dcp-size 8"),
    "A=1 --tp-size 8": ({"A": "1"}, "", "--tp-size 8"),
    "sglang serve \\\r\n  --tp-size 8 \\\r\n  --dcp-size 8\r\n": (
        {},
        "sglang serve",
        "--tp-size 8 --dcp-size 8",
    ),
    "# how we start\nsglang serve # here\n\n": ({}, "sglang serve", ""),
    "sglang serve --tp-size 8 \\": ({}, "sglang serve", "--tp-size 8"),
    "sglang serve --tp-size 8 > log 2>&1 &": ({}, "sglang serve", "--tp-size 8"),
    "sglang serve --tp-size 8 2>&1 | tee -a log": ({}, "sglang serve", "--tp-size 8"),
    "nohup sglang serve &> log &": ({}, "sglang serve", ""),
    "sglang serve --host $HOST --port ${P}": ({}, "sglang serve", "--host '$HOST' --port '${P}'"),
    "sglang serve --host $(hostname -I)": ({}, "sglang serve", "--host '$(hostname -I)'"),
    'sglang serve --api-key \'a b\' --x "c\\"d" e\\ f': (
        {},
        "sglang serve",
        "--api-key 'a b' --x 'c\"d' 'e f'",
    ),
    "sglang serve --served-model-name a#b": ({}, "sglang serve", "--served-model-name 'a#b'"),
    "sglang serve --host ''": ({}, "sglang serve", "--host ''"),
    "sglang serve --node-rank <node-rank>": ({}, "sglang serve", "--node-rank '<node-rank>'"),
    "sglang serve --chat-template 模板.jinja": ({}, "sglang serve", "--chat-template '模板.jinja'"),
}

IN_A_SHELL = {
    "bash -c 'A=1 sglang serve --tp 8'": "A=1 sglang serve --tp 8",
    "nohup sh -lc 'exec sglang serve --tp 8' &": "nohup sglang serve --tp 8",
    "docker run -e B=2 img bash -c 'A=1 sglang serve --tp 8'": "docker run -e B=2 --env A=1 img sglang serve --tp 8",
    "docker run --entrypoint bash img -c 'sglang serve --tp 8'": "docker run img sglang serve --tp 8",
    "docker run --entrypoint=/bin/sh --gpus all img -c 'sglang serve'": "docker run --gpus all img sglang serve",
}

REFUSED = {
    "": "It is empty",
    "   \n# only a comment\n": "It is empty",
    "ls -l": "starts with 'ls'",
    "vllm serve moonshotai/Kimi-K3": "starts with 'vllm'",
    "docker run lmsysorg/sglang:kimi-k3 bash": "starts with 'docker'",
    "bash -c 'cd /x; sglang serve'": "The shell is given 2 commands",
    "bash -c ''": "The shell is given 0 commands",
    "bash -c 'bash'": "starts with 'bash'",
    "A=1\nsglang serve": "line 1: A=... on a line of its own",
    "export A\nsglang serve": "line 1: An export line may only hold",
    "sglang serve\n--tp-size 8": "line 2: '--tp-size' starts another command. End the line before it",
    "sglang serve --tp 8\nsglang serve --tp 4": "line 2: 'sglang' starts another command. Give one",
    "sglang serve --tp 8 && echo done": "'echo' starts another command",
    "sglang serve --tp 8 || true": "`||` makes the command depend",
    "sglang serve > log --tp 8": "'--tp' comes after a redirection",
    "sglang serve --host 'x": 'line 1: The character "\'" opens something',
    'sglang serve \\\n  --host "x': "line 2: The character '\"' opens something",
    "sglang serve --host a\0b": "line 1: It contains a NUL byte",
}


@pytest.mark.parametrize("text", WRITTEN)
def test_reading(text: str) -> None:
    environment, program, arguments = WRITTEN[text]
    server = Server.parse(text)
    assert dict(server.environment) == environment
    assert " ".join(server.program) == program
    assert server.argv == Server.parse(f"sglang serve {arguments}").argv


@pytest.mark.parametrize("text", [*WRITTEN, COOKBOOK, DOCKER])
@pytest.mark.parametrize("one_per_line", [False, True])
def test_writing_loses_nothing(text: str, one_per_line: bool) -> None:
    server = Server.parse(text)
    assert Server.parse(server.format(one_per_line=one_per_line)) == server


@pytest.mark.parametrize("text", REFUSED)
def test_what_cannot_be_read_says_where_and_why(text: str) -> None:
    with pytest.raises(UnusableInput) as caught:
        Server.parse(text)
    assert REFUSED[text] in str(caught.value)


@pytest.mark.parametrize("text", IN_A_SHELL)
def test_a_shell_around_the_command_adds_nothing(text: str) -> None:
    assert Server.parse(text) == Server.parse(IN_A_SHELL[text])


def test_words_that_a_shell_has_split() -> None:
    server = Server.parse(["A=x y", "sglang", "serve", "--host", "a b", "--tp=8"])
    assert server.environment == {"A": "x y"}
    assert server.argv == ("--host", "a b", "--tp=8")
    assert server.format() == "A='x y' sglang serve --host 'a b' --tp=8"


def test_the_layout_people_read() -> None:
    assert Server.parse(COOKBOOK).format(one_per_line=True) == COOKBOOK.rstrip().replace(
        "<node0-ip>:20000", "'<node0-ip>:20000'"
    )


def test_a_container() -> None:
    server = Server.parse(DOCKER)
    assert (server.container, server.image) == ("docker", "lmsysorg/sglang:kimi-k3")
    assert dict(server.environment) == {"HF_TOKEN": "<your-hf-token>", "SGLANG_USE_AITER": "1", "A": "x y"}
    changed = server.with_env({"A": "2", "SGLANG_USE_AITER": None, "B": "3"})
    assert dict(changed.environment) == {"HF_TOKEN": "<your-hf-token>", "A": "2", "B": "3"}
    assert changed.image == server.image
    assert Server.parse(changed.format()) == changed


def test_a_container_sees_only_what_it_is_given() -> None:
    server = Server.parse("HF_TOKEN=t OTHER=1 docker run -e HF_TOKEN -e MISSING img sglang serve")
    assert dict(server.environment) == {"HF_TOKEN": "t"}


def test_the_environment_of_a_plain_command() -> None:
    server = Server.parse("A=1 B=2 sglang serve").with_env({"A": None, "B": "3", "C": "4"})
    assert server.format() == "B=3 C=4 sglang serve"


VALUES = {
    # flag asked for: value of the last occurrence
    "--tp-size": "16",
    "--tensor-parallel-size": "16",
    "--tp": "16",
    "--cuda-graph-bs-decode": "1 2 4",
    "--mem-fraction-static": "0.9",
    "--chunked-prefill-size": "-1",
    "--trust-remote-code": None,
    "--dcp-size": None,
}


@pytest.mark.parametrize("flag", VALUES)
def test_the_value_of_a_flag(flag: str) -> None:
    server = Server.parse(
        "sglang serve --tp 8 --trust-remote-code --cuda-graph-bs-decode 1 2 4 --mem-fraction-static=0.9"
        " --chunked-prefill-size -1 --tensor-parallel-size 16"
    )
    assert server.value(flag) == VALUES[flag]
    assert server.has(flag) == (flag != "--dcp-size")


CHANGES = {
    "replace in place": (("--tp-size", 16), "--tp-size 16 --host h --no-dcp-replicate-q-proj"),
    "replace a prefix spelling": (
        ("--tensor-parallel-size", "4"),
        "--tensor-parallel-size 4 --host h --no-dcp-replicate-q-proj",
    ),
    "append": (("--dcp-size", 8), "--tp 8 --host h --no-dcp-replicate-q-proj --dcp-size 8"),
    "a switch": (("--enable-symm-mem", None), "--tp 8 --host h --no-dcp-replicate-q-proj --enable-symm-mem"),
    "the opposite switch": (("--dcp-replicate-q-proj", None), "--tp 8 --host h --dcp-replicate-q-proj"),
    "several values": (
        ("--cuda-graph-bs-decode", (1, 2)),
        "--tp 8 --host h --no-dcp-replicate-q-proj --cuda-graph-bs-decode 1 2",
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_setting_a_flag(change: str) -> None:
    (flag, value), expected = CHANGES[change]
    server = Server.parse("--tp 8 --host h --no-dcp-replicate-q-proj")
    assert server.set(flag, value).format() == expected


def test_unsetting_a_flag_removes_every_spelling_and_its_values() -> None:
    server = Server.parse("--tp 8 --cuda-graph-bs-decode 1 2 --tp-size=4 --host h --tensor-parallel-size 2")
    assert server.unset("--tp-size").unset("--cuda-graph-bs-decode").format() == "--host h"
    assert server.unset("--nowhere") == server


SHOWN = {
    "HF_TOKEN=hf_abc sglang serve": "HF_TOKEN='<hf-token>' sglang serve",
    "HF_TOKEN='<your-hf-token>' sglang serve": "HF_TOKEN='<your-hf-token>' sglang serve",
    "HF_TOKEN=$HF_TOKEN sglang serve": "HF_TOKEN='$HF_TOKEN' sglang serve",
    "AWS_SECRET_ACCESS_KEY=x sglang serve": "AWS_SECRET_ACCESS_KEY='<aws-secret-access-key>' sglang serve",
    "sglang serve --api-key sk-1 --tp 8": "sglang serve --api-key '<api-key>' --tp 8",
    "sglang serve --api-key=sk-1": "sglang serve '--api-key=<api-key>'",
    "sglang serve --admin-api-key sk-1": "sglang serve --admin-api-key '<admin-api-key>'",
    "sglang serve --ssl-keyfile-password p": "sglang serve --ssl-keyfile-password '<ssl-keyfile-password>'",
    "docker run -e HF_TOKEN=hf_abc --env=A_TOKEN=b img sglang serve": (
        "docker run -e 'HF_TOKEN=<hf-token>' '--env=A_TOKEN=<a-token>' img sglang serve"
    ),
    "sglang serve --max-total-tokens 5": "sglang serve --max-total-tokens 5",
}


@pytest.mark.parametrize("text", SHOWN)
def test_secrets_are_hidden_from_eyes_and_kept_for_running(text: str) -> None:
    server = Server.parse(text)
    assert server.display() == SHOWN[text]
    assert SHOWN[text] in str(repr(server)).replace('\\"', '"').replace("\\'", "'")
    assert Server.parse(server.format()) == server


def test_ten_megabytes_are_refused_at_once() -> None:
    started = time.perf_counter()
    for command in ("sglang serve --host " + "x" * 10_000_000, ["sglang", "serve", "x" * 10_000_000]):
        with pytest.raises(UnusableInput, match=r"10,000,0\d\d characters"):
            Server.parse(command)
    with pytest.raises(UnusableInput, match="more than 8,192 words"):
        Server.parse("sglang serve" + " x" * 9_000)
    assert time.perf_counter() - started < 1
