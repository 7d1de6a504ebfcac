// The charts of one rehearsal.
"use strict";
(() => {
  const { axis, chart, element, ink, number } = page;
  const { cdf, series, places, replicas, duration } = pageData;

  const dashes = [[], [6, 4], [2, 3], [8, 3, 2, 3]];
  const line = (label, color, dash, extra) => ({
    label, stroke: ink(color), width: 1.6, dash, points: { show: false },
    value: (_, value) => number(value), ...extra,
  });
  // What a legend says of a series: its value under the cursor, else what tells most of the whole of it.
  const POINT = "point at the chart";
  const pointed = (told, whole) => (_, value, series_, at) =>
    at === null || at === undefined ? whole : value === null || value === undefined ? "–" : told(value);
  const count = (value, noun) => `${number(value)} ${noun}${value === 1 ? "" : "s"}`;
  const short = (value) => value.toLocaleString("en-US", { maximumSignificantDigits: 3 });
  // Instants: in seconds where ten minutes are in view, else in minutes, from six hours in hours.
  const units = (range) => (range < 600 ? [1, "s"] : range < 21600 ? [60, "min"] : [3600, "h"]);
  const spent = (seconds, range = duration) => {
    const [size, unit] = units(range);
    return `${short(seconds / size)} ${unit}`;
  };
  const increments = [];
  for (let power = -6; power < 1; power++) increments.push(10 ** power, 2 * 10 ** power, 5 * 10 ** power);
  increments.push(10, 15, 20, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400, 172800, 604800);
  const time = (extra) => axis({
    incrs: increments,
    values: (u, splits) => splits.map((value) => spent(value, u.scales.x.max - u.scales.x.min)),
    space: 70,
    ...extra,
  });

  // Round values of a logarithmic axis: 1, 2 and 5 of each power of ten, of a wide range the powers alone.
  const rounds = (_, axis, min, max) => {
    const [first, last] = [Math.floor(Math.log10(min)), Math.ceil(Math.log10(max))];
    const steps = Math.log10(max / min) > 2.3 ? [1] : [1, 2, 5];
    const found = [];
    for (let power = first; power <= last; power++) {
      for (const step of steps) {
        const value = step * 10 ** power;
        if (value >= min && value <= max) found.push(value);
      }
    }
    return found;
  };

  // Latency: share of requests at or below a value.
  const curves = (id, names, unit, factor) => {
    const tables = names.filter(([key]) => cdf[key][0].length).map(([key, label, color]) => ({
      label, color, x: cdf[key][0].map((value) => value * factor), y: cdf[key][1].map((value) => value * 100),
    }));
    if (!tables.length) return;
    const values = tables.flatMap((table) => table.x).filter((value) => value > 0);
    const low = values.reduce((a, b) => Math.min(a, b));
    const high = values.reduce((a, b) => Math.max(a, b));
    const logarithmic = high / low > 20;
    chart(id, {
      data: uPlot.join(tables.map(({ x, y }) => {
        const from = logarithmic ? x.findIndex((value) => value > 0) : 0;
        return [x.slice(from), y.slice(from)];
      })),
      options: () => ({
        scales: { x: { time: false, distr: logarithmic ? 3 : 1, range: (_, min, max) => [min, max] }, y: { range: [0, 100] } },
        axes: [
          axis({
            ...(logarithmic && { splits: rounds, filter: (_, splits) => splits }),
            values: (_, splits) => splits.map((value) => (value === null ? "" : `${short(value)} ${unit}`)), space: 60,
          }),
          axis({ values: (_, splits) => splits.map((value) => `${value} %`), size: 52 }),
        ],
        series: [
          { label: "at or below", value: pointed((value) => `${number(value)} ${unit}`, POINT) },
          ...tables.map(({ label, color, x, y }, index) => line(label, color, dashes[index], {
            spanGaps: true,
            value: pointed((value) => `${number(value)} %`, `median ${number(x[y.findIndex((part) => part >= 50)])} ${unit}`),
          })),
        ],
      }),
      table: {
        heads: ["measure", "share %", unit],
        rows: tables.flatMap(({ label, x, y }) => x.map((value, at) => [label, y[at], value])),
        most: 120,
      },
    });
  };
  curves("cdf-request", [["ttft", "TTFT", "--c1"], ["e2e", "E2E", "--c2"]], "s", 1);
  curves("cdf-token", [["tpot", "TPOT", "--c1"], ["itl", "ITL", "--c2"]], "ms", 1000);

  // The fleet over time.
  const over = (id, columns, { unit = "", fill, top } = {}) => {
    const present = columns.filter(([key]) => series[key].length);
    if (!series.t.length || !present.length) return;
    chart(id, {
      group: "time",
      data: [series.t, ...present.map(([key]) => series[key])],
      options: () => ({
        scales: {
          x: { time: false, range: (_, min, max) => (min === series.t[0] && max === series.t.at(-1) ? [0, duration] : [min, max]) },
          y: { range: (_, min, max) => [0, top ?? Math.max(max * 1.05, 1)] },
        },
        axes: [time(), axis({ values: (_, splits) => splits.map((value) => number(value) + unit), size: 66 })],
        series: [
          { label: "time", value: pointed(spent, POINT) },
          ...present.map(([key, label, color], index) => line(label, color, dashes[index], {
            fill: fill && index === 0 ? ink(color) + "22" : undefined,
            value: pointed(
              (value) => number(value) + unit, `up to ${number(series[key].reduce((a, b) => Math.max(a, b)))}${unit}`,
            ),
          })),
        ],
      }),
      table: {
        heads: ["time s", ...present.map(([, label]) => label + unit)],
        rows: series.t.map((at, index) => [at, ...present.map(([key]) => series[key][index])]),
      },
    });
  };
  const colors = places.length > 1 ? ["--c3", "--c1", "--c2"] : ["--c1", "--c2"];
  const held = [...places, "queued"].map((name, index) => [name, name, colors[index]]);
  over("load", held, { fill: true });
  over("pools", [["kv_used", "KV tokens", "--c1"], ["slots_used", "state slots", "--c2"]], { unit: " %", top: 100 });
  over("throughput", [["output", "output tokens/s", "--c1"], ["prompt", "prefilled tokens/s", "--c2"]]);

  // A lane a replica: how full it was, and below, its steps as far as they were kept.
  const kinds = { prefill: "--c2", decode: "--c1", transfer: "--c3", encode: "--c4", down: "--c5" };
  const most = Math.max(1, ...replicas.map((one) => one.running.reduce((a, b) => Math.max(a, b), 0)));
  const reading = document.getElementById("lanes-reading");
  const lanes = (u) => {
    const { ctx, bbox } = u;
    const [from, to] = [u.scales.x.min, u.scales.x.max];
    const at = (value) => u.valToPos(value, "x", true);
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    ctx.clip();
    replicas.forEach((one, index) => {
      const top = u.valToPos(index + 0.1, "y", true);
      const height = u.valToPos(index + 0.9, "y", true) - top;
      const load = one.spans.length ? height * 0.55 : height;
      ctx.fillStyle = ink("--c1");
      one.running.forEach((value, bin) => {
        const [start, end] = [bin * one.bin, Math.min((bin + 1) * one.bin, duration)];
        if (value <= 0 || end < from || start > to) return;
        ctx.globalAlpha = 0.12 + 0.88 * (value / most);
        const left = Math.round(at(start));
        ctx.fillRect(left, top, Math.round(at(end)) - left, load);
      });
      ctx.globalAlpha = 1;
      for (const [start, end, kind] of one.spans) {
        if (end < from || start > to) continue;
        ctx.fillStyle = ink(kinds[kind] ?? "--soft");
        const down = kind === "down";
        ctx.fillRect(at(start), down ? top : top + load + 1, Math.max(at(end) - at(start), 0.5), down ? height : height - load - 1);
      }
    });
    ctx.restore();
  };
  const point = (u) => {
    const { left, top } = u.cursor;
    if (left === undefined || left < 0 || top < 0) return;
    const one = replicas[Math.floor(u.posToVal(top, "y"))];
    if (!one) return;
    const now = u.posToVal(left, "x");
    const bin = Math.floor(now / one.bin);
    const step = one.spans.find(([start, end]) => start <= now && now < end);
    const doing = step ? `; ${step[2]}: ${count(step[3], "request")}, ${count(step[4], "token")}, ${number((step[1] - step[0]) * 1000)} ms` : "";
    reading.textContent =
      `${one.name} at ${spent(now)}: ${number(one.running[bin])} running, ${number(one.queued[bin])} queued${doing}`;
  };
  if (replicas.length && series.t.length) {
    chart("lanes", {
      group: "time",
      height: 60 + Math.max(replicas.length, 2) * (replicas.length > 16 ? 18 : 34),
      data: [[0, duration], [0, 0]],
      options: () => ({
        legend: { show: false },
        cursor: { points: { show: false }, drag: { x: true, y: false } },
        scales: { x: { time: false, range: (_, min, max) => [min, max] }, y: { range: [0, replicas.length], dir: -1 } },
        axes: [
          time(),
          axis({
            size: 110, grid: { show: false }, ticks: { show: false },
            splits: () => replicas.map((_, index) => index + 0.5),
            values: () => replicas.map(({ name }) => (name.length > 15 ? name.slice(0, 14) + "…" : name)),
          }),
        ],
        series: [{}, { show: true, stroke: "transparent", points: { show: false } }],
        hooks: { draw: [lanes], setCursor: [point] },
      }),
      table: {
        heads: ["replica", "completed", "most at once", "busy %"],
        rows: replicas.map((one) => [one.name, one.completed, one.admitted_max, one.busy]),
      },
    });
    const keys = document.getElementById("lanes-keys");
    const seen = new Set(replicas.flatMap((one) => one.spans.map((span) => span[2])));
    for (const kind of Object.keys(kinds).filter((name) => seen.has(name))) {
      const key = element("span", undefined, keys);
      element("i", undefined, key).style.background = `var(${kinds[kind]})`;
      key.append(kind);
    }
  }
})();
