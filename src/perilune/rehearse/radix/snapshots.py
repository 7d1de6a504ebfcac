"""Where along a request its recurrent state is kept, and what slots that takes.

Prefill keeps at most one state a chunk. Without extra buffers it is the state at the chunk's end, copied; with them
the kernel writes the state at the last whole grid step of the chunk, or at the branching point (where earlier
requests went on with KV but no state was left) if that lies within the chunk. In decode a tracking buffer gets the
state whenever the length is a multiple of the interval; without buffers a request has its final state to give.
Source: sglang/srt/managers/schedule_batch.py (`_mamba_radix_cache_v2_req_prepare_for_extend`,
`mamba_lazy_prealloc_at_boundary`), managers/scheduler_components/batch_result_processor.py
(`_mamba_prefix_cache_update`), runtime_context.py (the grids), mem_cache/allocation_sizing.py (the buffers).
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Snapshots:
    """Tokens throughout. `grid` is what a prefill state must lie on, `interval` what a decode state must lie on."""

    buffers: int  # tracking buffers a request holds; 0 keeps end-of-chunk states only
    lazy: bool  # the second buffer exists only while an interval boundary is crossed
    chunk: int  # the state kernel's, or the page where that is longer: prefill has states only at whole chunks
    grid: int  # of the radix tree's page and the chunk
    interval: int
    absolute: bool  # the grid counts from the prompt's start (under DCP), not from the chunk's

    @classmethod
    def of(
        cls, strategy: str, *, page_size: int, dcp: int, kernel_chunk: int, track_interval: int, overlap: bool
    ) -> Snapshots:
        """The rules of a `--mamba-radix-cache-strategy`; `overlap` says whether the overlap scheduler runs."""
        chunk = max(kernel_chunk, page_size)
        grid = math.lcm(chunk, page_size * dcp)
        lazy = strategy == "extra_buffer_lazy"
        return cls(
            buffers=0 if strategy == "no_buffer" else 1 if lazy or not overlap else 2,
            lazy=lazy,
            chunk=chunk,
            grid=grid,
            interval=math.lcm(grid, track_interval),
            absolute=dcp > 1,
        )

    def of_chunk(self, start: int, end: int, branch: int) -> int:
        """The length whose state the chunk [start, end) of prefill leaves; 0 when it leaves none."""
        if not self.buffers:
            return end
        grid, chunk = self.grid, self.chunk
        if self.absolute:
            kept = end // grid * grid
            if kept <= start or (kept - start) % chunk:
                return 0
        else:
            if end - start < grid:
                return 0
            kept = start + (end - start) // grid * grid
        if start < branch < kept and not (branch - start) % chunk:
            return branch
        return kept

    def of_decode(self, prompt: int, length: int) -> int:
        """The length whose state a request of `length` tokens of KV has when it ends; 0 when it has none."""
        if not self.buffers:
            return length
        kept = length // self.interval * self.interval
        return kept if kept > prompt else 0
