"""The ways on from `if`, `case`, `&&` and `||`, each with what runs on it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from perilune.plan.sources.conditions import Test, pattern_test, tells, test_of
from perilune.plan.sources.script import Script
from perilune.plan.sources.ways import either
from perilune.plan.sources.words import Scope

if TYPE_CHECKING:
    from tree_sitter import Node

Branch = tuple[Scope, Sequence["Node"]]


def first_test(node: Node) -> list[Node]:
    """The commands that an `if` starts with."""
    index = next((i for i, child in enumerate(node.children) if child.type == "then"), 1)
    return node.children[1:index]


def of_if(script: Script, node: Node, scope: Scope) -> Iterator[Branch]:
    """The branches of an `if`."""
    arms: list[tuple[list[Node], list[Node]]] = [(first_test(node), [])]
    otherwise: list[Node] = []
    for child in node.children[1 + len(arms[0][0]) :]:
        if child.type == "elif_clause":
            test = first_test(child)
            arms.append((test, child.children[1 + len(test) :]))
        elif child.type == "else_clause":
            otherwise = child.children[1:]
        else:
            arms[0][1].append(child)
    tests = ([one for one in test if one.is_named] for test, _ in arms)
    tried = [(test_of(script, test, scope), body) for test, (_, body) in zip(tests, arms, strict=True)]
    yield from _arms(scope, tried, otherwise)


def of_case(script: Script, node: Node, scope: Scope) -> Iterator[Branch]:
    """The branches of a `case`."""
    subject = node.child_by_field_name("value")
    arms: list[tuple[Test, Sequence[Node]]] = []
    for item in node.named_children:
        if item.type != "case_item" or subject is None:
            continue
        patterns = item.children_by_field_name("value")
        end = max((one.end_byte for one in patterns), default=item.start_byte)
        body = [child for child in item.children if child.start_byte >= end]
        test = pattern_test(script, subject, patterns, scope)
        if test is None:
            yield from _arms(scope, arms, body)
            return
        arms.append((test, body))
    yield from _arms(scope, arms, [])


def of_list(script: Script, parts: Sequence[Node], operators: Sequence[str], scope: Scope) -> Iterator[Branch] | None:
    """The branches of `TEST && A || B`; None where the first command does more than test."""
    if not operators or not tells(parts[0]):
        return None
    turn = next((i for i, operator in enumerate(operators) if operator != operators[0]), len(operators))
    run, rest = parts[1 : turn + 1], parts[turn + 1 :]
    yes, no = (run, rest) if operators[0] == "&&" else (rest, run)
    return _arms(scope, [(test_of(script, [parts[0]], scope), yes)], no)


def _arms(scope: Scope, arms: Sequence[tuple[Test, Sequence[Node]]], otherwise: Sequence[Node]) -> Iterator[Branch]:
    """One way for each arm, on which the arms before it are not taken, and one for none of them."""
    left: Scope | None = scope
    for test, body in arms:
        if left is None:
            return
        if (way := test.taken(left, True)) is not None:
            yield way, body
        left = test.taken(left, False)
    if left is not None:
        yield left.fork(), otherwise


def merged(scopes: Sequence[Scope]) -> list[Scope]:
    """Ways that know the same, as one; those that have ended only where no other goes on."""
    going = [scope for scope in scopes if not scope.ended] or list(scopes)
    found: dict[object, Scope] = {}
    for scope in going:
        key = (
            frozenset((name, id(value)) for name, value in scope.variables.items()),
            frozenset(scope.exported), scope.arguments, scope.ended,
            frozenset((name, body.id) for name, body in scope.functions.items()),
        )  # fmt: skip
        known = found.get(key)
        if known is None:
            found[key] = scope
        else:
            known.way = either(known.way, scope.way)
            known.unlikely = known.unlikely and scope.unlikely
            known.foreign = known.foreign or scope.foreign
    return sorted(found.values(), key=lambda scope: scope.unlikely)
