"""Fit the step times to the published measurements: writes the efficiencies and `docs/accuracy.md`.

    python scripts/fit_timing.py            # refit and write
    python scripts/fit_timing.py --check    # compare with what is written

Exits with 1 where errors are larger than promised, and with `--check` where what is written is stale.

The fit is deterministic. Nothing is fetched: the measurements are those that ship in `measurements.yaml`.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import asdict

from perilune.facts.hardware import platform
from perilune.facts.measurements import measurements
from perilune.facts.timing import Efficiency
from perilune.plan.memory import ledger
from perilune.plan.resolve import resolve
from perilune.plan.server import Server
from perilune.rehearse.calibration.closed_loop import simulate
from perilune.rehearse.calibration.fit import (
    QUANTITIES,
    Residual,
    fit,
    leave_one_out,
    median_errors,
    residuals,
    rounded,
    worst_error,
)
from perilune.rehearse.calibration.published import published_targets
from perilune.rehearse.ticks import SECOND, TOKEN
from perilune.rehearse.timing.basis import Efficient
from perilune.rehearse.timing.server import costs_of

ROOT = Path(__file__).parent.parent
DATA = ROOT / "src/perilune/facts/data/timing/efficiencies.yaml"
DOC = ROOT / "docs/accuracy.md"
DATE = "2026-11-30"

MEDIAN, WORST, LEFT_OUT = 0.10, 0.30, 0.20
"""Promised: the largest median and the largest error of any figure in-sample, and the largest median left out."""

START = Efficiency(memory=0.8, compute=0.4, compute_narrow=0.3, layer_us=30.0, quantize_us=15.0)
PULL = 0.1
FREE = {
    "b300": ("memory", "compute", "compute_narrow", "layer_us", "quantize_us"),
    "mi350x": ("memory", "compute", "compute_narrow", "layer_us"),
}
"""What each platform's points can tell apart. MI350X starts from B300's fit; its points are all of one checkpoint."""

BORROWED = {
    "gb300": ("b300", 1.25, "the same die on another board"),
    "b200": ("b300", 1.25, "the same generation"),
    "gb200": ("b300", 1.35, "the same generation; checked against GB200 figures from running text, not fitted to them"),
    "h200": ("b300", 1.6, "the nearest CUDA platform that was measured, a generation apart"),
    "h100": ("b300", 1.6, "the nearest CUDA platform that was measured, a generation apart"),
    "mi355x": ("mi350x", 1.1, "the same die at a higher power limit"),
    "a3": ("mi350x", 2.0, "the nearest platform without NVLink that was measured; another vendor's kernels"),
    "950": ("mi350x", 2.0, "the nearest platform without NVLink that was measured; another vendor's kernels"),
}
"""Whose fit a platform without measurements reads, by how much its band is wider, and why."""


@dataclass(frozen=True, slots=True)
class Fitted:
    """One platform's fit with what it leaves over."""

    platform: str
    efficiency: Efficiency
    inside: tuple[Residual, ...]
    outside: tuple[Residual, ...]
    engine: str

    @property
    def band(self) -> tuple[float, float]:
        """Seen over predicted, left out, outwards to a twentieth; never tighter than 0.9 to 1.1."""
        ratios = [1 / (1 + e) for r in self.outside for e in r.errors[:2] if e is not None]
        return min(0.9, math.floor(min(ratios) * 20) / 20), max(1.1, math.ceil(max(ratios) * 20) / 20)


def fitted() -> list[Fitted]:
    """Every measured platform; each starts from the fit before it."""
    found: list[Fitted] = []
    start = START
    for name, free in FREE.items():
        targets = [target for target in published_targets() if target.platform == name]
        start = rounded(fit(targets, start, free, PULL, simulate))
        outside = leave_one_out(targets, found[-1].efficiency if found else START, free, PULL, simulate)
        engines = {card.engine.split()[0] for card in measurements().cards if card.cell.startswith(f"{name}/")}
        inside = residuals(targets, start, simulate)
        found.append(Fitted(name, start, inside, outside, " and ".join(sorted(engines))))
    return found


