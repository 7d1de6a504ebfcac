"""Nodes, ports and images of servers: what each is given against what it takes."""

from __future__ import annotations

import pytest

from perilune.facts.hardware import platform, platforms
from perilune.plan.rules import Finding, findings_of, fleet_findings, subject_of
from perilune.plan.rules.images import image_platform
from perilune.plan.rules.ports import derived_ports
from perilune.plan.rules.ranks import ranks_here, visible_devices
from perilune.plan.server import Server

K3 = "--model-path moonshotai/Kimi-K3 --trust-remote-code"
MEET = "--dist-init-addr 10.0.0.1:20000"


def findings(command: str, where: str = "b300", **given: object) -> list[Finding]:
    return findings_of(subject_of(Server.parse(command), platform(where), expands=True, **given))  # type: ignore[arg-type]


def ids(found: list[Finding], *families: str) -> list[str]:
    return [finding.id for finding in found if finding.id.startswith(families)]


@pytest.mark.parametrize(
    ("tp", "pp", "nodes", "ranks"),
    [(8, 1, 1, 8), (16, 1, 2, 8), (64, 1, 4, 16), (1, 8, 1, 8), (1, 8, 2, 4), (8, 2, 4, 4), (4, 4, 2, 8), (8, 4, 4, 8)],
)
def test_a_node_runs_as_many_ranks_as_the_engine_gives_it(tp: int, pp: int, nodes: int, ranks: int) -> None:
    """The counts are those of SGLang 0.5.23's own `_calculate_rank_ranges`."""
    command = f"{K3} --tp-size {tp} --pp-size {pp} --nnodes {nodes} {MEET}"
    assert ranks_here(subject_of(Server.parse(command), platform("a3"))) == ranks


@pytest.mark.parametrize(
    ("command", "where", "given", "seen"),
    [
        (f"{K3} --tp-size 8", "b300", None, None),
        (f"{K3} --tp-size 8", "b300", 4, 4),
        (f"CUDA_VISIBLE_DEVICES=0,1,2,3 {K3} --tp-size 8", "b300", None, 4),
        (f"CUDA_VISIBLE_DEVICES=GPU-aaaa,GPU-bbbb {K3} --tp-size 8", "b300", 8, 2),
        (f"CUDA_VISIBLE_DEVICES=0,1,-1,3 {K3} --tp-size 8", "b300", None, 2),  # the list ends there
        (f"CUDA_VISIBLE_DEVICES= {K3} --tp-size 8", "b300", None, 0),
        (f"CUDA_VISIBLE_DEVICES='$GPUS' {K3} --tp-size 8", "b300", None, None),
        (f"HIP_VISIBLE_DEVICES=0,1 {K3} --tp-size 8", "mi355x", None, 2),
        (f"HIP_VISIBLE_DEVICES=0,1 {K3} --tp-size 8", "b300", None, None),
        (f"ASCEND_RT_VISIBLE_DEVICES=0,1,2 {K3} --tp-size 8", "a3", None, 3),
    ],
)
def test_visible_accelerators_are_counted(command: str, where: str, given: int | None, seen: int | None) -> None:
    assert visible_devices(subject_of(Server.parse(command), platform(where), gpus_visible=given)) == seen


@pytest.mark.parametrize(
    ("flags", "given", "said"),
    [
        ("--tp-size 8", 8, []),
        ("--tp-size 8", 7, ["node-gpus-visible"]),
        ("--tp-size 4 --base-gpu-id 4", 8, []),
        ("--tp-size 4 --base-gpu-id 5", 8, ["node-gpus-visible"]),
        ("--tp-size 4 --gpu-id-step 2", 8, []),
        ("--tp-size 4 --gpu-id-step 3", 8, ["node-gpus-visible"]),
        (f"--tp-size 16 --nnodes 2 {MEET}", 8, []),
        (f"--tp-size 16 --nnodes 2 {MEET}", 4, ["node-gpus-visible"]),
        ("--tp-size 8 --attn-dp-size 8", 8, []),
        ("--tp-size 4 --dp-size 2", 4, ["node-gpus-visible"]),
        ("--tp-size '$TP'", 1, []),
    ],
)
def test_fewer_accelerators_than_ranks_is_an_error(flags: str, given: int, said: list[str]) -> None:
    assert ids(findings(f"{K3} {flags}", gpus_visible=given), "node-gpus") == said


