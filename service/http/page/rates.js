// Rates: samples of the last minutes, their growth per second, and the chart of outcomes.

const OUTCOMES = ["hit", "stale", "fetched", "missing", "default", "timeout", "error"];
const ANSWERED_BY_CACHE = ["hit", "stale"];
const WINDOW_MS = 10_000;
const KEPT_MS = 600_000;
const LEAST_SHOWN_MS = 60_000;

function totalsOf(dimension) {
  return {
    ...dimension.lookups,
    queries: dimension.backend.queries,
    batch_keys: dimension.backend.batch_keys,
  };
}

// The totals of one sample of the service's history.
function totalsAt({ lookups, queries, batch_keys }, index) {
  const outcomes = Object.entries(lookups).map(([name, counts]) => [name, counts[index]]);
  return { ...Object.fromEntries(outcomes), queries: queries[index], batch_keys: batch_keys[index] };
}

function summed(all) {
  const sums = Object.create(null); // {total: sum}
  for (const totals of all) {
    for (const [name, number] of Object.entries(totals)) sums[name] = (sums[name] ?? 0) + number;
  }
  return sums;
}

function keysIn(totals) {
  return OUTCOMES.reduce((sum, name) => sum + (totals[name] ?? 0), 0);
}

function hitsIn(totals) {
  return ANSWERED_BY_CACHE.reduce((sum, name) => sum + (totals[name] ?? 0), 0);
}

class History {
  constructor() {
    this.samples = []; // {at, totals}, oldest first; `at` in milliseconds
  }

  remember(totals, at) {
    const last = this.samples.at(-1);
    const hasShrunk = last && Object.keys(totals).some((name) => totals[name] < last.totals[name]);
    if (hasShrunk) this.samples = []; // the service restarted
    while (this.samples.length && at - this.samples[0].at > KEPT_MS) this.samples.shift();
    this.samples.push({ at, totals });
  }

  // Growth in the last seconds: {seconds, totals}; zero seconds before the second sample.
  recent() {
    const last = this.samples.at(-1);
    const first = this.samples.findLast((sample) => last.at - sample.at >= WINDOW_MS) ?? this.samples[0];
    const totals = {};
    for (const name of Object.keys(last.totals)) totals[name] = last.totals[name] - first.totals[name];
    return { seconds: (last.at - first.at) / 1000, totals };
  }

  // Time span of the chart: limited to the known samples, so the chart is never mostly empty.
  get shownMs() {
    const knownMs = this.samples.length > 1 ? this.samples.at(-1).at - this.samples[1].at : 0;
    return Math.max(LEAST_SHOWN_MS, knownMs);
  }

  // Rates of the outcomes between successive samples: [{at, rates}], oldest first.
  steps() {
    return this.samples.slice(1).map(({ at, totals }, index) => {
      const before = this.samples[index];
      const seconds = (at - before.at) / 1000;
      return { at, rates: OUTCOMES.map((name) => (totals[name] - before.totals[name]) / seconds) };
    });
  }
}

const CHART_WIDTH = 600;
const CHART_HEIGHT = 64;

function makeChart() {
  const box = { viewBox: `0 0 ${CHART_WIDTH} ${CHART_HEIGHT}`, preserveAspectRatio: "none", role: "img" };
  const drawing = svgElement("svg", box);
  for (const name of OUTCOMES) drawing.append(svgElement("path", { class: name }));
  const caption = [element("span", "from"), element("span", "peak"), element("span", "", "now")];
  return element("figure", "chart", drawing, element("figcaption", "", ...caption));
}

function updateChart(chart, history, name) {
  const steps = history.steps();
  const sums = steps.map(({ rates }) => rates.reduce((sum, each) => sum + each, 0));
  const peak = Math.max(...sums, 0);
  const now = steps.at(-1)?.at ?? 0;
  const { shownMs } = history;
  const x = (at) => Math.round((10 * CHART_WIDTH * (at - now + shownMs)) / shownMs) / 10;
  const y = (value) =>
    Math.round(10 * (CHART_HEIGHT - (peak ? (CHART_HEIGHT - 2) * (value / peak) : 0))) / 10;
  const floor = steps.map(() => 0);
  [...chart.firstElementChild.children].forEach((path, outcome) => {
    const below = steps.map(({ at }, index) => `${x(at)} ${y(floor[index])}`).reverse();
    steps.forEach(({ rates }, index) => {
      floor[index] += rates[outcome];
    });
    const isFlat = steps.every(({ rates }) => rates[outcome] === 0);
    const above = steps.map(({ at }, index) => `${x(at)} ${y(floor[index])}`);
    setAttribute(path, "d", isFlat ? "" : `M${[...above, ...below].join("L")}Z`);
  });
  setText(chart.querySelector(".from"), `${span(Math.round(shownMs / 1000))} ago`);
  setText(chart.querySelector(".peak"), peak ? `peak ${rate(peak)}/s` : "no keys");
  setAttribute(
    chart.firstElementChild,
    "aria-label",
    `Keys per second of ${name} in the last ${span(Math.round(shownMs / 1000))}: now ${rate(sums.at(-1) ?? 0)}, at most ${rate(peak)}`,
  );
}
