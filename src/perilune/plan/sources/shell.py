"""A walk through a script: every command it could run, in every branch, without running anything."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from perilune.errors import UnusableInput
from perilune.plan.commandline.form import container_tool
from perilune.plan.commandline.occurrences import find_option
from perilune.plan.sources.found import Note, Word
from perilune.plan.sources.inner import inner_script
from perilune.plan.sources.script import Script
from perilune.plan.sources.words import Scope, single, store, words_of

if TYPE_CHECKING:
    from tree_sitter import Node

MOST_SCOPES = 32
MOST_DEPTH = 60
MOST_COMMANDS = 20_000
_BODIES = frozenset(
    {
        "program", "compound_statement", "do_group", "list", "pipeline", "negated_command", "else_clause",
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Command:
    """One simple command: its words, and the variables set for it alone and exported before it.

    `first` and `last` are its characters in the file; `inside` are the variables that a shell sets in a container.
    """

    words: tuple[Word, ...]
    env: dict[str, Word]
    first: int
    last: int
    inside: dict[str, Word] = field(default_factory=dict)


@dataclass
class Walk:
    """A script being walked; `report` is told of every command once for each way it can be reached."""

    script: Script
    report: Callable[[Command], None]
    notes: list[Note] = field(default_factory=list)
    called: set[str] = field(default_factory=set)
    depth: int = 0
    commands: int = 0

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
                self._visit(body, scopes[:1])

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
                body = node.child_by_field_name("body")
                return self._visit(body, scopes) if body else scopes
            case "if_statement":
                return self._if(node, scopes)
            case "case_statement":
                return self._case(node, scopes)
            case "for_statement":
                return self._for(node, scopes)
            case "while_statement" | "c_style_for_statement":
                return self._all(node.named_children, scopes)
            case "function_definition":
                return self._define(node, scopes)
            case "variable_assignment" | "variable_assignments" | "declaration_command":
                return self._assign(node, scopes)
            case "command":
                return self._command(node, scopes)
            case "subshell":
                self._all(node.named_children, [scope.fork() for scope in scopes])
        return self._all(_parts(node), scopes) if node.type in _BODIES else scopes

    def _all(self, nodes: Sequence[Node], scopes: list[Scope]) -> list[Scope]:
        for node in nodes:
            scopes = self._visit(node, scopes)
        return scopes

    def _where(self, index: int) -> str:
        return self.script.text.at(self.script.offset(index))

    # Branches

    def _if(self, node: Node, scopes: list[Scope]) -> list[Scope]:
        bodies: list[list[Node]] = [[]]
        tests: list[str] = []
        otherwise: list[Node] = []
        for child in node.children:
            if child.type == "elif_clause":
                index = next(i for i, c in enumerate(child.children) if c.type == "then")
                tests.append(_text(self.script, child.children[1:index]))
                bodies.append(child.children[index + 1 :])
            elif child.type == "else_clause":
                otherwise = child.children[1:]
            elif child.type == "then":
                index = next(i for i, c in enumerate(node.children) if c.type == "then")
                tests.insert(0, _text(self.script, node.children[1:index]))
                scopes = self._all(node.children[1:index], scopes)
            elif tests:
                bodies[0].append(child)
        return self._branches(" | ".join(tests), [*bodies, otherwise], scopes)

    def _case(self, node: Node, scopes: list[Scope]) -> list[Scope]:
        subject = node.child_by_field_name("value")
        items = [child for child in node.named_children if child.type == "case_item"]
        bodies = [[c for c in item.named_children if c not in item.children_by_field_name("value")] for item in items]
        patterns = [self.script.of(item).partition(")")[0].strip() for item in items]
        if "*" not in patterns:
            bodies.append([])
        test = f"{self.script.of(subject) if subject else ''} in {patterns}"
        return self._branches(test, bodies, scopes)

    def _branches(self, test: str, bodies: Sequence[Sequence[Node]], scopes: list[Scope]) -> list[Scope]:
        """Every branch of a test; the same test again takes the same branch."""
        after: list[Scope] = []
        for scope in scopes:
            known = scope.taken.get(test)
            for number, body in enumerate(bodies):
                if known in (None, number):
                    way = scope.fork()
                    way.taken[test] = number
                    after.extend(self._all(body, [way]))
        return self._capped(after)

    def _capped(self, scopes: list[Scope]) -> list[Scope]:
        if len(scopes) > MOST_SCOPES:
            message = f"Its branches combine in more than {MOST_SCOPES} ways; only the first {MOST_SCOPES} are checked."
            if all(note.message != message for note in self.notes):
                self.notes.append(Note(message, self.script.line(0)))
        return scopes[:MOST_SCOPES]

    def _for(self, node: Node, scopes: list[Scope]) -> list[Scope]:
        name = self.script.of(node.named_children[0])
        body = next((c for c in node.named_children if c.type in ("do_group", "compound_statement")), None)
        for scope in scopes:
            scope.variables.pop(name, None)
        return self._visit(body, scopes) if body else scopes

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
        for scope in scopes:
            for part in parts:
                if part.type == "variable_assignment":
                    name = store(self.script, part, scope)
                elif part.type in ("variable_name", "word"):
                    name = self.script.of(part)
                else:
                    continue
                if exports:
                    scope.exported[name] = None
        return scopes

    # Commands

    def _command(self, node: Node, scopes: list[Scope]) -> list[Scope]:
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
            words = words_of(self.script, [*(name.children if name else ()), *arguments], scope)
            after.extend(self._one(node, own, words, scope))
        return self._capped(after)

    def _one(self, node: Node, own: Sequence[Node], words: list[Word], scope: Scope) -> list[Scope]:
        called = words[0].text if words else ""
        if called in scope.functions and self.depth < MOST_DEPTH - 10:
            self.called.add(called)
            inner = scope.fork()
            inner.arguments = tuple(words[1:])
            after = self._visit(scope.functions[called], [inner])
            for found in after:
                found.arguments = scope.arguments
            return after
        local = scope.fork() if own else scope
        names = [store(self.script, part, local) for part in own]
        if not words:
            return [local]
        if called.startswith("--") and find_option(called) is not None:
            self._lost(node, called)
        if called == "unset":
            for word in words[1:]:
                scope.variables.pop(word.text, None)
        if called in ("source", "."):
            path = words[1].text[:80] if words[1:] else "it"
            self.notes.append(Note(f"What {path} sets is not known here.", self.script.line(node.start_byte)))
        env = {name: value for name in (*scope.exported, *names) if (value := single(local.lookup(name)))}
        last = self.script.offset(node.end_byte - 1)
        command = Command(tuple(words), env, self.script.offset(node.start_byte), last)
        inside = inner_script(self.script, command.words)
        if inside is not None and self.depth < MOST_DEPTH - 10:
            around, script = inside
            if container_tool([word.text for word in around]):
                local = Scope(taken=dict(scope.taken))
            elif called != "eval":
                known = {name: value for name, value in local.variables.items() if name in env}
                local = Scope(known, dict(scope.exported), taken=dict(scope.taken))
            self._nested(script, local.fork(), command, around)
            return [scope]
        self.report(command)
        return [scope]

    def _lost(self, node: Node, flag: str) -> None:
        """A flag that starts a command: the line before it was meant to go on."""
        message = f"{flag} starts a command of its own, so no server gets it or the flags behind it."
        fix = (
            "End the line before it with a backslash and nothing else; a comment or a blank behind it ends the command."
        )
        self.notes.append(Note(message, self.script.line(node.start_byte), fix, "line-lost", "error"))

    def _nested(self, script: Script, scope: Scope, outer: Command, around: tuple[Word, ...]) -> None:
        """The commands that a command hands to another shell, each with the outer one around it."""

        contained = container_tool([word.text for word in around]) is not None

        def report(inner: Command) -> None:
            words = (*around, *inner.words)
            if contained:
                self.report(Command(words, outer.env, inner.first, outer.last, inner.inside | inner.env))
            else:
                self.report(Command(words, outer.env | inner.env, inner.first, outer.last, inner.inside))

        walk = Walk(script, report, self.notes, depth=self.depth + 5, commands=self.commands)
        walk.run(scope)
        self.commands = walk.commands


def _parts(node: Node) -> list[Node]:
    """What stands in a body; a chain of `&&` and `||` is one body, however long."""
    found: list[Node] = []
    while node.type == "list" and node.named_children:
        found.extend(reversed(node.named_children[1:]))
        node = node.named_children[0]
    return [node, *reversed(found)] if found else node.named_children


def _text(script: Script, nodes: Sequence[Node]) -> str:
    return " ".join(script.of(node) for node in nodes)


def first_error(node: Node) -> Node | None:
    """The first place where a tree is broken."""
    if not node.has_error:
        return None
    stack = [node]
    while stack:
        found = stack.pop()
        if found.is_error or found.is_missing:
            return found
        stack.extend(child for child in reversed(found.children) if child.has_error or child.is_missing)
    return node