@pytest.mark.parametrize(
    ("flags", "group", "said", "fix"),
    [
        (f"--nnodes 2 {MEET} --node-rank 1", None, [], ""),
        (f"--nnodes 2 {MEET} --node-rank 2", None, ["node-rank-range"], "Number the nodes from 0 to 1"),
        ("--node-rank 1", None, ["node-rank-range"], "Number the nodes from 0 to 0"),
        (f"--nnodes 2 {MEET} --node-rank 3", 4, ["node-rank-range", "group-large"], "Write --nnodes 4."),
        (f"--nnodes 2 {MEET} --node-rank '$RANK'", 2, [], ""),
        (f"--nnodes 4 {MEET}", 2, ["group-small"], "Write --nnodes 2."),
        (f"--nnodes 2 {MEET}", 4, ["group-large"], "Write --nnodes 4, unless"),
        (f"--nnodes '$(LWS_GROUP_SIZE)' {MEET}", 4, [], ""),
        ("", 4, [], ""),  # one node of a job of several: others may hold other servers
    ],
)
def test_ranks_and_groups_agree_with_the_number_of_nodes(
    flags: str, group: int | None, said: list[str], fix: str
) -> None:
    found = findings(f"{K3} --tp-size 16 --ep-size 16 {flags}", "h200", group_size=group)
    own = [finding for finding in found if finding.id.startswith(("node-rank", "group-"))]
    assert [finding.id for finding in own] == said
    assert not own or own[0].fix.startswith(fix)


@pytest.mark.parametrize(
    ("ours", "theirs", "hosts", "said"),
    [
        ("--port 30000", "--port 30001", ("a", "a"), 0),
        ("", "", ("a", "a"), 1),
        ("", "", ("a", "b"), 0),
        ("", "", ("", ""), 0),  # nobody knows where they run
        ("", "--port 8998 --disaggregation-mode decode", ("a", "a"), 0),
        (
            "--disaggregation-mode prefill",
            "--port 8998",
            ("a", "a"),
            1,
        ),  # bootstrap of one, API of the other
        ("--dist-init-addr 10.0.0.1:20000", "--port 20000", ("a", "a"), 1),
        ("--port '$PORT'", "--port '$PORT'", ("a", "a"), 0),
        ("--nccl-port 7000", "--port 30001 --nccl-port 7000", ("a", "a"), 1),
    ],
)
def test_servers_of_one_machine_have_ports_of_their_own(
    ours: str, theirs: str, hosts: tuple[str, str], said: int
) -> None:
    found = [
        subject_of(Server.parse(f"{K3} --tp-size 4 {flags}"), platform("b300"), expands=True, host=host)
        for flags, host in zip((ours, theirs), hosts, strict=True)
    ]
    assert ids(fleet_findings(found), "fleet-ports") == ["fleet-ports"] * said


@pytest.mark.parametrize(
    ("flags", "derived"),
    [
        ("", []),
        ("--attn-dp-size 2", [30234, 30235, 30236, 30237, 30238, 30239]),
        (f"--attn-dp-size 2 {MEET}", [20001, 20002, 20003, 20004, 20005, 20006]),
        ("--attn-dp-size 2 --dist-init-addr 10.0.0.1:65530", [65523, 65524, 65525, 65526, 65527, 65528]),
        ("--attn-dp-size 2 --port 65400", [65168, 65169, 65170, 65171, 65172, 65173]),
        (f"--attn-dp-size 2 --tp-size 16 --nnodes 2 --node-rank 1 {MEET}", []),
        ("--attn-dp-size 2 --port '$PORT'", []),
    ],
)
def test_attention_dp_takes_ports_of_its_own(flags: str, derived: list[int]) -> None:
    """The ports are those that SGLang 0.5.23's own `PortArgs.init_new` gives these arguments."""
    subject = subject_of(Server.parse(f"{K3} --tp-size 8 {flags}"), platform("b300"), expands=True)
    assert list(derived_ports(subject)) == derived


@pytest.mark.parametrize("where", list(platforms()))
@pytest.mark.parametrize("model", ["moonshotai/Kimi-K3", "nvidia/Kimi-K3-NVFP4", "sgl-npu/Kimi-K3-W4A8"])
def test_the_image_named_instead_is_built_for_the_platform(where: str, model: str) -> None:
    server = Server.parse(f"--model-path {model} --tp-size 8")
    wrong = [image for other in platforms() for image in platform(other).images.values()]
    seen = 0
    for image in dict.fromkeys(wrong):
        for finding in image_platform(subject_of(server, platform(where), image=image)):
            seen += 1
            instead = finding.fix.removeprefix("Use ").removesuffix(".")
            assert instead in platform(where).images.values()
            assert not list(image_platform(subject_of(server, platform(where), image=instead)))
    assert seen
    for image in platform(where).images.values():
        assert not list(image_platform(subject_of(server, platform(where), image=image)))