def as_yaml(found: Sequence[Fitted]) -> str:
    """The data file."""
    lines = ["# Written by scripts/fit_timing.py. Shares of a peak, and microseconds.", f'date: "{DATE}"', "fits:"]
    for one in found:
        values = ", ".join(f"{name}: {value:g}" for name, value in asdict(one.efficiency).items())
        lines += [
            f"  {one.platform}:",
            f"    efficiency: {{{values}}}",
            f"    points: {len(one.inside)}",
            "    source: published speed rounds of the Kimi-K3 page, in measurements.yaml",
            f'    engine: "{one.engine}"',
        ]
    lines.append("platforms:")
    for name, (of, (below, above), why) in bands(found).items():
        lines.append(f'  "{name}": {{of: {of}, below: {below:g}, above: {above:g}, why: "{why}"}}')
    return "\n".join(lines) + "\n"


def bands(found: Sequence[Fitted]) -> dict[str, tuple[str, tuple[float, float], str]]:
    """Whose fit every platform reads, its band and why."""
    own = {one.platform: one.band for one in found}
    table = {one.platform: (one.platform, one.band, "its own measurements") for one in found}
    for name, (of, wider, why) in BORROWED.items():
        below, above = own[of]
        table[name] = (of, (round(below / wider, 2), round(above * wider, 2)), why)
    return table


MEANING = {
    "memory": "share of the HBM bandwidth at which weights, KV and state are read",
    "compute": "share of the dense BF16 peak of products with 16-bit activations",
    "compute_narrow": "share of the dense FP8 peak of products with 8-bit activations and fewer",
    "layer_us": "microseconds a layer takes beside bytes, operations and collectives, inside a CUDA graph",
    "quantize_us": "microseconds a layer more where projections quantize their activations (NVFP4 checkpoint)",
}


def document(found: Sequence[Fitted]) -> str:
    """The page, whole."""
    inside = [residual for one in found for residual in one.inside]
    outside = [residual for one in found for residual in one.outside]
    parts = [
        HEAD,
        *summary(inside, outside),
        "\n## The fit\n",
        FIT.format(date=DATE, pull=PULL),
        *parameters(found),
        "\n## In-sample\n\nPredicted / published, and the error.\n",
        *table(inside),
        "\n## Leave-one-out\n\nEach point predicted by a fit to the others of its platform.\n",
        *table(outside),
        NOTES,
        *as_it_is_today(found),
        PLATFORMS,
        *platforms_table(found),
        CHECKED,
        *gb200_table(found),
        TAIL,
    ]
    return "\n".join(parts) + "\n"


def summary(inside: Sequence[Residual], outside: Sequence[Residual]) -> Iterator[str]:
    """Medians and the worst, in-sample and left out."""
    yield f"| | {' | '.join(QUANTITIES)} | worst of all |"
    yield "|---|---:|---:|---:|---:|"
    for name, rows in (("in-sample, median absolute error", inside), ("leave-one-out, median absolute error", outside)):
        shown = " | ".join(f"{100 * (value or 0):.1f} %" for value in median_errors(rows))
        yield f"| {name} | {shown} | {100 * worst_error(rows):.1f} % |"


def broken(found: Sequence[Fitted]) -> Iterator[str]:
    """Promises that the errors do not keep."""
    inside = [residual for one in found for residual in one.inside]
    outside = [residual for one in found for residual in one.outside]
    for name, rows, most in (("in-sample", inside, MEDIAN), ("left out", outside, LEFT_OUT)):
        for quantity, error in zip(QUANTITIES, median_errors(rows), strict=True):
            if error is None or error > most:
                yield f"{quantity}, {name}: a median error of {error}, not at most {most}"
    if worst_error(inside) > WORST:
        yield f"in-sample: an error of {worst_error(inside)}, not at most {WORST}"


