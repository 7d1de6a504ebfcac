"""The corrected input of `perilune check --fix`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from difflib import unified_diff

import click

from perilune.cli import output
from perilune.cli.check_inputs import Checked
from perilune.cli.check_report import costs, exit_code, findings_of
from perilune.cli.check_view import print_placed, wrapped
from perilune.errors import UnusableInput
from perilune.plan.display import counted
from perilune.plan.rules import Finding
from perilune.plan.rules.edits import in_words
from perilune.plan.server import Server
from perilune.plan.sources.changes import Unplaceable, applied
from perilune.plan.sources.correct import corrected
from perilune.plan.sources.found import Note, Reading, Word
from perilune.plan.sources.judge import Judge, Judged, Routers
from perilune.plan.sources.read import read_source
from perilune.plan.sources.rewrite import rewritten
from perilune.plan.sources.text import Text

MOST_REPAIRS = 64
TYPED = "typography"  # characters that reading itself takes as they were meant


@dataclass(frozen=True, slots=True)
class Change:
    """What was changed in an input: how many edits, in words, and the rule that asked for them."""

    name: str
    rule: str
    words: str
    edits: int = 1


def print_fixed(groups: Sequence[Sequence[Checked]], judge: Judge, routers: Routers, *, strict: bool) -> int:
    """Print corrected text, one input whole and several as a diff; what is left goes to standard error.

    With `strict` that is lost capacity as well, which is corrected by its owner.
    """
    left: list[Finding] = []
    made: list[Change] = []
    several = len({one.text.name for group in groups for one in group}) > 1
    for group in groups:
        better = _fixed([_repaired(one, judge, made) for one in group], judge, routers, made)
        left += [finding for finding in findings_of(better, judge, routers) if costs(finding, strict=strict)]
        for before, after in {one.text.name: (one, new) for one, new in zip(group, better, strict=True)}.values():
            _print_diff(before, after) if several else _print_whole(after)
    _print_made(made, several=several)
    if left:
        print_placed(left, err=True)
        what = "finding" if strict else "error"
        output.note(f"{len(left)} {what}{'s' * (len(left) != 1)} left to correct by hand.")
    return exit_code(left, strict=strict)


def _repaired(one: Checked, judge: Judge, made: list[Change]) -> Checked:
    """The input with the ends of its lines as their writer meant them, where it can still be read.

    One repair can bring a line into the command whose own end needs another.
    """
    made += [_retyped(one, note) for note in one.reading.notes if note.id == TYPED and one.reading.text is not None]
    for _ in range(MOST_REPAIRS):
        notes = [note for note in one.reading.notes if note.repair is not None]
        if not notes:
            break
        try:
            one = _read_again(one, applied(one.text, [note.repair for note in notes if note.repair]), judge)
        except (Unplaceable, UnusableInput):
            break
        made += [_retyped(one, note) for note in notes]
    return one


def _retyped(one: Checked, note: Note) -> Change:
    return Change(one.text.name, note.id, f"type line {note.line} as it was meant")


def _fixed(group: Sequence[Checked], judge: Judge, routers: Routers, made: list[Change]) -> list[Checked]:
    own = [router for one in group for router in one.reading.routers]
    judged = [server for one in group for server in one.servers]
    found = corrected(judge, judged, routers or own)
    wanted = found.servers
    for done in found.made:
        edits = done.finding.edits
        made.append(Change(judged[done.number].text.name, done.finding.id, in_words(edits), len(edits)))
    better: dict[str, Checked] = {}
    for name, one in {one.text.name: one for one in group}.items():
        servers = [found.server for found in one.reading.servers]
        for server, want in zip(judged, wanted, strict=True):
            if server.text.name == name:
                servers[server.number] = want
        better[name] = _written(one, servers, judge)
    return [_as_before(one, better[one.text.name]) for one in group]


def _written(one: Checked, servers: Sequence[Server], judge: Judge) -> Checked:
    if not one.text.name:
        found = replace(one.reading.servers[0], server=servers[0], words=tuple(Word(w) for w in servers[0].argv))
        reading: Reading = replace(one.reading, servers=(found,))
        return replace(one, reading=reading, servers=judge.servers(one.text, reading, []))
    text, _ = rewritten(one.text, one.reading.servers, servers, lambda text: read_source(text, one.beside))
    return _read_again(one, text, judge)


def _read_again(one: Checked, text: Text, judge: Judge) -> Checked:
    reading = read_source(text, one.beside)
    servers = judge.servers(reading.text or text, reading, [])
    return replace(one, reading=reading, servers=_sides(one.servers, servers))


def _as_before(one: Checked, better: Checked) -> Checked:
    """The corrected input with the servers that this side of a pair takes from it."""
    return replace(better, servers=_sides(one.servers, better.servers))


def _sides(before: Sequence[Judged], after: Sequence[Judged]) -> list[Judged]:
    was = {one.number: one for one in before}
    known = (one for one in after if one.number in was)
    return [replace(one, source=was[one.number].source, side=was[one.number].side) for one in known]


def _print_made(made: Sequence[Change], *, several: bool) -> None:
    """How many edits there are and, for each finding, which: those that several servers share are said once."""
    if not made:
        return
    click.echo(f"{counted(sum(one.edits for one in made), 'edit')}:", err=True)
    for one, servers in Counter(made).items():
        place = f"{one.name}: " if several else ""
        on = f", {servers} times" if servers > 1 else ""
        for line in wrapped(f"{place}{one.words} ({one.rule}{on})", "    "):
            click.echo(line, err=True)


def _print_whole(after: Checked) -> None:
    if not after.text.name:
        click.echo(after.servers[0].found.server.format(one_per_line=True))
        return
    click.echo(after.text.encode(), nl=False)


def _print_diff(before: Checked, after: Checked) -> None:
    name = before.text.name
    old, new = (text.text.splitlines(keepends=True) for text in (before.original, after.text))
    for line in unified_diff(old, new, f"a/{name}", f"b/{name}"):
        click.echo(line, nl=False)
        if not line.endswith("\n"):
            click.echo("\n\\ No newline at end of file")
