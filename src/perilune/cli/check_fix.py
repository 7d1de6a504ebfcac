"""The corrected input of `perilune check --fix`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from difflib import unified_diff

import click

from perilune.cli import output
from perilune.cli.check import Checked, exit_code, findings_of
from perilune.cli.check_view import print_placed
from perilune.plan.rules import Finding
from perilune.plan.server import Server
from perilune.plan.sources.found import Reading, Word
from perilune.plan.sources.judge import Judge
from perilune.plan.sources.read import read_source
from perilune.plan.sources.rewrite import rewritten

Routers = Sequence[Sequence[str]]


def print_fixed(groups: Sequence[Sequence[Checked]], judge: Judge, routers: Routers) -> int:
    """Print corrected text, one input whole and several as a diff; what is left goes to standard error."""
    left: list[Finding] = []
    several = sum(len(group) for group in groups) > 1
    for group in groups:
        better = list(_corrected(group, judge, routers))
        left += [finding for finding in findings_of(better, judge, routers) if finding.severity == "error"]
        for before, after in zip(group, better, strict=True):
            _print_diff(before, after) if several else _print_whole(after)
    if left:
        print_placed(left, err=True)
        output.note(f"{len(left)} error{'s' * (len(left) != 1)} left to correct by hand.")
    return exit_code(left, strict=False)


def _corrected(group: Sequence[Checked], judge: Judge, routers: Routers) -> Iterator[Checked]:
    own = [router for one in group for router in one.reading.routers]
    wanted = iter(judge.corrected([server for one in group for server in one.servers], routers or own))
    for one in group:
        judged = {id(server.found): next(wanted) for server in one.servers}
        servers = [judged.get(id(found), found.server) for found in one.reading.servers]
        if one.text.name:
            text, _ = rewritten(one.text, one.reading.servers, servers, read_source)
            yield _judged(replace(one, text=text, reading=read_source(text)), judge)
        else:
            yield _judged(replace(one, reading=_alone(one.reading, servers[0])), judge)


def _alone(reading: Reading, server: Server) -> Reading:
    found = replace(reading.servers[0], server=server, words=tuple(Word(word) for word in server.argv))
    return replace(reading, servers=(found,))


def _judged(one: Checked, judge: Judge) -> Checked:
    return replace(one, servers=judge.servers(one.text, one.reading, []))


def _print_whole(after: Checked) -> None:
    if not after.text.name:
        click.echo(after.servers[0].found.server.format(one_per_line=True))
        return
    click.echo(after.text.encode(), nl=False)


def _print_diff(before: Checked, after: Checked) -> None:
    name = before.text.name
    old, new = (one.text.text.splitlines(keepends=True) for one in (before, after))
    for line in unified_diff(old, new, f"a/{name}", f"b/{name}"):
        click.echo(line, nl=False)
        if not line.endswith("\n"):
            click.echo("\n\\ No newline at end of file")
