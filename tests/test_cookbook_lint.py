"""Every lint rule: a page that trips it, with its line, and pages that do not."""

from __future__ import annotations

from pathlib import Path

import pytest

from perilune.cookbook.lint.run import RULES, fix, lint
from perilune.cookbook.lint.source import slug
from perilune.cookbook.page import Dialect, Page
from perilune.plan.compose import Choice, compose

PAGES = Path(__file__).parent / "mdx" / "pages"
HEAD = "---\ntitle: Kimi-K3\ndescription: Serve it\n---\n"
BASE = len(HEAD.splitlines())


def found(body: str, head: str = HEAD) -> list[tuple[int, str]]:
    return [(finding.line - len(head.splitlines()), finding.finding.id) for finding in lint(Page(head + body))]


def fenced(command: str, before: str = "") -> str:
    return f"{before}```bash Command\n{command}\n```\n"


SERVE = "sglang serve --trust-remote-code --model-path moonshotai/Kimi-K3 --tp-size 8"

TRIPS = [
    ("| a |\n|---|\n", 1, "pipe-table"),
    ("text\n\nmore", 3, "final-newline"),
    ("<Tab>\n", 1, "does-not-parse"),
    ("[a](#nowhere)\n", 1, "missing-anchor"),
    ('# H\n\n<a href="#x">y</a>\n', 3, "missing-anchor"),
    ("see [a] (https://x.y)\n", 1, "malformed-link"),
    ("see (a)[https://x.y]\n", 1, "malformed-link"),
    ("line\nsee [a](b c)\n", 2, "malformed-link"),
    ("[a]()\n", 1, "malformed-link"),
    ("[a](https:/x.y)\n", 1, "malformed-link"),
    ("[a](htps://x.y)\n", 1, "malformed-link"),
    ("Run `python3 -m sglang.launch_server --tp 8`.\n", 1, "launch-server"),
    (fenced("# start\npython -m sglang.launch_server \\\n  --model-path moonshotai/Kimi-K3"), 3, "launch-server"),
    (fenced(f"{SERVE} --port 8000"), 2, "port"),
    ("curl http://localhost:8080/v1\n", 1, "port"),
    ("`SGLANG_K3_KDA_FUSED_BACKEND=aiter`\n", 1, "renamed-variable"),
    (fenced("export SGLANG_NO_SUCH_THING=1"), 2, "unknown-variable"),
    ("`--dp-size` no, `--gpu-memory-utilization` never\n", 1, "renamed-flag"),
    (fenced(f"{SERVE} \\\n  --no-such-flag 3"), 3, "unknown-flag"),
    ("`--mem-fraction-statik 0.9`\n", 1, "unknown-flag"),
    (fenced(f"{SERVE} --tp-size eight"), 2, "engine-refuses"),
    (fenced(f"{SERVE} --mamba-radix-cache-strategy no_such", "On H200:\n\n"), 4, "engine-refuses"),
    ("- H100 (96 GB)\n", 1, "memory-size"),
    ("| GPU |\n|---|\n| B300 192GB |\n", 3, "memory-size"),
    ("Use 80 GB H200 nodes.\n", 1, "memory-size"),
    ("Serve NVFP4 on H100.\n", 1, "fp4-platform"),
    ("# H200 FP4\n", 1, "fp4-platform"),
    (fenced(f"{SERVE} --dcp-size 4", "## B300\n\nBalanced:\n\n"), 6, "parity"),
]


@pytest.mark.parametrize(("body", "line", "rule"), TRIPS, ids=[f"{rule}-{n}" for n, (_, _, rule) in enumerate(TRIPS)])
def test_a_rule_finds_what_it_is_for(body: str, line: int, rule: str) -> None:
    assert (line, rule) in found(body)


def test_every_rule_is_tried() -> None:
    ids = {rule for _, _, rule in TRIPS} | {"frontmatter", "frontmatter-title", "frontmatter-description"}
    assert len(ids) >= len(RULES)


