"""Rules on commands: the current launcher, one port, flags and variables that exist, commands that start."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

from perilune.cookbook.lint.finding import PageFinding, at
from perilune.cookbook.lint.platforms import platforms_in
from perilune.cookbook.lint.shell import Command, commands
from perilune.cookbook.lint.source import Source
from perilune.cookbook.page import Page
from perilune.errors import PeriluneError
from perilune.facts.flags import closest_flag, environment, options, renamed_flag, renames
from perilune.facts.hardware import platform
from perilune.facts.recipes import all_recipes
from perilune.plan.commandline.occurrences import find_option
from perilune.plan.resolve import resolve

PORT = "30000"
ENGINE = "SGLang 0.5.23"

_LAUNCHER = re.compile(r"\bpython[0-9.]*\s+-m\s+sglang\.launch_server\b")
_URL = re.compile(r"(?:https?://)?(?:localhost|127\.0\.0\.1|0\.0\.0\.0):(\d{2,5})\b")
_PORT_FLAG = re.compile(r"--port[ =](\d+)")
_FLAG = re.compile(r"--[a-z][a-z0-9-]+(?=[ =]|\Z)")
_VARIABLE = re.compile(r"\bSGLANG_[A-Z0-9_]*[A-Z0-9]\b")
_DIFFUSION = re.compile(r"--pipeline-class-name\b|\bsglang generate\b")
_PLACEHOLDER = re.compile(r"<[^<>]*>|\.\.\.")


def current_launcher(source: Source) -> Iterator[PageFinding]:
    """Servers are started with `sglang serve`."""
    for number, line in enumerate(source.page.lines, start=1):
        if _LAUNCHER.search(line):
            yield at(
                number,
                "launch-server",
                "`python -m sglang.launch_server` is deprecated.",
                "Write `sglang serve`.",
            )


def fix_launcher(page: Page) -> Page:
    """Write `sglang serve` where the deprecated module is started."""
    return Page(_LAUNCHER.sub("sglang serve", page.text), page.dialect, page.bom)


def one_port(source: Source) -> Iterator[PageFinding]:
    """Launch commands and clients agree on port 30000; routers and roles of PD have ports of their own."""
    fleet: set[str] = set()
    for command in commands(source):
        ports = _PORT_FLAG.findall(command.text)
        if not command.serves or "--disaggregation-mode" in command.text:
            fleet.update(ports)
            continue
        for port in ports:
            if port != PORT:
                yield at(command.line, "port", f"The server listens on port {port}.", f"Write --port {PORT}.")
    for number, line in enumerate(source.page.lines, start=1):
        for match in _URL.finditer(line):
            if match[1] != PORT and match[1] not in fleet:
                yield at(number, "port", f"{match.group()} is not port {PORT}.", f"Use port {PORT} throughout.")


def known_flags(source: Source) -> Iterator[PageFinding]:
    """Flags exist under the name that is written."""
    if _is_diffusion(source):
        return
    for command in commands(source):
        server = command.server if command.serves else None
        for flag in server.flags if server else ():
            if flag.option is None and not _PLACEHOLDER.search(flag.spelled):
                yield from _flag(command.line + _offset(command, flag.spelled), flag.spelled, sure=True)
    for code in source.codes:
        for spelled in _FLAG.findall(code.text):
            if find_option(spelled) is None and not _is_prose_prefix(code.text, spelled):
                yield from _flag(code.line, spelled, sure="sglang serve" in code.text)


def _is_diffusion(source: Source) -> bool:
    """Tell whether a page is about SGLang's image and video server, which has options of its own."""
    return _DIFFUSION.search(source.page.text) is not None


def _offset(command: Command, word: str) -> int:
    found = re.search(rf"(?<!\S){re.escape(word)}(?=[\s=]|\Z)", command.text)
    return command.text.count("\n", 0, found.start()) if found else 0


