// Light or dark, charts that follow the width and the theme, a table under every chart.
// Text from the data only ever becomes textContent or canvas text.
"use strict";
const pageData = JSON.parse(document.getElementById("data").textContent);
const page = (() => {
  const root = document.documentElement;
  const drawings = [];
  const ink = (name) => getComputedStyle(root).getPropertyValue(name).trim();
  const element = (name, text, parent) => {
    const made = document.createElement(name);
    if (text !== undefined) made.textContent = text;
    if (parent) parent.append(made);
    return made;
  };
  const number = (value) => {
    if (value === null || value === undefined) return "–";
    const size = Math.abs(value);
    const digits = size >= 100 || Number.isInteger(value) ? 0 : size >= 10 ? 1 : 2;
    return value.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits });
  };

  // The charts of a group share their cursor and their zoom.
  const groups = new Map();
  let zooming = false;
  const follow = (chart, group) => {
    if (zooming) return;
    zooming = true;
    const { min, max } = chart.scales.x;
    for (const other of groups.get(group)) {
      if (other !== chart && other.scales.x.min !== null) other.setScale("x", { min, max });
    }
    zooming = false;
  };

  const axis = (extra) => ({
    stroke: ink("--soft"),
    grid: { stroke: ink("--grid"), width: 1 },
    ticks: { stroke: ink("--grid"), width: 1 },
    font: "12px system-ui, sans-serif",
    ...extra,
  });

  // `options(ink)` gives uPlot's options without sizes, and `data` as columns; both are asked again on a new theme.
  const chart = (id, { height = 220, group, options, data, table }) => {
    const place = document.getElementById(id);
    const drawing = { chart: null };
    const draw = () => {
      const scale = drawing.chart && { ...drawing.chart.scales.x };
      if (drawing.chart) {
        if (group) groups.get(group).delete(drawing.chart);
        drawing.chart.destroy();
      }
      const made = options();
      if (group) {
        made.cursor = { ...made.cursor, sync: { key: group, setSeries: false } };
        const hooks = (made.hooks ??= {});
        (hooks.setScale ??= []).push((u, name) => name === "x" && drawing.chart === u && follow(u, group));
      }
      const width = Math.max(place.clientWidth, 200);
      drawing.chart = new uPlot({ width, height, ...made }, data, place);
      drawing.chart.setLegend({ idx: null }, false); // says what each series says without a cursor
      if (group) {
        if (!groups.has(group)) groups.set(group, new Set());
        groups.get(group).add(drawing.chart);
      }
      if (scale && scale.min !== null) drawing.chart.setScale("x", { min: scale.min, max: scale.max });
    };
    draw();
    drawing.redraw = draw;
    drawings.push(drawing);
    new ResizeObserver(() => {
      const width = Math.max(place.clientWidth, 200);
      if (width !== drawing.chart.width) drawing.chart.setSize({ width, height });
    }).observe(place);
    if (table) tabled(place, table);
    return drawing;
  };

  // The same data for who cannot see the picture: at most `most` rows, evenly taken.
  const tabled = (place, { heads, rows, most = 60 }) => {
    const details = element("details", undefined, place.parentElement);
    element("summary", "As a table", details);
    details.addEventListener("toggle", () => {
      if (details.querySelector("table")) return;
      const scroll = element("div", undefined, details);
      scroll.className = "scroll";
      scroll.tabIndex = 0;
      const table = element("table", undefined, scroll);
      const head = element("tr", undefined, element("thead", undefined, table));
      for (const name of heads) element("th", name, head).scope = "col";
      const body = element("tbody", undefined, table);
      const step = Math.max(1, Math.ceil(rows.length / most));
      for (let at = 0; at < rows.length; at += step) {
        const row = element("tr", undefined, body);
        for (const value of rows[at]) element("td", typeof value === "number" ? number(value) : value ?? "–", row);
      }
    });
  };

  const theme = (name) => {
    root.dataset.theme = name;
    const button = document.getElementById("theme");
    button.textContent = name === "dark" ? "Light" : "Dark";
    button.setAttribute("aria-label", `Switch to the ${name === "dark" ? "light" : "dark"} theme`);
    for (const drawing of drawings) drawing.redraw();
  };
  const dark = matchMedia("(prefers-color-scheme: dark)");
  theme(dark.matches ? "dark" : "light");
  dark.addEventListener("change", (event) => theme(event.matches ? "dark" : "light"));
  document.getElementById("theme").addEventListener("click", () => {
    theme(root.dataset.theme === "dark" ? "light" : "dark");
  });

  return { axis, chart, element, ink, number };
})();
