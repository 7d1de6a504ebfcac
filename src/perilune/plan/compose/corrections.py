"""What the cookbook knows to fail, and the engine's argument stage lets pass: findings by constraint id.

Combinations that the engine itself refuses are not here: resolving the command finds them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from perilune.errors import UnusableInput
from perilune.facts.hardware import platform
from perilune.facts.recipes import source_titles
from perilune.plan.deployment import Deployment, Pool
from perilune.plan.resolve import resolve
from perilune.plan.rules.finding import Finding

Rule = Callable[[Deployment], Iterator[Finding]]

NVFP4_RUNNER = "flashinfer_trtllm"
RAGGED = "SGLANG_RAGGED_VERIFY_MODE"
AMD_SWITCHES = ("SGLANG_USE_AITER", "AITER_FLYDSL_FORCE", "AITER_SITUV2_A8W4", "AITER_SITUV2_A4W4")
AMD_PREFIX = "SGLANG_ROCM_"


def corrections(deployment: Deployment) -> tuple[Finding, ...]:
    """Every finding of every rule, in the order of the rules."""
    return tuple(finding for rule in CORRECTIONS.values() for finding in rule(deployment))


def nvfp4_runner(deployment: Deployment) -> Iterator[Finding]:
    """Only one MoE runner serves the NVFP4 checkpoint; the presets bring another."""
    for pool in deployment.pools:
        runner = pool.server.value("--moe-runner-backend")
        if "NVFP4" in (pool.server.value("--model-path") or "") and runner != NVFP4_RUNNER:
            yield Finding(
                "Q-NVFP4-RUNNER",
                "error",
                f"NVFP4 experts run on --moe-runner-backend {NVFP4_RUNNER} alone, not on {runner or 'auto'}: "
                "auto fails at graph capture, other runners have no SiTU kernel.",
                f"Write --moe-runner-backend {NVFP4_RUNNER}, or take --quant mxfp4 with a preset.",
                ("--moe-runner-backend",),
                _source("config", "older-config"),
                pool.role,
            )


def pipeline_stages(deployment: Deployment) -> Iterator[Finding]:
    """A decode pool has one pipeline stage, or as many as its prefill."""
    for prefill, decode in _pairs(deployment):
        stages, of_prefill = (_width(pool, "--pp-size") for pool in (decode, prefill))
        if stages not in (1, of_prefill):
            yield Finding(
                "PD-PP-MATCH",
                "error",
                f"Decode runs {stages} pipeline stages and prefill {of_prefill}: KV maps stage to stage or "
                "many to one.",
                f"Write --pp-size {stages} on prefill, or one stage on decode.",
                ("--pp-size",),
                _source("config", "server-2026-08"),
                decode.role,
            )


def kv_layout(deployment: Deployment) -> Iterator[Finding]:
    """Both roles hold KV in the same precision and page size."""
    for prefill, decode in _pairs(deployment):
        for ident, flag, reading in (
            ("PD-KV-DTYPE", "--kv-cache-dtype", _kv_dtype),
            ("PD-PAGE-SIZE", "--page-size", _page_size),
        ):
            one, other = reading(prefill), reading(decode)
            if one and other and one != other:
                yield Finding(
                    ident,
                    "error",
                    f"{flag} is {one} on prefill and {other} on decode: the roles refuse each other when they connect.",
                    f"Write the same {flag} on both.",
                    (flag,),
                    _source("page", "server-2026-08"),
                    decode.role,
                )


def _kv_dtype(pool: Pool) -> str:
    """The KV precision as written; `auto` is bf16 for every checkpoint of the catalog but NVFP4."""
    written = pool.server.value("--kv-cache-dtype") or "auto"
    plain = ("bf16", "bfloat16") if "NVFP4" in (pool.server.value("--model-path") or "") else ("bf16", "auto")
    return "bfloat16" if written in plain else written


def _page_size(pool: Pool) -> str:
    """The page size the engine takes; empty where the command does not resolve."""
    try:
        resolved = resolve(pool.servers[0], platform(pool.platform))
    except UnusableInput:
        return ""
    return str(resolved["page_size"]) if resolved.accepted else ""


def bootstrap_port(deployment: Deployment) -> Iterator[Finding]:
    """The port after `--prefill` in the router's command is the prefill's bootstrap port."""
    prefill, router = deployment.pool("prefill"), deployment.router
    if prefill is None or router is None or "--prefill" not in router:
        return
    wanted = prefill.server.value("--disaggregation-bootstrap-port") or "8998"
    written = (*router, "", "")[router.index("--prefill") + 2]
    if written != wanted:
        yield Finding(
            "PD-BOOTSTRAP",
            "error",
            f"The router names bootstrap port {written or 'none'} and prefill listens on {wanted}: "
            "only the decode worker registers.",
            f"Write {wanted} after the prefill address.",
            ("--disaggregation-bootstrap-port",),
            _source("older-page", "config"),
            prefill.role,
        )


def ragged_table(deployment: Deployment) -> Iterator[Finding]:
    """Compact verify needs a table of step times, else it does nothing."""
    for pool in deployment.pools:
        compact = pool.server.environment.get(RAGGED) == "compact"
        if compact and not pool.server.has("--speculative-dspark-sps-table-path"):
            yield Finding(
                "SPEC-RAGGED-TABLE",
                "advice",
                f"{RAGGED}=compact without a table is inert: every step verifies at full width.",
                "Write --speculative-dspark-sps-table-path, or leave the variable out.",
                (RAGGED,),
                _source("commented-config"),
                pool.role,
            )


def situ_both(deployment: Deployment) -> Iterator[Finding]:
    """A8W4 wins when both SiTU variables are set."""
    for pool in deployment.pools:
        if {"AITER_SITUV2_A8W4", "AITER_SITUV2_A4W4"} <= pool.server.environment.keys():
            yield Finding(
                "AMD-SITU-BOTH",
                "advice",
                "AITER_SITUV2_A8W4 wins over AITER_SITUV2_A4W4 when both are set.",
                "Leave one of them out.",
                ("AITER_SITUV2_A4W4",),
                _source("page"),
                pool.role,
            )


def amd_only(deployment: Deployment) -> Iterator[Finding]:
    """ROCm switches do nothing on other accelerators."""
    for pool in deployment.pools:
        names = [n for n in pool.server.environment if n in AMD_SWITCHES or n.startswith(AMD_PREFIX)]
        if names and platform(pool.platform).kind != "hip":
            yield Finding(
                "AMD-ONLY",
                "advice",
                f"{', '.join(names)} belong to ROCm on gfx950 and do nothing on {pool.platform}.",
                "Leave them out.",
                tuple(names),
                _source("page"),
                pool.role,
            )


def dcp_with_a2a(deployment: Deployment) -> Iterator[Finding]:
    """Outside Peak Capacity and DP attention, all-to-all buffers take back what DCP frees."""
    for pool in deployment.pools:
        sharded, grouped = (_width(pool, flag) > 1 for flag in ("--dcp-size", "--attn-dp-size"))
        backend = pool.server.value("--moe-a2a-backend") or "none"
        if sharded and not grouped and backend != "none":
            yield Finding(
                "DCP-EP-A2A",
                "advice",
                f"Buffers of --moe-a2a-backend {backend} take back the KV memory that --dcp-size frees.",
                "Measure it against the same command without the all-to-all backend.",
                ("--moe-a2a-backend", "--dcp-size"),
                _source("older-page"),
                pool.role,
            )


def _pairs(deployment: Deployment) -> Iterator[tuple[Pool, Pool]]:
    for prefill in deployment.pools:
        for decode in deployment.pools:
            if (prefill.role, decode.role) == ("prefill", "decode"):
                yield prefill, decode


def _width(pool: Pool, flag: str) -> int:
    """A parallel width as written; 1 where it is absent or not a number, which resolving reports."""
    written = pool.server.value(flag) or ""
    return int(written) if written.isascii() and written.isdigit() and len(written) < 10 else 1


def _source(*ids: str) -> str:
    return "; ".join(source_titles(ids))


CORRECTIONS: Mapping[str, Rule] = {
    "Q-NVFP4-RUNNER": nvfp4_runner,
    "PD-PP-MATCH": pipeline_stages,
    "PD-KV-DTYPE, PD-PAGE-SIZE": kv_layout,
    "PD-BOOTSTRAP": bootstrap_port,
    "SPEC-RAGGED-TABLE": ragged_table,
    "AMD-SITU-BOTH": situ_both,
    "AMD-ONLY": amd_only,
    "DCP-EP-A2A": dcp_with_a2a,
}
