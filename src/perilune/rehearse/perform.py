"""One rehearsal from end to end: a plan, the load that is offered, and settings become servers, a run, a report."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from perilune.errors import UnusableInput
from perilune.facts.timing import latencies, machines
from perilune.plan.deployment import Role
from perilune.plan.planned import Plan, PlannedPool
from perilune.rehearse.acceptance import Acceptance, Mix, acceptance_for
from perilune.rehearse.engine import acceptance_of, engine_of
from perilune.rehearse.fleet.encoders import EncoderSettings
from perilune.rehearse.fleet.flags import RouterSettings, router_settings
from perilune.rehearse.fleet.outages import Lost, Outage
from perilune.rehearse.fleet.pd import PdFleet
from perilune.rehearse.fleet.policies import PolicyName
from perilune.rehearse.fleet.prefill import check_prefill
from perilune.rehearse.fleet.room import decode_settings
from perilune.rehearse.fleet.routed import RoutedFleet
from perilune.rehearse.fleet.server import Server
from perilune.rehearse.hicache import HostedCache, host_settings, new_store
from perilune.rehearse.images import graph_settings, image_settings
from perilune.rehearse.offered import OfferedLoad
from perilune.rehearse.radix import RadixCache
from perilune.rehearse.radix.planned import cache_settings
from perilune.rehearse.report.rehearsal import Rehearsal, facts_of
from perilune.rehearse.simulate import Fleet, simulate
from perilune.rehearse.tally import Targets
from perilune.rehearse.ticks import ticks
from perilune.rehearse.timing import Efficient, ServerCosts, costs_of
from perilune.rehearse.timing.collectives import US

AFTER: Final[Mapping[Lost, str]] = {
    "resubmit": "what they had starts over",
    "router": "what they had without output starts over",
    "fail": "what they had is lost",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What shapes a rehearsal beside its plan and its load."""

    replicas: Mapping[Role, int] = field(default_factory=dict)  # servers of a role, over the plan's own count
    router: PolicyName | None = None  # None: what the plan's router says, else its default
    acceptance_length: float | None = None
    acceptance_mix: Mix = ()
    targets: Targets | None = None
    profiles: Mapping[str, Efficient] = field(default_factory=dict)  # of `perilune calibrate`, by platform
    outages: tuple[Outage, ...] = ()
    lost: Lost = "resubmit"  # what becomes of the requests of a server that fails
    corrected: Mapping[str, str] = field(default_factory=dict)  # edits that made a pool boot, by role
    encoders: int = 0  # servers of one GPU each that only encode images
    records: bool = False  # keep every request
    spans: bool = False  # keep every stretch of every server


def perform(
    plan: Plan,
    load: OfferedLoad,
    settings: Settings,
    *,
    progress: Callable[[int], None] | None = None,
    stop: Callable[[], bool] | None = None,
    one_step: bool = False,
) -> Rehearsal:
    """Rehearse; `stop` ends it early and `progress` is told the requests that ended, both asked now and then.

    `one_step` advances every server one step at a time, which gives the same figures and takes longer.

    Raises UnusableInput for a plan that serves nobody, and for a trace that cannot be read.
    """
    _check_roles(plan, settings)
    if settings.encoders and not load.may_have_images:
        raise UnusableInput("No request has an image.", where="--encoders", fix="Give --images, or leave it out.")
    accepted = {
        item.pool.role: acceptance_for(item, settings.acceptance_length, settings.acceptance_mix) for item in plan.pools
    }
    counts = {item.pool.role: settings.replicas.get(item.pool.role, item.pool.replicas) for item in plan.pools}
    costs = {item.pool.role: costs_of(item.ledger, settings.profiles.get(item.pool.platform)) for item in plan.pools}
    tower = load.may_have_images and not settings.encoders
    servers = {
        item.pool.role: [_server(item, costs[item.pool.role], accepted[item.pool.role], images=tower)]
        * counts[item.pool.role]
        for item in plan.pools
    }
    first = next(item for item in plan.pools if item.pool.role != "decode")  # it meets the images
    encoders = _encoders(first, costs[first.pool.role], settings.encoders) if settings.encoders else None
    router = _router(plan, settings)
    found = simulate(
        load.traffic(),
        _fleet(plan, servers, settings, router, encoders),
        seed=load.seed,
        one_step=one_step,
        records=settings.records,
        spans=settings.spans,
        targets=settings.targets,
        progress=progress,
        stop=stop,
        front_end=_front_end(),
    )
    return Rehearsal(
        model=plan.deployment.model,
        pools=tuple(facts_of(item, counts[item.pool.role]) for item in plan.pools),
        load=load,
        outcome=replace(found, gpus=found.gpus + settings.encoders),
        router=", ".join(dict.fromkeys((router.prefill, router.decode))) if sum(counts.values()) > 1 else None,
        acceptance=accepted.get("unified") or accepted.get("decode"),
        slo=settings.targets,
        basis_says="; ".join(dict.fromkeys(one.said for one in costs.values())),
        settings=_told(settings),
    )


