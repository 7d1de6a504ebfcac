"""A self-contained page: uPlot, styles, script and data in one file that works from disk and asks no network."""

from __future__ import annotations

import base64
import hashlib
from html import escape
from importlib.resources import files
from typing import Any

import msgspec

PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<title>{title}</title>
<style>{styles}</style>
</head>
<body>
{body}
<script type="application/json" id="data">{data}</script>
{scripts}
</body>
</html>
"""
UNSAFE = str.maketrans({char: f"\\u{ord(char):04x}" for char in "<>&\u2028\u2029"})


def page(title: str, body: str, data: Any, script: str) -> bytes:
    """A page of one document. `body` is HTML that is already escaped; `script` names the asset that draws `data`.

    No script runs but the two that the page was made with, and nothing is fetched: its policy forbids both.
    """
    codes = [asset("uPlot.iife.min.js"), asset("page.js"), asset(script)]
    hashes = " ".join(f"'sha256-{base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()}'" for code in codes)
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src {hashes}; base-uri 'none'; form-action 'none'"
    return PAGE.format(
        policy=escape(policy),
        title=escape(title),
        styles=asset("uPlot.min.css") + asset("page.css"),
        body=body,
        data=msgspec.json.encode(data).decode().translate(UNSAFE),
        scripts="\n".join(f"<script>{code}</script>" for code in codes),
    ).encode("utf-8", "replace")


def asset(name: str) -> str:
    """A file beside this one, as text."""
    return (files("perilune.rehearse.report") / "assets" / name).read_text(encoding="utf-8")
