"""Weights and pools that do not fit."""

from __future__ import annotations

from collections.abc import Iterable

from perilune.plan.memory import Ledger
from perilune.plan.memory.pools import rest_gib
from perilune.plan.rules.refusals.known import Known, known
from perilune.plan.rules.refusals.remedies import attention_groups, unset, whole_nodes
from perilune.plan.rules.subject import sized
from perilune.plan.server import Server

RUNNER, FRACTION, LIMIT = "--moe-runner-backend", "--mem-fraction-static", "--max-running-requests"
HOPPER = 90
MOST_FRACTION = 95  # hundredths of --mem-fraction-static that still leave room for graphs
AITER_OPT = "SGLANG_AITER_K3_OPT"
SHARED_WHOLE, SHARED_FLAG = "SGLANG_K3_SHARED_EXPERTS_ATTN_TP", "--enable-shared-experts-attn-tp"
NO_ROOM = r"Loaded weights leave no GPU memory|Not enough GPU memory for hybrid"


def raise_fraction(server: Server, found: Ledger) -> Server:
    """The engine's own memory fraction where the pools fit at it, else the least that does, in hundredths.

    The server itself where no fraction above the present one does.
    """
    least = int(min(float(found.resolved["mem_fraction_static"] or 0), 1.0) * 100) + 1
    engines = sized(server.unset(FRACTION), found).resolved["mem_fraction_static"]
    own = int(min(float(engines or 0), 1.0) * 100)
    for hundredths in (*([own] if own >= least else []), *range(max(least, 1), MOST_FRACTION + 1)):
        tried = server.set(FRACTION, f"{hundredths / 100:.2f}")
        if sized(tried, found).boots:
            return tried
    return server


def _split_shared(server: Server, _: Ledger) -> Server:
    """Say with flags what two variables said to the image the recipe was written for."""
    if SHARED_WHOLE not in server.environment:
        return server
    return server.set(SHARED_FLAG).set("--enable-dense-mlp-attn-tp")


def _pinned(found: Ledger) -> bool:
    """Whether a pin takes more than there is."""
    return found.inputs is not None and found.inputs.given_slots is not None and rest_gib(found.inputs) > 0


def _per_request(found: Ledger) -> bool:
    """Whether the state pool follows --max-running-requests and takes more than there is."""
    i = found.inputs
    return i is not None and i.given_slots is None and i.radix_off and i.asked is not None and rest_gib(i) > 0


def _fewer_requests(server: Server, found: Ledger) -> Server:
    """The most requests, in whole ones for every attention-DP rank, with which the pools fit."""
    each = int(found.resolved["attn_dp_size"] or 1)
    fits, too_many = 0, int(found.resolved["max_running_requests"] or 1) // each + 1
    while too_many - fits > 1:
        tried = (fits + too_many) // 2
        if sized(server.set(LIMIT, tried * each), found).boots:
            fits = tried
        else:
            too_many = tried
    return server.set(LIMIT, fits * each) if fits else server


def _best(server: Server, found: Ledger, tries: Iterable[Server]) -> Server:
    """The first try that boots, else the first that gets as far as the pools, else the server itself."""
    further = server
    for tried in tries:
        after = sized(tried, found)
        if after.boots:
            return tried
        if further == server and after.error_stage == "pools" != found.error_stage:
            further = tried
    return further


def _own_runner(server: Server, found: Ledger) -> Server:
    """The engine's own choice of expert kernel or, on Hopper, Marlin with whole experts, if the weights fit then."""
    hopper = server.set(RUNNER, "marlin").set("--ep-size", found.resolved["tp_size"])
    return _best(server, found, (server.unset(RUNNER), *([hopper] if expands_experts(found) else [])))


def expands_experts(found: Ledger) -> bool:
    """Whether the automatic kernel expands the 4-bit experts to BF16."""
    r = found.resolved
    return r.platform.sm == HOPPER and r.model.is_kimi_k3


def _in_dp_groups(found: Ledger) -> bool:
    """Whether the attention's weights are whole in each of several groups."""
    return int(found.resolved["attn_dp_size"] or 1) > 1


def _fewer_groups(server: Server, found: Ledger) -> Server:
    """The largest attention DP, by halves, at which the server starts, with a higher fraction if that alone is not
    enough; else none, if the weights leave room for pools then. The server itself where that is not the cause.
    """
    size = int(found.resolved["attn_dp_size"] or 1)
    smaller = [attention_groups(server, size >> n) for n in range(1, size.bit_length())]
    higher = (raise_fraction(tried, found) for tried in smaller)
    booting = (tried for tried in (*smaller, *higher) if sized(tried, found).boots)
    inputs = sized(smaller[-1], found).inputs
    return next(booting, smaller[-1] if inputs is not None and rest_gib(inputs) > 0 else server)


def _split_given(found: Ledger) -> bool:
    return bool({"max_mamba_cache_size", "mamba_full_memory_ratio"} & set(found.resolved.given))


def _some_unused(found: Ledger) -> bool:
    r = found.resolved
    return bool(r["tp_size"] * r["pp_size"] < r["nnodes"] * r.platform.gpus_per_node)


def _all_gpus(server: Server, found: Ledger) -> Server:
    """One server over all GPUs of its nodes, where its weights fit then."""
    return _best(server, found, (whole_nodes(server.unset("--dp-size"), found),))


def _redundant(found: Ledger) -> bool:
    return bool(found.resolved["ep_num_redundant_experts"])


def _without_aiter_opt(found: Ledger) -> bool:
    return found.resolved.platform.kind == "hip" and found.resolved.model.is_kimi_k3 and not _aiter_opt(found)


