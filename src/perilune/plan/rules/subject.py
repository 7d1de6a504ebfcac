"""What a rule looks at: one server with everything that follows from its command."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from perilune.errors import UnusableInput
from perilune.facts.hardware import Platform
from perilune.facts.history import JUDGED
from perilune.plan.commandline.occurrences import occurrences
from perilune.plan.deployment import Unknown, Workload
from perilune.plan.memory import Basis, Ledger, Measured, ledger
from perilune.plan.model.config import ModelConfig, known_config
from perilune.plan.resolve import DEFAULT_MODEL, resolve
from perilune.plan.resolve.arguments import engine_argv
from perilune.plan.resolve.config_file import merge
from perilune.plan.resolve.state import Rejected, Resolved
from perilune.plan.rules.edits import Edit, apply_edits
from perilune.plan.rules.releases import switched_on
from perilune.plan.rules.settled import Absurd, leave_out, settled, without_absurd
from perilune.plan.server import Server

MOST_DIGITS = 18
ANY_LOAD = Workload()
_SHAPES = frozenset({"--tp-size", "--pp-size", "--attn-dp-size", "--ep-size", "--dcp-size", "--model-path", "--config"})


@dataclass(frozen=True, eq=False)
class Subject:
    """One server as written, resolved and sized.

    `engine` is the SGLang release asked about; the verdict is always that of the release that is modelled.
    `expands` says that a shell reads the command before the server does, so that `$NAME` is a value.
    `unknown` names the flags whose values stand for others, `absurd` the values that nothing can mean; both were
    left out of the resolution. `no_model` says that no model is named: Kimi-K3 stands in.
    `template` is set for composed commands, whose placeholders are meant to be filled in.

    `gpus_visible` is how many accelerators the server is given, `group_size` how many nodes the document that
    holds it starts together (a LeaderWorkerSet, an sbatch job); None where nothing says so. `host` names the
    machine or pod: servers of the same one share its ports. Empty means that the machine is not known.
    """

    server: Server
    resolved: Resolved
    ledger: Ledger
    workload: Workload = ANY_LOAD
    measured: Measured | None = None
    engine: str = JUDGED
    image: str | None = None
    expands: bool = False
    unknown: tuple[str, ...] = ()
    unpublished: tuple[Unknown, ...] = ()
    template: bool = False
    absurd: tuple[Absurd, ...] = ()
    no_model: bool = False
    gpus_visible: int | None = None
    group_size: int | None = None
    host: str = ""

    def __getitem__(self, field: str) -> Any:
        return self.resolved[field]

    @property
    def env(self) -> dict[str, str]:
        """The variables the server sees."""
        return dict(self.server.environment)

    @property
    def platform(self) -> Platform:
        """Where it runs."""
        return self.resolved.platform

    @property
    def parsed(self) -> bool:
        """Whether the engine's parser took the command, so that resolved values mean something."""
        return self.resolved.stage != "parse"

    @property
    def accepted(self) -> bool:
        """Whether resolution ran to its end: only then are all values final."""
        return self.resolved.accepted

    @property
    def shape_known(self) -> bool:
        """Whether every flag that decides the size of the server has a value."""
        return not _SHAPES.intersection((*self.unknown, *(one.name for one in self.absurd)))

    @property
    def role(self) -> str:
        """`unified`, `prefill` or `decode`."""
        mode = str(self["disaggregation_mode"])
        return "unified" if mode == "null" else mode

    @property
    def several_nodes(self) -> bool:
        """Whether one server spans nodes."""
        return int(self["nnodes"] or 1) > 1 or "--nnodes" in self.unknown

    @property
    def speculates(self) -> bool:
        """Whether a speculative algorithm is on."""
        return self["speculative_algorithm"] is not None

    @property
    def is_k3(self) -> bool:
        """Whether the model is Kimi-K3, in any checkpoint."""
        return self.resolved.model.is_kimi_k3

    @cached_property
    def known(self) -> Server:
        """The command that was resolved: in today's spelling, without what is left out."""
        server = settled(self.server, self.engine)[0]
        for one in self.absurd:
            server = leave_out(server, one.name)
        return server

    @cached_property
    def written(self) -> frozenset[str]:
        """Canonical names of every flag written, whatever its value."""
        return frozenset(flag.name for flag in self.server.flags)

    def wrote(self, flag: str) -> bool:
        """Whether the option that `flag` names is written."""
        return flag in self.written

    def value(self, flag: str) -> str | None:
        """The value as written."""
        return self.server.value(flag)

    def on_env(self, name: str) -> bool:
        """Whether a switch of the environment is on."""
        return switched_on(self.env.get(name))

    def again(self, edits: Iterable[Edit]) -> Ledger:
        """The ledger after edits, on the same machine."""
        return sized(apply_edits(self.known, edits), self.ledger)

    def first(self, *flags: str) -> str:
        """The first of `flags` that is written, else the first."""
        return next((flag for flag in flags if self.wrote(flag)), flags[0])


def whole(text: str | None) -> int | None:
    """A whole number as written, None for any other text or one of no sane size."""
    return int(text) if text is not None and text.isascii() and text.isdigit() and len(text) <= MOST_DIGITS else None


def subject_of(
    server: Server,
    platform: Platform,
    *,
    workload: Workload = ANY_LOAD,
    measured: Measured | None = None,
    engine: str = JUDGED,
    image: str | None = None,
    model: ModelConfig | None = None,
    draft: ModelConfig | None = None,
    expands: bool = False,
    gpus_visible: int | None = None,
    group_size: int | None = None,
    host: str = "",
) -> Subject:
    """Resolve and size a server for the rules; raises UnusableInput where `resolve` does.

    Values that nobody can know before the start are left out of the resolution; a model named so, or not
    at all, is taken to be Kimi-K3. Absurd values are left out as well, and told.
    """
    known, unknown = settled(server, engine)
    no_model = "--model-path" not in unknown and not _names_model(known)
    if model is None and ("--model-path" in unknown or no_model):
        model = known_config(DEFAULT_MODEL)
    _, found, absurd = without_absurd(
        known, lambda command: ledger(resolve(command, platform, model=model, draft=draft), measured)
    )
    return Subject(
        server,
        found.resolved,
        found,
        workload,
        measured,
        engine,
        image or server.image,
        expands,
        unknown,
        absurd=absurd,
        no_model=no_model,
        gpus_visible=gpus_visible,
        group_size=group_size,
        host=host,
    )


def _names_model(server: Server) -> bool:
    """Whether the engine's parser finds a model, on the command line or in its `--config` file."""
    try:
        words = merge(engine_argv(server))
    except (Rejected, UnusableInput):
        return True  # nobody knows
    return any(flag.name == "--model-path" for flag in occurrences(words))


def sized(server: Server, like: Ledger) -> Ledger:
    """The ledger of another command, on the machine and with the boot-log figures of `like`.

    A command that cannot be judged is one that does not start: it keeps the refusal of `like`, or says why.
    """
    was, memory = like.resolved, like.memory
    measured = None
    if memory is not None and memory.basis is Basis.EXACT:
        measured = Measured(memory.before_gib, memory.free_gib)
    unread = was.stage == "parse" and server.has("--model-path")  # the parser stopped before the model was looked up
    try:
        return ledger(resolve(server, was.platform, model=None if unread else was.model, draft=was.draft), measured)
    except UnusableInput as error:
        text = like.error or like.allocation_error or str(error)
        refused = replace(was, accepted=False, error=text, stage=like.error_stage or "check")
        return ledger(refused, geometry=like.geometry)
