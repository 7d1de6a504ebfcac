"""What the engine itself refuses and changes: read from the resolution and the ledger, never judged anew."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from perilune.facts.flags import Option, option_of
from perilune.facts.history import JUDGED
from perilune.plan.display import engine_words
from perilune.plan.memory import Basis, Ledger, NoticeKind
from perilune.plan.memory.pools import size_pools
from perilune.plan.resolve.state import Rejected, Rewrite
from perilune.plan.rules.corrections import Step, steps
from perilune.plan.rules.edits import Edit, apply_edits, in_words, remove, write
from perilune.plan.rules.finding import Severity
from perilune.plan.rules.refusals import Known, known_refusal, refusal
from perilune.plan.rules.refusals.fallback import words_of
from perilune.plan.rules.refusals.memory import RUNNER, SHARED_WHOLE, expands_experts
from perilune.plan.rules.refusals.remedies import TP
from perilune.plan.rules.releases import lacks_flag, lacks_variable
from perilune.plan.rules.rule import ENGINE, Says, rule
from perilune.plan.rules.subject import Subject, sized

HONOUR = "SGLANG_AITER_HONOR_EXPLICIT_MEM_FRACTION"
NODES = (1, 2, 4, 8, 16)  # that are tried for a server whose weights do not fit
OLDER_DP = ("--enable-dp-attention", "--dp-size")  # which say --attn-dp-size together
AFTER_SHAPE = frozenset({"groups", "load", "pools"})  # stages that say nothing of a server of unknown size
EXPLAINED_ELSEWHERE = frozenset({"dp_size", "enable_dp_attention", "attn_dp_size"})  # said by rules of their own


@rule("engine-refuses", "error")
def refused(s: Subject) -> Iterator[Says]:
    """The engine does not start with this command: its own text, why, and what gets past it, one refusal at a time."""
    for number, step in enumerate(steps(s.known, s.ledger)):
        if step.found.error_stage in AFTER_SHAPE and not s.shape_known:
            return
        yield _refusal(s, step, again=number > 0)


def _refusal(s: Subject, step: Step, *, again: bool) -> Says:
    """One refusal; `again` where an earlier one has to be corrected first."""
    found, error = step.found, refusal(step.found)
    known = known_refusal(error, found, step.known)
    severity, certainty = _certainty(s, step)
    text = engine_words(error)
    verdict = f"{ENGINE} then still does not start" if again else f"{ENGINE} does not start with this command"
    parts = [f"{certainty}{verdict}: {text}." if text else f"{certainty}{verdict}."]
    parts += [_shortage(found)] if known and known.id == "memory-fraction-low" else []
    parts += [known.why] if known else []
    parts += found.resolved.warnings if found.error_stage == "parse" else ()
    return Says(
        " ".join(part for part in parts if part),
        "" if step.edits else _advice(known, s, step),
        _looked_at(s, error, known, step.edits),
        step.edits,
        known.id if known else "",
        severity,
        source=f"{ENGINE}, {found.error_stage or 'pools'} stage",
    )


def _looked_at(s: Subject, error: str, known: Known | None, edits: tuple[Edit, ...]) -> tuple[str, ...]:
    """The flags that a refusal is about, those that are written first: of its class, its text and its edits."""
    named, changed = words_of(error), {edit.name for edit in edits}
    flags = [flag.name for flag in s.known.flags if {flag.name, flag.spelled} & named]
    if known and known.flags:
        flags = [*known.flags, *(flag.name for flag in s.known.flags if flag.name in changed)]
    if "--attn-dp-size" in flags and not s.wrote("--attn-dp-size"):
        flags += [flag for flag in OLDER_DP if s.wrote(flag)]
    unique = sorted(dict.fromkeys(flags), key=lambda flag: flag not in s.env and not s.wrote(flag))
    return tuple(unique) or _unread(s) or tuple(flag.name for flag in s.known.flags if flag.name in changed)


def _unread(s: Subject) -> tuple[str, ...]:
    """The flags the parser does not know."""
    return tuple(flag.spelled for flag in s.server.flags if flag.option is None)


def _certainty(s: Subject, step: Step) -> tuple[Severity, str]:
    """How sure a refusal is, and the words that say so."""
    found = step.found
    engine = "" if s.engine == JUDGED else f"(Judged by {JUDGED}, not {s.engine}.) "
    if not s.shape_known and found.error_stage != "parse":
        left_out = ", ".join((*s.unknown, *(one.name for one in s.absurd)))
        return "advice", f"{engine}With {left_out} left out, "
    if found.error_stage not in ("load", "pools") or found.memory is None or found.basis is not Basis.PREDICTED:
        return "error", engine
    if SHARED_WHOLE in s.env:  # an image that reads it may hold less
        return "capacity", f"{engine}Predicted without a boot log, for an image that no longer reads {SHARED_WHOLE}: "
    if _lucky(found):
        return "capacity", f"{engine}Predicted without a boot log, and within the error of the prediction: "
    later = any(edit.action == "set" and lacks_flag(s.engine, edit.name) for edit in step.edits)
    # What a release without the flag does by itself is not known.
    return "capacity" if later else "error", f"{engine}Predicted without a boot log: "


def _lucky(found: Ledger) -> bool:
    """Whether the server boots at the optimistic end of the prediction."""
    memory, inputs = found.memory, found.inputs
    if memory is None or inputs is None or memory.high is None or memory.high[1] <= 0:
        return False
    try:
        size_pools(replace(inputs, before_gib=memory.high[0], free_gib=memory.high[1]))
    except Rejected:
        return False
    return True


def _shortage(found: Ledger) -> str:
    memory, inputs = found.memory, found.inputs
    if memory is None or inputs is None:
        return ""
    kept = inputs.before_gib * (1 - inputs.fraction)
    left = inputs.free_gib - kept - inputs.mm_gib
    return (
        f"Weights leave {inputs.free_gib:.1f} GiB, a fraction of {inputs.fraction:g} keeps {kept:.1f} GiB of that: "
        f"{left:.1f} GiB for the pools."
    )


def _advice(known: Known | None, s: Subject, step: Step) -> str:
    """What helps where no known edit does; never the direction that makes it worse."""
    name = known.id if known else ""
    if name == "memory-weights":
        return _more_gpus(s, step)
    if name == "memory-fraction-low":
        return "No fraction leaves room for the pools: use more GPUs per server. A lower fraction makes it worse."
    if known is None or known.id == "engine-refuses" or not known.says:
        return "Change what the text names."
    return f"{known.says[:1].upper()}{known.says[1:]}."


def _more_gpus(s: Subject, step: Step) -> str:
    """The least power of two of nodes with which a server starts, with the leanest kernel for its experts."""
    found, stages, each = step.found, step.found.resolved["pp_size"], s.platform.gpus_per_node
    lean: tuple[Edit, ...] = (write(RUNNER, "marlin"),) if expands_experts(found) and not s.wrote(RUNNER) else ()
    for nodes in NODES:
        size = nodes * each // stages
        edits = (*lean, write(TP, size), *((write("--ep-size", size),) if lean else ()), *_over(nodes))
        if size and sized(apply_edits(step.server, (*remove("--dp-size"), *edits)), found).boots:
            return f"Spread it over {nodes * each} GPUs: {in_words(edits)}."
    return "Use more GPUs, or a lighter checkpoint."


def _over(nodes: int) -> tuple[Edit, ...]:
    return (write("--nnodes", nodes),) if nodes > 1 else ()


@rule("rewritten", "rewrite")
def rewritten(s: Subject) -> Iterator[Says]:
    """The engine changes a value that was written."""
    if not s.parsed:
        return
    last = {r.field: r for r in s.resolved.rewrites if r.field in s.resolved.given}
    for rewrite in last.values():
        option = option_of(rewrite.field)
        if rewrite.field in EXPLAINED_ELSEWHERE or option is None or _as_written(rewrite):
            continue
        flag, was, now = option.name, _shown(rewrite.before), _shown(rewrite.after)
        edits, honoured = _agreeing(s, option, rewrite), _honoured(s, rewrite)
        fix = f"Nothing to change: all figures here are of {now}."
        if honoured:
            fix = f"Nothing to change, or set {HONOUR}=1 to have {was}: the workspace comes out of what that leaves."
        yield Says(
            f"The engine changes {flag} from {was} to {now}: {rewrite.reason}",
            "" if edits else fix,
            (flag,),
            edits or honoured,
        )


def _as_written(rewrite: Rewrite) -> bool:
    """Whether only the form of the value changed."""
    return str(rewrite.before).lower() == str(rewrite.after).lower()


def _shown(value: object) -> str:
    return "unset" if value is None else f"{value:g}" if isinstance(value, float) else str(value)[:80]


def _agreeing(s: Subject, option: Option, rewrite: Rewrite) -> tuple[Edit, ...]:
    """The edit after which the engine leaves the value alone, if it can be written."""
    after = rewrite.after
    if after in (None, False):
        edits = remove(option.name)
    elif isinstance(after, str | int | float) and not isinstance(after, bool):
        edits = (write(option.name, after),)
    else:
        return ()
    return edits if _ends_at(s, edits, rewrite.field, after) else ()


def _honoured(s: Subject, rewrite: Rewrite) -> tuple[Edit, ...]:
    """The variable with which AITER leaves a written memory fraction alone, where the server starts so."""
    if rewrite.field != "mem_fraction_static" or lacks_variable(s.engine, HONOUR):
        return ()
    edits = (Edit("env", HONOUR, "1"),)
    return edits if _ends_at(s, edits, rewrite.field, rewrite.before) and s.again(edits).boots else ()


def _ends_at(s: Subject, edits: tuple[Edit, ...], field: str, value: object) -> bool:
    """Whether a field has a value after edits that get the server no less far."""
    after = s.again(edits).resolved
    return after.accepted >= s.accepted and bool(after[field] == value)


@rule("boot-warning", "capacity")
def boot_warnings(s: Subject) -> Iterator[Says]:
    """--max-total-tokens asks for more tokens than the memory holds: the engine takes what there is."""
    for notice in s.ledger.notices if s.ledger.boots else ():
        if notice.kind is NoticeKind.TOKENS:  # `admits-less` and `memory-headroom` say the others
            yield Says(notice.text, flags=("--max-total-tokens",), edits=remove("--max-total-tokens"))


RULES = (refused, rewritten, boot_warnings)
