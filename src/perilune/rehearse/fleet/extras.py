"""What comes to a prefill step beside its own forward pass: images to encode, prefixes to load from the host."""

from __future__ import annotations

from perilune.rehearse.costs import Costs
from perilune.rehearse.hicache import HostedCache
from perilune.rehearse.images import Images
from perilune.rehearse.replica.lane import Lane
from perilune.rehearse.tally import Tally

LOADED = "prompt tokens came from host memory (HiCache L2), and not from the device's cache"


class Extras:
    """Of one server. `costs` are given where it has a host tier; `tally` is told what was loaded from it.

    The forward pass waits for loads layer by layer, so it takes the longer of both; images are encoded in front of
    it. Attention-DP ranks do either side by side.
    """

    __slots__ = ("_costs", "_images", "_tally")

    def __init__(self, images: Images | None, costs: Costs | None, tally: Tally) -> None:
        self._images = images
        self._costs = costs
        self._tally = tally

    def __call__(self, group: list[Lane], time: int) -> int:
        """The ticks of a step of these lanes whose own forward pass takes `time`."""
        costs, images = self._costs, self._images
        encode = 0
        for number, lane in enumerate(group):
            cache, flight = lane.rank.cache, lane.flight
            if costs is not None and isinstance(cache, HostedCache):
                loads = cache.take_loads()
                if loads:
                    self._tally.remark(LOADED, sum(loads))
                    time = max(time, sum([costs.host_load(tokens, storage=False) for tokens in loads]))
            if images is not None and flight is not None and flight.images:
                encode = max(encode, images.forward(number, flight.images))
        return time + encode
