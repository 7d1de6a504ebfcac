"""The serving surface: API, tokenizer, media, TLS, debugging and the environment it writes."""

from __future__ import annotations

from perilune.plan.resolve.state import Resolution


def hidden_states_mode(r: Resolution) -> None:
    """Hidden states mode."""


def media_url_security(r: Resolution) -> None:
    """Media url security."""


def watermark(r: Resolution) -> None:
    """Watermark."""


def prefill_decode_interval(r: Resolution) -> None:
    """Prefill decode interval."""


def response_store(r: Resolution) -> None:
    """Response store."""


def sampling_mask(r: Resolution) -> None:
    """Sampling mask."""


def multimodal(r: Resolution) -> None:
    """Multimodal."""


def ssl(r: Resolution) -> None:
    """Ssl."""


def asr(r: Resolution) -> None:
    """Asr."""


def deprecated_args(r: Resolution) -> None:
    """Deprecated args."""


def prefill_delayer(r: Resolution) -> None:
    """Prefill delayer."""


def missing_defaults(r: Resolution) -> None:
    """Missing defaults."""


def prefill_decode_interval_default(r: Resolution) -> None:
    """Prefill decode interval default."""


def grammar_backend(r: Resolution) -> None:
    """Grammar backend."""


def load_balance_method(r: Resolution) -> None:
    """Load balance method."""


def tokenizer_batching(r: Resolution) -> None:
    """Tokenizer batching."""


def environment_variables(r: Resolution) -> None:
    """Environment variables."""


def crash_dump(r: Resolution) -> None:
    """Crash dump."""


def debug_utils(r: Resolution) -> None:
    """Debug utils."""


def other_validations(r: Resolution) -> None:
    """Other validations."""
