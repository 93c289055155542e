// Draws the charts of a page with uPlot, and keeps them up to date. Charts that share a query share its requests.

const everyMs = 10_000;
const colours = ["--chart-0", "--chart-1", "--chart-2"];
const steps = [1, 2, 5, 10, 20, 50, 100, 200, 500];
const durations = [...steps.map((step) => step / 1e6), ...steps.map((step) => step / 1e3), 1, 2, 5, 10, 20, 40, 60, 120, 300, 600, 1200, 2400, 3600, 7200, 14400, 28800, 43200, ...steps.map((step) => step * 86400)];
let drawn = [];
let timer = null;
let loading = null;

// Both parts: drawn without its style sheet, a chart moves what is below when that comes.
function load(place) {
  loading ??= Promise.all([
    ["link", { rel: "stylesheet", href: place.dataset.uplotCss }],
    ["script", { src: place.dataset.uplot }],
  ].map(([name, attributes]) => new Promise((resolve, reject) => {
    document.head.append(Object.assign(document.createElement(name), attributes, { onload: resolve, onerror: reject }));
  })));
  return loading;
}

function duration(seconds) {
  const round = (value) => Number(value.toPrecision(3)).toString();
  if (seconds < 1) return seconds ? `${round(seconds * 1000)} ms` : "0 s";
  for (const [unit, size] of [["d", 86400], ["h", 3600], ["min", 60]]) if (seconds >= 2 * size) return `${round(seconds / size)} ${unit}`;
  return `${round(seconds)} s`;
}

function bytes(value) {
  const power = Math.min(3, Math.max(0, Math.floor(Math.log10(Math.max(1, value)) / 3 + 1e-4)));
  return `${Number((value / 1000 ** power).toPrecision(3))} ${["B", "kB", "MB", "GB"][power]}/s`;
}

// As rioni/console/charts.py writes them.
function amount(value, unit) {
  if (value === null || value === undefined) return "-";
  if (unit === "duration") return duration(value);
  if (unit === "byte rate") return bytes(value);
  const digits = unit === "count" || value >= 100 || Number.isInteger(value) ? 0 : value >= 1 ? 1 : 2;
  const text = value.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits });
  return unit === "rate" ? `${text} /s` : text;
}

function onAxis(value, unit) {
  if (unit === "duration") return duration(value);
  if (unit === "byte rate") return bytes(value).slice(0, -2);
  return value.toLocaleString("en-US", { notation: "compact", maximumSignificantDigits: 3 });
}

const isLocal = () => document.documentElement.dataset.zone === "local";

// As 12:00:00 UTC, or 13:00:00 +01:00 where the page shows times of the browser's zone.
function clock(seconds) {
  const moment = new Date(seconds * 1000);
  if (!isLocal()) return `${moment.toISOString().slice(11, 19)} UTC`;
  return moment.toLocaleTimeString("en-GB", { timeZoneName: "longOffset" }).replace(/GMT$/, "+00:00").replace("GMT", "");
}

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// The places of values between two gaps, which have no line.
function isolated(plot, series) {
  const values = plot.data[series];
  const isGap = (at) => values[at] === null || values[at] === undefined;
  return values.flatMap((_value, at) => (!isGap(at) && isGap(at - 1) && isGap(at + 1) ? [at] : []));
}

function options(figure, lines, unit, place) {
  const axis = { stroke: () => colour("--soft"), grid: { stroke: () => colour("--line"), width: 1 }, ticks: { show: false }, font: "12px system-ui, sans-serif" };
  return {
    width: place.clientWidth,
    height: place.clientHeight,
    tzDate: (seconds) => isLocal() ? new Date(seconds * 1000) : uPlot.tzDate(new Date(seconds * 1000), "Etc/UTC"),
    legend: { show: false },
    cursor: { sync: { key: "charts" }, drag: { x: false, y: false }, points: { size: 6 } },
    scales: { y: { range: (_plot, _least, most) => [0, most > 0 ? most * 1.1 : 1] } },
    padding: [8, 28, 0, 0],
    axes: [{ ...axis, space: 70, size: 24, values: (_plot, times) => times.map((time) => clock(time).slice(0, times[1] - times[0] < 60 ? 8 : 5)) }, { ...axis, size: 54, space: 34, ...(unit === "duration" && { incrs: durations }), values: (_plot, values) => values.map((value) => onAxis(value, unit)) }],
    series: [{}, ...lines.map((_line, number) => ({ stroke: () => colour(colours[number]), width: 1.5, points: { show: false, filter: isolated, size: 5, width: 0, fill: () => colour(colours[number]) }, fill: number || lines.length > 1 ? undefined : () => `${colour(colours[0])}22` }))],
    hooks: { setCursor: [(plot) => showValues(figure, plot)] },
  };
}