def _aiter_opt(found: Ledger) -> bool:
    return found.resolved.env.get(AITER_OPT, "").lower() in ("1", "true", "yes", "y")


def _few_tokens(found: Ledger) -> bool:
    """Whether --max-total-tokens is less than a page."""
    i = found.inputs
    return i is not None and i.max_total_tokens is not None and i.max_total_tokens < i.page


MEMORY: tuple[Known, ...] = (
    known(
        "kv-tokens-few",
        r"Please try to increase --mem-fraction-static",
        "--max-total-tokens is less than one page, and that is all the KV pool may hold; the memory is not the matter.",
        "remove --max-total-tokens",
        unset("--max-total-tokens"),
        ("--max-total-tokens",),
        _few_tokens,
    ),
    known(
        "state-pin-large",
        NO_ROOM,
        "The pinned slots take all the memory that the weights and --mem-fraction-static leave.",
        "remove --max-mamba-cache-size",
        unset("--max-mamba-cache-size"),
        ("--max-mamba-cache-size",),
        _pinned,
    ),
    known(
        "state-requests-large",
        NO_ROOM,
        "Without a radix cache every request of --max-running-requests has a state slot, and they take all there is.",
        "lower --max-running-requests",
        _fewer_requests,
        ("--max-running-requests",),
        _per_request,
    ),
    known(
        "amd-aiter-opt",
        NO_ROOM,
        "Without SGLANG_AITER_K3_OPT the weights take much more of an MI35x.",
        "set SGLANG_AITER_K3_OPT=1",
        lambda server, _: server.with_env({AITER_OPT: "1"}),
        (AITER_OPT,),
        _without_aiter_opt,
    ),
    known(
        "memory-fraction-low",
        NO_ROOM,
        "The fraction keeps free memory times (1 - fraction) for graphs and activations, and the weights leave less.",
        "add --enable-shared-experts-attn-tp and --enable-dense-mlp-attn-tp",
        _split_shared,
        ("--mem-fraction-static",),
    ),
    known(
        "memory-fraction-low",
        NO_ROOM + r"|Please try to increase --mem-fraction-static",
        "The fraction keeps free memory times (1 - fraction) for graphs and activations, and the weights leave less.",
        "raise --mem-fraction-static",
        raise_fraction,
        ("--mem-fraction-static",),
    ),
    known(
        "memory-fraction-low",
        NO_ROOM + r"|Please try to increase --mem-fraction-static",
        "Attention DP keeps the attention's weights whole in every group.",
        "remove attention DP, or lower it",
        _fewer_groups,
        ("--attn-dp-size", "--mem-fraction-static"),
        _in_dp_groups,
    ),
    known(
        "memory-fraction-low",
        NO_ROOM,
        "The weights are split among fewer GPUs than the nodes have.",
        "write a --tp-size for all of them",
        _all_gpus,
        ("--tp-size", "--mem-fraction-static"),
        _some_unused,
    ),
    known(
        "state-pool-small",
        r"state cache is too small to serve any requests",
        "One request needs more state slots than the pool has.",
        "raise --mem-fraction-static",
        raise_fraction,
        ("--mem-fraction-static",),
        lambda found: not _split_given(found),
    ),
    known(
        "state-pool-small",
        r"state cache is too small to serve any requests",
        "Attention DP keeps the attention's weights and the states whole in every group, each with a pool of its own.",
        "remove attention DP, or lower it",
        _fewer_groups,
        ("--attn-dp-size",),
        lambda found: _in_dp_groups(found) and not _split_given(found),
    ),
    known(
        "state-pool-small",
        r"state cache is too small to serve any requests",
        "One request needs more state slots than the pool has.",
        "remove --max-mamba-cache-size and --mamba-full-memory-ratio",
        unset("--max-mamba-cache-size", "--mamba-full-memory-ratio"),
        ("--max-mamba-cache-size", "--mamba-full-memory-ratio"),
    ),
    known(
        "memory-weights",
        r"^Loading runs out of memory",
        "Every redundant expert is one more on every GPU.",
        "remove --ep-num-redundant-experts",
        unset("--ep-num-redundant-experts"),
        ("--ep-num-redundant-experts",),
        _redundant,
    ),
    known(
        "memory-weights",
        r"^Loading runs out of memory",
        "The shared experts and the dense MLP are whole on every GPU, for this release reads flags, not the variables.",
        "add --enable-shared-experts-attn-tp and --enable-dense-mlp-attn-tp",
        _split_shared,
        ("--tp-size",),
        lambda found: SHARED_WHOLE in found.resolved.env,
    ),
    known(
        "memory-weights",
        r"^Loading runs out of memory",
        "The expert kernel decides whether 4-bit experts stay as they are or are expanded to BF16.",
        "remove --moe-runner-backend, or on Hopper write marlin with --ep-size",
        _own_runner,
        (RUNNER, "--ep-size"),
        lambda found: "moe_runner_backend" in found.resolved.given or expands_experts(found),
    ),
    known(
        "memory-weights",
        r"^Loading runs out of memory",
        "Attention DP keeps the attention's weights whole in every group.",
        "remove attention DP, or lower it",
        _fewer_groups,
        ("--attn-dp-size",),
        _in_dp_groups,
    ),
    known(
        "memory-weights",
        r"^Loading runs out of memory",
        "The weights are split among fewer GPUs than the nodes have.",
        "write a --tp-size for all of them",
        _all_gpus,
        ("--tp-size", "--dp-size"),
        _some_unused,
    ),
    known(
        "memory-weights",
        r"^Loading runs out of memory",
        "The weights alone are more than one GPU holds; only more GPUs to a server, expert parallelism or a smaller "
        "checkpoint help.",
        flags=("--tp-size", "--pp-size", "--ep-size"),
    ),
)