@pytest.mark.parametrize(
    "body",
    [
        "",
        "```md\n| a |\n|---|\n```\n",
        "## 3.4 PD Disaggregation (x)\n\n[a](#3-4-pd-disaggregation-x)\n",
        '<a id="here" />\n\n[a](#here) [b](../other#there) [c](https://x.y/#z)\n',
        '<Accordion title="Install SGLang">\n\n[a](#install-sglang)\n\n</Accordion>\n',
        "## Twice\n\n## Twice\n\n[a](#twice) [b](#twice-2)\n",
        "`[a] (https://x.y)` list[str](x) and f(a)[0]\n",
        fenced(f"{SERVE} --port 30000"),
        fenced(f"{SERVE} --disaggregation-mode decode --port 30100"),
        fenced("python3 -m sglang_router.launch_router --port 8000") + "`localhost:8000`\n",
        fenced("docker run --gpus all -p 30000:30000 img sglang serve <use args below>"),
        fenced(f"{SERVE} \\\n  <other args>"),
        fenced("pip install uv\nuv pip install sglang --no-deps"),
        "```python Example\nsglang serve --nonsense\n```\n",
        "`--tp-size` `--gpus all` `docker run --shm-size 32g` `SGLANG_USE_AITER=1` `SGLANG_*`\n",
        "- B300 (288 GB), H200 (141 GB), H100 80GB, 192 GB B200; H100 NVLink 900 GB/s\n",
        "NVFP4 on B300; FP8 on H100\n",
        fenced("sglang generate --prompt x --num-gpus 2"),
    ],
)
def test_a_rule_leaves_alone_what_is_fine(body: str) -> None:
    assert found(body) == []


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        ("", [(1, "frontmatter")]),
        ("---\ntitle: x\n---\n", [(1, "frontmatter-description")]),
        ("---\ndescription: x\ntitle: ''\n---\n", [(1, "frontmatter-title")]),
        ("---\ntitle: [\n---\n", [(3, "frontmatter")]),
        ("---\n- a\n---\n", [(2, "frontmatter")]),
        ("---\n---\n", [(1, "frontmatter-title"), (1, "frontmatter-description")]),
        ("---\ntitle: x\n", [(1, "does-not-parse")]),
    ],
)
def test_the_frontmatter_says_what_the_page_is(head: str, expected: list[tuple[int, str]]) -> None:
    assert [(f.line, f.finding.id) for f in lint(Page(head + "\ntext\n"))] == expected


def test_what_is_safe_is_fixed() -> None:
    page = Page(HEAD + "| a |\n|---|\n| b |\n\n`python -m sglang.launch_server`")
    better = fix(page)
    assert lint(better) == []
    assert better.text.endswith("</table>\n\n`sglang serve`\n")
    assert fix(better) == better


@pytest.mark.parametrize("strategy", ["low-latency", "balanced"])
def test_the_catalogs_own_command_is_at_parity(strategy: str) -> None:
    server = compose(Choice(hardware="b300", strategy=strategy)).pools[0].servers[0]
    context = f"## B300\n\n### {strategy}\n\n"
    assert found(fenced(server.format(one_per_line=True), context)) == []
    page = Page(HEAD + fenced(server.set("--tp-size", 4).format(one_per_line=True), context))
    parity = [f.finding for f in lint(page) if f.finding.id == "parity"]
    assert len(parity) == 1
    assert "-  --tp-size 4" in parity[0].fix
    assert "+  --tp-size 8" in parity[0].fix


def test_what_is_the_readers_own_does_not_break_parity() -> None:
    server = compose(Choice(hardware="h200", strategy="balanced")).pools[0].servers[0]
    own = server.set("--mamba-full-memory-ratio", 0.5).set("--max-running-requests", 64)
    own = own.with_env({"NCCL_SOCKET_IFNAME": "eth0"}).set("--dist-init-addr", "10.0.0.1:20000")
    context = "## H200\n\n### Balanced\n\n"
    assert found(fenced(own.format(one_per_line=True), context)) == []
    page = Page(HEAD + fenced(own.set("--ep-size", 8).format(one_per_line=True), context))
    (finding,) = lint(page)
    assert "ratio" not in finding.finding.fix
    assert "-  --ep-size 8" in finding.finding.fix


@pytest.mark.parametrize(
    ("heading", "dialect", "anchor"),
    [
        ("3.4 PD Disaggregation", Dialect.MDX, "3-4-pd-disaggregation"),
        ("3.4 PD Disaggregation", Dialect.MARKDOWN, "34-pd-disaggregation"),
        ("TPU (MiMo-V2.5, sgl-jax)", Dialect.MDX, "tpu-mimo-v2-5-sgl-jax"),
    ],
)
def test_anchors_are_made_as_the_site_makes_them(heading: str, dialect: Dialect, anchor: str) -> None:
    assert slug(heading, dialect) == anchor


def test_the_real_pages_hold_only_what_they_are_known_for() -> None:
    known = {"pipe-table", "frontmatter-description", "fp4-platform", "unknown-variable", "renamed-variable"}
    for path in sorted(PAGES.glob("*.mdx")):
        page = Page.decode(path.read_bytes(), Dialect.MDX, path.name)
        assert {finding.finding.id for finding in lint(page)} <= known
        assert not {"pipe-table"} & {finding.finding.id for finding in lint(fix(page))}
