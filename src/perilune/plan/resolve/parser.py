"""SGLang's argument parser, rebuilt from the flag catalog on Python's own argparse.

What argparse decides (prefixes, `=` forms, ambiguity, choices, how many values) is decided by argparse
here as well, with its own texts. Parsing stores only what was written; defaults come from the catalog.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from functools import cache
from typing import Any, NoReturn

from perilune.errors import UnusableInput
from perilune.facts.flags import Option, catalog
from perilune.plan.resolve.state import Rejected

GRAPH_SETTINGS: Mapping[str, tuple[str, ...]] = {
    "decode": ("backend", "max_bs", "bs"),
    "prefill": (
        "backend",
        "max_bs",
        "bs",
        "max_context_size",
        "full_prefill_max_req",
        "full_prefill_prefix_chunk_tokens",
        "max_seq_len",
    ),
}
_SCALES = {"k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_BINARY_SCALES = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
_SCALED = re.compile(r"(\d+(?:\.\d+)?)(Ki|Mi|Gi|Ti|k|M|G|T)")


def human_readable_int(text: str) -> int:
    """Read `4096`, `25.6k`, `1M` or `4Ki`; raises ArgumentTypeError in the engine's words."""
    text = text.strip()
    if scaled := _SCALED.fullmatch(text):
        number, suffix = scaled.groups()
        if suffix in _SCALES:
            return int(Decimal(number) * _SCALES[suffix])
        if "." not in number:
            return int(number) * _BINARY_SCALES[suffix]
        raise argparse.ArgumentTypeError(
            f"Decimals are not allowed with IEC suffixes like '{suffix}'. "
            f"Use an integer IEC value such as '{int(Decimal(number))}{suffix}', "
            f"or an SI value such as '{number}{suffix[0]}'."
        )
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"Invalid integer value: '{text}'. "
            "Use a plain integer, SI suffixes (1k, 1M), or IEC suffixes (1Ki, 1Mi). "
            "Suffixes are case-sensitive."
        ) from None


def loads(text: str) -> Any:
    """Read JSON; a text nested too deeply to read counts as invalid. (argparse prints this name.)"""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def json_list(text: str) -> Any:
    """Read strict JSON (no NaN or Infinity) in the engine's words."""
    try:
        return json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise argparse.ArgumentTypeError(f"Invalid JSON list: {text}. Please provide a valid JSON list.") from None


def _no_constant(name: str) -> NoReturn:
    raise ValueError(name)


def nullable_str(text: str) -> str | None:
    """Read a string of which `None` and the empty one mean unset."""
    return None if text in ("", "None") else text


def parse_cuda_graph_backend_arg(text: Any) -> Any:
    """Pass a graph backend on, except the retired one. (argparse prints this name.)"""
    if text == "tc_piecewise":
        raise argparse.ArgumentTypeError("tc_piecewise was removed; select breakable, full, or disabled")
    return text


def parse_cuda_graph_config_arg(text: str) -> dict[str, dict[str, Any]]:
    """Read `{"decode": {...}, "prefill": {...}}` and check its keys. (argparse prints this name.)"""
    option = "--cuda-graph-config"
    try:
        phases = json.loads(text)
    except json.JSONDecodeError as error:
        raise argparse.ArgumentTypeError(f"{option} must be JSON: {error}") from None
    except RecursionError:
        raise argparse.ArgumentTypeError(f"{option} must be JSON: nested too deeply") from None
    if not isinstance(phases, dict):
        raise argparse.ArgumentTypeError(f"{option} must be a JSON object, got {type(phases).__name__}")
    for phase, settings in phases.items():
        if phase not in GRAPH_SETTINGS:
            known = tuple(GRAPH_SETTINGS)
            raise argparse.ArgumentTypeError(f"{option}: unknown phase '{phase}', expected one of {known}")
        if not isinstance(settings, dict):
            kind = type(settings).__name__
            raise argparse.ArgumentTypeError(f"{option}['{phase}'] must be a JSON object, got {kind}")
        parse_cuda_graph_backend_arg(settings.get("backend"))
        for key in settings:
            if key not in GRAPH_SETTINGS[phase]:
                raise argparse.ArgumentTypeError(
                    f"{option}['{phase}']: unknown key '{key}', expected one of {GRAPH_SETTINGS[phase]}"
                )
    return phases