function showValues(figure, plot) {
  const at = plot.cursor.idx ?? null;
  const time = figure.querySelector("time");
  time.textContent = at === null ? "" : clock(plot.data[0][at]);
  [...figure.querySelectorAll("li b")].forEach((target, number) => {
    const values = plot.data[number + 1];
    const value = at === null ? values.findLast((each) => each !== null) : values[at];
    target.textContent = amount(value, figure.dataset.unit);
  });
}

// A series begins with its first value that is not zero; quantiles may be unknown.
function fromZero({ labels, values }) {
  if (labels.quantile) return values;
  const begin = values.findIndex((value) => value !== null);
  return values.map((value, number) => (number < begin ? 0 : value));
}

function dataOf(history, lines) {
  const known = new Map(history.series.map((each) => [`${each.name}\n${Object.values(each.labels)[0] ?? ""}`, fromZero(each)]));
  // What has no series was zero all the time.
  const zeros = history.times.map(() => 0);
  return [history.times.map((time) => Date.parse(time) / 1000), ...lines.map((line) => known.get(`${line.name}\n${line.value}`) ?? zeros)];
}

function draw(figure, history) {
  const lines = JSON.parse(figure.dataset.lines);
  const data = dataOf(history, lines);
  if (data[0].length < 2) return;
  let chart = drawn.find((each) => each.figure === figure);
  if (!chart) {
    const place = figure.querySelector(".plot");
    const label = place.querySelector("svg")?.getAttribute("aria-label") ?? `${figure.querySelector("h2").textContent}, last hour`;
    place.replaceChildren();
    place.setAttribute("role", "img");
    place.setAttribute("aria-label", label);
    const plot = new uPlot(options(figure, lines, figure.dataset.unit, place), data, place);
    const observer = new ResizeObserver(() => plot.setSize({ width: place.clientWidth, height: place.clientHeight }));
    observer.observe(place);
    drawn.push({ figure, plot, observer });
    chart = drawn.at(-1);
  } else chart.plot.setData(data);
  showValues(figure, chart.plot);
}

async function refresh() {
  const figures = [...document.querySelectorAll("figure.chart")];
  for (const query of new Set(figures.map((figure) => figure.dataset.query))) {
    const answer = await fetch(`${document.documentElement.dataset.console}/api/metrics/history?${query}`).catch(() => null);
    // What is shown remains; the broker may be restarting, and a login may have ended.
    if (!answer?.ok) continue;
    const history = await answer.json();
    for (const figure of figures) if (figure.isConnected && figure.dataset.query === query) draw(figure, history);
  }
}

// Removes what is no longer on the page; begins what is new there.
async function begin() {
  for (const { plot, observer } of drawn.filter(({ figure }) => !figure.isConnected)) {
    observer.disconnect();
    plot.destroy();
  }
  drawn = drawn.filter(({ figure }) => figure.isConnected);
  const place = document.getElementById("charts");
  if (!place) {
    clearInterval(timer);
    timer = null;
  } else if (!place.dataset.begun) {
    place.dataset.begun = "";
    await load(place);
    timer ??= setInterval(() => document.hidden || refresh(), everyMs);
    await refresh();
  }
}

function redraw() {
  for (const { figure, plot } of drawn) {
    plot.redraw(true, true);
    showValues(figure, plot);
  }
}

new MutationObserver(redraw).observe(document.documentElement, { attributeFilter: ["data-theme", "data-zone"] });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
document.addEventListener("visibilitychange", () => document.hidden || !timer || refresh());
document.addEventListener("htmx:afterSettle", begin);
begin();
