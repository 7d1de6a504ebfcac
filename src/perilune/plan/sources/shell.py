"""A walk through a script: every command it could run, in every branch, without running anything."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from perilune.errors import UnusableInput
from perilune.plan.commandline.form import container_tool
from perilune.plan.sources import branches, heredoc, lifetime, mentions, misread
from perilune.plan.sources.found import Note, Word
from perilune.plan.sources.inner import inner_script, machine_of
from perilune.plan.sources.script import Script
from perilune.plan.sources.shell_builtins import as_sourced, run_builtin
from perilune.plan.sources.text import Text
from perilune.plan.sources.tree import chain, first_error, substitutions
from perilune.plan.sources.ways import Choice
from perilune.plan.sources.words import Scope, single, store, words_of

if TYPE_CHECKING:
    from tree_sitter import Node

MOST_SCOPES = 32
MOST_DEPTH = 60
MOST_COMMANDS = 20_000
MOST_EFFORT = 2_000_000  # names copied for ways through branches
_BODIES = frozenset({"program", "compound_statement", "do_group", "pipeline", "negated_command", "else_clause"})
_LOOPS = frozenset({"while_statement", "c_style_for_statement", "for_statement"})


@dataclass(frozen=True, slots=True)
class Command:
    """One simple command: its words, and the variables set for it alone and exported before it.

    `first` and `last` are its characters in the file; `inside` are the variables that a shell sets in a container.
    `way`, `unlikely` and `background` are those of the scope it was met in; `machine` names where it runs: None
    where the script does, empty where nothing says it. `foreign` says that files nobody read set variables before.
    """

    words: tuple[Word, ...]
    env: dict[str, Word]
    first: int
    last: int
    inside: dict[str, Word] = field(default_factory=dict)
    way: dict[str, Choice] = field(default_factory=dict)
    unlikely: bool = False
    background: bool = False
    machine: str | None = None
    foreign: bool = False


@dataclass
class Walk:
    """A script being walked; `report` is told of every command once for each way it can be reached.

    `passed` takes the characters of text that is known to start nothing, `data` those of here-documents that are no
    scripts; `find` gives the text of a file that is sourced.
    """

    script: Script
    report: Callable[[Command], None]
    notes: list[Note] = field(default_factory=list)
    passed: list[tuple[int, int]] = field(default_factory=list)
    data: list[tuple[int, int]] = field(default_factory=list)
    find: Callable[[str], Text | None] = lambda name: None
    called: set[str] = field(default_factory=set)
    running: list[str] = field(default_factory=list)
    depth: int = 0
    commands: int = 0
    effort: int = 0
    machine: str | None = None
    conditional: int = 0
    captured: int = 0

    def __post_init__(self) -> None:
        self.broken = misread.Broken(tuple(self.script.glued), tuple(self.script.loose))
        self.script = self.script.joined()

    def run(self, scope: Scope) -> None:
        """Walk the whole script, then the functions that nothing called."""
        root = self.script.parse()
        broken = first_error(root)
        if broken is not None and (root.is_error or broken in root.children):
            place = self._where(broken.start_byte)
            raise UnusableInput("The shell text is broken here.", where=place, fix="`bash -n` says more.")
        scopes = self._visit(root, [scope])
        for name, body in {name: body for found in scopes for name, body in found.functions.items()}.items():
            if name not in self.called:
                self._visit(body, [replace(scopes[0].fork(), ended=False, unlikely=scope.unlikely)])

    def _visit(self, node: Node, scopes: list[Scope]) -> list[Scope]:
        if node.type in ("comment", "heredoc_body") or not node.is_named:
            return scopes
        if node.is_error:
            self.notes.append(Note("The shell text is broken here.", self.script.line(node.start_byte)))
            return scopes
        if self.depth > MOST_DEPTH:
            raise UnusableInput(
                f"The shell text is nested more than {MOST_DEPTH} deep.", where=self._where(node.start_byte)
            )
        self.depth += 1
        try:
            return self._step(node, scopes)
        finally:
            self.depth -= 1

    def _step(self, node: Node, scopes: list[Scope]) -> list[Scope]:
        match node.type:
            case "redirected_statement":
                return self._redirected(node, scopes)
            case "if_statement":
                scopes = self._all(branches.first_test(node), scopes)
                return self._ways(scopes, lambda scope: branches.of_if(self.script, node, scope))
            case "case_statement":
                return self._ways(scopes, lambda scope: branches.of_case(self.script, node, scope))
            case "list":
                return self._list(node, scopes)
            case kind if kind in _LOOPS:
                return self._loop(node, scopes)
            case "function_definition":
                return self._define(node, scopes)
            case "variable_assignment" | "variable_assignments" | "declaration_command":
                return self._assign(node, scopes)
            case "command":
                return self._command(node, scopes)
            case "test_command":
                self._inside(node, scopes)
            case "subshell":
                self._all(node.children, [scope.fork() for scope in scopes])
        return self._all(node.children, scopes) if node.type in _BODIES else scopes

    def _all(self, nodes: Sequence[Node], scopes: list[Scope]) -> list[Scope]:
        """Walk nodes in order, what a `&` follows beside the rest."""
        for index, node in enumerate(nodes, 1):
            if index < len(nodes) and nodes[index].type == "&":
                self._visit(node, [replace(scope.fork(), background=True) for scope in scopes])
            else:
                scopes = self._visit(node, scopes)
        return scopes

    def _where(self, index: int) -> str:
        return self.script.text.at(self.script.offset(index))

    # Branches and loops

    def _ways(self, scopes: list[Scope], branched: Callable[[Scope], Iterable[branches.Branch]]) -> list[Scope]:
        after: list[Scope] = []
        for scope in scopes:
            self.effort += 10 + len(scope.variables) + len(scope.way)
            if self.effort > MOST_EFFORT:
                raise UnusableInput("It branches more often than can be followed.", where=self._where(0))
            for way, body in branched(scope):
                after.extend(self._all(body, [way]))
        return self._capped(branches.merged(after))

    def _list(self, node: Node, scopes: list[Scope]) -> list[Scope]:
        """A chain of `&&` and `||`, however long; where no test decides, all of it runs and none ends the script."""
        parts, operators = chain(node)
        if branches.of_list(self.script, parts, operators, Scope()) is not None:
            return self._ways(scopes, lambda scope: branches.of_list(self.script, parts, operators, scope) or ())
        self.conditional += 1
        try:
            return self._all(parts, scopes)
        finally:
            self.conditional -= 1

    def _capped(self, scopes: list[Scope]) -> list[Scope]:
        if len(scopes) > MOST_SCOPES:
            message = f"Its branches combine in more than {MOST_SCOPES} ways; only the first {MOST_SCOPES} are checked."
            if all(note.message != message for note in self.notes):
                self.notes.append(Note(message, self.script.line(0)))
        return scopes[:MOST_SCOPES]

    def _loop(self, node: Node, scopes: list[Scope]) -> list[Scope]:
        """One round of a loop: another round may take other branches, so that none taken in it excludes any."""
        outermost = all(scope.outer is None for scope in scopes)
        for scope in scopes:
            if node.type == "for_statement":
                scope.variables.pop(self.script.of(node.named_children[0]), None)
            if outermost:
                scope.outer = dict(scope.way)
        unlikely = all(scope.unlikely for scope in scopes)
        bodies = [n for n in node.children if node.type != "for_statement" or n.type in _BODIES]
        scopes = self._all(bodies, scopes)
        for scope in scopes if outermost else ():
            known = scope.outer or {}
            scope.way = {key if key in known else f"{key} at {node.start_byte}": way for key, way in scope.way.items()}
            scope.outer, scope.ended, scope.unlikely = None, False, unlikely
        return scopes

    # Variables and functions

    def _define(self, node: Node, scopes: list[Scope]) -> list[Scope]:
        name, body = node.child_by_field_name("name"), node.child_by_field_name("body")
        for scope in scopes if name and body else ():
            assert name is not None and body is not None  # noqa: PT018, S101 - the loop is empty otherwise
            scope.functions[self.script.of(name)] = body
        return scopes

    def _assign(self, node: Node, scopes: list[Scope]) -> list[Scope]:
        parts = [node] if node.type == "variable_assignment" else node.named_children
        exports = node.type == "declaration_command" and (
            node.children[0].type == "export" or "-x" in self.script.of(node).split()
        )
        self._inside(node, scopes)
        for scope in scopes:
            for part in parts:
                if part.type == "variable_assignment":
                    name = store(self.script, part, scope)
                    value = scope.variables[name]
                    self.passed += mentions.only_mentions(value if isinstance(value, tuple) else [value.word()])
                elif part.type in ("variable_name", "word"):
                    name = self.script.of(part)
                else:
                    continue
                if exports:
                    scope.exported[name] = None
        return scopes

    # Commands

    def _redirected(self, node: Node, scopes: list[Scope]) -> list[Scope]:
        body = node.child_by_field_name("body")
        for document in heredoc.documents(node):
            for scope in scopes:
                self._document(document, body, node, scope)
        return self._visit(body, scopes) if body else scopes

    def _document(self, document: Node, command: Node | None, around: Node, scope: Scope) -> None:
        """The script that a here-document is, where it is one."""
        first, last = self.script.offset(document.start_byte), self.script.offset(document.end_byte - 1)
        use = heredoc.use_of(self.script, command, document, around, scope)
        if use is heredoc.Use.SHOWN and not self.captured:
            self.passed.append((first, last))
        if use is heredoc.Use.OTHER and (body := heredoc.body_of(document)) is not None:
            start, end = self.script.offset(body.start_byte), self.script.offset(body.end_byte)
            if end - start == body.end_byte - body.start_byte:
                self.data.append((start, end))
        if use not in (heredoc.Use.RUN, heredoc.Use.WRITTEN):
            return
        inside = heredoc.text_in(self.script, document, scope)
        if inside is None:
            return
        machine = "" if use is heredoc.Use.WRITTEN else self.machine
        if machine is None and command is not None:
            words = words_of(self.script, command.named_children, scope)
            machine = "" if container_tool([word.text for word in words]) else machine_of(words)
        try:
            self._walk(inside, scope.inner(), self.report, machine)
        except UnusableInput as problem:
            message = f"The script in this here-document is not read: {problem.message}"
            self.notes.append(Note(message, self.script.line(document.start_byte), problem.fix or "", unread=True))

    def _command(self, node: Node, scopes: list[Scope]) -> list[Scope]:
        self._inside(node, scopes)
        name = node.child_by_field_name("name")
        own = [child for child in node.named_children if child.type == "variable_assignment"]
        arguments = node.children_by_field_name("argument")
        after: list[Scope] = []
        for scope in scopes:
            self.commands += 1
            if self.commands > MOST_COMMANDS:
                raise UnusableInput(
                    f"It runs more than {MOST_COMMANDS:,} commands.", where=self._where(node.start_byte)
                )
            for document in heredoc.documents(node):
                self._document(document, node, node, scope)
            words = words_of(self.script, [*(name.children if name else ()), *arguments], scope)
            after.extend(self._one(node, own, words, scope))
        return self._capped(after)

    def _inside(self, node: Node, scopes: list[Scope]) -> None:
        """The commands that a command runs for their output."""
        if "$(" not in (written := self.script.of(node)) or "sglang" not in written:
            return
        self.captured += 1
        for inner in substitutions(node):
            self._all(inner.children, [scope.fork() for scope in scopes])
        self.captured -= 1

    def _one(self, node: Node, own: Sequence[Node], words: list[Word], scope: Scope) -> list[Scope]:
        called = words[0].text if words else ""
        self.passed += mentions.only_mentions(words)
        if called in scope.functions and self.depth < MOST_DEPTH - 10:
            if called in self.running:
                return [scope]  # it calls itself: another round starts what the first one does
            self.called.add(called)
            inner = scope.fork()
            inner.arguments = tuple(words[1:])
            self.running.append(called)
            after = self._visit(scope.functions[called], [inner])
            self.running.pop()
            for found in after:
                found.arguments = scope.arguments
            return after
        local = scope.fork() if own else scope
        names = [store(self.script, part, local) for part in own]
        if not words:
            return [local]
        self.notes += misread.of_command(self.script, self.broken, node, words)
        if called in ("source", "."):
            return self._source(node, words, scope)
        run_builtin(words, scope)
        self._run(node, words, local, names)
        lifetime.pass_by(scope, words, node.start_byte, conditional=self.conditional > 0)
        return [scope]

    def _source(self, node: Node, words: list[Word], scope: Scope) -> list[Scope]:
        """What another file sets, where that can be read; servers that it starts are for whoever checks it."""
        name = words[1].text if words[1:] else "it"
        text = self.find(name) if self.depth < MOST_DEPTH - 10 else None
        if text is not None:
            walk = Walk(
                Script(text, text.text, range(len(text.text))), lambda command: None,
                depth=self.depth + 5, commands=self.commands, effort=self.effort, find=self.find,
            )  # fmt: skip
            try:
                after = walk.sourced(scope)
            except UnusableInput:
                after = []
            self.commands, self.effort = walk.commands, walk.effort
            if after:
                return after
        scope.foreign = True
        self.notes.append(Note(f"What {name[:80]} sets is not known here.", self.script.line(node.start_byte)))
        return [scope]

    def sourced(self, scope: Scope) -> list[Scope]:
        """The scopes behind a script that another one sources, none of their new values with a place."""
        root = self.script.parse()
        if first_error(root) is not None:
            return []
        return [as_sourced(scope, after) for after in self._visit(root, [scope.fork()])]

    def _run(self, node: Node, words: list[Word], local: Scope, names: Sequence[str]) -> None:
        """Report a command, or what it hands to another shell."""
        env = {name: value for name in (*local.exported, *names) if (value := single(local.lookup(name)))}
        way = lifetime.way_of(local, words, node.start_byte)
        last = self.script.offset(node.end_byte - 1)
        first = self.script.offset(node.start_byte)
        command = Command(
            tuple(words), env, first, last, {}, way, local.unlikely, local.background, self.machine,
            local.foreign,
        )  # fmt: skip
        inside = inner_script(self.script, command.words)
        if inside is None or self.depth >= MOST_DEPTH - 10:
            self.report(command)
            return
        around, script = inside
        if container_tool([word.text for word in around]):
            scope = replace(local.fork(), variables={}, exported={}, functions={}, arguments=None)
        else:
            scope = local.fork() if words[0].text == "eval" else local.inner(names)
        self._nested(script, scope, command, around)

    def _nested(self, script: Script, scope: Scope, outer: Command, around: tuple[Word, ...]) -> None:
        """The commands that a command hands to another shell, each with the outer one around it."""
        contained = container_tool([word.text for word in around]) is not None

        def report(inner: Command) -> None:
            found = replace(inner, words=(*around, *inner.words), last=outer.last)
            if contained:
                self.report(replace(found, env=outer.env, inside=inner.inside | inner.env))
            else:
                self.report(replace(found, env=outer.env | inner.env))

        self._walk(script, scope, report, machine_of(outer.words) if self.machine is None else self.machine)

    def _walk(self, script: Script, scope: Scope, report: Callable[[Command], None], machine: str | None) -> None:
        walk = Walk(
            script, report, self.notes, self.passed, self.data, self.find,
            depth=self.depth + 5, commands=self.commands, effort=self.effort, machine=machine,
        )  # fmt: skip
        walk.run(scope)
        self.commands, self.effort = walk.commands, walk.effort