TYPES: Mapping[str, Callable[[str], Any]] = {
    "str": str,
    "int": int,
    "float": float,
    "human_readable_int": human_readable_int,
    "json": loads,
    "json_list": json_list,
    "nullable_str": nullable_str,
    "graph_backend": parse_cuda_graph_backend_arg,
    "graph_config": parse_cuda_graph_config_arg,
}


class _Parser(argparse.ArgumentParser):
    """Raises instead of printing and leaving the process; lists choices alike on every Python."""

    def error(self, message: str) -> NoReturn:
        raise Rejected(message, "parse")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            choices = ", ".join(map(repr, action.choices))
            raise argparse.ArgumentError(action, f"invalid choice: {value!r} (choose from {choices})")


class _NoHelp:
    """Stands in for argparse's help formatter, which each added option would otherwise build."""

    def __init__(self, prog: str) -> None:
        self.prog = prog

    def _set_color(self, *_: object, **__: object) -> None:
        """Asked for from Python 3.14 on."""

    def _format_args(self, action: argparse.Action, default: str | None) -> str:
        return ""


class _Help(argparse.Action):
    def __call__(self, *_: Any) -> NoReturn:
        raise UnusableInput("It only asks for help, so no server starts.", where="--help", fix="Remove -h.")


class _StoreConst(argparse.Action):
    """Stores the option's constant, whether or not it was written with a value."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option: str | None = None,
    ) -> None:
        setattr(namespace, self.dest, self.const)


class _LoraPaths(argparse.Action):
    """Stores adapter paths; `{"lora_name": ..., "lora_path": ...}` is read as JSON."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option: str | None = None,
    ) -> None:
        setattr(namespace, self.dest, [_lora_path(str(value).strip()) for value in values or ()])


def _lora_path(text: str) -> Any:
    if not (text.startswith("{") and text.endswith("}")):
        return text
    try:
        adapter = loads(text)
    except ValueError as error:
        raise Rejected(f"{type(error).__name__}: {error}", "parse") from None
    if "lora_path" not in adapter or "lora_name" not in adapter:
        raise Rejected(
            f"AssertionError: {text!r} looks like a JSON str, "
            "but it does not contain 'lora_name' and 'lora_path' keys.",
            "parse",
        )
    return adapter


@cache
def parser() -> argparse.ArgumentParser:
    """The engine's parser (built once)."""
    built = _Parser(
        prog="sglang serve",
        add_help=False,
        argument_default=argparse.SUPPRESS,
        formatter_class=_NoHelp,  # type: ignore[arg-type]
    )
    for option in catalog().options:
        _add(built, option)
    return built


def _add(built: argparse.ArgumentParser, option: Option) -> None:
    spellings = list(option.options)
    settings: dict[str, Any] = {"dest": option.dest}
    match option.kind:
        case "help":
            settings |= {"action": _Help, "nargs": 0}
        case "store_true":
            settings |= {"action": "store_true", "default": argparse.SUPPRESS}
        case "boolean_optional":
            spellings = [spelling for spelling in spellings if not spelling.startswith("--no-")]
            settings |= {"action": argparse.BooleanOptionalAction}
        case "deprecated_true":
            settings |= {"action": _StoreConst, "nargs": 0, "const": True}
        case "deprecated_const":
            nargs = None if option.takes_value else 0
            settings |= {
                "action": _StoreConst,
                "nargs": nargs,
                "const": option.const,
                "choices": option.choices,
            }
        case "lora_paths":
            settings |= {"action": _LoraPaths, "nargs": option.nargs, "type": str}
        case _:
            settings |= {
                "type": TYPES[option.type or "str"],
                "nargs": option.nargs,
                "choices": option.choices,
            }
            if option.const is not None:
                settings["const"] = option.const
    built.add_argument(*spellings, **settings)


def parse(argv: Sequence[str], *, model: str | None = None) -> dict[str, Any]:
    """The fields that an argument list writes; raises Rejected (stage `parse`) in argparse's words.

    `model` stands in for an absent --model-path.
    """
    namespace, unrecognized = parser().parse_known_args(list(argv))
    written = vars(namespace)
    if "model_path" not in written:
        if model is None:
            raise Rejected("the following arguments are required: --model-path/--model", "parse")
        written["model_path"] = model
    if unrecognized:
        raise Rejected(f"unrecognized arguments: {' '.join(unrecognized)}", "parse")
    return written
