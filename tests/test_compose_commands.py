"""The commands of a deployment: per node, for a shell and for docker, and the listing of recipes."""

from __future__ import annotations

import shlex
import shutil
import subprocess

import pytest

from perilune.errors import UnusableInput
from perilune.plan.compose import (
    Choice,
    CommandBlock,
    commands,
    compose,
    parse_env,
    parse_set,
    placeholders_left,
    recipes,
)
from perilune.plan.server import Server


def blocks(
    form: str = "shell", head_ip: str | None = None, nic: str | None = None, **choice: object
) -> tuple[CommandBlock, ...]:
    return commands(compose(Choice(**choice)), form, head_ip=head_ip, nic=nic)  # type: ignore[arg-type]


def after_serve(block: CommandBlock) -> tuple[str, ...]:
    return block.argv[block.argv.index("serve") + 1 :]


def test_one_block_a_node_and_one_for_the_router() -> None:
    found = blocks(hardware="gb300", mode="pd")
    assert [(block.pool, block.node) for block in found] == [
        ("prefill", 0),
        ("prefill", 1),
        ("decode", 0),
        ("decode", 1),
        ("router", 0),
    ]
    ranks = [block.argv[block.argv.index("--node-rank") + 1] for block in found[:4]]
    assert ranks == ["0", "1", "0", "1"]


@pytest.mark.parametrize("form", ["shell", "docker"])
@pytest.mark.parametrize("name", ["b300", "b200", "h200", "mi355x", "a3", "950"])
def test_text_and_words_are_the_same_command(name: str, form: str) -> None:
    for block in blocks(form, hardware=name):
        read = Server.parse(block.text)
        assert read.argv == after_serve(block)
        if form == "shell":
            assert read.env == block.env
        else:
            assert read.container == "docker"
            assert read.image == compose(Choice(hardware=name)).pools[0].image


def test_known_addresses_and_the_nic_go_in() -> None:
    head, other, *_ = blocks(hardware="h100", head_ip="10.0.0.1", nic="eth0")
    assert head.argv[head.argv.index("--dist-init-addr") + 1] == "10.0.0.1:20000"
    assert dict(head.env)["SGLANG_HOST_IP"] == "10.0.0.1"
    assert dict(other.env)["SGLANG_HOST_IP"] == "<this-node-ip>"
    assert dict(other.env)["NCCL_SOCKET_IFNAME"] == dict(other.env)["GLOO_SOCKET_IFNAME"] == "eth0"
    assert (head.open, other.open) == ((), ("<this-node-ip>",))


def test_unknown_values_stay_literal_quoted_and_are_listed() -> None:
    found = blocks(hardware="h100")
    assert "--dist-init-addr '<node0-ip>:20000'" in found[0].text
    assert [left.token for left in placeholders_left(found)] == ["<node0-ip>", "<this-node-ip>", "<your-nic>"]
    assert all(left.means for left in placeholders_left(found))


def test_both_heads_of_a_pair_reach_pools_and_router() -> None:
    found = blocks(hardware="a3", mode="pd", head_ip="10.0.0.1,10.0.1.1")
    prefill, decode, router = found[0], found[2], found[-1]
    assert prefill.argv[prefill.argv.index("--dist-init-addr") + 1] == "10.0.0.1:20000"
    assert decode.argv[decode.argv.index("--dist-init-addr") + 1] == "10.0.1.1:20000"
    # Both pools register at the prefill head.
    assert dict(decode.env)["ASCEND_MF_STORE_URL"] == dict(prefill.env)["ASCEND_MF_STORE_URL"]
    assert dict(decode.env)["ASCEND_MF_STORE_URL"] == "tcp://10.0.0.1:<store-port>"
    assert "http://10.0.0.1:30000" in router.argv
    assert "http://10.0.1.1:30100" in router.argv


def test_heads_can_be_named_by_role_and_one_alone_is_that_of_prefill() -> None:
    named = blocks(hardware="b300", mode="pd", head_ip="decode=d0,prefill=p0")[-1]
    assert "http://p0:30000" in named.argv
    assert "http://d0:30100" in named.argv
    alone = blocks(hardware="b300", mode="pd", head_ip="p0")[-1]
    assert alone.open == ("<decode-host>",)


def test_an_ipv6_head_gets_brackets_beside_a_port() -> None:
    block = blocks(hardware="h100", head_ip="fd00::1")[0]
    assert block.argv[block.argv.index("--dist-init-addr") + 1] == "[fd00::1]:20000"
    assert dict(block.env)["SGLANG_HOST_IP"] == "fd00::1"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"head_ip": "10.0.0.1; reboot"}, "neither an IP address nor a host name"),
        ({"head_ip": "a\nb"}, "neither"),
        ({"head_ip": "$(id)"}, "neither"),
        ({"head_ip": ""}, "neither"),
        ({"head_ip": "a,b"}, "2 addresses for 1 pools"),
        ({"head_ip": "decode=a"}, "no 'decode' pool"),
        ({"nic": "eth0 && id"}, "not the name of a network interface"),
        ({"nic": ""}, "not the name"),
        ({"form": "helm"}, "Known: shell docker"),
    ],
)
def test_an_unusable_address_or_name_is_one_sentence(given: dict[str, str], said: str) -> None:
    with pytest.raises(UnusableInput, match=said):
        blocks(**{"hardware": "h100", **given})  # type: ignore[arg-type]


