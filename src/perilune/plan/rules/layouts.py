"""How a pair's roles are spread over GPUs: which layouts of one map onto the other's."""

from __future__ import annotations

from collections.abc import Iterator

from perilune.plan.rules.agreement import CONNECT, both
from perilune.plan.rules.edits import remove, write
from perilune.plan.rules.routing import Router
from perilune.plan.rules.rule import COMPARED, Says, rule
from perilune.plan.rules.subject import Subject


@rule("pd-dcp", "error", CONNECT)
def dcp(p: Subject, d: Subject, router: Router) -> Iterator[Says]:
    """Token ownership can be widened from prefill to decode, never gathered: DCP 1 to N, or the same on both."""
    if not both(p, d):
        return
    left, right = p["dcp_size"], d["dcp_size"]
    if left not in (1, right):
        yield Says(
            f"Prefill DCP {left} to decode DCP {right} is not supported: 1 to N or N to N is.",
            flags=("--dcp-size",),
            edits=remove("--dcp-size", *(("--dcp-comm-backend",) if p.wrote("--dcp-comm-backend") else ())),
            pool="prefill",
        )
    if right > 1 and p["attn_cp_size"] > 1:
        yield Says(
            f"Decode DCP {right} takes KV from a prefill server without attention CP, not {p['attn_cp_size']}.",
            flags=("--attn-cp-size",),
            edits=remove("--attn-cp-size", "--enable-prefill-cp", "--cp-strategy"),
            pool="prefill",
        )


@rule("pd-dcp-release", "error", f"sgl-project/sglang pull request 32541; transfer code of {COMPARED}", until="0.5.20")
def dcp_release(p: Subject, d: Subject, router: Router) -> Iterator[Says]:
    """DCP 1 to N with a draft on both roles works from 0.5.20 on."""
    if both(p, d) and p["dcp_size"] != d["dcp_size"] and p.speculates and d.speculates:
        yield Says(
            f"SGLang {d.engine} takes the draft's KV for the target's when DCP goes from {p['dcp_size']} to "
            f"{d['dcp_size']}: the transfer's thread dies, and requests hang without a word.",
            "Use 0.5.20 or a later release on both roles.",
            ("--dcp-size", "--speculative-algorithm"),
        )


@rule("pd-pp", "error", CONNECT)
def pipeline(p: Subject, d: Subject, router: Router) -> Iterator[Says]:
    """Stages map one to one, or all to one."""
    if both(p, d) and d["pp_size"] not in (1, p["pp_size"]):
        yield Says(
            f"Prefill PP {p['pp_size']} to decode PP {d['pp_size']} has no mapping: decode PP is 1 or that of prefill.",
            flags=("--pp-size",),
            edits=(
                (write("--pp-size", p["pp_size"]),)
                if p["pp_size"] > 1
                else (*remove("--pp-size"), write("--tp-size", d["tp_size"] * d["pp_size"]))
            ),
            pool="decode",
        )


@rule("pd-tp", "advice", "sgl-project/sglang issue 23746")
def tensor(p: Subject, d: Subject, router: Router) -> Iterator[Says]:
    """States of a hybrid model may not slice evenly between different TP sizes; Kimi-K3's pairs are published."""
    if not both(p, d) or p.is_k3 or p.ledger.inputs is None or not p.ledger.inputs.hybrid:
        return
    left, right = p["tp_size"] // p["attn_dp_size"], d["tp_size"] // d["attn_dp_size"]
    if left != right:
        yield Says(
            f"Attention TP {left} to {right} is not known to be sound for this hybrid model: states were cut wrongly.",
            "Use the same TP on both roles, or compare answers with a unified server.",
            ("--tp-size",),
            pool="decode",
        )


RULES = (dcp, dcp_release, pipeline, tensor)
