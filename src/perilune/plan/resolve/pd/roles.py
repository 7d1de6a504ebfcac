"""What a prefill or decode role does to the server: transfer backend, prefix cache, spare slots."""

from __future__ import annotations

from perilune.plan.resolve.state import Resolution
from perilune.plan.resolve.view import dp_ranks, runs_attention_dp

DCP_TRANSFERS = frozenset({"mooncake", "nixl", "mori", "ascend", "fake"})
STAGING_TRANSFERS = frozenset({"mooncake", "nixl"})
DEFAULT_BOOTSTRAP_PORT = 8998
SMALL_BATCH = 32  # requests per scheduler up to which in-transfer slots are spare


def disaggregation(r: Resolution) -> None:
    """Settle transfer backend, radix cache and spare decode slots of the role, and refuse what it lacks."""
    _force_tcp(r)
    if r["disaggregation_decode_allocation_policy"] == "prefill_complete":
        _allocate_after_prefill(r)
    mode = r["disaggregation_mode"]
    if mode == "prefill" and r["dcp_size"] > 1:
        r.warn("DCP on a PD prefill server works only if the decode side has the same layout, and rarely pays.")
    _host_receive(r)
    if mode == "decode":
        _decode_role(r)
    elif mode == "prefill":
        if r["disaggregation_transfer_backend"] == "fake":
            raise r.reject("Prefill server does not support 'fake' as the transfer backend", error="AssertionError")
        if r.flag_env("SGLANG_RUST_SERVER"):
            _share_api_port(r)
    if mode in ("prefill", "decode"):
        _check_staging(r)
        if r["enable_pd_role_switch"]:
            _check_role_switch(r)


def _force_tcp(r: Resolution) -> None:
    if r["disaggregation_transfer_backend"] != "mooncake_tcp":
        return
    r.env.setdefault("MC_FORCE_TCP", "1")
    reason = "mooncake_tcp is mooncake over TCP (MC_FORCE_TCP=1), without RDMA devices."
    r.set("disaggregation_transfer_backend", "mooncake", reason)
    r.set("disaggregation_ib_device", None, reason)


def _allocate_after_prefill(r: Resolution) -> None:
    """Decode KV that is allocated only when prefill has finished supports the plainest pairs only."""
    mode = r["disaggregation_mode"]
    attention_dp = r["dp_size"] if r["enable_dp_attention"] else 1
    host_cache = r["enable_hierarchical_cache"]
    not_level_2 = r["hicache_storage_backend"] is not None or r["hicache_write_policy"] != "write_back"
    unsupported = (
        (mode not in ("prefill", "decode"), "aggregated serving"),
        (r["disaggregation_transfer_backend"] != "mooncake", "transfer backends other than Mooncake"),
        (
            (r["pp_size"], r["attn_cp_size"], r["dcp_size"]) != (1, 1, 1),
            "pipeline or attention context parallelism",
        ),
        (r["tp_size"] != attention_dp, "attention tensor parallelism greater than one"),
        (
            r["enable_pdmux"] or r["decoupled_spec_role"] != "null",
            "PD multiplexing or decoupled speculation",
        ),
        (r["enable_pd_role_switch"], "runtime PD role switching"),
        (r["encoder_only"] or r["language_only"], "encoder disaggregation"),
        (r["enable_hisparse"], "HiSparse"),
        (r["disaggregation_decode_host_receive_threshold"] < 1, "decode host KV buffering"),
        (
            mode == "decode" and (r["disaggregation_decode_enable_radix_cache"] or host_cache),
            "decode radix cache or decode HiCache",
        ),
        (mode == "prefill" and host_cache and not_level_2, "prefill HiCache other than L2 write_back"),
        (r.flag_env("SGLANG_DISAGG_STAGING_BUFFER"), "staging buffers"),
        (r.flag_env("SGLANG_RUST_SERVER"), "the Rust bootstrap registry"),
    )
    found = [what for applies, what in unsupported if applies]
    if found:
        raise r.reject(
            "--disaggregation-decode-allocation-policy prefill_complete does not yet support " + ", ".join(found)
        )
    if mode == "prefill" and r["optimistic_prefill_attempts"] == 0:
        reason = "Allocation after prefill needs one optimistic prefill attempt."
        r.set("optimistic_prefill_attempts", 1, reason)


