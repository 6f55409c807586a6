// The outcomes per second of the last minutes, one upon the other, as an SVG that fills its place.

const CHART_WIDTH = 600;
const CHART_HEIGHT = 64;

function makeChart() {
  const box = { viewBox: `0 0 ${CHART_WIDTH} ${CHART_HEIGHT}`, preserveAspectRatio: "none", role: "img" };
  const drawing = svgElement("svg", box);
  for (const name of OUTCOMES) drawing.append(svgElement("path", { class: name }));
  const made = element(
    "figure",
    "chart",
    drawing,
    element("figcaption", "", element("span", "from"), element("span", "peak"), element("span", "", "now")),
  );
  return made;
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
