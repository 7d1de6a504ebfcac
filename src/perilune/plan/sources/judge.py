"""Findings on everything a file holds, each with its place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from perilune.errors import UnusableInput
from perilune.facts.hardware import platform
from perilune.facts.history import JUDGED
from perilune.plan.deployment import Workload
from perilune.plan.model.config import ModelConfig
from perilune.plan.rules import (
    Finding,
    Subject,
    by_severity,
    findings_of,
    fleet_findings,
    pair_findings,
    subject_of,
)
from perilune.plan.server import Server
from perilune.plan.sources.folding import folded, nodes_of
from perilune.plan.sources.found import Found, Note, Reading
from perilune.plan.sources.partial import published_variables, standing_alone, whatever_is_set
from perilune.plan.sources.text import Text
from perilune.plan.sources.together import Side, Together

Routers = Sequence[Sequence[str]]


@dataclass(frozen=True, eq=False)
class Verdict:
    """What the rules look at, and what they say of it."""

    subject: Subject

    @cached_property
    def findings(self) -> tuple[Finding, ...]:
        """Everything to say of the server alone."""
        return tuple(findings_of(self.subject))


@dataclass(frozen=True)
class Judged:
    """A server, where it was found, and its verdict.

    `number` is its place in the reading, `source` that of the input among those that belong together, and `side`
    the part it plays in a pair that was asked for, whatever its own command says. `published` is the verdict on the
    same command with the variables of the platform's recipes, where nobody knows all of its own. `declared` is the
    platform that the input names, whichever was asked about.
    """

    text: Text
    found: Found
    verdict: Verdict
    number: int = 0
    source: int = 0
    side: Side = ""
    published: Verdict | None = None
    declared: str | None = None

    @property
    def subject(self) -> Subject:
        """What the rules look at."""
        return self.verdict.subject

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What can be said of the server alone."""
        if self.found.unread:
            return standing_alone(self.verdict.findings, self.subject)
        if self.published is not None:
            return whatever_is_set(self.verdict.findings, self.published.findings)
        return self.verdict.findings


@dataclass
class Judge:
    """What is asked of every server; servers that are the same are resolved once."""

    platform: str | None = None
    workload: Workload = field(default_factory=Workload)
    engine: str = JUDGED
    model: ModelConfig | None = None
    draft: ModelConfig | None = None
    _verdicts: dict[object, Verdict | UnusableInput] = field(default_factory=dict)

    def servers(self, text: Text, reading: Reading, problems: list[UnusableInput]) -> list[Judged]:
        """Every server of a file, resolved; what is wrong with one that cannot be goes to `problems`."""
        servers: list[Judged] = []
        for number, found in enumerate(reading.servers):
            declared = found.platform or reading.platform
            name = self.platform or declared
            if name is None:
                raise UnusableInput(
                    "It does not say which accelerator it is for.",
                    where=text.name,
                    fix="Give --platform, such as b300.",
                )
            try:
                verdict = self.verdict(text, found, name)
                published = self._published(text, found, name)
                servers.append(Judged(text, found, verdict, number, published=published, declared=declared))
            except UnusableInput as problem:
                problems.append(problem)
        return servers

    def findings(self, servers: Sequence[Judged], routers: Routers = ()) -> list[Finding]:
        """Everything to say of inputs that belong together, each finding placed and said once."""
        together = Together(servers)
        found = folded([list(_own(one, several=len(servers) > 1)) for one in servers], nodes_of(servers, together))
        for p, d in together.pairs:
            for finding in pair_of(servers[p], servers[d], routers):
                found.append(placed(finding, servers[d] if finding.pool == "decode" else servers[p]))
        for group in together.groups:
            fleet = [servers[index] for index in group]
            found += [_placed_in_fleet(finding, fleet) for finding in fleet_findings([one.subject for one in fleet])]
        found += [placed(note_finding(note), servers[0]) for note in together.notes]
        return by_severity(dict.fromkeys(found))

    def again(self, one: Judged, server: Server) -> Judged | None:
        """The verdict on another command in the same place; None where it cannot be resolved."""
        found = replace(one.found, server=server)
        try:
            name = one.subject.platform.id
            verdict = self.verdict(one.text, found, name)
            return replace(one, found=found, verdict=verdict, published=self._published(one.text, found, name))
        except UnusableInput:
            return None

    def _published(self, text: Text, found: Found, platform_id: str) -> Verdict | None:
        """The verdict with the variables that files nobody read are likely to set; None where all are known."""
        if not found.foreign:
            return None
        known = found.server.environment
        likely = {name: value for name, value in published_variables(platform_id).items() if name not in known}
        return self.verdict(text, replace(found, server=found.server.with_env(likely)), platform_id)

    def verdict(self, text: Text, found: Found, platform_id: str) -> Verdict:
        """What the rules say of one server; raises UnusableInput naming its place where it cannot be resolved."""
        key = (
            found.server, platform_id, found.image, found.expands, found.composed,
            found.gpus_visible, found.group_size, found.host,
        )  # fmt: skip
        known = self._verdicts.get(key)
        if known is None:
            try:
                subject = subject_of(
                    found.server.redacted(), platform(platform_id), workload=self.workload, engine=self.engine,
                    image=found.image, model=self.model, draft=self.draft, expands=found.expands,
                    gpus_visible=found.gpus_visible, group_size=found.group_size, host=found.host,
                )  # fmt: skip
                known = Verdict(replace(subject, template=True) if found.composed else subject)
            except UnusableInput as error:
                known = error
            self._verdicts[key] = known
        if isinstance(known, UnusableInput):
            place = text.at_line(found.line) if text.name else known.where
            raise UnusableInput(known.message, where=place, fix=known.fix)
        return known


