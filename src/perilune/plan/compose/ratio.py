"""The page's calculator for `--mamba-full-memory-ratio`: state bytes over KV bytes of an average request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal

from perilune.plan.compose.flags import Flags, has, number, value

KDA_LAYERS = 69
MLA_LAYERS = 24
KDA_HEADS = 96
HEAD_DIM = 128
CONV_TAPS = 3  # of a kernel of 4, one tap is the current token
MLA_WIDTH = 512 + 64  # latent and rope
DEFAULT_TP = 8
DRAFT_KV_BYTES = 1400  # per token, replicated over DCP ranks


def memory_ratio(
    *,
    slots: int,
    verify_states: int,
    state_bytes: float,
    length: float,
    mla_kv_bytes: float,
    dcp: int,
    draft_kv_bytes: float,
) -> float | None:
    """State memory over KV memory for requests of `length` tokens; None where the calculator has no value.

    `slots` and `verify_states` are counts per request, `state_bytes` is per slot and rank, `mla_kv_bytes` and
    `draft_kv_bytes` are per token. DCP shards the target KV and leaves the draft KV whole.
    """
    kv_bytes = length * (mla_kv_bytes / dcp + draft_kv_bytes)
    if length <= 0 or kv_bytes <= 0:
        return None
    ratio = (slots + verify_states) * state_bytes / kv_bytes
    return ratio if ratio > 0 else None


def shown(ratio: float) -> str:
    """The ratio as the page prints it: one decimal from 10, two from 1, else two significant digits."""
    exact = Decimal(ratio)
    if ratio >= 10:
        places = 1
    elif ratio >= 1:
        places = 2
    else:
        places = 1 - exact.adjusted()
    text = f"{exact.quantize(Decimal(1).scaleb(-places), rounding=ROUND_HALF_UP):f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


@dataclass(frozen=True, slots=True)
class RatioInputs:
    """What the calculator reads off a command. Bytes are per rank: of one state slot, of one token."""

    slots: int
    verify_states: int
    state_bytes: float
    mla_kv_bytes: int
    dcp: int
    draft_kv_bytes: int
    attention_tp: int

    def ratio(self, length: float) -> float | None:
        """The ratio for requests of `length` tokens, input and output together."""
        if KDA_HEADS % self.attention_tp:
            return None
        return memory_ratio(
            slots=self.slots,
            verify_states=self.verify_states,
            state_bytes=self.state_bytes,
            length=length,
            mla_kv_bytes=self.mla_kv_bytes,
            dcp=self.dcp,
            draft_kv_bytes=self.draft_kv_bytes,
        )


def ratio_inputs(flags: Flags, env: Mapping[str, str]) -> RatioInputs:
    """Read the calculator's inputs off a command and its environment, as the page does for Kimi-K3."""
    attention_tp = _attention_tp(flags)
    speculating = has(flags, "--speculative-algorithm")
    return RatioInputs(
        slots=_slots(flags, env),
        verify_states=_verify_states(flags) if speculating else 0,
        state_bytes=_state_bytes(flags, attention_tp),
        mla_kv_bytes=MLA_LAYERS * MLA_WIDTH * (1 if value(flags, "--kv-cache-dtype") == "fp8_e4m3" else 2),
        dcp=max(1, number(flags, "--dcp-size", 1)),
        draft_kv_bytes=DRAFT_KV_BYTES if speculating else 0,
        attention_tp=attention_tp,
    )


def _attention_tp(flags: Flags) -> int:
    groups = number(flags, "--attn-dp-size", 1)
    if has(flags, "--enable-dp-attention"):
        groups = max(groups, number(flags, "--dp-size", 1))
    tp = number(flags, "--tp-size", DEFAULT_TP)
    return max(1, (2 * tp + groups) // (2 * max(1, groups)))


def _state_bytes(flags: Flags, attention_tp: int) -> float:
    heads = KDA_HEADS / attention_tp
    element = 2 if value(flags, "--mamba-ssm-dtype") in ("bfloat16", "float16") else 4
    recurrent = heads * HEAD_DIM * HEAD_DIM * element
    convolution = CONV_TAPS * 3 * heads * HEAD_DIM * 2
    return KDA_LAYERS * (recurrent + convolution)


def _slots(flags: Flags, env: Mapping[str, str]) -> int:
    decode = value(flags, "--disaggregation-mode") == "decode"
    if has(flags, "--disable-radix-cache") or (decode and not _decode_radix(flags)):
        return 1
    strategy = value(flags, "--mamba-radix-cache-strategy")
    if strategy == "no_buffer":
        return 3
    saved = 1 if env.get("SGLANG_OPT_MAMBA_SKIP_DECODE_LOCK") == "1" else 0
    overlap_off = has(flags, "--disable-overlap-schedule") or number(flags, "--pp-size", 1) > 1
    extra = 1 if strategy == "extra_buffer_lazy" or overlap_off else 2
    return 3 - saved + extra


def _decode_radix(flags: Flags) -> bool:
    return has(flags, "--disaggregation-decode-enable-radix-cache")


def _verify_states(flags: Flags) -> int:
    replay = has(flags, "--enable-linear-replayssm-spec")
    if replay or value(flags, "--disaggregation-mode") == "prefill":
        return 0
    if value(flags, "--speculative-algorithm") == "DFLASH":
        return number(flags, "--speculative-dflash-block-size", 8)
    return number(flags, "--speculative-dspark-block-size", 7) + 1
