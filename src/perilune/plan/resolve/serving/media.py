"""Rules about images, video and audio that clients send. Source: SGLang 0.5.23 `serving_hook.py`."""

from __future__ import annotations

import ipaddress
from typing import Any

from perilune.plan.resolve import machine
from perilune.plan.resolve.engine_model import engine_model
from perilune.plan.resolve.state import Resolution

LEGACY_IPC = "SGLANG_USE_CUDA_IPC_TRANSPORT"


def media_url_security(r: Resolution) -> None:
    """Bring the allowed media domains into their normal form."""
    if r["media_url_max_file_size_mb"] < 0:
        raise r.reject("media_url_max_file_size_mb must be non-negative")
    domains = sorted({_domain(r, domain) for domain in r["allowed_media_domains"] or []})
    r.set("allowed_media_domains", domains, "Host names in their normal form, sorted.")


def multimodal(r: Resolution) -> None:
    """Check the shape of the multimodal processor's settings."""
    cache, settings = r["mm_preprocess_cache_size_mb"], r["mm_process_config"]
    if cache is not None and cache < 0:
        raise r.reject("mm_preprocess_cache_size_mb must be non-negative")
    if settings is None:
        return
    if not isinstance(settings, dict):
        raise _not_a_dict(r, "mm_process_config", settings)
    for kind in ("image", "video", "audio"):
        if kind in settings and not isinstance(settings[kind], dict):
            raise _not_a_dict(r, f"mm_process_config['{kind}']", settings[kind])


def feature_transport(r: Resolution) -> None:
    """Settle how image features travel from the tokenizer to the scheduler."""
    chosen = r["mm_feature_transport"]
    legacy = r.flag_env(LEGACY_IPC)
    reason = "Default."
    if chosen is None and LEGACY_IPC in r.env:
        chosen, reason = ("cuda_ipc" if legacy else "cpu"), f"{LEGACY_IPC} is set"
        r.warn(f"{LEGACY_IPC} is deprecated; use --mm-feature-transport={chosen}.")
    elif chosen is None:
        chosen = "cpu"
        _mention_fabric(r)
    elif LEGACY_IPC in r.env and legacy != (chosen == "cuda_ipc"):
        r.warn(f"--mm-feature-transport={chosen} wins over {LEGACY_IPC}.")
    if r["encoder_only"] and chosen in ("cuda_ipc", "cuda_vmm"):
        r.warn("An encoder sends its outputs by --encoder-transfer-backend; the feature transport is cpu.")
        chosen, reason = "cpu", "not used by an encoder-only server"
    _check_transport(r, chosen)
    r.set("mm_feature_transport", chosen, reason)
    r.env[LEGACY_IPC] = "1" if chosen == "cuda_ipc" else "0"


def _domain(r: Resolution, text: str) -> str:
    host = text.strip().rstrip(".")
    if not host:
        raise r.reject("allowed media domains cannot be empty")
    if "://" in host or any(character in host for character in "/?#@"):
        raise r.reject(f"Invalid allowed media domain {host!r}: provide a hostname only")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        if ":" in host:
            raise r.reject(f"Invalid allowed media domain {host!r}: ports are not supported") from None
    try:
        normal = host.encode("idna").decode("ascii").lower()
    except UnicodeError:
        raise r.reject(f"Invalid allowed media domain {host!r}") from None
    if not normal:
        raise r.reject("allowed media domains cannot be empty")
    return normal


def _not_a_dict(r: Resolution, name: str, value: Any) -> Exception:
    return r.reject(f"{name} must be a dict, but got {type(value)}", error="TypeError")


def _mention_fabric(r: Resolution) -> None:
    if (
        r["nnodes"] > 1
        and machine.has_fabric(r.platform)
        and engine_model(r).is_multimodal
        and r["disaggregation_mode"] == "null"
        and not r["encoder_only"]
    ):
        r.warn(
            "Image features travel over the CPU here; on nodes with an IMEX channel mounted the engine picks "
            "cuda_vmm by itself."
        )


def _check_transport(r: Resolution, transport: str) -> None:
    if transport in ("cuda_vmm", "cuda_ipc") and not machine.is_cuda(r.platform):
        raise r.reject(f"--mm-feature-transport={transport} requires NVIDIA CUDA.")
    if transport == "cuda_vmm" and r["pp_size"] != 1:
        raise r.reject("--mm-feature-transport=cuda_vmm does not support pipeline parallelism.")
    if transport == "cuda_ipc" and r["nnodes"] != 1:
        raise r.reject("--mm-feature-transport=cuda_ipc only supports a single node.")
