"""What happens to a request before it queues: it is refused or cut, and given to an attention-DP rank.

Source: SGLang 0.5.23 `managers/tokenizer_manager.py` (`_validate_one_request`), `managers/tp_worker.py`
(`get_worker_info`), `managers/utils.py` (`validate_input_length`), `managers/scheduler.py` (`init_req_max_new_tokens`),
`mem_cache/allocator/base.py` (`max_new_tokens_for_memory`), `managers/data_parallel_controller.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from perilune.rehearse.engine import Engine
from perilune.rehearse.live import Live
from perilune.rehearse.replica.rank import Rank
from perilune.rehearse.tally import Tally

INPUT_MARGIN: Final = 6
"""A prompt may be as long as the context or the pool, less this."""

CUT_SHORT: Final = "answers cut short: the KV pool or the context holds no more"


def refusal(engine: Engine, live: Live, tally: Tally) -> str | None:
    """Why a request can never be served, after cutting it as the engine does."""
    longest = min(engine.context, engine.tokens)
    if engine.truncates:
        live.isl = min(live.isl, longest - INPUT_MARGIN)
    elif live.isl + live.osl > engine.context:
        return "context_length"
    elif live.isl >= longest - INPUT_MARGIN:
        return "context_length" if engine.context <= engine.tokens else "kv_tokens"
    pages = -(-live.isl // engine.page) * engine.page
    osl = min(live.osl, longest - 2 - live.isl, engine.tokens - pages - engine.page - 1)
    if osl <= 0:
        return "kv_tokens"
    if osl < live.osl:
        tally.remark(CUT_SHORT)
        live.osl = osl
    return None


class Balance:
    """Chooses an attention-DP rank as `--load-balance-method` has it.

    The engine weighs ranks by what they last told of; here it is what they have, prompts counted in tokens.
    """

    __slots__ = ("_method", "_turn")

    def __init__(self, method: str) -> None:
        self._method = method
        self._turn = 0

    def pick(self, ranks: Sequence[Rank]) -> Rank:
        """The rank of the next request."""
        if len(ranks) == 1:
            return ranks[0]
        if self._method == "total_requests":
            return min(ranks, key=lambda rank: rank.rows + len(rank.queue))
        if self._method == "total_tokens":
            return min(ranks, key=lambda rank: (rank.prompts, rank.rows + len(rank.queue)))
        turn = self._turn
        self._turn = (turn + 1) % len(ranks)
        return ranks[turn]
