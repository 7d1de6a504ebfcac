"""From a choice to a deployment."""

from __future__ import annotations

from collections.abc import Sequence

from perilune.errors import Refused, UnusableInput
from perilune.facts.hardware import Platform, platform
from perilune.facts.recipes import (
    Recipe,
    Role,
    catalog,
    find_recipe,
    hardware,
    recipes_of,
    source_titles,
    words,
)
from perilune.plan.compose.choice import Choice
from perilune.plan.compose.computed import RATIO
from perilune.plan.compose.flags import number, value
from perilune.plan.compose.knobs import check_reach
from perilune.plan.compose.overrides import check_removals
from perilune.plan.compose.pool import Draft, draft_pool, finish_pool
from perilune.plan.deployment import Deployment, Pool, Workload

ROLES: dict[str, tuple[Role, ...]] = {
    "unified": ("unified",),
    "pd": ("prefill", "decode"),
    "prefill": ("prefill",),
    "decode": ("decode",),
}


def compose(choice: Choice) -> Deployment:
    """The deployment of a choice: one pool, or both roles of a PD pair with their router.

    Raises Refused with the reason and the nearest allowed choice, UnusableInput for unknown names and values.
    """
    place = _platform(choice.hardware)
    roles = ROLES[choice.mode]
    pd = choice.mode == "pd"
    if pd and choice.gpus is not None:
        raise Refused(
            "The two pools of a pair have sizes of their own.",
            where="--gpus",
            fix="Leave it out, or plan one role with --mode prefill or --mode decode.",
        )
    recipes = [_recipe(choice, role, place) for role in roles]
    _check_reach(choice, roles)
    pairing = _pairing(choice, recipes[-1]) if pd else ""
    drafts = [
        draft_pool(choice, recipe, place, pairing=pairing if recipe.role == "prefill" else "", pd=pd)
        for recipe in recipes
    ]
    finished = [finish_pool(draft, choice, pd=pd) for draft in drafts]
    check_removals(choice.overrides, [(done.pool.role, done.idle) for done in finished])
    pools = tuple(done.pool for done in finished)
    return Deployment(
        model=catalog().models[pools[-1].quant],
        pools=pools,
        router=_router(drafts) if pd else None,
        workload=Workload(choice.isl, choice.osl, choice.concurrency),
        sources=source_titles(tuple(name for recipe in recipes for name in recipe.sources)),
        hints=_hints(choice, pools),
        notes=_notes(choice, recipes, pools),
    )


def _platform(name: str) -> Platform:
    try:
        place = platform(name)
    except UnusableInput as error:
        raise UnusableInput(error.message, where="--hardware", fix=error.fix) from error
    if place.id not in hardware():
        raise Refused(
            f"No recipe is published for {place.label}.",
            where="--hardware",
            fix=f"Known: {' '.join(hardware())}.",
        )
    return place


def _recipe(choice: Choice, role: Role, place: Platform) -> Recipe:
    strategy = choice.strategy_of(role)
    found = find_recipe(place.id, role, strategy)
    if found is not None:
        return found
    published = recipes_of(place.id)
    strategies = [recipe.strategy for recipe in published if recipe.role == role]
    if strategies:
        flag = "--prefill-strategy" if role == "prefill" else "--strategy"
        raise Refused(
            f"No {strategy} recipe is published for {place.label} {role}.",
            where=flag,
            fix=f"Nearest: {flag} {_nearest(strategies)}.",
        )
    modes = [mode for mode, needed in ROLES.items() if set(needed) <= {recipe.role for recipe in published}]
    pairs = [p for p in hardware() if {"prefill", "decode"} <= {recipe.role for recipe in recipes_of(p)}]
    raise Refused(
        f"No {role} recipe is published for {place.label}.",
        where=f"--mode {choice.mode}",
        fix=f"Published here: --mode {' or '.join(modes)}. PD pairs exist on {' '.join(pairs)}.",
    )


def _nearest(strategies: Sequence[str]) -> str:
    return "balanced" if "balanced" in strategies else strategies[0]


def _check_reach(choice: Choice, roles: Sequence[Role]) -> None:
    check_reach(choice.knobs, roles)
    for edit in choice.overrides:
        if edit.role is not None and edit.role not in roles:
            raise UnusableInput(
                f"This deployment has no {edit.role} pool.",
                where=f"{edit.role}:{edit.name}",
                fix=f"Its pools: {' '.join(roles)}.",
            )


def _pairing(choice: Choice, decode: Recipe) -> str:
    """Flags that the decode recipe asks of its prefill."""
    pairing = decode.cell.pairs_with
    if pairing is None:
        return ""
    if choice.strategy_of("prefill") != pairing.prefill_strategy:
        raise Refused(
            pairing.reason,
            where=f"--prefill-strategy {choice.strategy_of('prefill')}",
            fix=f"Nearest: --prefill-strategy {pairing.prefill_strategy}, or --strategy balanced.",
        )
    return pairing.set


def _router(drafts: Sequence[Draft]) -> tuple[str, ...]:
    router = catalog().router
    prefill, decode = (draft.flags for draft in drafts)
    bootstrap = number(prefill, "--disaggregation-bootstrap-port", router.bootstrap_port)
    return (
        *("python3", "-m", router.module, "--pd-disaggregation"),
        *(
            "--prefill",
            f"http://<prefill-host>:{value(prefill, '--port') or router.prefill_port}",
            str(bootstrap),
        ),
        *("--decode", f"http://<decode-host>:{value(decode, '--port') or router.decode_port}"),
        *("--host", router.host, "--port", str(router.port)),
        *words(router.extra),
    )


def _hints(choice: Choice, pools: Sequence[Pool]) -> tuple[str, ...]:
    hints: list[str] = []
    if any(pool.nodes > 1 for pool in pools):
        hints.append("Run the command of a pool on each of its nodes; only the node rank and per-node values differ.")
    if choice.mode == "pd":
        port = catalog().router.port
        hints.append(f"Start prefill and decode on nodes of their own, then the router; clients use port {port}.")
        if any(pool.nodes > 1 for pool in pools):
            hints.append("Each pool has its own head address: one shared address stalls the launch.")
    elif choice.mode in ("prefill", "decode"):
        other = "decode" if choice.mode == "prefill" else "prefill"
        hints.append(f"One role alone serves nothing: it needs a {other} pool and the router.")
    return tuple(hints)


def _notes(choice: Choice, recipes: Sequence[Recipe], pools: Sequence[Pool]) -> tuple[str, ...]:
    notes = [
        f"Sources disagree on {d.topic}: followed here, {d.here}; elsewhere, {d.elsewhere}."
        for d in dict.fromkeys(d for recipe in recipes for d in recipe.disputed)
    ]
    if choice.isl is None and any(RATIO in pool.server.argv for pool in pools):
        tokens = catalog().average_request_tokens
        notes.append(f"No lengths given: {RATIO} assumes an average request of {tokens:,} tokens.")
    for recipe in recipes:
        if recipe.cell.pairs_with is not None and choice.mode == "pd":
            notes.append(recipe.cell.pairs_with.reason)
    return tuple(notes)
