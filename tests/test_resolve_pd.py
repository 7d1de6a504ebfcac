"""Prefill and decode roles, and encoders on servers of their own."""

from __future__ import annotations

import pytest

from resolve_table import Case, check, named, outcome, refusals, table

DECODE = "--disaggregation-mode decode --disaggregation-transfer-backend nixl"
PREFILL = "--disaggregation-mode prefill --disaggregation-transfer-backend nixl"
AFTER_PREFILL = "--disaggregation-decode-allocation-policy prefill_complete"

DECODE_ROLE = table(
    "disable_radix_cache disaggregation_decode_extra_slots",
    ("b300", DECODE, True, 0),
    ("b300", f"{DECODE} --disaggregation-decode-enable-radix-cache", False, 0),
    ("b300", f"{DECODE} --max-running-requests 32", True, 64),
    ("b300", f"{DECODE} --max-running-requests 33", True, 0),
    ("b300", f"--attn-dp-size 8 {DECODE} --max-running-requests 256", True, 64),
    ("b300", f"--attn-dp-size 8 {DECODE} --max-running-requests 4", True, 2),
    ("b300", f"{DECODE} --max-running-requests 8 --disaggregation-decode-extra-slots 5", True, 5),
    (
        "a3",
        (
            "--tp-size 32 --nnodes 4 --dist-init-addr 1.1.1.1:1 --disaggregation-mode decode "
            "--disaggregation-transfer-backend ascend"
        ),
        True,
        0,
    ),
)
SPARE_SLOTS_PRECEDE_SPECULATION = table(
    "disable_radix_cache disaggregation_decode_extra_slots max_running_requests",
    ("b300", f"{DECODE} DSPARK", True, 0, 48),
)
MOONCAKE_OVER_TCP = table(
    "disaggregation_transfer_backend disaggregation_ib_device",
    (
        "b300",
        (
            "--dcp-size 8 --disaggregation-mode decode --disaggregation-transfer-backend mooncake_tcp "
            "--disaggregation-ib-device mlx5_0"
        ),
        "mooncake",
        None,
    ),
)
PREFILL_ROLE = table(
    "disable_radix_cache disaggregation_decode_extra_slots encoder_transfer_backend",
    ("b300", PREFILL, False, None, "zmq_to_tokenizer"),
)
DCP_ROLES = table(
    "disable_radix_cache",
    ("b300", f"--dcp-size 8 {PREFILL}", False),
    ("b300", "--dcp-size 8 --disaggregation-mode decode --disaggregation-transfer-backend mori", True),
    ("b300", f"--attn-dp-size 8 {DECODE} --disaggregation-decode-enable-radix-cache", False),
)
HOST_RECEIVE = table(
    "disaggregation_decode_retraction_backup hicache_mem_layout",
    ("b300", f"{DECODE} --disaggregation-decode-host-receive-threshold 0.5", "host_pool", "layer_first"),
)
ALLOCATION_AFTER_PREFILL = table(
    "optimistic_prefill_attempts",
    ("b300", f"--tp-size 1 --disaggregation-mode prefill {AFTER_PREFILL}", 1),
    ("b300", f"--tp-size 1 --disaggregation-mode decode {AFTER_PREFILL}", 0),
)
RUST_SERVER = table(
    "disaggregation_bootstrap_port",
    ("b300", f"SGLANG_RUST_SERVER=1 {PREFILL}", 30000),
)
ENCODER_RECEIVER = table(
    "encoder_transfer_backend",
    ("b300", "--encoder-only", "zmq_to_tokenizer"),
    ("b300", "--tp-size 1 --language-only", "zmq_to_scheduler"),
    ("b300", "--encoder-transfer-backend zmq_to_scheduler", "zmq_to_scheduler"),
)
HOST_RECEIVE_IS_REFUSED = refusals(
    (
        "b300",
        "--disaggregation-mode decode --disaggregation-decode-host-receive-threshold 2",
        "ValueError: --disaggregation-decode-host-receive-threshold must be between 0 and 1",
    ),
    (
        "b300",
        "--disaggregation-mode decode --disaggregation-decode-host-receive-threshold 0.5 --enable-pd-role-switch",
        "ValueError: Decode host receive does not yet support HiSparse or role switching",
    ),
    (
        "b300",
        (
            "--disaggregation-mode decode --disaggregation-decode-host-receive-threshold 0.5 "
            "--disaggregation-decode-retraction-backup cpu_tensor"
        ),
        "ValueError: Decode host KV buffering requires host_pool retraction",
    ),
)
ROLE_IS_REFUSED = refusals(
    (
        "b300",
        (
            "--disaggregation-mode decode --disaggregation-transfer-backend fake "
            "--disaggregation-decode-enable-radix-cache"
        ),
        (
            "ValueError: --disaggregation-decode-enable-radix-cache is incompatible with "
            "--disaggregation-transfer-backend fake"
        ),
    ),
    (
        "b300",
        f"{DECODE} --enable-hisparse --disaggregation-decode-enable-radix-cache",
        "ValueError: --disaggregation-decode-enable-radix-cache is incompatible with --enable-hisparse",
    ),
    (
        "b300",
        "--disaggregation-mode prefill --disaggregation-transfer-backend fake",
        "AssertionError: Prefill server does not support 'fake' as the transfer backend",
    ),
    (
        "b300",
        f"SGLANG_RUST_SERVER=1 {PREFILL} --disaggregation-bootstrap-port 1234",
        (
            "ValueError: SGLANG_RUST_SERVER serves the PD KV bootstrap registry on the api port itself; "
            "--disaggregation-bootstrap-port 1234 conflicts with --port 30000. Drop "
            "--disaggregation-bootstrap-port (decode nodes and the PD router must then target the prefill api "
            "port)."
        ),
    ),
    (
        "b300",
        "SGLANG_DISAGG_STAGING_BUFFER=1 --disaggregation-mode decode --disaggregation-transfer-backend mori",
        (
            "ValueError: SGLANG_DISAGG_STAGING_BUFFER requires disaggregation_transfer_backend='mooncake' or "
            "'nixl', got 'mori'."
        ),
    ),
)
ROLE_SWITCH_IS_REFUSED = refusals(
    (
        "b300",
        f"--ep-size 8 --dcp-size 8 {DECODE} --enable-pd-role-switch DSPARK",
        (
            "ValueError: --enable-pd-role-switch does not rebuild role-specific state for the following "
            "features: expert parallelism (--ep-size 8), decode context parallelism (--dcp-size 8), "
            "speculative decoding (--speculative-algorithm DSPARK). Remove these options or drop "
            "--enable-pd-role-switch."
        ),
    ),
    (
        "b300",
        f"--tp-size 1 --pp-size 8 {PREFILL} --moe-a2a-backend deepep --enable-pd-role-switch",
        (
            "ValueError: --enable-pd-role-switch does not rebuild role-specific state for the following "
            "features: MoE all-to-all (--moe-a2a-backend deepep), pipeline parallelism (--pp-size 8). Remove "
            "these options or drop --enable-pd-role-switch."
        ),
    ),
    (
        "b300",
        f"--attn-dp-size 2 {DECODE} --enable-dp-attention-local-control-broadcast --enable-pd-role-switch",
        (
            "ValueError: --enable-pd-role-switch does not rebuild role-specific state for the following "
            "features: DP attention local control broadcast. Remove these options or drop "
            "--enable-pd-role-switch."
        ),
    ),
)
ALLOCATION_AFTER_PREFILL_IS_REFUSED = refusals(
    (
        "b300",
        f"{DECODE} {AFTER_PREFILL} --disaggregation-decode-enable-radix-cache --enable-hierarchical-cache",
        (
            "ValueError: --disaggregation-decode-allocation-policy prefill_complete does not yet support "
            "transfer backends other than Mooncake, attention tensor parallelism greater than one, decode "
            "radix cache or decode HiCache"
        ),
    ),
    (
        "b300",
        f"--pp-size 2 {AFTER_PREFILL} --language-only --enable-pd-role-switch --enable-hisparse",
        (
            "ValueError: --disaggregation-decode-allocation-policy prefill_complete does not yet support "
            "aggregated serving, pipeline or attention context parallelism, attention tensor parallelism "
            "greater than one, runtime PD role switching, encoder disaggregation, HiSparse"
        ),
    ),
    (
        "b300",
        (
            "SGLANG_DISAGG_STAGING_BUFFER=1 SGLANG_RUST_SERVER=1 --tp-size 1 --disaggregation-mode prefill "
            f"{AFTER_PREFILL} --enable-hierarchical-cache"
        ),
        (
            "ValueError: --disaggregation-decode-allocation-policy prefill_complete does not yet support "
            "prefill HiCache other than L2 write_back, staging buffers, the Rust bootstrap registry"
        ),
    ),
)
ENCODER_IS_REFUSED = refusals(
    ("b300", "--enable-prefix-mm-cache", "ValueError: --enable-prefix-mm-cache requires --encoder-only to be enabled"),
    ("b300", "--encoder-only --language-only", "ValueError: Cannot set --encoder-only and --language-only together"),
    (
        "b300",
        f"--encoder-only {PREFILL}",
        "ValueError: Cannot set --encoder-only and --disaggregation-mode prefill/decode together",
    ),
    (
        "b300",
        "--language-model-only --encoder-only",
        "ValueError: --language-model-only cannot be combined with --encoder-only",
    ),
    (
        "b300",
        "--language-model-only",
        (
            "ValueError: --language-model-only does not support ['KimiK3ForConditionalGeneration']. Supported: "
            "['DeepseekV4ForCausalLM', 'MuseGlimmerForConditionalGeneration', "
            "'Cosmos3ForConditionalGeneration', 'Cosmos3EdgeForConditionalGeneration']."
        ),
    ),
    (
        "b300",
        f"--language-model-only {PREFILL}",
        "ValueError: --language-model-only is incompatible with --disaggregation-mode prefill/decode",
    ),
    (
        "b300",
        "--model-path meta-llama/Llama-3.3-70B-Instruct --encoder-only",
        (
            "ValueError: Model type LlamaForCausalLM is not supported for encoder disaggregation. Supported "
            "architectures: Qwen2VL, Qwen3VL, Qwen3.5, InternS2, Qwen2Audio, Qwen2.5Omni, Dots3-Note, Kimi, "
            "MiMoV2, GLM5Next, MiniMax-M3, MuseSpark."
        ),
    ),
)


