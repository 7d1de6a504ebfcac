"""`perilune check`: what is wrong with servers, wherever their commands are kept."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from perilune.cli import options, output
from perilune.errors import UnusableInput

if TYPE_CHECKING:
    from perilune.plan.model.config import ModelConfig
    from perilune.plan.rules import Finding
    from perilune.plan.sources.found import Reading
    from perilune.plan.sources.judge import Judge, Judged
    from perilune.plan.sources.text import Text

COMMAND_LINE = "command line"


class WithCommand(click.Command):
    """A command whose words after the first `--` are a command line of their own."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if "--" in args:
            at = args.index("--")
            ctx.meta["command"] = tuple(args[at + 1 :])
            args = args[:at]
        return super().parse_args(ctx, args)


@dataclass
class Checked:
    """One input with everything found in it."""

    text: Text
    reading: Reading
    servers: list[Judged] = field(default_factory=list)


@click.command(cls=WithCommand)
@click.argument("files", nargs=-1, metavar="[FILE ...]", type=click.Path(path_type=Path))
@click.option("--platform", "platform_name", metavar="ID", help="Needed unless the files name it: b300, h200, ...")
@click.option(
    "--pair", nargs=2, metavar="PREFILL DECODE", type=click.Path(path_type=Path), help="Two files that work together."
)
@click.option("--router", metavar="FILE", type=click.Path(path_type=Path), help="The file with the router's command.")
@options.workload_options
@options.model_options
@click.option("--sglang", "engine", metavar="VERSION", help="The release in use.")
@click.option("--fix", is_flag=True, help="Print the input with its errors corrected.")
@click.option("--skip-others", is_flag=True, help="Pass over files that start no server.")
@click.option("--strict", is_flag=True, help="Exit 1 for lost capacity as well.")
@options.json_option
@click.option("--sarif", "as_sarif", is_flag=True, help="Print SARIF 2.1.0.")
@click.option("--github", "as_github", is_flag=True, help="Print annotations for a GitHub workflow.")
@click.pass_context
def check(
    ctx: click.Context,
    files: tuple[Path, ...],
    platform_name: str | None,
    pair: tuple[Path, Path] | None,
    router: Path | None,
    isl: int | None,
    osl: int | None,
    concurrency: int | None,
    model_config: Path | None,
    draft_config: Path | None,
    engine: str | None,
    fix: bool,
    skip_others: bool,
    strict: bool,
    as_json: bool,
    as_sarif: bool,
    as_github: bool,
) -> int:
    """What will fail, what is changed, what costs capacity, and how to fix it.

    Reads scripts, Dockerfiles, compose files, Kubernetes manifests, sbatch
    scripts, srt-slurm recipes and --config files, or one command after `--`.
    Exit 1 for errors (--strict: for lost capacity too), 2 for unusable input.

    \b
    perilune check deploy.yaml --isl 8192 --osl 1024 --concurrency 64
    perilune check --pair prefill.sh decode.sh --router router.sh --platform b300
    perilune check --platform h200 -- sglang serve --tp-size 16 ...
    """
    from perilune.plan.deployment import Workload
    from perilune.plan.sources.judge import Judge
    from perilune.plan.sources.text import NoServer

    if as_json + as_sarif + as_github + fix > 1:
        raise UnusableInput("--json, --sarif, --github and --fix each print something else.", fix="Give one of them.")
    command: tuple[str, ...] | None = ctx.meta.get("command")
    judge = Judge(platform_name, Workload(isl, osl, concurrency))
    judge.engine = _release(engine) if engine else judge.engine
    judge.model, judge.draft = _config(model_config), _config(draft_config)
    problems: list[UnusableInput] = []
    groups = _inputs(files, pair, command, judge, problems)
    if skip_others:
        problems = [problem for problem in problems if not isinstance(problem, NoServer)]
    routers = _routers(router)
    if fix:
        from perilune.cli.check_fix import print_fixed

        code = print_fixed(groups, judge, routers)
    else:
        code = _report(groups, judge, routers, strict, as_json, as_sarif, as_github)
    for problem in problems:
        from perilune.cli.check_view import printable

        output.note(f"perilune: {printable(str(problem))}")
    return 2 if problems else code


def _release(text: str) -> str:
    from perilune.facts.history import release

    if release(text.removeprefix("v")) is None:
        raise UnusableInput(f"{text!r} is no release of SGLang.", where="--sglang", fix="Write it like 0.5.23.")
    return text.removeprefix("v")


def _config(path: Path | None) -> ModelConfig | None:
    from perilune.plan.model.reading import load_config_file

    return load_config_file(path) if path else None


