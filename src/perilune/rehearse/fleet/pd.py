"""Prefill and decode pools behind a PD router, and what goes over the fabric between them.

The router sends a request to one server of each pool, each chosen by its own policy, and counts it on both until it
has ended (sgl-model-gateway `routers/http/pd_router.rs`). The decode server sets room apart, the prefill server
computes and sends, decode goes on. Each server's line carries one transfer at a time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Literal

from perilune.rehearse.events import STEP
from perilune.rehearse.fleet.decode import DecodeReplica
from perilune.rehearse.fleet.encoders import EncoderPool, EncoderSettings
from perilune.rehearse.fleet.flags import RouterSettings
from perilune.rehearse.fleet.front import Front
from perilune.rehearse.fleet.group import Group
from perilune.rehearse.fleet.link import Link
from perilune.rehearse.fleet.outages import Lost, Outage
from perilune.rehearse.fleet.policies import policy
from perilune.rehearse.fleet.prefill import PrefillReplica
from perilune.rehearse.fleet.room import DecodeSettings
from perilune.rehearse.fleet.server import Server
from perilune.rehearse.live import Live
from perilune.rehearse.replica.chronicle import Stretch
from perilune.rehearse.replica.replica import Replica
from perilune.rehearse.run import Run

AllocationPolicy = Literal["early", "prefill_complete"]


class Pair:
    """A request and its two servers, by their numbers in their pools."""

    __slots__ = ("computed", "decode", "encoded", "granted", "landed", "live", "prefill", "sent", "submitted")

    def __init__(self, live: Live, prefill: int, decode: int, *, encoded: bool) -> None:
        self.live = live
        self.prefill = prefill
        self.decode = decode
        self.encoded = encoded  # its images, if it has any
        self.granted = False  # decode has room for it
        self.submitted = False  # it is on its prefill server
        self.sent = 0  # prompt tokens that were given to the line
        self.computed = -1  # when its prompt was
        self.landed = False


class PdFleet(Front):
    """Prefill servers, decode servers, and the router's choice of a pair."""

    def __init__(
        self,
        prefill: Sequence[Server],
        decode: Sequence[tuple[Server, DecodeSettings]],
        *,
        router: RouterSettings | None = None,
        allocation: AllocationPolicy = "early",
        outages: Sequence[Outage] = (),
        lost: Lost = "resubmit",
        encoders: EncoderSettings | None = None,
    ) -> None:
        super().__init__([*prefill, *(server for server, _ in decode)], outages, lost)
        self._decode_settings = [settings for _, settings in decode]
        self._router = router or RouterSettings()
        self._early = allocation == "early"
        self._settings = encoders
        self._prefill: list[PrefillReplica] = []
        self._decode: list[DecodeReplica] = []
        self._sizes = (len(prefill), len(decode))
        self._groups: tuple[Group, Group]
        self._links: list[Link] = []
        self._encoders: EncoderPool | None = None
        self._pairs: dict[int, Pair] = {}

    def open(self, run: Run) -> Sequence[Replica]:
        """Make both pools, the router, the lines and the encoders."""
        router = self._router
        prefill, decode = (Random(f"{role} router {run.seed}") for role in ("prefill", "decode"))  # noqa: S311
        self._groups = (
            Group(policy(router.prefill, prefill, router.cache_aware), self._sizes[0]),
            Group(policy(router.decode, decode, router.cache_aware), self._sizes[1]),
        )
        self._links = [Link() for _ in self.servers]
        self._encoders = None if self._settings is None else self._settings.pool(run)
        self._prefill, self._decode, self._pairs = [], [], {}
        return super().open(run)

    def new_replica(self, index: int, run: Run) -> Replica:
        """A server of either pool."""
        server, name = self.servers[index], self.names[index]
        first_decode = self._sizes[0]
        if index < first_decode:
            prefill = PrefillReplica(
                server.engine,
                server.costs,
                name=name,
                index=index,
                run=run,
                ended=self._ended,
                computed=self._computed,
            )
            self._prefill.append(prefill)
            return prefill
        decode = DecodeReplica(
            server.engine,
            server.costs,
            self._decode_settings[index - first_decode],
            name=name,
            index=index,
            run=run,
            ended=self._ended,
            granted=self._granted,
        )
        self._decode.append(decode)
        return decode

    # A request on its way

    def route(self, live: Live, now: int) -> bool:
        """Choose a pair and let decode set room apart."""
        prefill, decode = self._groups
        if not (prefill.any_up and decode.any_up):
            return False
        images = live.request.images
        encoders = self._encoders if images else None
        pair = Pair(live, prefill.send(live.request, now), decode.send(live.request, now), encoded=encoders is None)
        self._pairs[live.index] = pair
        if encoders is not None:
            encoders.encode(images, now, lambda then: self._encoded(pair, now, then))
        if self._early:
            self._decode[pair.decode].submit(live, now)
        elif pair.encoded:
            self._start(pair, now)
        return True

    def _encoded(self, pair: Pair, since: int, now: int) -> None:
        if self._pairs.get(pair.live.index) is not pair:
            return  # it started over, or ended
        waits = self._run.tally.waits
        waits["encoder"] = waits.get("encoder", 0) + now - since
        pair.encoded = True
        if pair.granted or not self._early:
            self._start(pair, now)

    def _granted(self, live: Live, now: int) -> None:
        pair = self._pairs[live.index]
        if pair.granted:
            return  # it comes back from a retraction
        pair.granted = True
        if not self._early:
            self._send(pair, live.isl, now)
        elif pair.encoded:
            self._start(pair, now)

    def _start(self, pair: Pair, now: int) -> None:
        pair.submitted = True
        self._prefill[pair.prefill].submit(pair.live, now)

    def _computed(self, live: Live, end: int, whole: bool, now: int) -> None:
        pair = self._pairs[live.index]
        if whole:
            pair.computed = now
            if pair.granted:
                self._send(pair, end, now)
            else:
                self._decode[pair.decode].submit(live, now)
        elif pair.granted:
            self._carry(pair, end - pair.sent, now, state=False)
            pair.sent = end

    def _send(self, pair: Pair, end: int, now: int) -> None:
        """The last of a prompt, and its state."""
        lands = self._carry(pair, end - pair.sent, now, state=True)
        pair.sent = end
        self._run.events.at(lands, STEP, self._land, pair)

    def _carry(self, pair: Pair, tokens: int, now: int, *, state: bool) -> int:
        """Give KV to the lines of both ends; returns when it has come."""
        come = now
        for index in (pair.prefill, self._sizes[0] + pair.decode):
            transfer = self.servers[index].costs.transfer
            time = transfer(tokens) - (0 if state else transfer(0))
            come = max(come, self._links[index].carry(now, time))
        return come

    def _land(self, now: int, pair: Pair) -> None:
        live = pair.live
        if self._pairs.get(live.index) is not pair:
            return  # it started over, or ended
        waits = self._run.tally.waits
        waits["transfer"] = waits.get("transfer", 0) + now - pair.computed
        decode = self._decode[pair.decode]
        decode.chronicle.add(Stretch(pair.computed, now, "transfer", 1, live.isl))
        pair.landed = True
        self._prefill[pair.prefill].release(live, now)
        decode.land(live, now)

    def _ended(self, live: Live, now: int) -> None:
        """A request finished on its decode server, or either server refused it."""
        pair = self._forget(live)
        if live.where == self._sizes[0] + pair.decode:
            if pair.submitted and not pair.landed:
                self._prefill[pair.prefill].drop(live, now)
        else:
            self._decode[pair.decode].cancel(live, now)
        self._run.ended(live, now)

    def _forget(self, live: Live) -> Pair:
        pair = self._pairs.pop(live.index)
        prefill, decode = self._groups
        prefill.answered(pair.prefill)
        decode.answered(pair.decode)
        return pair

    # Failures

    def take_down(self, index: int, now: int) -> list[Live]:
        """What either server of a pair loses is lost, but for prompts that decode has already."""
        self.replicas[index].fail(now)
        self._links[index].cut(now)
        first_decode = self._sizes[0]
        prefills = index < first_decode
        self._groups[not prefills].down(index if prefills else index - first_decode)
        lost = []
        for pair in list(self._pairs.values()):
            live = pair.live
            if prefills:
                if pair.prefill != index or pair.landed:
                    continue
                self._decode[pair.decode].cancel(live, now)
            else:
                if pair.decode != index - first_decode:
                    continue
                if pair.submitted and not pair.landed:
                    self._prefill[pair.prefill].drop(live, now)
            self._forget(live)
            lost.append(live)
        return lost

    def put_back(self, index: int) -> None:
        """The router may send requests there again."""
        first_decode = self._sizes[0]
        prefills = index < first_decode
        self._groups[not prefills].back(index if prefills else index - first_decode)

    @property
    def carried(self) -> Mapping[str, int]:
        """Ticks that each server's line was busy."""
        return {name: link.busy for name, link in zip(self.names, self._links, strict=True)}
