"""Where our resolution and the real engine differ, for whoever is working on a step.

    PERILUNE_ORACLE=VENV PERILUNE_FACTS=FACTS .venv/bin/python -m tests.conformance.report [options]

Judges the reference command lines and generated ones, and prints what differs, grouped.
"""

from __future__ import annotations

import argparse
import json
import shlex
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

from .compare import differences
from .compare_memory import memory_differences
from .generate import generate, generate_memory
from .oracle import Oracle, find_oracle


def reference_cases(oracle: Oracle) -> list[dict[str, Any]]:
    """The judged command lines of the reference, as cases."""
    lines = json.loads((oracle.scripts / "args_cases.json").read_text(encoding="utf-8"))
    names = {"npu": "a3"}
    return [{**line, "kind": "arguments", "platform": names.get(line["platform"], line["platform"])} for line in lines]


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the report; exit 1 when anything differs."""
    cli = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    cli.add_argument("--generated", type=int, default=0, metavar="N", help="also N generated lines (default 0)")
    cli.add_argument("--memory", type=int, default=0, metavar="N", help="also N generated memory cases")
    cli.add_argument("--seed", type=int, default=1)
    cli.add_argument("--no-reference", action="store_true", help="leave the reference lines out")
    cli.add_argument("--platform", help="only this platform")
    cli.add_argument("--only", default="", metavar="TEXT", help="only cases whose id or line contains TEXT")
    cli.add_argument("--field", default="", metavar="TEXT", help="only differences that contain TEXT")
    cli.add_argument("--show", type=int, default=2, metavar="N", help="examples a difference (default 2)")
    args = cli.parse_args(arguments)
    oracle = find_oracle()
    if oracle is None:
        cli.error("set PERILUNE_ORACLE and PERILUNE_FACTS")
    cases = [] if args.no_reference else reference_cases(oracle)
    cases += generate(args.generated, args.seed) + generate_memory(args.memory, args.seed)
    cases = [
        case
        for case in cases
        if args.platform in (None, case["platform"]) and args.only in f"{case['id']} {shlex.join(case['argv'])}"
    ]
    return _print(cases, oracle.judge(cases), args)


def _print(cases: list[dict[str, Any]], verdicts: list[dict[str, Any]], args: argparse.Namespace) -> int:
    groups: dict[str, list[tuple[dict[str, Any], str]]] = defaultdict(list)
    states: Counter[str] = Counter()
    for case, verdict in zip(cases, verdicts, strict=True):
        if verdict.get("stage") == "harness":
            states["not judged"] += 1
            continue
        compare = memory_differences if case["kind"] == "memory" else differences
        found = [text for text in compare(case, verdict) if args.field in text]
        states["different" if found else "equal"] += 1
        states["accepted" if verdict["ok"] else "rejected"] += 1
        for text in found:
            groups[_group(text)].append((case, text))
    for name, members in sorted(groups.items(), key=lambda item: -len(item[1])):
        print(f"\n{len(members):4} {name}")
        for case, text in members[: args.show]:
            env = " ".join(f"{k}={v}" for k, v in (case.get("env") or {}).items())
            print(f"     [{case['id']} {case['platform']}] {env} {shlex.join(case['argv'])}")
            print(f"       {text[:600]}")
    print("\n" + ", ".join(f"{count} {state}" for state, count in states.items()))
    return 1 if groups else 0


def _group(text: str) -> str:
    head, _, rest = text.partition(":")
    if head.startswith(("acceptance", "error")):
        return f"{head}: {rest[:110]}"
    return text[:110] if head.startswith("we raise") else head


if __name__ == "__main__":
    raise SystemExit(main())
