"""The pool of recurrent states: strategies that do nothing, or fail where the arguments are not checked."""

from __future__ import annotations

from collections.abc import Iterator

from perilune.plan.memory.levers import SKIP_LOCK
from perilune.plan.rules.edits import Edit, remove, write
from perilune.plan.rules.rule import ENGINE, PAGE, Says, rule
from perilune.plan.rules.splitting import running
from perilune.plan.rules.subject import Subject

STRATEGY = "--mamba-radix-cache-strategy"


@rule("state-strategy-inert", "rewrite")
def inert_strategy(s: Subject) -> Iterator[Says]:
    """Without a radix cache, as on a PD decode server, a strategy for its states does nothing."""
    if not s.accepted or not s.wrote(STRATEGY) or not s["disable_radix_cache"]:
        return
    why = "A PD decode server keeps no prefix cache" if s.role == "decode" else "The radix cache is off"
    yield Says(
        f"{why}, so {STRATEGY} {s.value(STRATEGY)} does nothing: a request holds one state slot.",
        flags=(STRATEGY,),
        edits=remove(STRATEGY),
    )


@rule("state-skip-lock", "advice", PAGE)
def skip_lock(s: Subject) -> Iterator[Says]:
    """SGLANG_OPT_MAMBA_SKIP_DECODE_LOCK saves a slot per request and is experimental."""
    if not s.on_env(SKIP_LOCK):
        return
    edits = (Edit("unset-env", SKIP_LOCK),)
    now, then = running(s.ledger, s.workload)[0], running(s.again(edits), s.workload)[0]
    gains = f": {now} requests run at once, {then} without it" if now > then else ""
    yield Says(
        f"{SKIP_LOCK}={s.env[SKIP_LOCK]} is experimental, and answers under it are not validated{gains}.",
        flags=(SKIP_LOCK,),
        edits=edits,
    )


@rule("state-no-buffer-page", "error", f"{ENGINE} mem_cache/unified_cache/components/mamba.py")
def no_buffer_page(s: Subject) -> Iterator[Says]:
    """Without extra buffers a state is kept at any length, which needs pages of one token; more stop the engine."""
    if not s.accepted or not s["uses_mamba_radix_cache"] or s["disable_radix_cache"]:
        return
    page = s["page_size"] * max(s["dcp_size"], 1)
    if s["mamba_radix_cache_strategy"] != "no_buffer" or page == 1:
        return
    because = "" if s.wrote(STRATEGY) else ", which --disable-overlap-schedule chooses,"
    yield Says(
        f"The strategy no_buffer{because} needs pages of one token, and here they have {page}: the engine stops when "
        "it makes its prefix cache.",
        flags=(STRATEGY, "--disable-overlap-schedule"),
        edits=(write(STRATEGY, "extra_buffer"),),
    )


RULES = (inert_strategy, skip_lock, no_buffer_page)
