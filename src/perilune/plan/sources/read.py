"""What a file is, and the reader for it."""

from __future__ import annotations

import re
from pathlib import Path, PurePath

from perilune.plan.sources.found import Note, Reading
from perilune.plan.sources.launch import LAUNCHER, Surroundings, read_script
from perilune.plan.sources.script import Script
from perilune.plan.sources.text import Text, read_text

_YAML_NAME = re.compile(r"\.(ya?ml|json)$", re.IGNORECASE)
_DOCKER_NAME = re.compile(r"^(dockerfile|containerfile)(\..*)?$|\.(dockerfile|containerfile)$", re.IGNORECASE)
_SHELL_NAME = re.compile(r"\.(sh|bash|sbatch|slurm|env|txt)$", re.IGNORECASE)
_YAML_START = re.compile(r"(?:---|\{|\[|[\w.\"'-]+:(?:\s|$))")
_DOCKER_START = re.compile(r"FROM\s", re.IGNORECASE)


def read_file(path: Path) -> Reading:
    """Read one file; raises UnusableInput naming file and line where it cannot be read."""
    return read_source(read_text(path))


def read_source(text: Text) -> Reading:
    """Read text by its name, else by how it starts; raises UnusableInput where it cannot be read."""
    form = _form(text)
    if form == "yaml":
        from perilune.plan.sources.documents import read_documents

        return read_documents(text)
    if form == "docker":
        from perilune.plan.sources.dockerfile import read_dockerfile

        return read_dockerfile(text)
    return read_shell(text)


def read_shell(text: Text) -> Reading:
    """Read a script, an sbatch file or a pasted command."""
    batch = bool(re.search(r"^#SBATCH\b", text.text, re.MULTILINE))
    kind = "sbatch script" if batch else "shell script" if text.text.startswith("#!") else "command"
    around = Surroundings(text, kind)
    read_script(Script(text, text.text, range(len(text.text))), around)
    reading = around.reading(kind, _slurm_platform(text.text) if batch else None)
    return reading.with_notes(*carriage_returns(text), *unreached(around))


def carriage_returns(text: Text) -> list[Note]:
    """What a shell on Linux makes of Windows line ends."""
    if "\r\n" not in text.text or not text.text.startswith("#!"):
        return []
    return [Note("Its lines end in CR LF: a shell takes the CR for part of the last word.", 1, "Save it with LF.")]


def unreached(around: Surroundings) -> list[Note]:
    """Launch commands that stand in the text but that no reader reached."""
    source = around.text.text
    notes = []
    for match in LAUNCHER.finditer(source):
        start = source.rfind("\n", 0, match.start()) + 1
        if "#" in source[start : match.start()] and re.search(r"(^|\s)#", source[start : match.start()]):
            continue
        if any(first <= match.start() <= last for first, last in around.seen):
            continue
        said = f"`{' '.join(match.group().split())}` stands here in a form that cannot be read: it is not checked."
        notes.append(Note(said, around.text.line(match.start()), "Check that command alone: perilune check -- ..."))
    return notes


def _form(text: Text) -> str:
    name = PurePath(text.name).name
    for form, pattern in (("yaml", _YAML_NAME), ("docker", _DOCKER_NAME), ("shell", _SHELL_NAME)):
        if pattern.search(name):
            return form
    if text.text.startswith("#!"):
        return "shell"
    lines = (line for line in text.text.splitlines() if line.strip() and not line.lstrip().startswith("#"))
    first = next(lines, "")
    if _DOCKER_START.match(first):
        return "docker"
    return "yaml" if _YAML_START.match(first) else "shell"


def _slurm_platform(text: str) -> str | None:
    from perilune.plan.sources.machines import platform_in

    asked = re.findall(r"^#SBATCH\s+(.*(?:gres|gpus|constraint|partition)\S*.*)$", text, re.MULTILINE)
    return platform_in(*asked)