@pytest.mark.parametrize("case", **named(DECODE_ROLE))
def test_decode_role(case: Case) -> None:
    """A decode server keeps no prefix cache unless asked, and spares slots for small batches."""
    check(case)


@pytest.mark.parametrize("case", **named(SPARE_SLOTS_PRECEDE_SPECULATION))
def test_spare_slots_precede_speculation(case: Case) -> None:
    """The limit of 48 that speculation brings comes too late for spare slots."""
    check(case)


@pytest.mark.parametrize("case", **named(MOONCAKE_OVER_TCP))
def test_mooncake_over_tcp(case: Case) -> None:
    """mooncake_tcp is mooncake without RDMA devices."""
    check(case)


@pytest.mark.parametrize("case", **named(PREFILL_ROLE))
def test_prefill_role(case: Case) -> None:
    """A prefill server keeps its prefix cache."""
    check(case)


@pytest.mark.parametrize("case", **named(DCP_ROLES))
def test_dcp_roles(case: Case) -> None:
    """Roles under DCP, and a decode prefix cache under attention DP."""
    check(case)


@pytest.mark.parametrize("case", **named(HOST_RECEIVE))
def test_host_receive(case: Case) -> None:
    """KV received on the host lives in the retraction pool, layer by layer."""
    check(case)