def as_it_is_today(found: Sequence[Fitted]) -> Iterator[str]:
    """The runs whose recipe of today admits fewer requests than ran at once."""
    efficiency = {one.platform: one.efficiency for one in found}
    today: list[Residual] = []
    for target in published_targets(room=False):
        admitted = target.plan.pools[0].ledger.admitted
        if admitted is not None and admitted < (target.concurrency or 0) and target.platform != "b300":
            today += residuals([target], efficiency[target.platform], simulate)
    yield from table(today)


def parameters(found: Sequence[Fitted]) -> Iterator[str]:
    """One row a parameter, one column a platform."""
    yield f"| parameter | {' | '.join(one.platform for one in found)} | meaning |"
    yield f"|---|{'---:|' * len(found)}---|"
    for name, meaning in MEANING.items():
        values = " | ".join(f"{getattr(one.efficiency, name):g}" for one in found)
        yield f"| {name} | {values} | {meaning} |"


def table(rows: Sequence[Residual]) -> Iterator[str]:
    """One row a published point."""
    yield "| run | at once | TTFT s | | TPOT ms | | tokens/s/GPU | |"
    yield "|---|---:|---:|---:|---:|---:|---:|---:|"
    for row in rows:
        cells = []
        for value, seen, error, scale, digits in zip(
            row.predicted.known, row.target.seen.known, row.errors, (1, 1000, 1), (2, 2, 0), strict=True
        ):
            if value is None or seen is None or error is None:
                continue
            cells.append(f"{value * scale:,.{digits}f} / {seen * scale:,.{digits}f} | {100 * error:+.1f} %")
        yield f"| {row.target.name} | {row.target.concurrency} | {' | '.join(cells)} |"


def platforms_table(found: Sequence[Fitted]) -> Iterator[str]:
    """Whose fit each platform reads."""
    yield "| platform | efficiencies of | basis | error band | why |"
    yield "|---|---|---|---|---|"
    for name, (of, (below, above), why) in bands(found).items():
        basis = "fitted" if of == name else "borrowed"
        yield f"| {platform(name).label} | {of} | {basis} | {below:g} to {above:g} | {why} |"


PREFILL_FLAGS = {
    "PP16 x TP1": "--tp-size 1 --pp-size 16",
    "PP8 x TP2": "--tp-size 2 --pp-size 8",
    "TP16 + EP16": "--tp-size 16 --ep-size 16",
    "TP16": "--tp-size 16",
    "PP2 x TP8": "--tp-size 8 --pp-size 2",
}
DECODE_FLAGS = {
    "PP2 x TP8": "--tp-size 8 --pp-size 2",
    "TP16": "--tp-size 16",
    "DCP16": "--tp-size 16 --dcp-size 16",
    "DCP16 + EP16": "--tp-size 16 --dcp-size 16 --ep-size 16",
    "DCP8 x DP2 + EP16": "--tp-size 16 --dcp-size 8 --attn-dp-size 2 --ep-size 16",
}
GPUS, ISL, OSL, CHUNK = 16, 8192, 1024, 16384
COMMON = (
    "sglang serve --model-path moonshotai/Kimi-K3 --trust-remote-code --mem-fraction-static 0.85 --nnodes 4 "
    "--node-rank 0 --dist-init-addr head:20000 --chunked-prefill-size 16384 --max-prefill-tokens 16384 "
)


def gb200_table(found: Sequence[Fitted]) -> Iterator[str]:
    """Predictions with borrowed efficiencies beside the figures from running text."""
    efficiency = next(one.efficiency for one in found if one.platform == BORROWED["gb200"][0])
    yield "| GB200, 16 GPUs | predicted | stated | predicted / stated |"
    yield "|---|---:|---:|---:|"
    for what, predicted, stated, unit in (*prefill_rows(efficiency), *decode_rows(efficiency)):
        yield f"| {what} | {predicted:,.0f} {unit} | {stated:,.0f} | {predicted / stated:.2f} |"


