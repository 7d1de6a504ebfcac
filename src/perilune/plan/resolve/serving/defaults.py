"""Values that are filled in when nobody gave them. Source: SGLang 0.5.23 `arg_groups/serving_hook.py`."""

from __future__ import annotations

from perilune.plan.resolve import machine
from perilune.plan.resolve.state import Resolution


def hidden_states_mode(r: Resolution) -> None:
    """Asking for hidden states means all of them; naming a mode means asking for them."""
    mode = r["return_hidden_states_mode"]
    if mode not in (None, "last", "full"):
        raise r.reject("return_hidden_states_mode must be one of: None, 'last', or 'full'.")
    if mode is not None:
        r.set("enable_return_hidden_states", True, f"--return-hidden-states-mode {mode} asks for them.")
    elif r["enable_return_hidden_states"] or r["enable_return_aux_hidden_states"]:
        r.set("return_hidden_states_mode", "full", "All positions are returned by default.")


def missing_defaults(r: Resolution) -> None:
    """Fill in tokenizer, served name, device and the draft's quantization; `unquant` becomes unset.

    The engine also draws a random seed, left unset here: it is a new number on every start. ModelScope
    (SGLANG_USE_MODELSCOPE) only changes where a model comes from: its paths stay as written.
    """
    for name in ("tokenizer_path", "served_model_name"):
        if r[name] is None:
            r.set(name, r["model_path"], "The model path by default.")
    device = r["device"] or ("npu" if machine.is_npu(r.platform) else "cuda")
    r.set("device", device.split(":")[0], "The platform's device type.")
    if r["mm_process_config"] is None:
        r.set("mm_process_config", {}, "The processor's own settings.")
    _quantization(r)


def prefill_delayer(r: Resolution) -> None:
    """Environment variables of the prefill delayer win over its flags."""
    if r.flag_env("SGLANG_SCHEDULER_DECREASE_PREFILL_IDLE"):
        r.set("enable_prefill_delayer", True, "SGLANG_SCHEDULER_DECREASE_PREFILL_IDLE is set.")
    passes = r.int_env("SGLANG_PREFILL_DELAYER_MAX_DELAY_PASSES", 0)
    if passes:
        reason = "SGLANG_PREFILL_DELAYER_MAX_DELAY_PASSES is set."
        r.set("prefill_delayer_max_delay_passes", passes, reason)
    name = "SGLANG_PREFILL_DELAYER_TOKEN_USAGE_LOW_WATERMARK"
    watermark = _number(r.env.get(name))
    if watermark:
        r.set("prefill_delayer_token_usage_low_watermark", watermark, f"{name} is set.")


def prefill_decode_interval_default(r: Resolution) -> None:
    """No decode steps are forced between prefills unless the user or the model asks for some."""
    if r["prefill_decode_interval"] is None:
        r.set("prefill_decode_interval", 0, "Off by default.")


def grammar_backend(r: Resolution) -> None:
    """XGrammar constrains structured output by default."""
    if r["grammar_backend"] is None:
        r.set("grammar_backend", "xgrammar", "Default.")


def load_balance_method(r: Resolution) -> None:
    """Requests go round robin over DP ranks, except that a prefill server follows the bootstrap room."""
    mode = r["disaggregation_mode"]
    if mode not in ("null", "prefill", "decode"):
        raise r.reject(f"Invalid disaggregation_mode={mode!r}")
    if r["load_balance_method"] == "auto":
        method = "follow_bootstrap_room" if mode == "prefill" else "round_robin"
        r.set("load_balance_method", method, "Default of this role.")


def tokenizer_batching(r: Resolution) -> None:
    """The two ways of batching the tokenizer exclude each other; without a tokenizer neither applies."""
    if r["enable_tokenizer_batch_encode"] and r["enable_dynamic_batch_tokenizer"]:
        raise r.reject(
            "Cannot enable both --enable-tokenizer-batch-encode and --enable-dynamic-batch-tokenizer. Please "
            "choose one tokenizer batching approach."
        )
    if not r["skip_tokenizer_init"] or r.flag_env("SGLANG_RUST_SERVER"):
        return
    reason = "--skip-tokenizer-init leaves no text to process."
    unused = {
        "detokenizer_worker_num": 1,
        "enable_tokenizer_batch_encode": False,
        "enable_dynamic_batch_tokenizer": False,
    }
    for name, value in unused.items():
        if r[name] != value:
            r.warn(f"--{name.replace('_', '-')} is ignored: {reason}.")
            r.set(name, value, reason)


def _quantization(r: Resolution) -> None:
    if r["_speculative_draft_quantization_explicitly_set"] is None:
        explicit = r["speculative_draft_model_quantization"] is not None
        r.set("_speculative_draft_quantization_explicitly_set", explicit, "Whether the draft has its own.")
    if r["speculative_draft_model_quantization"] is None:
        reason = "The draft follows the target."
        r.set("speculative_draft_model_quantization", r["quantization"], reason)
    for name in ("quantization", "speculative_draft_model_quantization"):
        if r[name] == "unquant":
            r.set(name, None, "unquant means no quantization.")


def _number(text: str | None) -> float | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        return None
