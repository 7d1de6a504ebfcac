"""Checks of the serving surface that change nothing else.

The engine also looks for certificate files on its own machine, which a plan made elsewhere cannot do.
Source: SGLang 0.5.23 `arg_groups/serving_hook.py`, `validation_hook.py`.
"""

from __future__ import annotations

import json
from typing import Any, Final

from perilune.errors import UnusableInput
from perilune.plan.resolve.graphs import disable_graphs
from perilune.plan.resolve.state import Resolution

MODALITIES: Final = ("image", "video", "audio")
RENAMED_MASK_LIMIT: Final = "SGLANG_DISAGGREGATION_SAMPLING_MASK_MAX_TOKENS"
MAX_STOPS: Final = 32
SAMPLING_FIELDS: Final = frozenset(
    {
        "beam_width",
        "custom_params",
        "ebnf",
        "ebnf_full_assistant",
        "frequency_penalty",
        "ignore_eos",
        "is_normalized",
        "json_schema",
        "logit_bias",
        "max_new_tokens",
        "min_new_tokens",
        "min_p",
        "n",
        "no_stop_trim",
        "presence_penalty",
        "regex",
        "repetition_penalty",
        "sampling_seed",
        "skip_special_tokens",
        "spaces_between_special_tokens",
        "stop",
        "stop_regex",
        "stop_regex_max_len",
        "stop_regex_strs",
        "stop_str_max_len",
        "stop_strs",
        "stop_token_ids",
        "stream_interval",
        "structural_tag",
        "temperature",
        "top_k",
        "top_p",
    }
)


def ssl(r: Resolution) -> None:
    """Check that the TLS, worker and HTTP/2 options belong together."""
    key, certificate = r["ssl_keyfile"], r["ssl_certfile"]
    if key and not certificate:
        raise r.reject("--ssl-keyfile requires --ssl-certfile to be specified as well.")
    if certificate and not key:
        raise r.reject("--ssl-certfile requires --ssl-keyfile to be specified as well.")
    if not certificate:
        for name in ("ssl_ca_certs", "ssl_keyfile_password"):
            if r[name]:
                flag = name.replace("_", "-")
                raise r.reject(f"--{flag} has no effect without --ssl-certfile and --ssl-keyfile.")
        if r["enable_ssl_refresh"]:
            raise r.reject("--enable-ssl-refresh requires --ssl-certfile and --ssl-keyfile to be specified.")
    if r["enable_http_worker_reuseport"] and (r["tokenizer_worker_num"] == 1 or r["enable_http2"]):
        raise r.reject(
            "--enable-http-worker-reuseport requires --tokenizer-worker-num > 1 and has no effect with --enable-http2."
        )
    if r["enable_http2"]:
        _check_http2(r)


def asr(r: Resolution) -> None:
    """Transcription sessions and their buffers must have positive sizes."""
    for name in ("asr_max_buffer_seconds", "asr_max_concurrent_sessions"):
        if r[name] <= 0:
            raise r.reject(f"--{name.replace('_', '-')} must be positive (got {r[name]}).")


def prefill_decode_interval(r: Resolution) -> None:
    """The interval between prefills and the batch it applies from must not be negative."""
    for name in ("prefill_decode_interval", "prefill_decode_interval_min_bs"):
        if r[name] is not None and r[name] < 0:
            raise r.reject(f"--{name.replace('_', '-')} must be non-negative.")


def response_store(r: Resolution) -> None:
    """Stored responses need a server that has both roles."""
    if r["enable_response_store"] and r["disaggregation_mode"] != "null":
        raise r.reject(
            "--enable-response-store is not supported with --disaggregation-mode=prefill or decode; response "
            "storage must remain disabled in PD mode."
        )


def sampling_mask(r: Resolution) -> None:
    """The size of a sampling mask is a flag, and positive."""
    if RENAMED_MASK_LIMIT in r.env:
        raise r.reject(
            f"{RENAMED_MASK_LIMIT} is no longer supported. Unset it. To enable sampling masks for "
            "disaggregated serving, set SGLANG_ENABLE_DISAGG_SAMPLING_MASK=1 and use the same positive "
            "--sampling-mask-max-tokens value on both prefill and decode servers."
        )
    limit = r["sampling_mask_max_tokens"]
    if limit <= 0:
        raise r.reject(f"--sampling-mask-max-tokens must be positive (got {limit}).")


