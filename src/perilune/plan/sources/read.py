"""What a file is, and the reader for it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path, PurePath

from perilune.errors import UnusableInput
from perilune.plan.sources.beside import Beside
from perilune.plan.sources.composed import composed
from perilune.plan.sources.excerpts import MOST_PARTS, excerpt
from perilune.plan.sources.found import Found, Note, Reading
from perilune.plan.sources.launch import MOST_SERVERS, Surroundings, TooManyServers, read_script
from perilune.plan.sources.machines import nodes_asked
from perilune.plan.sources.mentions import MENTION
from perilune.plan.sources.script import Script
from perilune.plan.sources.text import Text, read_text
from perilune.plan.sources.typography import as_meant

_YAML_NAME = re.compile(r"\.(ya?ml|json)$", re.IGNORECASE)
_DOCKER_NAME = re.compile(r"^(dockerfile|containerfile)(\..*)?$|\.(dockerfile|containerfile)$", re.IGNORECASE)
_FORMS = (
    ("yaml", _YAML_NAME),
    ("docker", _DOCKER_NAME),
    ("shell", re.compile(r"\.(sh|bash|zsh|sbatch|slurm|env|txt)$", re.IGNORECASE)),
    ("markdown", re.compile(r"\.(md|mdx|markdown)$", re.IGNORECASE)),
    ("unit", re.compile(r"\.service$|^supervisord?\.conf$", re.IGNORECASE)),
    ("makefile", re.compile(r"^(gnu)?makefile(\..*)?$|\.(mk|make)$", re.IGNORECASE)),
)
_CONFLICT = re.compile(r"^<{7}(?:[ \t].*)?\r?$(?=[\s\S]*^>{7}(?:[ \t].*)?\r?$)", re.MULTILINE)
_STATEMENTS = frozenset({"{%", "{%-"})
_TEMPLATE_NAME = re.compile(r"\.(j2|jinja2?|tpl|tmpl|gotmpl)$", re.IGNORECASE)
_UNIT_START = re.compile(r"\[[A-Za-z][\w:.-]*\][ \t]*$")
_YAML_START = re.compile(r"(?:---|\{|\[|[\w.\"'-]+:(?:\s|$))")
_ALONE = "Check that command alone: perilune check -- ..."
_DOCKER_START = re.compile(r"FROM\s", re.IGNORECASE)


def read_file(path: Path) -> Reading:
    """Read one file; raises UnusableInput naming file and line where it cannot be read."""
    return read_source(read_text(path))


def read_source(text: Text, beside: Beside | None = None) -> Reading:
    """Read text by its name, else by how it starts; raises UnusableInput where it cannot be read.

    `beside` finds the `--config` files that commands name. Characters that only look like those of a command are
    read as what they were meant for, and said.
    """
    if (found := _CONFLICT.search(text.text)) is not None:
        place = text.at(found.start())
        raise UnusableInput("It holds an unresolved merge conflict.", where=place, fix="Keep one of the two sides.")
    if _TEMPLATE_NAME.search(text.name):
        raise _template(text, 0)
    return _held(text, lambda text: _read(text, beside))


def _template(text: Text, place: int) -> UnusableInput:
    where = text.at(place)
    return UnusableInput("It is a template, not what is made of it.", where=where, fix="Render it first.")


def _held(text: Text, read: Callable[[Text], Reading]) -> Reading:
    try:
        reading = as_meant(text, read)
    except TooManyServers:
        message = f"It starts more than {MOST_SERVERS:,} servers."
        raise UnusableInput(message, where=text.name, fix="Check it in parts.") from None
    for word in (word for one in reading.servers for word in one.words):
        if word.text in _STATEMENTS:
            raise _template(reading.text or text, word.at or 0)
    return composed(reading)


def _read(text: Text, beside: Beside | None) -> Reading:
    form = _form(text)
    if form == "yaml":
        from perilune.plan.sources.documents import read_documents

        return read_documents(text, beside)
    if form == "docker":
        from perilune.plan.sources.dockerfile import read_dockerfile

        return read_dockerfile(text, beside)
    if form == "markdown":
        from perilune.plan.sources.markdown import read_markdown

        return read_markdown(text, beside)
    if form == "unit":
        from perilune.plan.sources.units import read_units

        return read_units(text, beside)
    if form == "makefile":
        from perilune.plan.sources.makefile import read_makefile

        return read_makefile(text, beside)
    return read_commands(text, beside)


def read_shell(text: Text) -> Reading:
    """Read a pasted command."""
    return _held(text, lambda text: read_commands(text, None))


def read_commands(text: Text, beside: Beside | None, parts: Sequence[range] = ()) -> Reading:
    """Read shell text, whatever its name, or parts of it that belong together."""
    places = [place for part in parts for place in part] if parts else range(len(text.text))
    source = "".join(text.text[part.start : part.stop] for part in parts) if parts else text.text
    batch = bool(re.search(r"^#SBATCH\b", source, re.MULTILINE))
    kind = "sbatch script" if batch else "shell script" if source.startswith("#!") else "command"
    around = Surroundings(text, kind, beside=beside, elides=bool(parts))
    read_script(Script(text, source, places), around)
    _read_data(text, around)
    reading = around.reading(kind, _slurm_platform(source) if batch else None)
    reading = replace(reading, servers=_in_job(source, reading.servers) if batch else reading.servers)
    return reading.with_notes(*carriage_returns(text), *unreached(around, parts))


def _read_data(text: Text, around: Surroundings) -> None:
    """Add the servers of manifests that stand in here-documents; one that cannot be read stays unread."""
    for first, end in list(dict.fromkeys(around.data))[:MOST_PARTS]:
        if MENTION.search(text.text, first, end):
            from perilune.plan.sources.documents import read_documents  # which reads YAML, as few scripts need

            try:
                inside = read_documents(excerpt(text, range(first, end)), around.beside)
            except UnusableInput:
                continue
            if not inside.servers or inside.kind == "YAML file":
                continue
            around.found += (replace(one, expands=True, platform=inside.platform) for one in inside.servers)
            around.notes += inside.notes
            around.seen.append((first, end))


def _in_job(source: str, servers: Sequence[Found]) -> tuple[Found, ...]:
    """The servers of a job: its nodes are those of a server that is alone in it."""
    asked = [word for line in re.findall(r"^#SBATCH[ \t]+([^#\n]*)", source, re.MULTILINE) for word in line.split()]
    nodes = nodes_asked(asked) if len({one.line for one in servers}) == 1 else None
    return tuple(one if one.group_size else replace(one, group_size=nodes) for one in servers)


def carriage_returns(text: Text) -> list[Note]:
    """What a shell on Linux makes of Windows line ends."""
    if "\r\n" not in text.text or not text.text.startswith("#!"):
        return []
    return [Note("Its lines end in CR LF: a shell takes the CR for part of the last word.", 1, "Save it with LF.")]


def unreached(around: Surroundings, parts: Sequence[range] = (), *, unread: bool = True) -> list[Note]:
    """Launch commands that stand in the text, or in parts of it, but that no reader reached.

    `unread` says that they would be run.
    """
    source = around.text.text
    notes = []
    for match in MENTION.finditer(source):
        start = source.rfind("\n", 0, match.start()) + 1
        if "#" in source[start : match.start()] and re.search(r"(^|\s)#", source[start : match.start()]):
            continue
        if parts and not any(match.start() in part for part in parts):
            continue
        if any(first <= match.start() <= last for first, last in around.seen):
            continue
        said = f"`{' '.join(match.group().split())}` stands here in a form that cannot be read: it is not checked."
        notes.append(Note(said, around.text.line(match.start()), _ALONE, unread=unread))
    return notes


def _form(text: Text) -> str:
    name = PurePath(text.name).name
    for form, pattern in _FORMS:
        if pattern.search(name):
            return form
    if text.text.startswith("#!"):
        return "shell"
    lines = (line for line in text.text.splitlines() if line.strip() and not line.lstrip().startswith(("#", ";")))
    first = next(lines, "")
    if _DOCKER_START.match(first):
        return "docker"
    if _UNIT_START.match(first):
        return "unit"
    return "yaml" if _YAML_START.match(first) else "shell"


def _slurm_platform(text: str) -> str | None:
    from perilune.plan.sources.machines import platform_in

    asked = re.findall(r"^#SBATCH\s+(.*(?:gres|gpus|constraint|partition)\S*.*)$", text, re.MULTILINE)
    return platform_in(*asked)
