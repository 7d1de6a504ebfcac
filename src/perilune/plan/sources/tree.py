"""The syntax tree of a script."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tree_sitter import Node


def chain(node: Node) -> tuple[list[Node], list[str]]:
    """The commands of a chain of `&&` and `||` and what stands between them."""
    parts: list[Node] = []
    operators: list[str] = []
    while node.type == "list" and node.named_children:
        parts.extend(reversed(node.named_children[1:]))
        operators.extend(child.type for child in reversed(node.children) if child.type in ("&&", "||"))
        node = node.named_children[0]
    return [node, *reversed(parts)], operators[::-1]


def substitutions(node: Node) -> list[Node]:
    """The `$(...)` in a node, those within others left to them."""
    found, stack = [], list(node.children)
    while stack:
        one = stack.pop()
        if one.type == "command_substitution":
            found.append(one)
        else:
            stack.extend(one.children)
    return found[::-1]


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