def other_validations(r: Resolution) -> None:
    """Check what needs the final cache and graph settings: chat template, dumps, media limits, sampling."""
    template = r["default_chat_template_kwargs"]
    if template is not None and not isinstance(template, dict):
        raise r.reject("--default-chat-template-kwargs must decode to a JSON object")
    _optimistic_prefill(r)
    for name, tool in (
        ("debug_tensor_dump_output_folder", "a tensor dump"),
        ("msprobe_dump_config", "msProbe"),
    ):
        if r[name] is not None:
            r.warn(f"CUDA graphs and the warm-up are off because of {tool}.")
            disable_graphs(r, f"{tool} needs eager execution.")
            r.set("skip_server_warmup", True, f"Not wanted with {tool}.")
    _media_limits(r)
    _preferred_sampling(r)


def _check_http2(r: Resolution) -> None:
    if not 0 < r["http2_max_concurrent_streams"] < 2**32:
        raise r.reject("--http2-max-concurrent-streams must be between 1 and 4294967295.")
    if not 1024 <= r["http2_initial_connection_window_size"] < 2**31:
        raise r.reject("--http2-initial-connection-window-size must be between 1024 and 2147483647.")
    if r["enable_ssl_refresh"]:
        raise r.reject(
            "--enable-ssl-refresh is not supported with --enable-http2. Granian does not support SSL "
            "certificate hot-reloading. Use Uvicorn (the default) or handle certificate rotation externally."
        )


def _optimistic_prefill(r: Resolution) -> None:
    if r["disaggregation_mode"] != "prefill":
        return
    if r["optimistic_prefill_attempts"] > 0:
        obstacle = _optimistic_obstacle(r)
        if obstacle:
            r.warn(f"Optimistic prefill is off: it does not work with {obstacle}.")
            r.set("optimistic_prefill_attempts", 0, f"Not compatible with {obstacle}.")
    if r["disaggregation_decode_allocation_policy"] == "prefill_complete" and r["optimistic_prefill_attempts"] <= 0:
        raise r.reject(
            "prefill_complete requires optimistic prefill, but the resolved model/cache configuration disabled it."
        )


def _optimistic_obstacle(r: Resolution) -> str | None:
    if r["pp_size"] > 1:
        return "pipeline parallelism"
    if not r["enable_hierarchical_cache"]:
        return None
    policy = r["hicache_write_policy"]
    if r["hicache_storage_backend"] is None:
        fits = policy in ("write_back", "write_through")
    else:
        fits = r["hicache_host_memory_mode"] == "buffer_only" and policy == "write_through"
    return None if fits else "this mode of the hierarchical cache"


def _media_limits(r: Resolution) -> None:
    limits = r["limit_mm_data_per_request"]
    if not limits:
        return
    if isinstance(limits, str):
        limits = _json(r, limits)
        r.set("limit_mm_data_per_request", limits, "Read from JSON.")
    for kind in limits if isinstance(limits, dict) else ():
        if kind not in MODALITIES:
            raise r.reject(
                f"Invalid modality '{kind}' in --limit-mm-data-per-request.Allowed modalities are: {list(MODALITIES)}"
            )


def _preferred_sampling(r: Resolution) -> None:
    preferred = r["preferred_sampling_params"]
    if not preferred:
        return
    if isinstance(preferred, str):
        preferred = _json(r, preferred)
        r.set("preferred_sampling_params", preferred, "Read from JSON.")
    if not isinstance(preferred, dict):
        raise UnusableInput("It must be one JSON object.", where="--preferred-sampling-params")
    if "watermark" in preferred:
        raise r.reject("watermark is not supported in --preferred-sampling-params")
    if r["skip_tokenizer_init"]:
        _check_without_tokenizer(r, preferred)


def _check_without_tokenizer(r: Resolution, preferred: dict[str, Any]) -> None:
    """Text stops and a minimum length need the tokenizer that `--skip-tokenizer-init` leaves out."""
    unknown = [name for name in preferred if name not in SAMPLING_FIELDS]
    if unknown:
        raise r.reject(f"Unexpected keyword argument {unknown[0]!r}", error="TypeError")
    for name in ("stop", "stop_regex", "min_new_tokens"):
        value = preferred.get(name)
        if name != "min_new_tokens" and isinstance(value, str):
            value = [value]
        if not value:
            continue
        if isinstance(value, list) and len(value) > MAX_STOPS:
            what = "stop strings" if name == "stop" else "stop_regex patterns"
            raise r.reject(f"at most {MAX_STOPS} {what} are allowed, got {len(value)}")
        need = "tokenizer to decode tokens to text for matching"
        if name == "min_new_tokens":
            need = "tokenizer for eos_token_id"
        raise r.reject(f"{name}={value!r} is unavailable when skip_tokenizer_init=True (requires {need}).")


def _json(r: Resolution, text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise r.reject(str(error), error=type(error).__name__) from None