def _front_end() -> tuple[int, int]:
    """Ticks a request, and a prompt token, before a scheduler sees it: its way there and back, and tokenizing."""
    known = latencies()
    return ticks(known.request_us.value * US), ticks(known.tokenize_us.value * US)


def _check_roles(plan: Plan, settings: Settings) -> None:
    roles = [item.pool.role for item in plan.pools]
    if sorted(roles) not in (["unified"], ["decode", "prefill"]):
        raise UnusableInput(
            f"A {roles[0]} pool alone serves nobody.", where="rehearse", fix="Plan both roles: --mode pd."
        )
    for role in settings.replicas:
        if role not in roles:
            raise UnusableInput(f"This plan has no {role} pool.", where="replicas", fix=f"It has: {' '.join(roles)}.")


def _server(item: PlannedPool, costs: ServerCosts, accepted: Acceptance | None, *, images: bool) -> Server:
    """One server of a pool. With a store, all servers that are made from it share that."""
    host, cache = host_settings(item), cache_settings(item)
    new_cache: Callable[[], RadixCache] = partial(RadixCache, **cache)
    if host is not None:
        store = new_store(cache["page"], states=cache["slots"] is not None) if host.storage else None
        new_cache = partial(HostedCache, host=host, store=store, **cache)
    engine = engine_of(item, new_cache, acceptance=None if accepted is None else acceptance_of(accepted.parts))
    return Server(
        engine=replace(engine, slots=cache["slots"] or 0),
        costs=costs,
        images=image_settings(item) if images else None,
        host=host,
    )


def _encoders(item: PlannedPool, costs: ServerCosts, count: int) -> EncoderSettings:
    """Encoders like the tower of this pool, which send their embeddings (BF16) over the network to it."""
    known = latencies()
    speed = machines()[item.pool.platform].nic.value * known.link_share.value
    start_s = known.transfer_start_us.value * 1e-6
    row = item.resolved.model.hidden_size * 2
    return EncoderSettings(
        servers=count,
        encode=lambda tokens, graph: costs.encode(tokens, graph=graph),
        send=lambda tokens: ticks(start_s + tokens * row / speed),
        graphs=graph_settings(item),
    )


def _fleet(
    plan: Plan,
    servers: Mapping[Role, Sequence[Server]],
    settings: Settings,
    router: RouterSettings,
    encoders: EncoderSettings | None,
) -> Fleet:
    if "unified" in servers:
        return RoutedFleet(
            servers["unified"], router=router, outages=settings.outages, lost=settings.lost, encoders=encoders
        )
    pools = {item.pool.role: item for item in plan.pools}
    check_prefill(pools["prefill"])
    decode = decode_settings(pools["decode"])
    return PdFleet(
        servers["prefill"],
        [(server, decode) for server in servers["decode"]],
        router=router,
        allocation=pools["decode"].resolved.values["disaggregation_decode_allocation_policy"],
        outages=settings.outages,
        lost=settings.lost,
        encoders=encoders,
    )


def _router(plan: Plan, settings: Settings) -> RouterSettings:
    """The planned router, with the policy asked for over its own."""
    found, policy = router_settings(plan.deployment.router), settings.router
    return found if policy is None else replace(found, prefill=policy, decode=policy)


def _told(settings: Settings) -> dict[str, str]:
    """What a report says of the settings."""
    outages = [f"{one.replica} at {one.at_s:g} s for {one.down_s:g} s" for one in settings.outages]
    told = {"failures": f"{', '.join(outages)}; {AFTER[settings.lost]}"} if outages else {}
    if settings.encoders:
        told["encoders"] = f"{settings.encoders:,}, one GPU each, counted in the figures per GPU"
    if settings.corrected:
        several = len(settings.corrected) > 1
        told["corrected"] = "; ".join(
            f"{role}: {edits}" if several else edits for role, edits in settings.corrected.items()
        )
    return told
