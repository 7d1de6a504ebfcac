"""Edits by hand: `--set`, `--unset` and `--env` on top of a recipe."""

from __future__ import annotations

import pytest

from perilune.errors import UnusableInput
from perilune.plan.compose import Choice, Override, compose, parse_env, parse_knob, parse_set, parse_unset
from perilune.plan.compose.flags import parse
from perilune.plan.deployment import Pool

READ = {"set": parse_set, "unset": parse_unset, "env": parse_env}


def edits(*texts: str) -> tuple[Override, ...]:
    """Overrides written as `set tp-size=16`, `unset dcp-size`, `env A=B`."""
    return tuple(READ[kind](rest) for kind, _, rest in (text.partition(" ") for text in texts))


def composed(*texts: str, **choice: object) -> Pool:
    return compose(Choice(**choice, overrides=edits(*texts))).pools[0]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "flag"),
    [
        ("set max-running-requests=256", "--max-running-requests 256"),
        ("set --max-running-requests=256", "--max-running-requests 256"),
        ("set max_running_requests=256", "--max-running-requests 256"),
        ("set tensor-parallel-size=4", "--tp-size 4"),  # an alias replaces the recipe's spelling
        ("set cuda-graph-bs-decode=1 2 4", "--cuda-graph-bs-decode 1 2 4"),
        ("set enable-metrics", "--enable-metrics"),
        ("set mem-fraction-static=0.9", "--mem-fraction-static 0.9"),
        ("set mamba-full-memory-ratio=2", "--mamba-full-memory-ratio 2"),
    ],
)
def test_set_writes_a_flag_once_in_the_canonical_spelling(text: str, flag: str) -> None:
    written = parse(composed(text, hardware="b300", strategy="low-latency").server.argv)
    assert parse(flag.split())[0] in written
    assert len({f.name for f in written}) == len(written)


def test_set_keeps_the_place_of_a_flag_and_puts_a_new_one_before_host() -> None:
    argv = composed("set tp-size=4", "set enable-metrics", hardware="b300", strategy="low-latency").server.argv
    names = [flag.name for flag in parse(argv)]
    assert names[1:3] == ["--model-path", "--tp-size"]
    assert names.index("--enable-metrics") + 2 == names.index("--host")  # the ratio follows it


def test_a_value_with_shell_characters_stays_one_word() -> None:
    hostile = '{"a": "$(reboot)"} ; rm -rf /'
    pool = composed(f"set json-model-override-args={hostile}", hardware="b300")
    assert pool.server.value("--json-model-override-args") == hostile
    assert pool.server.parse(pool.server.format()).argv == pool.server.argv


def test_a_value_that_looks_like_a_flag_is_joined() -> None:
    argv = composed("set served-model-name=--k3", hardware="b300").server.argv
    assert "--served-model-name=--k3" in argv


def test_unset_removes_a_flag_or_a_variable() -> None:
    pool = composed("unset dcp-size", hardware="b300")
    assert "--dcp-size" not in pool.server.argv
    assert pool.server.value("--mamba-full-memory-ratio") == "0.86"  # computed from what remains
    assert composed("unset SGLANG_USE_AITER", hardware="mi355x").server.env[0][0] == "SGLANG_AITER_K3_OPT"


@pytest.mark.parametrize(
    ("texts", "gone", "kept"),
    [
        (("unset mamba-full-memory-ratio",), "--mamba-full-memory-ratio", "--max-running-requests"),
        (("unset max-running-requests",), "--max-running-requests", "--mamba-full-memory-ratio"),
        # a pin takes the ratio's place by itself; that the ratio is removed as well is no mistake
        (
            ("unset mamba-full-memory-ratio", "set max-mamba-cache-size=321"),
            "--mamba-full-memory-ratio",
            "--max-mamba-cache-size",
        ),
    ],
)
def test_what_is_computed_after_the_recipe_can_be_removed_too(texts: tuple[str, ...], gone: str, kept: str) -> None:
    pool = composed(*texts, hardware="mi350x", isl=8192, osl=1024, concurrency=64)
    assert gone not in pool.server.argv
    assert kept in pool.server.argv
    assert not any(note.startswith(gone) for note in pool.notes)


def test_node_flags_can_be_removed_and_a_later_write_wins() -> None:
    assert "--dist-init-addr" not in composed("unset dist-init-addr", hardware="a3").server.argv
    again = composed("unset mamba-full-memory-ratio", "set mamba-full-memory-ratio=2", hardware="b300")
    assert again.server.value("--mamba-full-memory-ratio") == "2"


