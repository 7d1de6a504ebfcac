"""Speculative decoding beyond what the engine refuses."""

from __future__ import annotations

from collections.abc import Iterator

from perilune.plan.resolve import DEFAULT_DRAFT
from perilune.plan.resolve.state import Resolved
from perilune.plan.rules.edits import Edit, remove, write
from perilune.plan.rules.families import ATTENTION, SPECULATION
from perilune.plan.rules.reaching import more_requests
from perilune.plan.rules.rule import PAGE, Says, rule
from perilune.plan.rules.splitting import LIMIT, asked_requests, running
from perilune.plan.rules.subject import Subject

EAGLE_FAMILY = ("EAGLE", "EAGLE3", "NEXTN")
REPLAY = "--enable-linear-replayssm-spec"
KERNEL = ("attention_backend", "page_size")
CORRUPTED = ("Qwen3NextForCausalLM", "Qwen3_5MoeForConditionalGeneration", "Qwen3_5ForConditionalGeneration")


@rule("spec-48", "rewrite")
def request_limit(s: Subject) -> Iterator[Says]:
    """Speculation without --max-running-requests limits the server to 48 requests."""
    if not s.accepted or not s.speculates or "max_running_requests" in s.resolved.given:
        return
    if "--max-running-requests" in s.unknown:
        return
    asked, edits = s.workload.concurrency, _limit(s)
    yield Says(
        f"Speculation without --max-running-requests limits the server to {s['max_running_requests']} requests.",
        "" if edits else f"Write --max-running-requests for {asked or 'the'} requests at once that you want.",
        ("--max-running-requests",),
        edits,
    )


def _limit(s: Subject) -> tuple[Edit, ...]:
    """The limit that is asked for, with all that lets as many run; none where nobody asks, or that costs requests."""
    asked = s.workload.concurrency
    if asked is None:
        return ()
    more = more_requests(s)
    if more is not None:
        return more if any(edit.name == LIMIT for edit in more) else (*more, write(LIMIT, asked))
    limit = (write(LIMIT, asked),)
    after = s.again(limit)
    return limit if after.boots and running(after, s.workload)[0] >= asked else ()


def dspark_instead(s: Subject) -> tuple[Edit, ...]:
    """The edits that write DSPARK for another algorithm with a draft of its own."""
    sizes = (
        "--speculative-dflash-block-size",
        "--speculative-num-draft-tokens",
        "--speculative-num-steps",
        "--speculative-eagle-topk",
    )
    return (
        write("--speculative-algorithm", "DSPARK"),
        write("--speculative-draft-model-path", DEFAULT_DRAFT),
        *remove(*(flag for flag in sizes if s.wrote(flag))),
    )


@rule("spec-draft-none", "advice", PAGE)
def no_draft(s: Subject) -> Iterator[Says]:
    """Kimi-K3's checkpoint has no draft layers: an algorithm that grows a draft needs a checkpoint with them."""
    named = s["speculative_draft_model_path"] is not None
    if s.accepted and s.is_k3 and s["speculative_algorithm"] in EAGLE_FAMILY and not named:
        edits = dspark_instead(s)
        yield Says(
            f"{s['speculative_algorithm']} has no draft: the checkpoint of Kimi-K3 brings none, and no other is named.",
            "" if s.again(edits).boots else "Write DSPARK with its draft, or name a draft that was made for Kimi-K3.",
            ("--speculative-algorithm",),
            edits if s.again(edits).boots else (),
        )


@rule("spec-dflash-platform", "advice", PAGE)
def dflash_platform(s: Subject) -> Iterator[Says]:
    """DFLASH with Kimi-K3 was validated on Blackwell only."""
    if s.accepted and s.is_k3 and s["speculative_algorithm"] == "DFLASH" and s.platform.family != "blackwell":
        yield Says(
            f"DFLASH was validated on Blackwell, not on {s.platform.label}.",
            flags=("--speculative-algorithm",),
            edits=dspark_instead(s),
        )


@rule("spec-ragged-table", "rewrite", PAGE)
def ragged_table(s: Subject) -> Iterator[Says]:
    """The compact verify layout without a table of step times still verifies at full width."""
    mode = s.env.get("SGLANG_RAGGED_VERIFY_MODE", "")
    if mode.lower() == "compact" and s.speculates and not s.wrote("--speculative-dspark-sps-table-path"):
        yield Says(
            "SGLANG_RAGGED_VERIFY_MODE=compact without --speculative-dspark-sps-table-path changes nothing: "
            "every step verifies at full width.",
            flags=("SGLANG_RAGGED_VERIFY_MODE",),
            edits=(Edit("unset-env", "SGLANG_RAGGED_VERIFY_MODE"),),
        )


@rule("spec-state-16bit", "advice", PAGE)
def state_16bit(s: Subject) -> Iterator[Says]:
    """With a 16-bit state, KDA verification leaves the fused kernel for Triton."""
    dtype = s["mamba_ssm_dtype"]
    if not s.ledger.boots or not s.is_k3 or not s.speculates or dtype not in ("bfloat16", "float16") or s.template:
        return
    whole = (write("--mamba-ssm-dtype", "float32"),)
    now, then = running(s.ledger, s.workload)[0], running(s.again(whole), s.workload)[0]
    enough = then >= min(now, asked_requests(s) or now)
    yield Says(
        f"With --mamba-ssm-dtype {dtype} KDA verification runs on Triton, not the fused kernel: steps are slower, and "
        f"{now} requests run at once, {then} with float32.",
        "" if enough else "Measure whether the requests are worth the slower steps.",
        ("--mamba-ssm-dtype",),
        whole if enough else (),
    )


