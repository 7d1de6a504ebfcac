"""The serving surface: API, media, TLS, gRPC, scheduling defaults, and the environment it writes."""

from __future__ import annotations

from perilune.plan.resolve.serving.defaults import (
    grammar_backend,
    hidden_states_mode,
    load_balance_method,
    missing_defaults,
    prefill_decode_interval_default,
    prefill_delayer,
    tokenizer_batching,
)
from perilune.plan.resolve.serving.deprecated import deprecated_args
from perilune.plan.resolve.serving.environment import crash_dump, debug_utils, environment_variables
from perilune.plan.resolve.serving.media import media_url_security, multimodal
from perilune.plan.resolve.serving.validation import (
    asr,
    other_validations,
    prefill_decode_interval,
    response_store,
    sampling_mask,
    ssl,
)
from perilune.plan.resolve.serving.watermark import watermark

__all__ = [
    "asr",
    "crash_dump",
    "debug_utils",
    "deprecated_args",
    "environment_variables",
    "grammar_backend",
    "hidden_states_mode",
    "load_balance_method",
    "media_url_security",
    "missing_defaults",
    "multimodal",
    "other_validations",
    "prefill_decode_interval",
    "prefill_decode_interval_default",
    "prefill_delayer",
    "response_store",
    "sampling_mask",
    "ssl",
    "tokenizer_batching",
    "watermark",
]
