"""The HTML report: one file that escapes what it is given, asks no network, and draws in a real browser."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path

import pytest
import yaml

from perilune.plan.compose import Choice, compose
from perilune.plan.planned import plan
from perilune.rehearse.report import facts_of
from perilune.rehearse.report.html_report import html_report
from perilune.rehearse.report.page import page
from report_samples import hostile_rehearsal, published_rehearsal, rehearsal

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FETCHING = ("src", "href", "action", "data", "srcset", "poster")


class Page(HTMLParser):
    """Tags with their attributes, in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))


@pytest.fixture
def browser() -> str:
    found = os.environ.get("CHROME") or next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        pytest.skip("no Chromium on this machine")
    return found


def drawn(browser: str, path: Path) -> tuple[str, list[str]]:
    """The page after its script ran, and what its console said."""
    done = subprocess.run(
        [browser, "--headless", "--no-sandbox", "--disable-gpu", "--window-size=1280,900", "--virtual-time-budget=2000",
         f"--user-data-dir={path.parent / 'profile'}", "--enable-logging=stderr", "--v=0", "--dump-dom",
         path.as_uri()],
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]


def test_the_page_fetches_nothing_and_runs_nothing_of_others() -> None:
    text = html_report(hostile_rehearsal()).decode()
    found = Page(text)
    names = [tag for tag, _ in found.tags]
    assert names.count("script") == 4
    assert not {"img", "link", "iframe", "object", "embed", "base"} & {*names}
    for _, attributes in found.tags:
        assert not [name for name in attributes if name in FETCHING or name.startswith("on")], attributes
    policy = next(a["content"] for tag, a in found.tags if tag == "meta" and "http-equiv" in a) or ""
    assert "default-src 'none'" in policy
    assert "unsafe-inline" not in policy.partition("script-src")[2]


def test_every_script_is_one_that_the_policy_names() -> None:
    text = html_report(rehearsal()).decode()
    scripts = re.findall(r"<script>(.*?)</script>", text, re.S)
    assert len(scripts) == len(re.findall(r"'sha256-[^']+'|&#x27;sha256-[^&]+&#x27;", text)) == 3


@pytest.mark.parametrize("hostile", ["</script><script>alert(1)</script>", "<!--<script>", "\u2028]]>", "&lt;"])
def test_data_cannot_leave_its_block(hostile: str) -> None:
    text = page(hostile, "", {"name": hostile}, "report.js").decode()
    raw = re.findall(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)
    assert len(raw) == 1
    assert json.loads(raw[0]) == {"name": hostile}
    assert not set("<>&\u2028") & set(raw[0])


def test_the_tables_need_no_script() -> None:
    text = html_report(published_rehearsal()).decode()
    for said in ("3.99 s", "38.2 ms", "What requests waited for", "11.6 s", "1,395", "--dcp-size 8"):
        assert said in text


def test_the_page_has_the_ledger_and_how_many_requests_it_admits() -> None:
    """MI350X Balanced, whose predicted memory leaves a wide band: what `perilune plan` says of it."""
    planned = plan(compose(Choice(hardware="mi350x", mode="unified", strategy="balanced", spec="dspark")))
    facts = facts_of(planned.pools[0], replicas=1)
    text = html_report(rehearsal(pools=(facts,))).decode()
    band = planned.pools[0].ledger.requests_range
    assert band is not None
    assert band.low < facts.cap < band.high
    assert f"It admits {facts.cap} (within the error of predicted memory {band.low} to {band.high})" in text
    for part in ("routed experts", "KDA attention", "contexts, NCCL"):
        assert part in text
    # 288 GiB of HBM3E a GPU, as AMD's data sheet has it, less what the driver keeps
    assert sum(line.gib for line in facts.memory) == pytest.approx(287.98, abs=0.1)


def test_equal_rehearsals_give_equal_pages() -> None:
    assert html_report(rehearsal()) == html_report(rehearsal())


def vendored() -> list[tuple[str, str]]:
    listing = files("perilune.rehearse.report") / "assets" / "SOURCES.yaml"
    return [item for source in yaml.safe_load(listing.read_text("utf-8")) for item in source["files"].items()]


@pytest.mark.parametrize(("name", "checksum"), vendored())
def test_the_files_of_others_are_as_published(name: str, checksum: str) -> None:
    raw = (files("perilune.rehearse.report") / "assets" / name).read_bytes()
    assert hashlib.sha256(raw).hexdigest() == checksum


@pytest.mark.parametrize("sample", [rehearsal, published_rehearsal, hostile_rehearsal])
def test_a_browser_draws_every_chart_and_complains_of_nothing(browser: str, tmp_path: Path, sample) -> None:
    path = tmp_path / "report.html"
    path.write_bytes(html_report(sample()))
    text, console = drawn(browser, path)
    assert console == []
    legends = re.findall(r'<t[hd] class="u-value">(.*?)</t[hd]>', text) or re.findall(r'class="u-value">([^<]*)<', text)
    assert len(legends) >= 12
    assert not {"--", "", "–"} & {*legends}  # each says something before anybody points at it
    found = Page(text)
    assert sum(tag == "canvas" for tag, _ in found.tags) == 6
    assert not [attributes for _, attributes in found.tags if "onerror" in attributes]
    assert sum(tag == "details" for tag, _ in found.tags) == 6
    theme = next(attributes["data-theme"] for tag, attributes in found.tags if tag == "html")
    assert theme in ("light", "dark")
