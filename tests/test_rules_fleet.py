"""A fleet's errors whose right value another server has: corrected where they stand, and nowhere else."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from perilune.cli.check import check

NODE = (
    'ssh node{n} "sglang serve --model-path moonshotai/Kimi-K3 --tp-size 16 --ep-size 16 --moe-runner-backend marlin '
    '--mem-fraction-static 0.85 --nnodes 2 {flags}" &'
)
MEET = "--dist-init-addr 10.0.0.1:20000"


def script(*flags: str) -> str:
    nodes = (NODE.format(n=n, flags=one) for n, one in enumerate(flags))
    return "\n".join(["#!/bin/bash", "# both nodes", *nodes, "wait", ""])


@pytest.mark.parametrize(
    ("second", "right"),
    [
        ("--dist-init-addr 10.0.0.2:20000 --node-rank 1", f"{MEET} --node-rank 1"),
        (f"{MEET} --node-rank 0", f"{MEET} --node-rank 1"),
        (f"{MEET} --node-rank 1 --kv-cache-dtype fp8_e4m3", f"{MEET} --node-rank 1"),
        (f"{MEET} --node-rank 1 --chunked-prefill-size 4096", f"{MEET} --node-rank 1"),
        (f"{MEET} --node-rank 1 --disable-radix-cache", f"{MEET} --node-rank 1"),
    ],
)
def test_the_odd_node_is_made_like_node_0(tmp_path: Path, second: str, right: str) -> None:
    path = tmp_path / "nodes.sh"
    path.write_text(script(f"{MEET} --node-rank 0", second))
    command = [str(path), "--platform", "h200"]
    found = CliRunner().invoke(check, command, standalone_mode=False)
    assert found.return_value == 1
    assert "nodes.sh:4 error pool-" in found.output
    fixed = CliRunner().invoke(check, [*command, "--fix"], standalone_mode=False)
    assert fixed.return_value == 0, fixed.output
    assert fixed.stdout == script(f"{MEET} --node-rank 0", right)
    path.write_text(fixed.stdout)
    assert CliRunner().invoke(check, command, standalone_mode=False).return_value == 0
