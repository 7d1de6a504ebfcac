"""Build the environments that hold the real SGLang and the real aiperf for the conformance tests, or reuse them.

    python scripts/conformance_env.py [FOLDER]        # default: .venv-conformance beside the project

Only Python, pip and the configured package index are needed; no accelerator. On Linux x86 the index may
serve the CUDA build of torch, which is larger and works as well. `PYTHON` names the interpreter to use.
aiperf, whose readers of request traces are compared with, gets a small environment of its own in FOLDER/aiperf.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

# torchvision must stay out: its CUDA build breaks the imports of transformers.
Steps = tuple[tuple[str, ...], ...]
SGLANG: Steps = (
    ("torch==2.13.0",),
    ("--no-deps", "sglang==0.5.23"),
    (
        "transformers==5.19.0",
        "aiohttp==3.14.5",
        "einops==0.8.2",
        "fastapi==0.165.0",
        "ipython==9.18.1",
        "loguru==0.7.3",
        "msgspec==0.23.0",
        "numpy==2.4.6",
        "orjson==3.13.0",
        "packaging==26.4",
        "pillow==13.0.0",
        "prometheus-client==0.26.0",
        "psutil==7.2.2",
        "pybase64==1.5.1",
        "python-dateutil==4.0.0",
        "pyzmq==27.3.0",
        "regex==2026.11.19",
        "requests==2.34.2",
        "setproctitle==1.3.8",
        "sniffio==1.3.1",
        "tqdm==4.70.1",
        "triton==3.9.0",
        "uvicorn==0.54.0",
    ),
    (
        "--no-deps",
        "cloudpickle==3.1.3",
        "compressed-tensors==0.20.1",
        "dill==0.4.1",
        "distro==1.9.0",
        "easydict==1.14",
        "jiter==0.19.0",
        "msgpack==1.2.4",
        "nvidia-ml-py==13.615.71",
        "openai==3.57.0",
        "partial-json-parser==0.2.1.1.post7",
        "scipy==1.17.1",
        "sentencepiece==0.2.3",
        "tiktoken==0.14.0",
        "xxhash==4.1.0",
    ),
)
AIPERF: Steps = (
    ("aiohttp==3.14.5", "cyclopts==5.5.2", "pydantic==2.14.4", "pydantic-settings==2.16.3"),
    (
        "--no-deps",
        "aiperf==0.13.0",
        "aiofiles==25.1.0",
        "jinja2==3.1.6",
        "markupsafe==3.0.4",
        "msgspec==0.23.0",
        "numpy==2.4.6",
        "orjson==3.13.0",
        "pillow==13.0.0",
        "psutil==7.2.2",
        "pyyaml==6.0.4",
        "ruamel.yaml==0.19.1",
    ),
)


def recipe(steps: Steps) -> str:
    """What an environment built by these steps is marked with."""
    return hashlib.sha256(repr(steps).encode()).hexdigest()


def complete(home: Path, steps: Steps) -> bool:
    """Whether `home` was built by these very steps."""
    marker = home / ".complete"
    return marker.exists() and marker.read_text(encoding="utf-8") == recipe(steps)


def build(home: Path, steps: Steps) -> None:
    """Make an environment from nothing."""
    if home.exists() and not (home / "pyvenv.cfg").exists():
        sys.exit(f"{home} exists and is not a virtual environment; choose another folder.")
    shutil.rmtree(home, ignore_errors=True)
    subprocess.run([os.environ.get("PYTHON") or sys.executable, "-m", "venv", str(home)], check=True)
    pip = [str(home / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "install", "-q"]
    for step in steps:
        subprocess.run([*pip, *step], check=True)
    (home / ".complete").write_text(recipe(steps), encoding="utf-8")


def main() -> None:
    """Build what is not there."""
    default = Path(__file__).resolve().parents[1] / ".venv-conformance"
    home = Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else default
    if not complete(home, SGLANG):
        print(f"Building {home} with the real SGLang (once; a few minutes and about 3 GB)...", flush=True)
        build(home, SGLANG)
    if not complete(home / "aiperf", AIPERF):
        print(f"Building {home / 'aiperf'} with the real aiperf (once; about 200 MB)...", flush=True)
        build(home / "aiperf", AIPERF)


if __name__ == "__main__":
    main()