@rule("spec-draft-attention", "advice", PAGE)
def draft_attention(s: Subject) -> Iterator[Says]:
    """On NVIDIA the draft's attention backend is best left to the engine."""
    flag = "--speculative-draft-attention-backend"
    if s.wrote(flag) and s.accepted and s["speculative_algorithm"] == "DSPARK" and s.platform.kind == "cuda":
        yield Says(
            f"{flag} {s.value(flag)} may cost a host synchronisation every step; unset, the engine picks its own.",
            flags=(flag,),
            edits=remove(flag),
        )


@rule("spec-simulated", "advice", PAGE)
def simulated(s: Subject) -> Iterator[Says]:
    """Simulated acceptance takes draft tokens that the model never agreed to: for measuring only."""
    if "SGLANG_SIMULATE_ACC_LEN" in s.env:
        yield Says(
            "SGLANG_SIMULATE_ACC_LEN accepts drafts without asking the model: the answers are wrong and the speed "
            "is not yours.",
            flags=("SGLANG_SIMULATE_ACC_LEN",),
            edits=(Edit("unset-env", "SGLANG_SIMULATE_ACC_LEN"),),
        )


@rule("spec-pd-limit", "advice", PAGE)
def pd_limit(s: Subject) -> Iterator[Says]:
    """In a PD pair, speculation for N requests wants a limit of 2N on both roles."""
    asked, limit = s.workload.concurrency, s["max_running_requests"]
    if not s.ledger.boots or not s.speculates or s.role == "unified" or not asked or not limit or limit >= 2 * asked:
        return
    if "max_running_requests" in s.resolved.given:
        edits = _room_for(s, 2 * asked)
        yield Says(
            f"For {asked} requests a PD role with speculation wants {LIMIT} {2 * asked}, not {limit}: "
            "requests in transfer count too.",
            "" if edits else f"{LIMIT} {2 * asked} does not fit here: use more GPUs, or more servers.",
            (LIMIT,),
            edits,
        )


def _room_for(s: Subject, limit: int) -> tuple[Edit, ...]:
    """The edits for a limit at which no fewer requests run, with ReplaySSM where verification's states are too many."""
    now = running(s.ledger, s.workload)[0]
    for edits in ((write(LIMIT, limit),), (write(REPLAY), write(LIMIT, limit))):
        after = s.again(edits)
        if after.boots and running(after, s.workload)[0] >= now:
            return edits
    return ()


@rule("spec-changes-attention", "rewrite")
def changes_attention(s: Subject) -> Iterator[Says]:
    """Speculation makes the engine choose another attention backend or page size than without it."""
    written = any(s.wrote(flag) for flag in (*ATTENTION, "--page-size"))
    if not s.accepted or not s.speculates or written or s.is_k3:
        return
    plain = s.again(remove(*SPECULATION)).resolved
    changed = [f"{field} {plain[field]} -> {s[field]}" for field in KERNEL if plain[field] != s[field]]
    if plain.accepted and changed:
        edits = _kernel_kept(s, plain)
        yield Says(
            f"Adding {s['speculative_algorithm']} changes {' and '.join(changed)}.",
            "" if edits else "Reckon with the new ones: speculation does not run on those from before.",
            ("--speculative-algorithm",),
            edits,
        )


def _kernel_kept(s: Subject, plain: Resolved) -> tuple[Edit, ...]:
    """The flags that hold the faster of the two choices: TensorRT-LLM's kernel before all others, else today's."""
    before = tuple(write(f"--{field.replace('_', '-')}", plain[field]) for field in KERNEL)
    today = tuple(write(f"--{field.replace('_', '-')}", s[field]) for field in KERNEL)
    for edits, like in ((before, plain), (today, s.resolved)) if _fast(plain) else ((today, s.resolved),):
        after = s.again(edits).resolved
        if after.accepted and all(after[field] == like[field] for field in KERNEL):
            return edits
    return ()


def _fast(resolved: Resolved) -> bool:
    return str(resolved["attention_backend"]).startswith("trtllm")


@rule("spec-snapshot-loops", "advice", "sgl-project/sglang issue 36537 (open)")
def snapshot_loops(s: Subject) -> Iterator[Says]:
    """Looping outputs were reported for this model family with a chained draft and snapshots of the state."""
    if not s.accepted or s["speculative_algorithm"] not in EAGLE_FAMILY or s["disable_radix_cache"]:
        return
    if s.resolved.model.architecture not in CORRUPTED or s["mamba_radix_cache_strategy"] != "extra_buffer":
        return
    pd = s.role != "unified"
    edits = () if pd else (write("--mamba-radix-cache-strategy", "extra_buffer_lazy"),)
    yield Says(
        "Outputs that loop once the KV pool is 60 % full are reported for this model with "
        f"{s['speculative_algorithm']} and extra_buffer; extra_buffer_lazy had none.",
        "extra_buffer_lazy is not possible under PD: watch the accept length, or turn the radix cache off."
        if pd
        else "",
        ("--mamba-radix-cache-strategy", "--speculative-algorithm"),
        edits,
    )


RULES = (
    request_limit,
    no_draft,
    dflash_platform,
    ragged_table,
    state_16bit,
    draft_attention,
    simulated,
    pd_limit,
    changes_attention,
    snapshot_loops,
)