def rows_of(figure: str) -> tuple[dict[str, str | float], ...]:
    """The rows of a figure from running text."""
    return next(entry.rows for entry in measurements().figures if entry.id == figure)


def server(flags: str, efficiency: Efficiency) -> Callable[[int, int], tuple[float, float, float]]:
    """Of a GB200 server: (decode base, seconds per KV token, chunk) for requests of a rank and of all."""
    parsed = resolve(Server.parse(COMMON + flags), platform("gb200"))
    costs = costs_of(ledger(parsed), Efficient(efficiency, "borrowed", (1.0, 1.0), ""))

    def times(local: int, total: int) -> tuple[float, float, float]:
        base, per = costs.decode(local, total)
        chunk = costs.chunk(CHUNK, CHUNK, ISL * ISL)
        return base / SECOND, per * TOKEN / SECOND, chunk / SECOND

    return times


def prefill_rows(efficiency: Efficiency) -> Iterator[tuple[str, float, float, str]]:
    """Prefill tokens per second and GPU at concurrency 32: one 16k chunk a step."""
    stated = {str(row["shape"]): row.get("concurrency_32") for row in rows_of("gb200-prefill-shape")}
    stated["PP2 x TP8"] = rows_of("gb200-prefill-pp2")[0]["tokens_per_s_per_gpu"]
    for shape, flags in PREFILL_FLAGS.items():
        _, _, chunk = server(flags, efficiency)(1, 1)
        yield f"prefill, {shape}", CHUNK / chunk / GPUS, float(stated[shape] or 0), "tokens/s/GPU"


def decode_rows(efficiency: Efficiency) -> Iterator[tuple[str, float, float, str]]:
    """Milliseconds a token. How many ran follows from the stated tokens per second: of all GPUs over one user's."""
    low = rows_of("gb200-decode-low-latency-shape")
    high = rows_of("gb200-decode-high-throughput-shape")
    stated = [(8, str(r["shape"]), r["tokens_per_s_per_gpu"], r["tokens_per_s_per_user"]) for r in low]
    stated += [(n, str(r["shape"]), r[f"per_gpu_{n}"], r[f"per_user_{n}"]) for n in (256, 512) for r in high]
    for asked, shape, per_gpu, per_user in stated:
        running = float(per_gpu) * GPUS / float(per_user)
        stages, ranks = (2 if "PP2" in shape else 1), (2 if "DP2" in shape else 1)
        local, total = math.ceil(running / stages / ranks), math.ceil(running / stages)
        base, per, _ = server(DECODE_FLAGS[shape], efficiency)(local, total)
        step = stages * (base + per * (ISL + OSL / 2) * running / stages / ranks)
        yield f"decode, {shape}, {asked} asked, {running:.0f} running", 1000 * step, 1000 / float(per_user), "ms"


HEAD = """# How accurate a rehearsal is

Step times are counted, not looked up: bytes and operations per layer kind from the model's geometry, at a few fitted
efficiencies per platform. The published Kimi-K3 speed rounds (12 points, three figures each) are the only measurements
that they are fitted to; each was replayed as it was measured: closed loop, 16, 80 or 320 prompts at concurrency 1, 16
or 64, 8,192 tokens in and 1,024 out, the acceptance length of DSPARK pinned.
"""

FIT = """Fitted on {date} by `scripts/fit_timing.py`, which anyone can run again; it is deterministic. Five parameters
for B300 against 24 figures, four for MI350X against 12; `quantize_us` of MI350X is B300's, as nothing there tells it.
Parameters move on a logarithmic scale between physical bounds. A weak pull towards the starting value (a unit of
logarithm counts like {pull:g} of relative error) settles what the points cannot; errors beyond 2 % count linearly, so
that no point rules the fit. B300 starts from typical values, MI350X from B300's fit.
"""

