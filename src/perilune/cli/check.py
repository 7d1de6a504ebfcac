"""`perilune check`: what is wrong with servers, wherever their commands are kept."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from perilune.cli import options, output
from perilune.errors import UnusableInput

if TYPE_CHECKING:
    from perilune.plan.model.config import ModelConfig


class WithCommand(click.Command):
    """A command whose words after the first `--` are a command line of their own."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if "--" in args:
            at = args.index("--")
            ctx.meta["command"] = tuple(args[at + 1 :])
            args = args[:at]
        return super().parse_args(ctx, args)


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
    from perilune.cli.check_inputs import Inputs, routers_in
    from perilune.facts.hardware import platform
    from perilune.plan.deployment import Workload
    from perilune.plan.sources.judge import Judge
    from perilune.plan.sources.tokens import shown

    if as_json + as_sarif + as_github + fix > 1:
        raise UnusableInput("--json, --sarif, --github and --fix each print something else.", fix="Give one of them.")
    if platform_name is not None:
        platform(platform_name)
    judge = Judge(platform_name, Workload(isl, osl, concurrency))
    judge.engine = _release(engine) if engine else judge.engine
    judge.model, judge.draft = _config(model_config), _config(draft_config)
    inputs = Inputs(judge)
    try:
        groups = inputs.read(files, pair, ctx.meta.get("command"))
        routers = routers_in(router)
    except UnusableInput as refused:
        raise shown(refused) from None
    if fix:
        from perilune.cli.check_fix import print_fixed

        code = print_fixed(groups, judge, routers, strict=strict)
    else:
        from perilune.cli.check_report import Form, report

        form = Form.JSON if as_json else Form.SARIF if as_sarif else Form.GITHUB if as_github else Form.TEXT
        code = report(groups, judge, routers, form, strict=strict)
    problems = inputs.other_problems if skip_others else inputs.problems
    for problem in problems:
        output.note(f"perilune: {shown(problem)}")
    return 2 if problems else code


def _release(text: str) -> str:
    from perilune.facts.history import release

    if release(text.removeprefix("v")) is None:
        raise UnusableInput(f"{text!r} is no release of SGLang.", where="--sglang", fix="Write it like 0.5.23.")
    return text.removeprefix("v")


def _config(path: Path | None) -> ModelConfig | None:
    from perilune.plan.model.reading import load_config_file

    return load_config_file(path) if path else None