def _is_prose_prefix(code: str, flag: str) -> bool:
    """Tell whether a flag belongs to another program that the code names first."""
    return code.split(flag)[0].strip() not in ("", "sglang serve") and "sglang" not in code


def _flag(line: int, spelled: str, *, sure: bool) -> Iterator[PageFinding]:
    rename = renamed_flag(spelled)
    if rename is not None:
        fix = f"Write {rename.to}." if rename.to else "Leave it out."
        gone = rename.status == "gone"
        message = f"{spelled} is {'gone from' if gone else 'deprecated in'} {ENGINE}."
        yield at(line, "renamed-flag", message, fix, severity="error" if gone else "advice", source=rename.source)
        return
    near = closest_flag(spelled)
    if sure or (near is not None and _is_typo(spelled, near)):
        fix = f"Did you mean {near}?" if near else "See `sglang serve --help`."
        yield at(line, "unknown-flag", f"{ENGINE} has no flag {spelled}.", fix, source=ENGINE)


def _is_typo(spelled: str, near: str) -> bool:
    """Tell whether two flags differ in a letter or two, not in a word."""
    from difflib import SequenceMatcher

    return SequenceMatcher(None, spelled, near, autojunk=False).ratio() > 0.93


def known_variables(source: Source) -> Iterator[PageFinding]:
    """Variables of the engine exist under the name that is written."""
    if _is_diffusion(source):
        return
    for code in source.codes:
        for name in dict.fromkeys(_VARIABLE.findall(code.text)):
            yield from _variable(code.line, name)
    for fence in source.fences:
        for offset, text in enumerate(fence.text.split("\n")):
            for name in dict.fromkeys(_VARIABLE.findall(text)):
                yield from _variable(fence.line + offset, name)


def _variable(line: int, name: str) -> Iterator[PageFinding]:
    if name in environment() or name in _published():
        return
    rename = next((entry for entry in renames().environment if entry.old == name), None)
    if rename is not None:
        fix = f"Write {rename.to}." if rename.to else "Leave it out."
        yield at(line, "renamed-variable", f"{ENGINE} does not read {name}.", fix, source=rename.source)
        return
    from difflib import get_close_matches

    near = get_close_matches(name, environment(), n=1, cutoff=0.85)
    fix = f"Did you mean {near[0]}?" if near else ""
    yield at(line, "unknown-variable", f"{ENGINE} knows no variable {name}.", fix, source=ENGINE)


@cache
def _published() -> frozenset[str]:
    """Variables that published recipes set, whether or not this engine reads them."""
    return frozenset(name for recipe in all_recipes() for name, _ in recipe.env)


def commands_start(source: Source) -> Iterator[PageFinding]:
    """The engine accepts each server's command, on the platforms that its section names."""
    if _is_diffusion(source):
        return
    for command in commands(source):
        if not command.serves or (server := command.server) is None:
            continue
        if any(_PLACEHOLDER.fullmatch(word) for word in _loose_words(server.argv)):
            continue
        for name in platforms_in(command.fence.context) or ("b300",):
            try:
                found = resolve(server, platform(name))
            except PeriluneError:
                continue
            error = found.error or ""
            unknown = any(flag.option is None for flag in server.flags)
            if found.accepted or unknown or _PLACEHOLDER.search(error):
                continue
            where = "" if found.stage == "parse" else f" on {platform(name).label}"
            hint = " ".join(found.warnings[:1]) if found.stage == "parse" else ""
            yield at(
                command.line, "engine-refuses", f"The engine refuses this command{where}: {error}", hint, source=ENGINE
            )
            break


def _loose_words(argv: tuple[str, ...]) -> Iterator[str]:
    """Words that are neither flags nor the values of known ones."""
    previous = None
    for word in argv:
        option = options().get(previous or "")
        if not word.startswith("-") and not (option and option.takes_value):
            yield word
        previous = word.partition("=")[0] if word.startswith("-") and "=" not in word else None
