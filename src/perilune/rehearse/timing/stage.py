"""Seconds of one step on one pipeline stage."""

from __future__ import annotations

from dataclasses import dataclass

from perilune.rehearse.timing.collectives import Exchange, Fabric
from perilune.rehearse.timing.roofline import Roofline, Speeds
from perilune.rehearse.timing.work import DraftWork, Shares, StageWork


@dataclass(frozen=True, slots=True)
class Moved:
    """Bytes of one GPU and stage that a request or a token costs besides weights."""

    state: int  # read and written per request and decode step
    row: int  # of KV per stored row, target
    draft_row: int  # of the draft's KV per token
    share: int  # tokens per stored row: DCP


@dataclass(frozen=True, slots=True)
class Launch:
    """What a step costs beside bytes and operations."""

    layer_s: float  # per layer inside a CUDA graph
    eager_s: float  # per layer without one: the launches, where they outlast the kernels
    step_s: float  # per step
    graphs_to: int  # requests up to which decode runs as a graph; 0 without graphs
    slower: float  # factor on every step


class Rooflines:
    """The products of a phase on the rows they run on."""

    __slots__ = ("_last", "_local", "_shard", "_total", "_width")

    def __init__(self, shares: Shares, speeds: Speeds, attn_tp: int) -> None:
        self._local = Roofline(shares.local, speeds)
        self._total = Roofline(shares.total, speeds)
        self._shard = Roofline(shares.shard, speeds)
        self._last = Roofline(shares.last, speeds)
        self._width = attn_tp

    def seconds(self, local: float, total: float, last: float) -> float:
        """Seconds for tokens of one attention-DP rank, of all ranks, and rows that reach the head."""
        found = self._local.seconds(local) + self._total.seconds(total) + self._last.seconds(last)
        return found + self._shard.seconds(local / self._width)


class StageTimes:
    """Step times of one stage, in seconds."""

    def __init__(
        self,
        work: StageWork,
        moved: Moved,
        exchange: Exchange,
        fabric: Fabric,
        speeds: Speeds,
        launch: Launch,
        width: int,
        draft: DraftWork | None,
    ) -> None:
        self._work, self._moved, self._exchange, self._fabric = work, moved, exchange, fabric
        self._speeds, self._launch, self._tokens = speeds, launch, width
        attn_tp = exchange.shape.attn_tp
        self._decode = Rooflines(work.decode, speeds, attn_tp)
        self._prefill = Rooflines(work.prefill, speeds, attn_tp)
        self._draft = draft
        self._features = Roofline(draft.features if draft else (), speeds)
        self._proposing = Roofline(draft.proposing if draft else (), speeds)

    def decode(self, local: int, total: int) -> tuple[float, float]:
        """(seconds without KV, seconds per KV token) of one step of so many requests."""
        tokens, tokens_all = local * self._tokens, total * self._tokens
        launch, work = self._launch, self._work
        kernels = self._decode.seconds(tokens, tokens_all, tokens)
        kernels += self._experts(tokens_all) + local * self._moved.state / self._speeds.bytes_per_s
        kernels += work.layers * launch.layer_s + self._exchange.decode(self._fabric, tokens, tokens_all)
        kernels += self._propose(local)
        if local > launch.graphs_to:
            layers = work.layers + (self._draft.layers + self._draft.block if self._draft else 0)
            kernels = max(kernels, layers * launch.eager_s)
        return (kernels + launch.step_s) * launch.slower, self._per_token() * launch.slower

    def chunk(self, local: int, total: int) -> tuple[float, float]:
        """(seconds, seconds per pair) of one prefill chunk. Its kernels run without graphs, so launches may outlast
        them."""
        work, speeds, launch = self._work, self._speeds, self._launch
        kernels = self._prefill.seconds(local, total, 1) + self._experts(total)
        kernels += 2 * work.scan_macs * local / speeds.flops["wide"] + work.token_bytes * local / speeds.bytes_per_s
        kernels += self._exchange.prefill(self._fabric, local, total) + self._features.seconds(local)
        kernels = max(kernels + work.layers * launch.layer_s, work.layers * launch.eager_s)
        pair = 2 * work.pair_macs / speeds.flops["wide"]
        return (kernels + launch.step_s) * launch.slower, pair * launch.slower

    def _experts(self, tokens: float) -> float:
        routed = self._work.routed
        return 0.0 if routed is None else routed.seconds(tokens, self._speeds)

    def _propose(self, local: int) -> float:
        draft = self._draft
        if draft is None:
            return 0.0
        launches = (draft.layers + draft.block) * self._launch.layer_s
        return (
            launches + self._proposing.seconds(local * draft.block) + self._features.seconds(local * (draft.block + 1))
        )

    def _per_token(self) -> float:
        """Attention over one stored token: bytes or operations, whichever takes longer, and the draft's own KV."""
        moved, speeds = self._moved, self._speeds
        queries = self._tokens * 2 * self._work.query_macs / speeds.flops["wide"]
        stored = max(moved.row / speeds.bytes_per_s, queries) / moved.share
        return stored + moved.draft_row / speeds.bytes_per_s
