"""The Kimi-K3 page's ratio calculator: the `--mamba-full-memory-ratio` that spends both pools evenly.

It balances what one request of length L costs in state against what it costs in KV. It is a rule of thumb of
the page, with its own constants; the ledger does not use it. Source: the Kimi-K3 page of the SGLang cookbook.
"""

from __future__ import annotations

from dataclasses import dataclass

DEFAULT_LENGTH = 11264  # input + output tokens the page starts with
HEADS, HEAD_DIM, KDA_LAYERS, MLA_LAYERS, LATENT = 96, 128, 69, 24, 512 + 64
DRAFT_BYTES_PER_TOKEN = 1400  # the page's figure for a draft, not the engine's
STATE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


@dataclass(frozen=True, slots=True)
class CalculatorInputs:
    """What the page reads from a composed command. `verified` is block size + 1, or 0 without speculation."""

    tp: int = 8
    attn_dp: int = 1
    dcp: int = 1
    state_dtype: str = "float32"
    kv_bytes: int = 2  # 1 for fp8
    strategy: str = "extra_buffer"
    radix_off: bool = False
    overlap_off: bool = False  # --disable-overlap-schedule, or PP above 1
    skip_decode_lock: bool = False
    verified: int = 0
    replay: bool = False
    role: str = "unified"  # unified | prefill | decode

    @property
    def attn_tp(self) -> int:
        """Attention TP as the page rounds it."""
        return max(1, int(self.tp / self.attn_dp + 0.5))

    @property
    def slots(self) -> int:
        """S: state slots one request holds."""
        if self.radix_off or self.role == "decode":
            return 1
        if self.strategy == "no_buffer":
            return 3
        tracking = 1 if self.strategy == "extra_buffer_lazy" or self.overlap_off else 2
        return 3 - self.skip_decode_lock + tracking

    @property
    def steps(self) -> int:
        """D: states kept per verified draft token."""
        return 0 if self.replay or self.role == "prefill" else self.verified

    @property
    def state_bytes(self) -> int:
        """Bytes of one state slot over all KDA layers."""
        heads = HEADS // self.attn_tp
        state = heads * HEAD_DIM * HEAD_DIM * STATE_BYTES[self.state_dtype]
        return KDA_LAYERS * (state + 3 * 3 * heads * HEAD_DIM * 2)

    @property
    def token_bytes(self) -> float:
        """KV bytes per token: the target's share under DCP plus the draft's."""
        draft = DRAFT_BYTES_PER_TOKEN if self.verified else 0
        return MLA_LAYERS * LATENT * self.kv_bytes / self.dcp + draft


def balanced_ratio(i: CalculatorInputs, length: float = DEFAULT_LENGTH) -> float | None:
    """The ratio at which requests of `length` tokens use up both pools at once; None where there is none."""
    if length <= 0 or HEADS % i.attn_tp:
        return None
    return (i.slots + i.steps) * i.state_bytes / (length * i.token_bytes)


def shown(ratio: float) -> str:
    """The ratio as the page writes it into a command."""
    if ratio >= 10:
        return f"{ratio:.1f}"
    if ratio >= 1:
        return f"{ratio:.2f}".rstrip("0").rstrip(".")
    return f"{ratio:.2g}"