def test_two_pools_cannot_share_a_head() -> None:
    with pytest.raises(UnusableInput, match="rendezvous would merge"):
        blocks(hardware="gb300", mode="pd", head_ip="10.0.0.1,10.0.0.1")


DOCKER = {
    "b300": "docker run --gpus all --shm-size 32g -p 30000:30000",
    "h200": "docker run --gpus all --shm-size 32g --network host",
    "mi355x": (
        "docker run --device=/dev/kfd --device=/dev/dri --group-add video --cap-add=SYS_PTRACE "
        "--security-opt seccomp=unconfined --shm-size 32g -p 30000:30000"
    ),
    "950": (
        "docker run --privileged --shm-size=16g --device=/dev/davinci0 --device=/dev/davinci1 "
        "--device=/dev/davinci2 --device=/dev/davinci3 --device=/dev/davinci4 --device=/dev/davinci5 "
        "--device=/dev/davinci6 --device=/dev/davinci7 --device=/dev/davinci_manager --device=/dev/hisi_hdc "
        "-v /usr/local/sbin:/usr/local/sbin -v /usr/local/Ascend/driver:/usr/local/Ascend/driver "
        "-v /usr/local/Ascend/firmware:/usr/local/Ascend/firmware "
        "-v /etc/ascend_install.info:/etc/ascend_install.info -v /var/queue_schedule:/var/queue_schedule "
        "-v ~/.cache/:/root/.cache/ --network host"
    ),
}


@pytest.mark.parametrize(("name", "start"), DOCKER.items())
def test_the_docker_form_by_vendor(name: str, start: str) -> None:
    block = blocks("docker", hardware=name)[0]
    words = tuple(start.split())
    assert block.argv[: len(words)] == words
    cache = "~/.cache/huggingface:/root/.cache/huggingface"
    assert (cache in block.argv) == (name != "950")
    assert block.argv.count("HF_TOKEN=<your-hf-token>") == 1
    image = block.argv.index("--ipc=host") + 1
    assert block.argv[image + 1 : image + 3] == ("sglang", "serve")
    assert block.env == ()


def test_a_pd_role_in_docker_uses_the_network_of_the_host() -> None:
    for block in blocks("docker", hardware="b300", mode="pd")[:2]:
        assert "--network" in block.argv
        assert "-p" not in block.argv


def test_several_amd_nodes_get_their_fabric_in_docker() -> None:
    wide = compose(Choice(hardware="mi355x", overrides=(parse_set("pp-size=2"),)))
    assert "/dev/infiniband" in commands(wide, "docker")[0].argv
    assert "/dev/infiniband" not in blocks("docker", hardware="mi355x")[0].argv


def test_hostile_values_survive_a_real_shell(tmp_path: object) -> None:
    hostile = "$(touch pwned) `id` \"'; & | > x"
    edits = (parse_set(f"served-model-name={hostile}"), parse_env(f"SGLANG_NOTE={hostile}"))
    block = commands(compose(Choice(hardware="b300", overrides=edits)))[0]
    shell = shutil.which("sh")
    assert shell is not None
    script = 'sglang() { shift; printf "%s\\0" "$SGLANG_NOTE" "$@"; }\n' + block.text
    done = subprocess.run([shell, "-c", script], capture_output=True, text=True, check=True, cwd=str(tmp_path))
    assert tuple(done.stdout.split("\0")[:-1]) == (hostile, *after_serve(block))


def test_comments_hold_the_hints_of_the_pool() -> None:
    block = blocks(hardware="b200")[0]
    assert any("GLOO_SOCKET_IFNAME" in comment for comment in block.comments)
    l3 = blocks(hardware="b300", hicache="l3")[0]
    assert any("mooncake_master" in comment for comment in l3.comments)
    assert "<mooncake.json>" in l3.open


def test_shell_text_is_one_flag_a_line() -> None:
    lines = blocks(hardware="b300")[0].text.splitlines()
    assert lines[0] == "sglang serve \\"
    assert all(line.startswith("  --") for line in lines[1:])
    assert all(len(shlex.split(line.removesuffix("\\"))) <= 2 for line in lines[1:])


@pytest.mark.parametrize(
    ("filters", "count"),
    [
        ({}, 52),
        ({"hardware_id": "b300"}, 8),
        ({"role": "prefill"}, 9),
        ({"strategy": "balanced"}, 19),
        ({"hardware_id": "a5"}, 1),
        ({"hardware_id": "h100", "role": "prefill"}, 0),
    ],
)
def test_recipes_can_be_filtered(filters: dict[str, str], count: int) -> None:
    assert len(recipes(**filters)) == count


def test_a_row_says_what_a_recipe_allows() -> None:
    row = next(row for row in recipes("b200") if row.id == "b200/unified/balanced")
    assert (row.shape, row.nodes, row.gpus) == ("PP2 TP8 DCP8 EP8", 2, 16)
    assert row.quant == ("mxfp4", "nvfp4")
    assert row.spec == ("none", "dspark")
    assert row.hicache == ("off", "l2", "l3")
    assert row.presets == ("peak-throughput", "peak-capacity")
    a3 = recipes("a3", "decode")[0]
    assert (a3.completeness, a3.confidence, a3.spec, a3.presets) == ("partial", "low", ("dspark",), ())


@pytest.mark.parametrize("filters", [{"hardware_id": "x"}, {"role": "x"}, {"strategy": "x"}])
def test_an_unknown_filter_is_one_sentence(filters: dict[str, str]) -> None:
    with pytest.raises(UnusableInput, match="Known"):
        recipes(**filters)