def test_a_flag_that_is_nowhere_cannot_be_removed() -> None:
    with pytest.raises(UnusableInput, match="--mamba-full-memory-ratio is not on this command"):
        composed("unset mamba-full-memory-ratio", hardware="a3")  # the page sizes no pool by ratio on NPUs


def test_env_replaces_or_adds() -> None:
    pool = composed("env SGLANG_AITER_K3_OPT=0", "env NCCL_DEBUG=INFO", hardware="mi355x")
    assert pool.server.env[1] == ("SGLANG_AITER_K3_OPT", "0")
    assert pool.server.env[-1] == ("NCCL_DEBUG", "INFO")


def test_an_override_for_one_role_leaves_the_other_alone() -> None:
    choice = Choice(hardware="b300", mode="pd", overrides=edits("set decode:mem-fraction-static=0.9"))
    prefill, decode = compose(choice).pools
    assert prefill.server.value("--mem-fraction-static") == "0.85"
    assert decode.server.value("--mem-fraction-static") == "0.9"


def test_ports_that_are_set_reach_the_router() -> None:
    texts = (
        "set prefill:port=31000",
        "set decode:port=31100",
        "set prefill:disaggregation-bootstrap-port=9000",
    )
    router = compose(Choice(hardware="b300", mode="pd", overrides=edits(*texts))).router
    assert router is not None
    assert router[5:9] == ("http://<prefill-host>:31000", "9000", "--decode", "http://<decode-host>:31100")


@pytest.mark.parametrize(
    ("texts", "gpus", "nodes"),
    [
        (("set tp-size=16",), 16, 2),
        (("set tp-size=4",), 4, 1),
        (("set tp-size=4", "set pp-size=4"), 16, 2),
        (("set dp-size=2",), 16, 2),
        (("set nnodes=2",), 8, 2),
    ],
)
def test_nodes_and_gpus_follow_the_command(texts: tuple[str, ...], gpus: int, nodes: int) -> None:
    pool = composed(*texts, hardware="b300")
    assert (pool.gpus, pool.nodes) == (gpus, nodes)
    assert ("--nnodes" in pool.server.argv) == (nodes > 1)


def test_setting_an_unpublished_value_settles_it() -> None:
    texts = (
        "set prefill:cuda-graph-backend-decode=disabled",
        "set prefill:cuda-graph-backend-prefill=disabled",
        "set max-running-requests=64",
        "env ASCEND_MF_STORE_URL=tcp://10.0.0.1:20500",
    )
    deployment = compose(Choice(hardware="a3", mode="pd", overrides=edits(*texts)))
    assert deployment.unpublished == ()
    assert not [word for pool in deployment.pools for word in pool.server.argv if word.startswith("<flag")]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("set max-runing-requests=4", "Did you mean --max-running-requests?"),
        ("set max-running-requests", "--max-running-requests needs a value"),
        ("set max-running-requests=", "needs a value"),
        ("set enable-metrics=yes", "--enable-metrics takes no value"),
        ("set tp-size=eight", "'eight' is not a whole number"),
        ("set tp-size=0", "has no GPU"),
        ("set tp-size=99999999999999999999", "not a whole number below a billion"),
        ("set tp-size=999999999", "nodes is not between 1 and 10,000"),
        ("set nnodes=0", "0 nodes is not between"),
        ("set cuda-graph-bs-decode='1 2", "do not close"),
        ("set served-model-name=a\nb", "control character"),
        ("set help", "--help"),
        ("set decode:tp-size=4", "no decode pool"),
        ("unset dp-size", "--dp-size is not on this command"),
        ("unset NCCL_DEBUG", "NCCL_DEBUG is not on this command"),
        ("unset no-such-flag-at-all", "SGLang has no option"),
        ("env NCCL_DEBUG", "is not NAME=VALUE"),
        ("env 1A=2", "is not NAME=VALUE"),
        ("env A B=2", "is not NAME=VALUE"),
        ("set served-model-name=" + "x" * 30_000, "longer than 20,000"),
    ],
)
def test_an_unusable_edit_gets_one_sentence(text: str, said: str) -> None:
    with pytest.raises(UnusableInput) as caught:
        composed(text, hardware="b300")
    assert said in str(caught.value)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("text", ["megamoe", "=x", "moe-backend="])
def test_an_unusable_knob_gets_one_sentence(text: str) -> None:
    with pytest.raises(UnusableInput, match="is not NAME=VALUE"):
        parse_knob(text)
