"""Regenerate the flag catalog and the engine's environment names from an installed SGLang.

    VENV/bin/python scripts/flag_catalog.py            # rewrite both files, then read the diff
    VENV/bin/python scripts/flag_catalog.py --check    # exit 1 when a file would change

Reads the real parser (`ServerArgs.add_cli_args`), the real record (`record_fields`) and the real
environment registry (`Envs`) of the SGLang in VENV; needs no accelerator. Writes `flags.json` and
`environment.json`. Renames and names that only recipes use are kept by hand, in `renames.yaml` and
`environment.yaml`.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

DATA = Path(__file__).resolve().parents[1] / "src" / "perilune" / "facts" / "data"

KINDS = {
    "_StoreAction": "store",
    "_StoreTrueAction": "store_true",
    "BooleanOptionalAction": "boolean_optional",
    "LoRAPathAction": "lora_paths",
    "DeprecatedStoreTrueAction": "deprecated_true",
    "DeprecatedStoreConstAction": "deprecated_const",
    "_HelpAction": "help",
}

TYPES = {
    "loads": "json",
    "json_list_type": "json_list",
    "parse_cuda_graph_backend_arg": "graph_backend",
    "parse_cuda_graph_config_arg": "graph_config",
}


def _drop_empty(entry: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in entry.items() if value not in (None, [], False) or key == "default"}


def _choices(action: argparse.Action) -> list[Any] | None:
    if action.choices is None:
        return None
    # A set has no order of its own: sort it so that two runs give the same file.
    return sorted(action.choices) if isinstance(action.choices, set) else list(action.choices)


def _const(action: argparse.Action, kind: str) -> Any:
    if kind == "deprecated_const":
        return getattr(action, "const_value", None)
    return action.const if kind == "store" else None


def option_entry(action: argparse.Action) -> dict[str, Any]:
    """One parser option as catalog data; fails on an action or type the catalog has no word for."""
    kind = KINDS[type(action).__name__]
    type_name = getattr(action.type, "__name__", None)
    return _drop_empty(
        {
            "options": list(action.option_strings),
            "dest": action.dest,
            "kind": kind,
            "type": TYPES.get(type_name or "", type_name),
            "nargs": action.nargs if isinstance(action.nargs, str) else None,
            "choices": _choices(action),
            "default": None if action.default is argparse.SUPPRESS else action.default,
            "const": _const(action, kind),
            "required": action.required,
            "takes_value": action.nargs != 0,
            "replaced_by": getattr(action, "new_flag", None),
        }
    )


def options_and_fields() -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Every parser option and every record field of the installed engine."""
    from sglang.srt.arg_groups.arg_utils import (
        _MISSING,
        _field_default,
        fallbacks_of,
        namespace_of,
        record_fields,
        resolvable_fields,
    )
    from sglang.srt.server_args import ServerArgs

    parser = argparse.ArgumentParser(prog="sglang serve")
    ServerArgs.add_cli_args(parser)
    options = [option_entry(action) for action in parser._actions]
    on_command_line = {action.dest for action in parser._actions}
    namespaces, resolvable = namespace_of(ServerArgs), resolvable_fields(ServerArgs)
    fallbacks = fallbacks_of(ServerArgs)
    fields = []
    for field in record_fields(ServerArgs):
        default = _field_default(field)
        entry = {
            "name": field.name,
            "namespace": namespaces.get(field.name),
            "default": None if default is _MISSING else default,
            "cli": field.name in on_command_line,
            "resolvable": field.name in resolvable,
            "fallback": fallbacks.get(field.name),
        }
        # A fallback may be False, which is a value and not an absence.
        fields.append(_drop_empty(entry) | ({"fallback": entry["fallback"]} if field.name in fallbacks else {}))
    return options, fields


def environment_entries() -> list[dict[str, Any]]:
    """Every environment variable the engine declares, has retired, or reads without declaring."""
    from sglang.srt.environ import _DEPRECATED_ENVS, EnvField, Envs

    entries = []
    for name, field in vars(Envs).items():
        if not isinstance(field, EnvField):
            continue
        computed = callable(field.default)
        default = field.default
        if isinstance(default, tuple):
            default = ",".join(default)
        entry = {
            "name": name,
            "type": type(field).__name__.removeprefix("Env").removesuffix("WithAlias").lower(),
            "default": None if computed else _scalar(default),
            "computed": computed,
            "secret": field.secret,
            "deprecated_name": getattr(field, "deprecated_name", None),
        }
        entries.append({k: v for k, v in entry.items() if k == "default" or v not in (None, False)})
    declared = {entry["name"] for entry in entries} | set(_DEPRECATED_ENVS)
    return entries + [{"name": name, "registered": False} for name in sorted(_names_read_in_source() - declared)]


_READ = re.compile(
    r"""(?:getenv|environ\.get|environ\.setdefault|get_bool_env_var|get_int_env_var|environ\[)\(?\s*"""
    r"""["']((?:SGLANG|SGL|AITER)_[A-Z0-9_]+)["']"""
)


def _names_read_in_source() -> set[str]:
    """Engine names that the installed sources read straight from the environment."""
    import sglang

    root = Path(sglang.__path__[0])
    found: set[str] = set()
    for part in ("srt", "kernels", "jit_kernel", "cli"):
        for path in sorted((root / part).rglob("*.py")):
            found.update(_READ.findall(path.read_text(encoding="utf-8", errors="replace")))
    return found


def _scalar(value: Any) -> Any:
    if value is None or isinstance(value, bool | str):
        return value
    # An enum member counts as its number.
    return int(value) if isinstance(value, int) else value


def _lines(entries: list[dict[str, Any]]) -> str:
    return ",\n".join("  " + json.dumps(entry) for entry in entries)


def render_flags(engine_version: str) -> str:
    """The text of `flags.json`: one entry a line, so that a diff names what changed."""
    options, fields = options_and_fields()

    return (
        f'{{\n "engine": "sglang",\n "version": {json.dumps(engine_version)},\n'
        f' "options": [\n{_lines(options)}\n ],\n "fields": [\n{_lines(fields)}\n ]\n}}\n'
    )


def render_environment(engine_version: str) -> str:
    """The text of `environment.json`, one entry a line."""
    names = _lines(environment_entries())
    return f'{{\n "version": {json.dumps(engine_version)},\n "names": [\n{names}\n ]\n}}\n'


def main() -> int:
    """Write the two files, or with --check compare them."""
    cli = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    cli.add_argument("--check", action="store_true", help="compare only; exit 1 when a file would change")
    args = cli.parse_args()
    engine_version = version("sglang")
    texts = {
        DATA / "flags.json": render_flags(engine_version),
        DATA / "environment.json": render_environment(engine_version),
    }
    stale = [p for p, text in texts.items() if not p.exists() or p.read_text(encoding="utf-8") != text]
    for path in stale:
        print(f"{'differs' if args.check else 'written'}: {path.name}")
        if not args.check:
            path.write_text(texts[path], encoding="utf-8")
    return 1 if stale and args.check else 0


if __name__ == "__main__":
    sys.exit(main())