def _host_receive(r: Resolution) -> None:
    threshold = r["disaggregation_decode_host_receive_threshold"]
    if not 0 <= threshold <= 1:
        raise r.reject("--disaggregation-decode-host-receive-threshold must be between 0 and 1")
    if threshold == 1:
        return
    if r["enable_hisparse"] or r["enable_pd_role_switch"]:
        raise r.reject("Decode host receive does not yet support HiSparse or role switching")
    if r["disaggregation_decode_retraction_backup"] == "cpu_tensor":
        raise r.reject("Decode host KV buffering requires host_pool retraction")
    reason = "KV that is received on the host lives in the retraction host pool."
    r.set("disaggregation_decode_retraction_backup", "host_pool", reason)


def _decode_role(r: Resolution) -> None:
    transfer = r["disaggregation_transfer_backend"]
    if r["dcp_size"] > 1 and transfer not in DCP_TRANSFERS:
        raise r.reject(
            "PD decode DCP requires --disaggregation-transfer-backend mooncake, nixl, mori, ascend, or fake "
            f"for synthetic benchmarking, got {transfer!r}."
        )
    if r["disaggregation_decode_enable_radix_cache"]:
        _keep_decode_radix(r, transfer)
    else:
        r.set("disable_radix_cache", True, "A PD decode server keeps no prefix cache.")
        r.warn("The prefix cache is off on a PD decode server.")
    if r["disaggregation_decode_extra_slots"] is None:
        r.set("disaggregation_decode_extra_slots", _spare_slots(r), "Slots for requests still in transfer.")


def _keep_decode_radix(r: Resolution, transfer: str) -> None:
    flag = "--disaggregation-decode-enable-radix-cache is incompatible with"
    if r["enable_hisparse"]:
        raise r.reject(f"{flag} --enable-hisparse")
    if transfer == "fake":
        raise r.reject(f"{flag} --disaggregation-transfer-backend fake")
    if runs_attention_dp(r):
        r.warn("A decode prefix cache with attention DP needs a router that keeps a prefix on one DP rank.")
    r.set("disable_radix_cache", False, "The decode prefix cache was asked for.")
    r.warn("A prefix cache on a PD decode server is experimental.")


def _spare_slots(r: Resolution) -> int:
    """Twice a small per-scheduler batch; none for a large or unknown one."""
    limit = r["max_running_requests"]
    if limit is None:
        return 0
    per_scheduler = max(1, int(limit) // dp_ranks(r))
    return per_scheduler * 2 if per_scheduler <= SMALL_BATCH else 0


def _share_api_port(r: Resolution) -> None:
    """The Rust server answers bootstrap requests on its API port."""
    bootstrap, port = r["disaggregation_bootstrap_port"], r["port"]
    if bootstrap not in (DEFAULT_BOOTSTRAP_PORT, port):
        raise r.reject(
            "SGLANG_RUST_SERVER serves the PD KV bootstrap registry on the api port itself; "
            f"--disaggregation-bootstrap-port {bootstrap} conflicts with --port {port}. Drop "
            "--disaggregation-bootstrap-port (decode nodes and the PD router must then target the prefill "
            "api port)."
        )
    r.set("disaggregation_bootstrap_port", port, "The Rust server bootstraps PD on its API port.")


def _check_staging(r: Resolution) -> None:
    transfer = r["disaggregation_transfer_backend"]
    if r.flag_env("SGLANG_DISAGG_STAGING_BUFFER") and transfer not in STAGING_TRANSFERS:
        raise r.reject(
            "SGLANG_DISAGG_STAGING_BUFFER requires disaggregation_transfer_backend='mooncake' or 'nixl', got "
            f"'{transfer}'."
        )


def _check_role_switch(r: Resolution) -> None:
    """A role flip does not rebuild state that depends on the role."""
    local_broadcast = runs_attention_dp(r) and r["enable_dp_attention_local_control_broadcast"]
    unsupported = (
        (r["ep_size"] > 1, f"expert parallelism (--ep-size {r['ep_size']})"),
        (r["moe_a2a_backend"] != "none", f"MoE all-to-all (--moe-a2a-backend {r['moe_a2a_backend']})"),
        (r["pp_size"] > 1, f"pipeline parallelism (--pp-size {r['pp_size']})"),
        (local_broadcast, "DP attention local control broadcast"),
        (r["dcp_size"] > 1, f"decode context parallelism (--dcp-size {r['dcp_size']})"),
        (
            r["speculative_algorithm"] is not None,
            f"speculative decoding (--speculative-algorithm {r['speculative_algorithm']})",
        ),
    )
    found = [what for applies, what in unsupported if applies]
    if found:
        raise r.reject(
            "--enable-pd-role-switch does not rebuild role-specific state for the following features: "
            + ", ".join(found)
            + ". Remove these options or drop --enable-pd-role-switch."
        )
