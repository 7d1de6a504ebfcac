"""The load that is offered to a fleet: a trace, a closed loop, arrivals at a rate or sessions, in a few numbers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from perilune.errors import UnusableInput
from perilune.rehearse.request import Traffic
from perilune.rehearse.traces import (
    FORMATS,
    Conversation,
    Lengths,
    bursty,
    closed_loop,
    num_prompts,
    sessions,
    sniff,
)
from perilune.rehearse.traces import traffic as read_trace

PROMPTS_AT_A_RATE: Final = 1000
"""Requests of an open loop when nobody says how many, as `sglang.bench_serving --num-prompts` has it."""

MOST_REPEATED: Final = 64_000_000
"""Tokens of all contexts of a session, which is held with the ids of its blocks: about 32 MB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """How a trace is read where that is not as it is written."""

    sort: bool = False  # by arrival
    speed: float = 1.0  # of its clock
    spread: bool = True  # requests of a stepped Mooncake clock over their step
    share_prefix: bool = False  # sessions have their tool and system prompts in common

    @property
    def flags(self) -> list[str]:
        """The flags that ask for this."""
        asked = {
            "--sort-trace": self.sort,
            "--trace-speed": self.speed != 1,
            "--no-spread": not self.spread,
            "--share-prefix": self.share_prefix,
        }
        return [flag for flag, given in asked.items() if given]


