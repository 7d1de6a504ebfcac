"""Findings on everything a file holds, each with its place, and the corrected text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from perilune.errors import UnusableInput
from perilune.facts.hardware import platform
from perilune.facts.history import JUDGED
from perilune.plan.deployment import Workload
from perilune.plan.model.config import ModelConfig
from perilune.plan.rules import (
    Finding,
    Subject,
    apply_edits,
    by_severity,
    findings_of,
    fleet_findings,
    pair_findings,
    subject_of,
)
from perilune.plan.server import Server
from perilune.plan.sources.found import Found, Note, Reading
from perilune.plan.sources.text import Text

MOST_PAIRS = 64
ROUNDS = 12
_PLAIN = (None, "0")


@dataclass(frozen=True)
class Judged:
    """A server, where it was found, and what the rules look at."""

    text: Text
    found: Found
    subject: Subject


@dataclass
class Judge:
    """What is asked of every server; servers that are the same are resolved once."""

    platform: str | None = None
    workload: Workload = field(default_factory=Workload)
    engine: str = JUDGED
    model: ModelConfig | None = None
    draft: ModelConfig | None = None
    _subjects: dict[object, Subject | UnusableInput] = field(default_factory=dict)
    _findings: dict[int, list[Finding]] = field(default_factory=dict)

    def servers(self, text: Text, reading: Reading, problems: list[UnusableInput]) -> list[Judged]:
        """Every server of a file, resolved; what is wrong with one that cannot be goes to `problems`."""
        name = self.platform or reading.platform
        if name is None:
            raise UnusableInput(
                "It does not say which accelerator it is for.", where=text.name, fix="Give --platform, such as b300."
            )
        servers: list[Judged] = []
        for found in reading.servers:
            try:
                servers.append(Judged(text, found, self._subject(text, found, found.server, name)))
            except UnusableInput as problem:
                problems.append(problem)
        return servers

    def findings(self, servers: Sequence[Judged], routers: Sequence[Sequence[str]] = ()) -> list[Finding]:
        """Everything to say of servers that belong together, each finding placed and said once."""
        found = [finding for one in servers for finding in self._own(one, several=len(servers) > 1)]
        for prefill, decode in pairs_of(servers):
            for finding in self._pair(prefill, decode, routers):
                found.append(placed(finding, decode if finding.pool == "decode" else prefill))
        if len(servers) > 1:
            found += [_placed_in_fleet(finding, servers) for finding in fleet_findings([s.subject for s in servers])]
        return by_severity(dict.fromkeys(found))

    def corrected(self, servers: Sequence[Judged], routers: Sequence[Sequence[str]] = ()) -> list[Server]:
        """The servers with the errors corrected that a machine can correct, each and as pairs."""
        now = [self._alone(one) for one in servers]
        for _ in range(ROUNDS):
            before = [one.found.server for one in now]
            for p, d in _pair_indices(now):
                for finding in self._pair(now[p], now[d], routers):
                    if finding.severity == "error" and finding.edits:
                        at = d if finding.pool == "decode" else p
                        now[at] = self._alone(self._edited(now[at], finding))
                        break
            if before == [one.found.server for one in now]:
                break
        return [one.found.server for one in now]

    def _alone(self, one: Judged) -> Judged:
        for _ in range(ROUNDS):
            errors = [f for f in self._of(one.subject) if f.severity == "error" and f.edits]
            better = next((e for f in errors if (e := self._edited(one, f)).found.server != one.found.server), None)
            if better is None:
                return one
            one = better
        return one

    def _edited(self, one: Judged, finding: Finding) -> Judged:
        server = apply_edits(one.found.server, finding.edits)
        try:
            subject = self._subject(one.text, one.found, server, one.subject.platform.id)
        except UnusableInput:
            return one
        return Judged(one.text, replace(one.found, server=server), subject)

    def _subject(self, text: Text, found: Found, server: Server, platform_id: str) -> Subject:
        key = (server, platform_id, found.image, found.expands)
        known = self._subjects.get(key)
        if known is None:
            try:
                known = subject_of(
                    server.redacted(), platform(platform_id), workload=self.workload, engine=self.engine,
                    image=found.image, model=self.model, draft=self.draft, expands=found.expands,
                )  # fmt: skip
            except UnusableInput as error:
                known = error
            self._subjects[key] = known
        if isinstance(known, UnusableInput):
            place = f"{text.name}, line {found.line}" if text.name else known.where
            raise UnusableInput(known.message, where=place, fix=known.fix)
        return known

    def _of(self, subject: Subject) -> list[Finding]:
        if id(subject) not in self._findings:
            self._findings[id(subject)] = findings_of(subject)
        return self._findings[id(subject)]

    def _own(self, one: Judged, *, several: bool) -> Iterator[Finding]:
        for finding in self._of(one.subject):
            yield placed(finding.on(one.found.name or _role(one)) if several else finding, one)

    def _pair(self, prefill: Judged, decode: Judged, routers: Sequence[Sequence[str]]) -> Iterator[Finding]:
        for router in routers or (None,):
            yield from pair_findings(prefill.subject, decode.subject, router)


def _role(one: Judged) -> str:
    return "" if one.subject.role == "unified" else one.subject.role


def pairs_of(servers: Sequence[Judged]) -> Iterator[tuple[Judged, Judged]]:
    """Every prefill with every decode, the head of each alone where heads are known."""
    return ((servers[p], servers[d]) for p, d in _pair_indices(servers))


def _pair_indices(servers: Sequence[Judged]) -> list[tuple[int, int]]:
    heads = [i for i, one in enumerate(servers) if one.found.server.value("--node-rank") in _PLAIN]
    chosen = heads or list(range(len(servers)))
    by_role = {role: [i for i in chosen if servers[i].subject.role == role] for role in ("prefill", "decode")}
    return [(p, d) for p in by_role["prefill"] for d in by_role["decode"]][:MOST_PAIRS]


def placed(finding: Finding, one: Judged) -> Finding:
    """The finding at the first of its flags or variables that is written, else where the command starts."""
    if not one.text.name:
        return finding
    place = next((at for name in finding.flags if (at := one.found.place_of(name)) is not None), None)
    return finding.at(one.text.name, one.found.line if place is None else one.text.line(place))


def _placed_in_fleet(finding: Finding, servers: Sequence[Judged]) -> Finding:
    candidates = [one for one in servers if finding.pool in ("", one.found.name, one.subject.role)] or list(servers)
    writes = (one for one in candidates if any(one.found.place_of(name) is not None for name in finding.flags))
    return placed(finding, next(writes, candidates[0]))


def note_finding(note: Note, text: Text) -> Finding:
    """What the form of a file says, as a finding."""
    finding = Finding(note.id, note.severity, note.message, note.fix)
    return finding.at(text.name, note.line) if text.name else finding