@pytest.mark.parametrize("case", **named(ALLOCATION_AFTER_PREFILL))
def test_allocation_after_prefill(case: Case) -> None:
    """The prefill side needs one optimistic attempt."""
    check(case)


@pytest.mark.parametrize("case", **named(RUST_SERVER))
def test_rust_server(case: Case) -> None:
    """The Rust server bootstraps on its API port."""
    check(case)


@pytest.mark.parametrize("case", **named(ENCODER_RECEIVER))
def test_encoder_receiver(case: Case) -> None:
    """Sharded Kimi-K3 hands image embeddings to its tokenizer."""
    check(case)


@pytest.mark.parametrize("case", **named(HOST_RECEIVE_IS_REFUSED))
def test_host_receive_is_refused(case: Case) -> None:
    """KV buffered on the decode host."""
    check(case)


@pytest.mark.parametrize("case", **named(ROLE_IS_REFUSED))
def test_role_is_refused(case: Case) -> None:
    """What a role cannot do."""
    check(case)


@pytest.mark.parametrize("case", **named(ROLE_SWITCH_IS_REFUSED))
def test_role_switch_is_refused(case: Case) -> None:
    """State that a role switch does not rebuild."""
    check(case)


@pytest.mark.parametrize("case", **named(ALLOCATION_AFTER_PREFILL_IS_REFUSED))
def test_allocation_after_prefill_is_refused(case: Case) -> None:
    """Allocation after prefill serves the plainest pairs only."""
    check(case)