@dataclass(frozen=True, slots=True, kw_only=True)
class Talk:
    """Sessions of several turns: every turn adds ISL tokens to the context, and its OSL after it."""

    turns: int
    system_tokens: int = 0  # at the start of every session, shared
    system_prompts: int = 1  # different ones
    think_s: float = 10.0  # mean time between an answer and the next turn


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferedLoad:
    """What a rehearsal is asked to serve. A trace brings its own lengths, and its own arrivals unless one is given.

    Raises UnusableInput for a description that does not hold together.
    """

    trace: Path | None = None
    trace_format: str | None = None
    replay: Replay | None = None
    concurrency: int | None = None  # requests, or sessions, kept in flight
    rate: float | None = None  # requests, or sessions, per second
    arrival_cv: float | None = None  # coefficient of variation of the gaps between arrivals; None: 1, Poisson
    requests: int | None = None
    isl: int | None = None
    osl: int | None = None
    range_ratio: float = 1.0  # lengths are drawn from this share of the most to the most
    images: int = 0  # of every request
    image_size: tuple[int, int] = (1024, 1024)  # pixels: width, height
    talk: Talk | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.concurrency is not None and self.rate is not None:
            raise UnusableInput(
                "A closed loop has no rate of arrivals.", where="--rate", fix="Give --concurrency or --rate, not both."
            )
        if self.arrival_cv is not None and (self.rate is None or self.trace is not None or self.talk is not None):
            raise UnusableInput(
                "Only single requests that are described and come at a rate can come in bursts.",
                where="--arrival-cv",
                fix="Give --rate, --isl and --osl with it, and neither --trace nor --turns.",
            )
        if self.trace is not None:
            self._check_trace()
        else:
            self._check_described()

    def _check_trace(self) -> None:
        described = {
            "--isl, --osl": self.isl is not None or self.osl is not None,
            "--random-range-ratio": self.range_ratio != 1,
            "--images": self.images > 0,
            "--turns": self.talk is not None,
        }
        for flags, given in described.items():
            if given:
                raise UnusableInput(
                    "A trace brings its own requests.", where=flags, fix="Leave it out, or leave --trace out."
                )
        replay = self.replay or Replay()
        if self.rate is not None:
            for flag in replay.flags:
                if flag != "--share-prefix":
                    raise UnusableInput(
                        "--rate replaces the arrivals of the trace.", where=flag, fix=f"Leave {flag} or --rate out."
                    )
        elif self.concurrency is not None and not replay.spread:
            raise UnusableInput(
                "--concurrency replaces the arrivals of the trace.", where="--no-spread", fix="Leave one of them out."
            )

    def _check_described(self) -> None:
        if self.trace_format is not None or self.replay is not None:
            flag = "--trace-format" if self.replay is None else self.replay.flags[0]
            raise UnusableInput("There is no trace.", where=flag, fix="Give --trace PATH, or leave it out.")
        if self.concurrency is None and self.rate is None:
            raise UnusableInput(
                "No traffic was described.", where="rehearse", fix="Give --trace FILE, --concurrency N or --rate R."
            )
        if self.isl is None or self.osl is None:
            raise UnusableInput("How long are the requests?", where="--isl, --osl", fix="Give both, in tokens.")
        if self.talk is not None:
            self._check_talk(self.talk, self.isl + self.osl)

    def _check_talk(self, talk: Talk, turn_tokens: int) -> None:
        if self.images or self.range_ratio != 1:
            raise UnusableInput(
                "The turns of a session are text of equal lengths.",
                where="--turns",
                fix="Leave --images and --random-range-ratio out.",
            )
        repeated = talk.turns * (talk.system_tokens + turn_tokens * (talk.turns + 1) // 2)
        if repeated > MOST_REPEATED:
            raise UnusableInput(
                f"The prompts of a session's turns have {repeated:,} tokens together; {MOST_REPEATED:,} are the most.",
                where="--turns",
                fix="Give fewer turns, or shorter ones.",
            )

    @property
    def kind(self) -> Literal["closed loop", "open loop", "trace"]:
        """What drives the arrivals, in a word."""
        if self.trace is not None:
            return "trace"
        return "open loop" if self.concurrency is None else "closed loop"

    @property
    def may_have_images(self) -> bool:
        """Whether a request may have one: they are described, or a trace may bring them."""
        return self.images > 0 or self.trace is not None

    @property
    def total(self) -> int | None:
        """Requests in all; None for a whole trace. Sessions are served whole, so their turns round it up."""
        if self.trace is not None:
            return self.requests
        turns = 1 if self.talk is None else self.talk.turns
        if self.requests is not None:
            return -(-self.requests // turns) * turns
        return (PROMPTS_AT_A_RATE if self.concurrency is None else num_prompts(self.concurrency)) * turns

    @property
    def planned_isl(self) -> int | None:
        """The prompt that a plan is made for: with its images; of sessions the mean over their turns."""
        if self.isl is None or self.osl is None:
            return self.isl
        if self.talk is None:
            return self.isl + sum(self._lengths().image_tokens)
        turns = self.talk.turns
        return self.talk.system_tokens + (self.isl * (turns + 1) + self.osl * (turns - 1)) // 2

    def traffic(self) -> Traffic:
        """The requests, made as they are asked for. Raises UnusableInput for a trace that cannot be read."""
        if self.trace is not None:
            return self._replayed(self.trace)
        total = self.total or 0
        if self.talk is not None:
            return sessions(
                self._conversation(self.talk),
                total // self.talk.turns,
                rate=self.rate,
                concurrency=self.concurrency,
                seed=self.seed,
            )
        if self.concurrency is not None:
            return closed_loop(self._lengths(), self.concurrency, total, self.seed)
        cv = 1.0 if self.arrival_cv is None else self.arrival_cv
        return bursty(self._lengths(), self.rate or 0.0, cv, total, self.seed)

    def _replayed(self, trace: Path) -> Traffic:
        replay = self.replay or Replay()
        if self.replay is not None:
            self._check_replay(trace, replay)
        return read_trace(
            trace,
            format=self.trace_format,
            limit=self.requests,
            speedup=replay.speed,
            seed=self.seed,
            rate=self.rate,
            concurrency=self.concurrency,
            spread=replay.spread,
            sort=replay.sort,
            share_prefix=replay.share_prefix,
        )

    def _check_replay(self, trace: Path, replay: Replay) -> None:
        """Refuse what would do nothing to a trace of this format."""
        form = FORMATS.get(self.trace_format) if self.trace_format is not None else sniff(trace)
        if form is None:
            return  # the reader says that there is no such format
        if replay.share_prefix and form.name not in ("weka", "tracelab"):
            raise UnusableInput(
                f"Only WEKA and TraceLab sessions have tool and system prompts to share, and this is {form.name}.",
                where="--share-prefix",
                fix="Leave it out.",
            )
        if replay.sort and form.clock != "requests":
            raise UnusableInput(
                f"The format {form.name} has no common clock to sort by.", where="--sort-trace", fix="Leave it out."
            )
        if not replay.spread and form.name != "mooncake":
            raise UnusableInput(
                f"Only the steps of a Mooncake trace are spread, and this is {form.name}.",
                where="--no-spread",
                fix="Leave it out.",
            )
        if replay.speed != 1 and not form.sessions and (form.clock == "none" or self.concurrency is not None):
            raise UnusableInput(
                f"In a closed loop, the format {form.name} has no clock and no think times to run faster."
                if self.concurrency is not None
                else f"The format {form.name} has no clock to run faster.",
                where="--trace-speed",
                fix="Leave it out.",
            )

    def _lengths(self) -> Lengths:
        return Lengths(
            isl=self.isl or 0,
            osl=self.osl or 0,
            range_ratio=self.range_ratio,
            images=self.images,
            image_size=self.image_size,
        )

    def _conversation(self, talk: Talk) -> Conversation:
        return Conversation(
            turns=talk.turns,
            system_tokens=talk.system_tokens,
            turn_tokens=self.isl or 0,
            osl=self.osl or 0,
            think_s=talk.think_s,
            systems=talk.system_prompts,
        )
