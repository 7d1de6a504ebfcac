"""The `perilune` command: verbs are imported only when they run, so `--help` stays quick."""

from __future__ import annotations

import errno
import importlib
import os
import signal
import sys
from typing import NoReturn

import click

from perilune.cli import output
from perilune.errors import PeriluneError, UnusableInput

VERBS = {
    "plan": "Plan a deployment: topology, memory, admitted requests, levers, commands.",
    "commands": "Print the exact command of every node, for a shell or for docker.",
    "memory": "The memory ledger of any `sglang serve` command line, and what it admits.",
    "resolve": "What SGLang makes of a command line: every default, rewrite and rejection.",
    "rehearse": "Serve a trace or a workload on a plan in simulated time: TTFT, TPOT, throughput.",
    "check": "What is wrong with a command, script or manifest, and how to fix it.",
    "explain": "Derive one figure of a ledger, with the numbers put in.",
    "recipes": "List the published recipes and what each is made of.",
    "sweep": "Rehearse a grid of deployments and loads: throughput against interactivity.",
    "calibrate": "Refit the step times to results of your own.",
    "cookbook": "Documentation pages: convert tables, lint, build the Kimi-K3 page.",
}


PASTED = ("memory", "resolve", "explain", "check")  # verbs that read a command line after `--`
CHOSEN = ("plan", "commands")
FOLLOWS = dict.fromkeys(
    ("--nodes", "--nnodes"),
    "the nodes follow from the recipe, or from the GPUs: --preset NAME --gpus N, or --set tp-size=N.",
)
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


class Verbs(click.Group):
    """A group whose commands live in `perilune.cli.<verb>` and load on first use."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        module = importlib.import_module(f"perilune.cli.{cmd_name}")
        command: click.Command = getattr(module, cmd_name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(VERBS.items()))


@click.group(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80})
@click.version_option(package_name="perilune", prog_name="perilune")
def cli() -> None:
    """Plan Kimi-K3 serving on SGLang, from a hardware list to exact commands.

    Exit codes: 0 fine, 1 findings (the engine would refuse, or fewer requests
    are admitted than asked), 2 unusable input.
    """


def main() -> NoReturn:
    """Run the command line; every error ends in one sentence and an exit code."""
    if hasattr(signal, "SIGPIPE"):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # a reader that has seen enough is no error
    try:
        _refuse_bytes(sys.argv)
        code = cli.main(prog_name="perilune", standalone_mode=False)
        if sys.stdout is not None:  # closed by who started it
            sys.stdout.flush()
        sys.exit(code if isinstance(code, int) else 0)
    except PeriluneError as error:
        output.note(f"perilune: {error}")
        sys.exit(2)
    except click.NoSuchOption as error:
        output.note(f"perilune: {_unknown(error, sys.argv[1:])}")
        sys.exit(2)
    except click.ClickException as error:
        output.note(f"perilune: {error.format_message()}")
        sys.exit(2)
    except click.Abort:
        output.note("perilune: interrupted.")
        sys.exit(130)
    except RecursionError:
        output.note("perilune: the input is nested too deeply to read.")
        sys.exit(2)
    except Exception as error:
        if isinstance(error, OSError) and error.filename is None and error.errno in FULL:
            output.note(f"perilune: The output cannot be written: {os.strerror(error.errno).lower()}.")
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what is still in the buffer would fail again at the end
            sys.exit(2)
        if os.environ.get("PERILUNE_DEBUG"):
            raise
        output.note(
            f"perilune: a defect of perilune itself ({type(error).__name__}: {error}). "
            "Run again with PERILUNE_DEBUG=1 and report what it prints."
        )
        sys.exit(2)


def _unknown(error: click.NoSuchOption, words: list[str]) -> str:
    """What to say of an option that the verb has not: that it belongs behind `--`, or follows from something else."""
    verb = words[0] if words else ""
    if verb in PASTED and "--" not in words:
        return (
            f"{error.option_name} is no option of `perilune {verb}`. If it is one of the command to read, put -- "
            f"before that: perilune {verb} --platform ID -- sglang serve ..."
        )
    if verb in CHOSEN and error.option_name in FOLLOWS:
        return f"No such option {error.option_name}: {FOLLOWS[error.option_name]}"
    return error.format_message()


def _refuse_bytes(words: list[str]) -> None:
    for number, word in enumerate(words[1:], 1):
        try:
            word.encode()
        except UnicodeEncodeError:
            raise UnusableInput("It is not UTF-8.", where=f"argument {number}") from None


if __name__ == "__main__":
    main()
