"""Old spellings, and the gRPC server they lead to.

Source: SGLang 0.5.23 `arg_groups/serving_hook.py` (`handle_deprecated_args`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from perilune.plan.resolve.state import Resolution

TOOL_CALL_PARSERS: Final[Mapping[str, str]] = {"qwen25": "qwen", "glm45": "glm"}
ATTENTION_BACKENDS: Final[Mapping[str, str]] = {"compressed": "dsv4", "tokenspeed_mla": "cutedsl_mla"}
ATTENTION_FIELDS: Final = (
    "attention_backend",
    "decode_attention_backend",
    "prefill_attention_backend",
    "speculative_draft_attention_backend",
)
SMG_PORT_OFFSET: Final = 10000


def deprecated_args(r: Resolution) -> None:
    """Replace deprecated options by what they mean today, and settle the gRPC ports."""
    _image_processor(r)
    parser = TOOL_CALL_PARSERS.get(r["tool_call_parser"] or "")
    if parser is not None:
        _rename(r, "tool_call_parser", parser)
    _allreduce_fusion(r)
    _attention_backends(r)
    _grpc(r)


def _rename(r: Resolution, name: str, value: str) -> None:
    r.warn(f"--{name.replace('_', '-')} {r[name]} is deprecated; use {value}.")
    r.set(name, value, f"{r[name]} is its old name.")


def _image_processor(r: Resolution) -> None:
    if not r["disable_fast_image_processor"]:
        return
    backend = r["image_processor_backend"]
    if backend not in ("auto", "pil"):
        raise r.reject(f"--disable-fast-image-processor conflicts with --image-processor-backend={backend}.")
    r.warn("--disable-fast-image-processor is deprecated; use --image-processor-backend=pil.")
    r.set("image_processor_backend", "pil", "--disable-fast-image-processor is its old name.")


def _allreduce_fusion(r: Resolution) -> None:
    reason = "--enable-flashinfer-allreduce-fusion is the old name of the backend `auto`."
    if r["enable_flashinfer_allreduce_fusion"] and r["flashinfer_allreduce_fusion_backend"] is None:
        r.warn("--enable-flashinfer-allreduce-fusion is deprecated; use --flashinfer-allreduce-fusion-backend=auto.")
        r.set("flashinfer_allreduce_fusion_backend", "auto", reason)
    r.set("enable_flashinfer_allreduce_fusion", False, reason)


def _attention_backends(r: Resolution) -> None:
    tokenspeed = "tokenspeed_mla" in (r["attention_backend"], r["decode_attention_backend"])
    for name in ATTENTION_FIELDS:
        backend = ATTENTION_BACKENDS.get(r[name] or "")
        if backend is not None:
            prefill_only = name == "prefill_attention_backend" and backend == "cutedsl_mla"
            _rename(r, name, "trtllm_mla" if prefill_only else backend)
    if not tokenspeed:
        return
    if r["kv_cache_dtype"] != "fp8_e4m3":
        r.warn("tokenspeed_mla implied an FP8 KV cache: --kv-cache-dtype becomes fp8_e4m3.")
        r.set("kv_cache_dtype", "fp8_e4m3", "Implied by tokenspeed_mla.")
    if r["speculative_algorithm"] is not None and r["speculative_attention_mode"] == "prefill":
        r.set("speculative_attention_mode", "decode", "Implied by tokenspeed_mla.")


def _grpc(r: Resolution) -> None:
    if r["grpc_mode"] and not r["smg_grpc_mode"]:
        r.warn("--grpc-mode is deprecated; use --smg-grpc-mode, or --grpc-port for the native server.")
        r.set("smg_grpc_mode", True, "--grpc-mode is its old name.")
    r.set(
        "grpc_worker_threads",
        r.int_env("SGLANG_GRPC_WORKER_THREADS", 4),
        "Set by SGLANG_GRPC_WORKER_THREADS.",
    )
    port = _grpc_port_from_environment(r)
    if r["grpc_port"] is None and port is not None:
        r.set("grpc_port", port, "SGLANG_GRPC_PORT is set.")
    legacy = r["smg_grpc_mode"] or r["grpc_mode"]
    if legacy and r["grpc_port"] is None:
        reason = f"The HTTP port plus {SMG_PORT_OFFSET}."
        r.set("grpc_port", r["port"] + SMG_PORT_OFFSET, reason)
    if r["grpc_response_timeout_secs"] <= 0:
        raise r.reject("--grpc-response-timeout-secs must be positive")
    if r["grpc_port"] is not None:
        _check_port(r)
    _check_sidecar(r, legacy)
    if r["grpc_port"] is not None and not legacy:
        _check_native(r)


def _grpc_port_from_environment(r: Resolution) -> int | None:
    try:
        return int(r.env["SGLANG_GRPC_PORT"])
    except (KeyError, ValueError):
        return None


def _check_port(r: Resolution) -> None:
    port, threads = r["grpc_port"], r["grpc_worker_threads"]
    if not 1 <= port <= 65535:
        raise r.reject(f"--grpc-port / SGLANG_GRPC_PORT ({port}) must be between 1 and 65535")
    if threads < 1:
        raise r.reject(f"SGLANG_GRPC_WORKER_THREADS ({threads}) must be >= 1")


def _check_sidecar(r: Resolution, legacy: Any) -> None:
    sidecar, arguments = r["sidecar"], r["sidecar_args"]
    if arguments is not None:
        if sidecar is None:
            raise r.reject("--sidecar-args requires --sidecar.")
        if not isinstance(arguments, list) or not all(isinstance(item, str) for item in arguments):
            raise r.reject("--sidecar-args must be a JSON array of strings.")
    if sidecar is None:
        return
    if not sidecar.strip():
        raise r.reject("--sidecar must not be empty.")
    if legacy:
        raise r.reject(
            "--sidecar requires SGLang's native gRPC server; it cannot be combined with --smg-grpc-mode/--grpc-mode."
        )
    if r["grpc_port"] is None:
        raise r.reject("--sidecar requires --grpc-port or SGLANG_GRPC_PORT.")


def _check_native(r: Resolution) -> None:
    refusals = (
        (
            r["use_ray"],
            "--grpc-port is not supported with --use-ray: the Ray serve launch path does not start the "
            "native gRPC server.",
        ),
        (
            r["encoder_only"],
            "--grpc-port is not supported with --encoder-only: encoder disaggregation uses its own server.",
        ),
        (
            r["tokenizer_worker_num"] > 1,
            "Native gRPC does not yet support --tokenizer-worker-num > 1. Unset --grpc-port or set "
            "--tokenizer-worker-num 1.",
        ),
        (
            r["api_key"] or r["admin_api_key"],
            "--grpc-port is incompatible with --api-key/--admin-api-key: the native gRPC listener bypasses "
            "HTTP auth middleware.",
        ),
    )
    for applies, text in refusals:
        if applies:
            raise r.reject(text)
