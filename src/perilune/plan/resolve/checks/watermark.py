"""Text watermarking and the features that would break its statistics."""

from __future__ import annotations

from string import hexdigits

from perilune.plan.resolve.state import Resolution

MAX_CONTEXT_WINDOW = 64
MAX_KEY_DIGITS = 16
SAMPLING_BACKENDS = frozenset({None, "flashinfer", "pytorch", "ascend", "intel_xpu"})
SPECULATION = frozenset({None, "NGRAM", "EAGLE", "EAGLE3"})


def check_watermark(r: Resolution) -> None:
    """Check the watermark's keys and probabilities, then what it cannot run with."""
    if not r["enable_watermark"]:
        if r["watermark_config"] is not None:
            raise r.reject("--watermark-config requires --enable-watermark")
        return
    if r["device"] != "cuda":
        raise r.reject(f"--enable-watermark requires --device cuda, got {r['device']!r}")
    _check_parameters(r)
    _check_features(r)


def _check_parameters(r: Resolution) -> None:
    key, second_key = r["watermark_key"], r["watermark_key_b"]
    for text in (key, second_key):
        if text is not None:
            _check_key(r, text)
    if not 1 <= r["watermark_context_window"] <= MAX_CONTEXT_WINDOW:
        raise r.reject("watermark context_window must be an integer from 1 to 64")
    if second_key is not None and key is None:
        raise r.reject("watermark key_b requires a server key")
    mixing = r["watermark_mixing_probability"]
    if not 0 < mixing < 1:
        raise r.reject("watermark mixing_probability must be strictly between 0 and 1")
    if second_key is None and mixing != 0.5:
        raise r.reject("watermark mixing_probability requires key_b")
    if not 0 < r["watermark_max_probability"] <= 1:
        raise r.reject("watermark max_probability must be greater than 0 and at most 1")
    if key is None and (r["watermark_default_enabled"] or r["watermark_enforce_all"]):
        raise r.reject("watermark default_enabled and enforce_all require a server key")


def _check_key(r: Resolution, text: str) -> None:
    digits = text[2:] if text.lower().startswith("0x") else text
    if not 1 <= len(digits) <= MAX_KEY_DIGITS:
        raise r.reject("watermark key must contain 1 to 16 hex digits")
    if not set(digits) <= set(hexdigits):
        raise r.reject("watermark key must contain only hex digits")


def _check_features(r: Resolution) -> None:
    flag, algorithm = "--enable-watermark", r["speculative_algorithm"]
    if r["enable_custom_logit_processor"]:
        raise r.reject(f"{flag} is incompatible with --enable-custom-logit-processor")
    if r["sampling_backend"] not in SAMPLING_BACKENDS:
        raise r.reject(
            f"{flag} does not support custom sampling backends; got --sampling-backend {r['sampling_backend']!r}"
        )
    if r["disaggregation_mode"] != "null":
        raise r.reject(f"{flag} is not supported with PD disaggregation")
    if algorithm not in SPECULATION:
        raise r.reject(f"{flag} supports speculative algorithms NGRAM, EAGLE, and EAGLE3, got {algorithm!r}")
    if r["pp_size"] > 1 and algorithm is not None:
        raise r.reject(f"{flag} is not supported with pipeline-parallel speculative decoding")
    if r["speculative_use_rejection_sampling"]:
        raise r.reject(f"{flag} is incompatible with --speculative-use-rejection-sampling")
    if r.flag_env("SGLANG_RUST_SERVER"):
        raise r.reject(f"{flag} is not supported with SGLANG_RUST_SERVER")