def pair_of(prefill: Judged, decode: Judged, routers: Routers) -> Iterator[Finding]:
    """What only the two together show, with every router."""
    for router in routers or (None,):
        yield from pair_findings(prefill.subject, decode.subject, router)


def _own(one: Judged, *, several: bool) -> Iterator[Finding]:
    for finding in (*_elsewhere(one), *one.findings):
        yield placed(finding.on(one.found.name or _role(one)) if several else finding, one)


def _elsewhere(one: Judged) -> Iterator[Finding]:
    """The platform that was asked about is not the one that the input names."""
    asked, declared = one.subject.platform, one.declared
    if declared is None or declared == asked.id:
        return
    named = platform(declared).label
    yield Finding(
        "platform-differs",
        "advice" if one.found.kind.endswith("Dockerfile") else "error",  # an image may run elsewhere
        f"It is written for {named}, and everything here is judged for {asked.label}, as --platform says.",
        f"Leave --platform out, or give --platform {declared}.",
        source="the file's labels, images and options",
    )


def _role(one: Judged) -> str:
    return "" if one.subject.role == "unified" else one.subject.role


def placed(finding: Finding, one: Judged) -> Finding:
    """The finding at the first of its flags or variables that is written, else where the command starts."""
    if not one.text.name:
        return finding
    place = next((at for name in finding.flags if (at := one.found.place_of(name)) is not None), None)
    return finding.at(one.text.name, one.found.line if place is None else one.text.line(place))


def _placed_in_fleet(finding: Finding, servers: Sequence[Judged]) -> Finding:
    if finding.member is not None:
        return placed(finding, servers[finding.member])
    candidates = [one for one in servers if finding.pool in ("", one.found.name, one.subject.role)] or list(servers)
    writes = (one for one in candidates if any(one.found.place_of(name) is not None for name in finding.flags))
    return placed(finding, next(writes, candidates[0]))


def note_finding(note: Note, text: Text | None = None) -> Finding:
    """What the form of a file says, as a finding."""
    finding = Finding(note.id, note.severity, note.message, note.fix)
    return finding.at(text.name, note.line) if text is not None and text.name else finding
