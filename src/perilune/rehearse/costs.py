"""What the simulation asks of a timing model. Every answer is in ticks (`ticks.SECOND` to the second)."""

from __future__ import annotations

from typing import Literal, Protocol

Basis = Literal["fitted", "borrowed", "calibrated"]


class Costs(Protocol):
    """Step times of one server. A PP stage's time is that of its slowest stage, hand-over included.

    `local` counts what the fullest attention-DP rank holds, `total` all ranks together (equal without DP attention).
    """

    @property
    def basis(self) -> Basis:
        """Whether the efficiencies were fitted to this platform, borrowed from another, or a user's own."""
        ...

    @property
    def error_band(self) -> tuple[float, float]:
        """Factors below and above a predicted time, such as (0.85, 1.2)."""
        ...

    def decode(self, local: int, total: int) -> tuple[int, int]:
        """One decode step (with speculation: draft and verify) of so many requests.

        The step lasts `base + per_milli * kv`, where kv is thousandths of KV tokens in the micro-batch, averaged
        over the attention-DP ranks.
        """
        ...

    def chunk(self, local: int, total: int, pairs: int) -> int:
        """One prefill chunk of `local` new tokens; `pairs` sums, over them, the tokens each attends to."""
        ...

    def encode(self, image_tokens: int, *, graph: bool) -> int:
        """The vision tower on one image; `graph` replays a captured graph."""
        ...

    def transfer(self, tokens: int) -> int:
        """KV of `tokens` and the recurrent state of one request, from a prefill to a decode server."""
        ...

    def host_load(self, tokens: int, *, storage: bool) -> int:
        """HiCache: KV and state of `tokens` from host memory, or from L3 storage, to the device."""
        ...
