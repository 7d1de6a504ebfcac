"""What turns the model's text into reasoning and tool calls: parsers of its own format, or none."""

from __future__ import annotations

from collections.abc import Iterator

from perilune.plan.rules.edits import write
from perilune.plan.rules.rule import PAGE, Says, rule
from perilune.plan.rules.subject import Subject

REASONING, TOOLS = "--reasoning-parser", "--tool-call-parser"
K3_PARSER = "kimi_k3"
SOUND = (K3_PARSER, "auto")  # auto finds it by the model's architecture


def _wanted(s: Subject) -> tuple[str, ...]:
    """The parsers that the page gives Kimi-K3 on the platform: it has none for tool calls on Ascend yet."""
    return (REASONING,) if s.platform.kind == "npu" else (REASONING, TOOLS)


@rule("parser-model", "advice", PAGE)
def of_another_model(s: Subject) -> Iterator[Says]:
    """A parser of another model's format finds no reasoning or tool calls in what Kimi-K3 writes."""
    if not s.accepted or not s.is_k3:
        return
    for flag in _wanted(s):
        value = s.value(flag)
        if value is not None and flag not in s.unknown and value not in SOUND:
            yield Says(
                f"{flag} {value} reads another format than Kimi-K3 writes: "
                f"{'reasoning' if flag == REASONING else 'tool calls'} can reach clients as plain text.",
                flags=(flag,),
                edits=(write(flag, K3_PARSER),),
            )


@rule("parser-missing", "advice", PAGE)
def missing(s: Subject) -> Iterator[Says]:
    """Without its parsers the reasoning and the tool calls of Kimi-K3 reach clients as plain text."""
    if not s.accepted or not s.is_k3 or s.template or s.server.bare or s.role == "prefill" or s.no_model:
        return
    absent = tuple(flag for flag in _wanted(s) if not s.wrote(flag))
    if absent:
        what = " and ".join("reasoning" if flag == REASONING else "tool calls" for flag in absent)
        yield Says(
            f"Without {' and '.join(absent)} {what} reach clients as plain text.",
            flags=("--model-path",),
            edits=tuple(write(flag, K3_PARSER) for flag in absent),
        )


RULES = (of_another_model, missing)
