"""Commands whose words hold another shell's text: `bash -c`, `eval`, `ssh`, `pdsh`, `su -c`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePosixPath

from perilune.plan.sources.found import Word
from perilune.plan.sources.script import Script

SHELLS = frozenset({"bash", "sh", "zsh", "dash"})
REMOTE = frozenset({"ssh", "tmux", "screen"})
_MACHINES = frozenset({"pdsh", "pssh", "parallel-ssh", "clush", "ansible", "mosh", "autossh"})
_TAKE_TEXT = (
    REMOTE | _MACHINES | {"su", "runuser", "script", "flock", "parallel", "watch", "gcloud", "byobu", "sshpass"}
)
_ELSEWHERE = _MACHINES | {"srun", "sbatch", "salloc", "mpirun", "mpiexec", "kubectl", "parallel", "gcloud"}
_BEFORE = frozenset({"sudo", "-E", "nohup", "exec", "time", "setsid", "command"})
_SSH_VALUES = frozenset(f"-{letter}" for letter in "BbcDEeFIiJLlmOopQRSWw")


def inner_script(script: Script, words: Sequence[Word]) -> tuple[tuple[Word, ...], Script] | None:
    """The text that `bash -c`, `eval`, `ssh` and their like are given, and what stands before; else None."""
    first = next((index for index, word in enumerate(words) if word.text not in _BEFORE), 0)
    for index, word in enumerate(words):
        name = PurePosixPath(word.text.removeprefix("--entrypoint=")).name
        if name in SHELLS and index + 2 < len(words):
            switch = next((i for i in range(index + 1, len(words) - 1) if _takes_text(words[i].text)), None)
            if switch is None:
                continue
            entrypoint = index if word.text.startswith("-") else index - 1
            if entrypoint >= 0 and words[entrypoint].text.startswith("--entrypoint"):
                return _started(words[:entrypoint], words[index + 1 : switch]), _quoted(script, words[switch + 1])
            if all(w.text.startswith("-") for w in words[index + 1 : switch]):
                return _started(words[:index]), _quoted(script, words[switch + 1])
        takes_text = (index == 0 and name == "eval") or (index == first and name in _TAKE_TEXT)
        if takes_text and (inside := _text_of(words[index + 1 :])) is not None:
            return (), _quoted(script, inside)
    return None


def _text_of(words: Sequence[Word]) -> Word | None:
    """The last of the words that holds several: what a command hands to another shell."""
    inside = next((word for word in reversed(words) if " " in word.text), None)
    option = re.match(r"--[a-z]+=", inside.text) if inside is not None else None
    if inside is None or option is None:
        return inside
    return Word(inside.text[option.end() :], inside.at, places=inside.places[option.end() :], sure=inside.sure)


def _takes_text(word: str) -> bool:
    return word.startswith("-") and not word.startswith("--") and word.endswith("c")


def _started(*parts: Sequence[Word]) -> tuple[Word, ...]:
    """What starts a shell, without the `exec` in front."""
    return tuple(word for part in parts for word in part if word.text != "exec")


def _quoted(script: Script, word: Word) -> Script:
    """A word's text as a script of its own, each character with its place in the file."""
    places = word.places if len(word.places) == len(word.text) else (word.at or 0,) * len(word.text)
    return Script(script.text, word.text, places)


def machine_of(words: Sequence[Word]) -> str | None:
    """The machine that a command starts others on: None for this one, empty where it is not known."""
    texts = [word.text for word in words]
    names = [PurePosixPath(text).name for text in texts]
    if "ssh" not in names:
        return "" if _ELSEWHERE.intersection(names) else None
    rest = iter(texts[names.index("ssh") + 1 :])
    for text in rest:
        if text in _SSH_VALUES:
            next(rest, None)
        elif not text.startswith("-"):
            return "" if "$" in text or "<" in text else text.rpartition("@")[2]
    return ""
