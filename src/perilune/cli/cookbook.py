"""`perilune cookbook`: tables and lint of documentation pages."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar

import click

from perilune.cli import output
from perilune.cli.options import TOKENS, json_option
from perilune.errors import UnusableInput

if TYPE_CHECKING:
    from perilune.cookbook.lint.finding import PageFinding
    from perilune.cookbook.tables.run import Outcome

T = TypeVar("T")
PATHS = click.argument("paths", nargs=-1, required=True, metavar="FILE|FOLDER...", type=click.Path(path_type=Path))


@click.group()
def cookbook() -> None:
    """Keep documentation pages true: convert their tables, check them."""


@cookbook.command()
@PATHS
@click.option("--write", is_flag=True, help="Change the files in place.")
@click.option("--check", is_flag=True, help="Only report; exit 1 where a table would change.")
@click.option("--diff", is_flag=True, help="Print the change as a unified diff.")
@click.option("--to", "target", type=click.Choice(["jsx", "markdown"]), default="jsx", show_default=True)
@json_option
def tables(
    paths: tuple[Path, ...], write: bool, check: bool, diff: bool, target: Literal["jsx", "markdown"], as_json: bool
) -> int:
    """Turn the pipe tables of MDX pages into JSX tables, or back.

    Cell text and inline markup stay the same, and so does every byte outside
    the tables. A page that does not parse, or one with a table that cannot be
    carried over faithfully, is left as it is and reported with its line.

    One page without --write, --check, --diff or --json is printed. In a folder
    every .mdx page is taken. Exit code 1: a page was refused, or --check found
    tables to change; 2: a file could not be read.

    \b
    perilune cookbook tables docs/cookbook --check
    perilune cookbook tables Kimi-K3.mdx --diff
    perilune cookbook tables docs/cookbook --write
    """
    from perilune.cookbook.files import find_pages
    from perilune.cookbook.tables.run import convert_files

    if write and check:
        raise UnusableInput("--check only reports and --write changes files.", fix="Give one of them.")
    pages = find_pages(paths)
    silent = write or check or diff or as_json
    if len(pages) > 1 and not silent:
        raise UnusableInput(
            f"{len(pages)} pages are too many to print.", fix="Give --write, --check, --diff or --json."
        )
    outcomes: list[Outcome] = []
    for outcome in _progress(convert_files(pages, target), len(pages)):
        outcomes.append(_write(outcome) if write else outcome)
        if diff and not as_json:
            _print_raw(outcome.diff())
        if silent:
            outcomes[-1] = outcomes[-1].without_pages()
    if as_json:
        output.emit_json({"files": [outcome.to_json() for outcome in outcomes]})
    elif not silent and outcomes[0].after is not None and not outcomes[0].refusals:
        _print_raw(outcomes[0].after.encode().decode("utf-8"))
    _report(outcomes, "would be converted" if not write else "converted", summary=write or check)
    if any(outcome.unusable for outcome in outcomes):
        return 2
    changed = check and any(outcome.status == "converted" for outcome in outcomes)
    return 1 if changed or any(outcome.refusals for outcome in outcomes) else 0


@cookbook.command()
@PATHS
@click.option("--fix", is_flag=True, help="Make the fixes that cannot alter what a page says.")
@json_option
def lint(paths: tuple[Path, ...], fix: bool, as_json: bool) -> int:
    """Hold pages against the contribution checklist and the catalog.

    Looks for pipe tables, missing title, description or last line end,
    `python -m sglang.launch_server`, ports other than 30000, anchors that do
    not exist and broken links, wrong GPU memory sizes, FP4 where there is
    none, flags and variables that are unknown or were renamed, commands that
    the engine refuses, and commands that differ from the catalog's.

    --fix converts pipe tables, writes `sglang serve` and ends the last line.
    Exit code 1: a finding is an error; 2: a file could not be read.

    \b
    perilune cookbook lint Kimi-K3.mdx
    perilune cookbook lint docs/cookbook --fix
    """
    from perilune.cookbook.files import find_pages, read_page, write_page
    from perilune.cookbook.lint.run import fix as fixed
    from perilune.cookbook.lint.run import lint as check

    found: list[tuple[Path, PageFinding]] = []
    changed: list[str] = []
    unusable: list[str] = []
    pages = find_pages(paths)
    for path in _progress(iter(pages), len(pages)):
        try:
            page = read_page(path)
            if fix and (better := fixed(page)) != page:
                write_page(path, better)
                changed.append(str(path))
                page = better
        except UnusableInput as error:
            unusable.append(str(error))
            continue
        found += [(path, finding) for finding in check(page)]
    if as_json:
        findings = [finding.to_json(str(path)) for path, finding in found]
        output.emit_json({"findings": findings, "fixed": changed, "unusable": unusable})
    else:
        for path, finding in found:
            _print_finding(path, finding)
    for message in unusable:
        output.note(f"perilune: {message}")
    errors = sum(finding.is_error for _, finding in found)
    output.note(
        f"{_count(len(pages), 'page')}: {_count(len(found), 'finding')}, {_count(errors, 'error')}"
        + (f", {_count(len(changed), 'page')} fixed" if fix else "")
    )
    return 2 if unusable else 1 if errors else 0


@cookbook.command()
@click.argument("name", metavar="kimi-k3", type=click.Choice(["kimi-k3"]))
@click.option("--format", "form", type=click.Choice(["mdx", "markdown"]), default="mdx", show_default=True)
@click.option("-o", "--output", "target", type=click.Path(path_type=Path, dir_okay=False), help="Write to this file.")
@click.option("--hardware", default="b300", show_default=True, help="Platform of the calculator's example.")
@click.option("--strategy", default="balanced", show_default=True, help="Strategy of the calculator's example.")
@click.option("--isl", type=TOKENS, metavar="TOKENS", help="Input tokens per request.")
@click.option("--osl", type=TOKENS, metavar="TOKENS", help="Output tokens per request.")
def page(
    name: str,
    form: Literal["mdx", "markdown"],
    target: Path | None,
    hardware: str,
    strategy: str,
    isl: int | None,
    osl: int | None,
) -> int:
    """Build the Kimi-K3 page from the facts: matrix, tables, every command.

    Nothing on the page is typed in: shapes and commands are composed from the
    recipes, the calculator's numbers are computed for the chosen workload, and
    a published command that the engine refuses is corrected and says so.

    \b
    perilune cookbook page kimi-k3 -o Kimi-K3.mdx
    perilune cookbook page kimi-k3 --format markdown --isl 8192 --osl 1024
    """
    from perilune.cookbook.build.cells import Lengths
    from perilune.cookbook.build.kimi_k3 import build
    from perilune.files import replace_file

    if (isl is None) != (osl is None):
        raise UnusableInput("One length alone says nothing.", where="--isl", fix="Give --isl and --osl.")
    text = build(form, platform=hardware, strategy=strategy, lengths=Lengths(isl, osl))
    if target is None:
        _print_raw(text)
    else:
        replace_file(target, text.encode("utf-8"))
        output.note(f"{target}: {name}, {text.count(chr(10)):,} lines")
    return 0


def _print_finding(path: Path, found: PageFinding) -> None:
    finding = found.finding
    click.echo(f"{path}:{found.line}: {finding.severity}: {finding.message} [{finding.id}]")
    for line in finding.fix.splitlines():
        click.echo(f"    {line}")


def _write(outcome: Outcome) -> Outcome:
    from perilune.cookbook.files import write_page
    from perilune.cookbook.tables.run import failed

    if outcome.status != "converted" or outcome.after is None:
        return outcome
    try:
        write_page(outcome.path, outcome.after)
    except UnusableInput as error:
        return failed(outcome.path, error)
    return outcome


def _progress(items: Iterator[T], total: int) -> Iterator[T]:
    """Show a bar on a terminal while several pages are worked through."""
    if total < 2 or not sys.stderr.isatty():
        yield from items
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeElapsedColumn

    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        yield from bar.track(items, total=total)


def _print_raw(text: str) -> None:
    """Print text with the very line ends it has."""
    sys.stdout.flush()
    binary = getattr(sys.stdout, "buffer", None)
    if binary is None:
        sys.stdout.write(text)
        return
    binary.write(text.encode("utf-8"))
    binary.flush()


def _report(outcomes: Sequence[Outcome], verb: str, *, summary: bool) -> None:
    for outcome in outcomes:
        for refusal in outcome.refusals:
            where = f"{outcome.path}:{refusal.line}" if refusal.line else str(outcome.path)
            output.note(f"{where}: refused: {refusal.message}")
        for note in outcome.notes:
            output.note(f"{outcome.path}:{note.line}: {note.message}")
    if not summary:
        return
    changed = [outcome for outcome in outcomes if outcome.status == "converted"]
    for outcome in changed:
        output.note(f"{outcome.path}: {_count(outcome.tables, 'table')}, {_count(outcome.cells, 'cell')} {verb}")
    refused = sum(bool(outcome.refusals) for outcome in outcomes)
    unchanged = len(outcomes) - len(changed) - refused
    output.note(
        f"{_count(len(outcomes), 'page')}: {len(changed)} {verb} ({_count(sum(o.tables for o in changed), 'table')}, "
        f"{_count(sum(o.cells for o in changed), 'cell')}), {unchanged} unchanged, {refused} refused"
    )


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