NOTES = """
- Two delays of the first token are assumed, not fitted: 3 ms a request and 1.5 us a prompt token before the scheduler
  sees it, and, where one prefill is launched behind another, 0.63 of the second (the overlap scheduler looks at
  results after the launch, which waits on a queue of 1,024 kernels). Without them TTFT at concurrency 16 would be 14
  to 18 % low on two runs. What is left has the same sign on all runs at 64: the published TTFT is a little lower.
- The DSPARK runs pinned acceptance, which writes the same token over and over. Such tokens choose fewer distinct
  experts than real text, so verify steps of real traffic may be slower than these points suggest.
- MI350X was measured with the configuration of its time. All 64 requests ran at once there (TTFT + 1,023 x TPOT is
  90.7 s, and 320 requests at 813 tokens/s/GPU take five times that); today's recipe admits fewer. Its points are
  replayed with `--set --mem-fraction-static=0.92`, which makes room for 64 in today's recipe. Without it about half of
  the requests wait for a whole wave to end before they get state slots, as the ledger says they would, and the median
  TTFT falls on one side or the other: 24 s at 42 admitted, and what the table below shows at 41.
- The engine versions of the measurements are 0.5.18 (B300) and 0.5.19 (MI350X); plans are for 0.5.23.
"""

PLATFORMS = """
## Platforms

A band holds factors from a predicted time to the least and most that are likely. That of a measured platform is the
spread of its leave-one-out latencies; that of a platform without measurements is wider by a factor that is a judgement.
"""

CHECKED = """
## Checked, not fitted

GB200 shapes were published in running text, with settings that are only partly known. Predicted with the efficiencies
of B300, of a platform and of shapes that no fitted point has. One figure of these rows was used: the hop of 2.7 us in
a ring across trays comes from the two first decode rows.
"""

TAIL = """
## What is counted

- **Weights**: every matrix of the geometry takes as long as its bytes take to read or its operations to run, whichever
  is longer. Layers that the engine keeps whole on every GPU (latent projections, router) are read whole.
- **Routed experts**: the distinct experts that n tokens choose, E (1 - (1 - k/E)^n); under EP those of the fullest GPU.
  In prefill, also the rows that are gathered, written and summed per chosen expert.
- **KDA state**: read and written once per request and layer; a DSPARK verify with ReplaySSM also writes its ring.
- **MLA KV**: one latent row per token and layer, over DCP; operations where a verify step makes them longer.
- **DSPARK**: a verify of block + 1 tokens per request, the draft's layers, head and features.
- **Collectives**: an all-reduce after attention and one after the experts in every layer, DCP's exchange in every MLA
  layer, gathers under attention DP, dispatch and combine under EP all-to-all, the hand-over between PP stages with the
  attention-residual bank. Inside a node the engine's own all-reduce; across nodes of one NVLink domain a ring, or
  symmetric memory; RDMA beyond.
- **Launches**: per layer inside CUDA graphs; without graphs, or beyond their largest batch, the launches themselves;
  batch preparation where the overlap scheduler is off.
- **ROCm**: as published, fused KDA decode (9.20 to 8.38 us a KDA layer) and A4W4 against A8W4 (530.8 to 537.3 tok/s).
- **Fabric**: KV and state of a PD transfer over the NICs, HiCache loads over the host link. These bandwidths are
  datasheet or assumed values (`timing/machines.yaml` and `timing/latencies.yaml` say which); no published point tells.

Not counted: the column-parallel tail of the latent up-projection that the engine uses up to 12 tokens, skew of real
routing, padding to captured batch sizes, and what other processes do on the machine. `perilune calibrate` refits the
efficiencies to results of your own (see [calibrate](calibrate.md)).
"""


def main() -> int:
    """Write both files, or compare; 1 where they differ or a promise is not kept."""
    found = fitted()
    wanted = {DATA: as_yaml(found), DOC: document(found)}
    wrong = list(broken(found))
    for path, text in wanted.items():
        if "--check" not in sys.argv[1:]:
            path.write_text(text)
            print(f"wrote {path.relative_to(ROOT)}")
        elif not path.exists() or path.read_text() != text:
            wrong.append(f"stale: {path.relative_to(ROOT)}")
    for line in wrong:
        print(line)
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