@pytest.mark.parametrize("case", **named(ENCODER_IS_REFUSED))
def test_encoder_is_refused(case: Case) -> None:
    """Encoders, language models and text-only serving."""
    check(case)


MOONCAKE = "--disaggregation-mode prefill --disaggregation-ib-device"
DEVICES = table(
    "disaggregation_ib_device",
    ("b300", f"{MOONCAKE} mlx5_0", "mlx5_0"),
    ("b300", f"{MOONCAKE} ' mlx5_0, mlx5_1,,mlx5_0 '", "mlx5_0,mlx5_1"),
    ("b300", f'{MOONCAKE} \'{{"0": "mlx5_0, mlx5_0", "1": "mlx5_1"}}\'', '{"0":"mlx5_0","1":"mlx5_1"}'),
    ("b300", f"{MOONCAKE} /etc/devices.json", "/etc/devices.json"),
    ("b300", f"{MOONCAKE} mlx5_0,mlx5_0 --disaggregation-transfer-backend nixl", "mlx5_0,mlx5_0"),
)
NO_DEVICES = refusals(
    ("b300", f"{MOONCAKE} ' '", "ValueError: No valid IB devices specified"),
    ("b300", f"{MOONCAKE} ,", "ValueError: No valid IB devices specified for all GPUs"),
    ("b300", f'{MOONCAKE} \'{{"0": ""}}\'', "ValueError: No valid IB devices specified for GPU 0"),
    ("b300", f"{MOONCAKE} '{{}}'", "ValueError: No valid GPU mappings found in JSON"),
    ("b300", f"{MOONCAKE} '{{0: mlx5_0}}'", "ValueError: Invalid JSON mapping: {0: mlx5_0}"),
    (
        "b300",
        f'{MOONCAKE} \'{{"first": "mlx5_0"}}\'',
        "ValueError: Invalid format: keys must be integers (or string representations of integers) and values "
        "must be strings",
    ),
    (
        "b300",
        f'{MOONCAKE} \'{{"0": ["mlx5_0"]}}\'',
        "ValueError: Invalid format: keys must be integers (or string representations of integers) and values "
        "must be strings",
    ),
)


@pytest.mark.parametrize("case", **named(DEVICES + NO_DEVICES))
def test_rdma_devices(case: Case) -> None:
    """Mooncake's devices lose blanks and duplicates. Whether they exist is only known on the node."""
    check(case)


@pytest.mark.parametrize(("backend", "warned"), [("mooncake", True), ("mooncake_tcp", False), ("nixl", False)])
def test_unnamed_rdma_devices_are_a_warning_only_where_they_are_used(backend: str, warned: bool) -> None:
    found = outcome(Case("b300", f"--disaggregation-mode prefill --disaggregation-transfer-backend {backend}"))
    assert any("RDMA devices" in warning for warning in found.warnings) is warned
