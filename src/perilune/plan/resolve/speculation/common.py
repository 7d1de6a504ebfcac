"""Small rules that every speculative algorithm shares."""

from __future__ import annotations

from perilune.errors import UnusableInput
from perilune.plan.resolve.state import Resolution

RUNNING_REQUESTS = 48
MIXED_CHUNK = frozenset({"EAGLE", "EAGLE3", "DFLASH", "DSPARK"})  # keep mixed chunked prefill
RAGGED_MODES = ("static", "cap-accept", "compact")
COORDINATION_ENV = "SGLANG_ENABLE_DP_SPEC_PREFILL_COORDINATION"
RAGGED_ENV = "SGLANG_RAGGED_VERIFY_MODE"


def limit_running_requests(r: Resolution) -> None:
    """Cap concurrency at 48 requests when the user named no limit."""
    if r["max_running_requests"] is None:
        r.set(
            "max_running_requests",
            RUNNING_REQUESTS,
            "Speculation without --max-running-requests caps it at 48.",
        )
        r.warn("Speculative decoding limits the server to 48 running requests; set --max-running-requests.")


def force_one(r: Resolution, algorithm: str, *fields: str) -> None:
    """Pin EAGLE-style knobs that the algorithm has no use for to 1."""
    for field in fields:
        given = r[field]
        if given == 1:
            continue
        if given is not None:
            r.warn(f"{algorithm} only supports {field} == 1; {given} is replaced by 1.")
        r.set(field, 1, f"{algorithm} always runs with {field} 1.")


def disable_mixed_chunk(r: Resolution, algorithm: str) -> None:
    """Turn mixed chunked prefill off for an algorithm that cannot resume from a mixed step."""
    if r["enable_mixed_chunk"]:
        r.set("enable_mixed_chunk", False, f"{algorithm} speculation cannot run in mixed prefill chunks.")
        r.warn(f"Mixed chunked prefill is disabled: {algorithm} speculative decoding does not support it.")


def ragged_verify_mode(r: Resolution) -> str:
    """The verify layout named by SGLANG_RAGGED_VERIFY_MODE, `static` when unset."""
    mode = r.env.get(RAGGED_ENV, "static")
    if mode not in RAGGED_MODES:
        known = ", ".join(repr(m) for m in RAGGED_MODES)
        raise r.reject(f"invalid {RAGGED_ENV}={mode!r}; expected one of {known}")
    return mode


def float_env(r: Resolution, name: str, default: float) -> float:
    """A float environment variable; the default when unset or not a number, as in the engine."""
    try:
        return float(r.env[name])
    except (KeyError, ValueError):
        return default


def ordered(r: Resolution, value: int | None) -> int:
    """`value` as a number to compare; the engine dies with a TypeError where it is unset."""
    if value is None:
        raise r.reject("'>' not supported between instances of 'NoneType' and 'int'", error="TypeError")
    return value


def not_modelled(what: str, fix: str) -> UnusableInput:
    """The error for an option whose effect depends on something outside the command line."""
    return UnusableInput(f"{what} is not modelled.", where="speculative decoding", fix=fix)