def _inputs(
    files: Sequence[Path],
    pair: tuple[Path, Path] | None,
    command: tuple[str, ...] | None,
    judge: Judge,
    problems: list[UnusableInput],
) -> list[list[Checked]]:
    """The inputs, those that belong together in one list; what cannot be used goes to `problems`."""
    given = (bool(files) or bool(pair)) + (command is not None)
    if given == 0 or (files and pair):
        raise UnusableInput(
            "Nothing to check was given." if not given else "--pair names the files itself.",
            fix="Give files, or --pair PREFILL DECODE, or a command after `--`.",
        )
    if given > 1:
        raise UnusableInput("Both files and a command were given.", fix="Check one of them at a time.")
    groups: list[list[Checked]] = []
    if command is not None:
        groups.append([_checked(*_read_command(command), judge, problems)])
    elif pair:
        groups.append([_checked(*_read(path), judge, problems) for path in pair])
        _both_roles(groups[0])
    for path in files:
        try:
            groups.append([_checked(*_read(path), judge, problems)])
        except UnusableInput as problem:
            problems.append(problem)
    return groups


def _read(path: Path) -> tuple[Text, Reading]:
    from perilune.plan.sources.read import read_source
    from perilune.plan.sources.text import MOST_BYTES, Text, read_text

    piped = str(path) == "-"
    text = Text.decode(sys.stdin.buffer.read(MOST_BYTES + 1), "standard input") if piped else read_text(path)
    return text, read_source(text)


def _read_command(command: tuple[str, ...]) -> tuple[Text, Reading]:
    from perilune.plan.server import Server
    from perilune.plan.sources.found import Found, Reading, Word
    from perilune.plan.sources.text import Text

    given = options.command_text(command)
    if isinstance(given, str):
        from perilune.plan.sources.read import read_shell

        text = Text.decode(given.encode("utf-8", "surrogateescape"), COMMAND_LINE)
        reading = read_shell(text)
        if reading.servers:
            return text, reading
    server = Server.parse(given)
    words = tuple(Word(word) for word in server.argv)
    return Text("", ""), Reading("command", (Found(server, "command", 1, words=words, expands=True),))


def _checked(text: Text, reading: Reading, judge: Judge, problems: list[UnusableInput]) -> Checked:
    from perilune.plan.sources.text import NoServer

    if not reading.servers:
        if reading.notes:
            note = reading.notes[0]
            raise UnusableInput(note.message, where=f"{text.name}, line {note.line}", fix=note.fix)
        raise NoServer("It starts no SGLang server.", where=text.name)
    return Checked(text, reading, judge.servers(text, reading, problems))


def _both_roles(pair: Sequence[Checked]) -> None:
    for one, role in zip(pair, ("prefill", "decode"), strict=True):
        if all(server.subject.role != role for server in one.servers):
            raise UnusableInput(
                f"It starts no {role} server.", where=one.text.name, fix=f"Write --disaggregation-mode {role}."
            )


def _routers(path: Path | None) -> tuple[tuple[str, ...], ...]:
    if path is None:
        return ()
    _, reading = _read(path)
    if not reading.routers:
        raise UnusableInput("It starts no router.", where=str(path), fix="Give the file with its command.")
    return reading.routers


def findings_of(group: Sequence[Checked], judge: Judge, routers: Sequence[Sequence[str]]) -> list[Finding]:
    """Everything to say of inputs that belong together."""
    from perilune.plan.sources.judge import note_finding

    servers = [server for one in group for server in one.servers]
    own = [router for one in group for router in one.reading.routers]
    notes = [note_finding(note, one.text) for one in group for note in one.reading.notes]
    return [*notes, *judge.findings(servers, routers or own)]


def _report(
    groups: Sequence[Sequence[Checked]],
    judge: Judge,
    routers: Sequence[Sequence[str]],
    strict: bool,
    as_json: bool,
    as_sarif: bool,
    as_github: bool,
) -> int:
    from perilune.plan.rules import by_severity

    findings = by_severity(finding for group in groups for finding in findings_of(group, judge, routers))
    if as_json:
        output.emit_json(_json(groups, findings))
    elif as_sarif:
        from perilune.cli.check_formats import to_sarif

        output.emit_json(to_sarif(findings))
    elif as_github:
        from perilune.cli.check_formats import to_github

        for line in to_github(findings):
            click.echo(line)
    elif groups:
        from perilune.cli.check_view import print_placed, summary

        print_placed(findings)
        checked = [one for group in groups for one in group]
        click.echo(summary(findings, sum(len(one.servers) for one in checked), sum(bool(c.text.name) for c in checked)))
    return exit_code(findings, strict=strict)


def exit_code(findings: Sequence[Finding], *, strict: bool) -> int:
    """1 where a finding costs the exit code, else 0."""
    costly = {"error", "capacity"} if strict else {"error"}
    return 1 if any(finding.severity in costly for finding in findings) else 0


def _json(groups: Sequence[Sequence[Checked]], findings: Sequence[Finding]) -> dict[str, Any]:
    servers = [
        {
            "file": one.text.name or None,
            "line": server.found.line if one.text.name else None,
            "kind": server.found.kind,
            "name": server.found.name,
            "role": server.subject.role,
            "platform": server.subject.platform.id,
        }
        for group in groups
        for one in group
        for server in one.servers
    ]
    return {"findings": [finding.to_json() for finding in findings], "servers": servers}
