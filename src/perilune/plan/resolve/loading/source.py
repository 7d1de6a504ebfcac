"""What kind of place the weights are in. Source: SGLang 0.5.23 `arg_groups/model_path_hook.py`."""

from __future__ import annotations

from typing import Final

from perilune.errors import UnusableInput
from perilune.plan.resolve.state import Resolution

OBJECT_STORES: Final = ("s3://", "gs://", "az://")


def model_source(r: Resolution) -> None:
    """Refuse sources whose model cannot be known from its `config.json`."""
    for flag in ("model_path", "speculative_draft_model_path"):
        path = r[flag]
        if path is None:
            continue
        where = f"--{flag.replace('_', '-')}"
        if path.lower() in ("none", "dummy"):
            raise UnusableInput("A server without a model is not modelled.", where=where)
        if path.lower().endswith(".gguf") or _names_gguf(path):
            raise UnusableInput("A GGUF checkpoint is not modelled.", where=where, fix="Give a safetensors checkpoint.")
        if path.startswith("instance://"):
            raise UnusableInput("Weights taken from a running instance are not modelled.", where=where)


def load_format(r: Resolution) -> None:
    """Settle the weight loader from the kind of path and the remote-instance options."""
    path, draft = r["model_path"], r["speculative_draft_model_path"]
    if _in_object_store(path):
        r.set("load_format", "runai_streamer", "The weights are in an object store.")
    elif "://" in path:
        r.set("load_format", "remote", "The weights are behind a connector.")
    if draft is not None and _in_object_store(draft) and r["speculative_draft_load_format"] is None:
        r.set("speculative_draft_load_format", "runai_streamer", "The draft is in an object store.")
    if r["custom_weight_loader"] is None:
        r.set("custom_weight_loader", [], "No loaders of one's own.")
    if r["load_format"] == "remote_instance":
        _remote_instance(r)
    if r["remote_instance_weight_loader_start_seed_via_transfer_engine"] and r["enable_memory_saver"]:
        reason = "The memory saver excludes the transfer engine."
        r.set("remote_instance_weight_loader_start_seed_via_transfer_engine", False, reason)
    if r["weight_cache_mode"] != "off" and r["speculative_algorithm"] is not None:
        raise r.reject(
            "--weight-cache-mode is not supported together with speculative decoding "
            "(--speculative-algorithm): the weight cache daemon does not export the draft model's weights. "
            "Disable one of them (--weight-cache-mode off) for this configuration."
        )


def _names_gguf(path: str) -> bool:
    """Whether a hub id names a quantization of a GGUF repository, as in `owner/repo:Q4_K_M`."""
    if path.startswith((".", "/", "~")) or "://" in path:
        return False
    repository, colon, quantization = path.rpartition(":")
    return bool(colon and quantization) and repository.count("/") == 1


def _in_object_store(path: str) -> bool:
    return path.lower().startswith(OBJECT_STORES)


def _remote_instance(r: Resolution) -> None:
    """Fall back to the normal loader when the instance to copy from is not fully described."""
    option = "remote_instance_weight_loader_"
    backend = r[f"{option}backend"]
    seed = (r[f"{option}seed_instance_ip"], r[f"{option}seed_instance_service_port"])
    if backend != "modelexpress" and None in seed:
        missing = "the seed instance is not fully named"
    elif backend == "nccl" and r[f"{option}send_weights_group_ports"] is None:
        missing = "the NCCL group ports are not given"
    elif backend == "transfer_engine" and r["enable_memory_saver"]:
        missing = "the memory saver excludes the transfer engine"
    else:
        return
    r.warn(f"The weights are loaded from disk: {missing}.")
    r.set("load_format", "auto", missing)
