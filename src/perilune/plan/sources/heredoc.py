"""Here-documents and here-strings: whether their text is a script, and who runs it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from enum import Enum
from pathlib import PurePath, PurePosixPath
from typing import TYPE_CHECKING

from perilune.plan.sources.inner import REMOTE, SHELLS
from perilune.plan.sources.script import Script
from perilune.plan.sources.words import Piece, Scope, filled, text_of, words_of

if TYPE_CHECKING:
    from tree_sitter import Node

_RUNS_TEXT = REMOTE | {"sbatch", "at", "batch"}
_COPIES = frozenset({"cat", "tee"})
_OTHER_FILES = frozenset({".yaml", ".yml", ".json", ".py", ".toml", ".service", ".md", ".conf", ".env"})


class Use(Enum):
    """What becomes of the text: it is run, written to a script that is run some day, only shown, or something else."""

    RUN = "run"
    WRITTEN = "written"
    SHOWN = "shown"
    OTHER = "other"


def documents(node: Node) -> list[Node]:
    """The here-documents and here-strings of a command."""
    return [child for child in node.named_children if child.type in ("heredoc_redirect", "herestring_redirect")]


def use_of(script: Script, command: Node | None, redirect: Node, around: Node, scope: Scope) -> Use:
    """What a here-document is for: `around` is the statement with its redirections."""
    readers = [command, *_pipeline(redirect)]
    targets = [node for one in (redirect, around) for node in one.named_children if node.type == "file_redirect"]
    files = [script.of(target.named_children[-1]) for target in targets if target.named_children]
    if around.parent is not None and around.parent.type == "pipeline":
        readers += [child for child in around.parent.named_children if child.start_byte > around.start_byte]
    for reader in reversed([one for one in readers if one is not None]):
        words = [word.text for word in words_of(script, reader.named_children, scope)] if reader.named_children else []
        names = [PurePosixPath(word).name for word in words]
        bare = [name for name in names if name != "sudo"]
        if bare[:1] == ["tee"]:
            files += [word for word in words[1:] if not word.startswith("-") and word not in ("tee", "sudo")]
        elif _runs(names):
            return Use.RUN
        elif bare[:1] in ([":"], ["true"]):
            return Use.SHOWN
        elif bare and bare[0] not in _COPIES:
            return Use.OTHER
    written = [PurePath(file.strip("\"'")) for file in files if file not in ("/dev/null", "&1", "&2", "1", "2")]
    if not written:
        return Use.SHOWN
    return Use.OTHER if any(path.suffix in _OTHER_FILES for path in written) else Use.WRITTEN


def _pipeline(redirect: Node) -> list[Node]:
    pipes = [child for child in redirect.named_children if child.type == "pipeline"]
    found = []
    for pipe in pipes:
        for child in pipe.named_children:
            found.append(child.named_children[0] if child.type == "redirected_statement" else child)
    return found


def _runs(names: Sequence[str]) -> bool:
    """Whether a command takes its input for a script."""
    if not names or any(re.fullmatch(r"-[a-z]*c", name) for name in names):
        return False
    return names[0] in _RUNS_TEXT or any(name in SHELLS for name in names)


def body_of(redirect: Node) -> Node | None:
    """The lines of a here-document."""
    return next((child for child in redirect.named_children if child.type == "heredoc_body"), None)


def text_in(script: Script, redirect: Node, scope: Scope) -> Script | None:
    """The text of a here-document as a script of its own; None where it has none."""
    if redirect.type == "herestring_redirect":
        piece = text_of(script, redirect.named_children[-1], scope) if redirect.named_children else None
    else:
        piece = _document(script, redirect, scope)
    return Script(script.text, piece.text, piece.at) if piece else None


def _document(script: Script, redirect: Node, scope: Scope) -> Piece | None:
    mark = next((child for child in redirect.named_children if child.type == "heredoc_start"), None)
    body = body_of(redirect)
    if body is None or mark is None:
        return None
    if re.search(r"[\\'\"]", script.of(mark)):
        text = script.of(body)
        piece = Piece(text, tuple(map(script.offset, range(body.start_byte, body.end_byte))))
    else:
        piece = filled(script, body, scope)
    return _without_tabs(piece) if script.of(redirect).startswith("<<-") else piece


def _without_tabs(piece: Piece) -> Piece:
    gone = {index for match in re.finditer(r"^\t+", piece.text, re.MULTILINE) for index in range(*match.span())}
    kept = [index for index in range(len(piece.text)) if index not in gone]
    text = "".join(piece.text[index] for index in kept)
    return replace(piece, text=text, at=tuple(piece.at[index] for index in kept))
