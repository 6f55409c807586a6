// What was read lately, and how fast totals grew in between. Knows nothing of the page.

const OUTCOMES = ["hit", "stale", "fetched", "missing", "default", "timeout", "error"];
const ANSWERED_BY_CACHE = ["hit", "stale"];
const WINDOW_MS = 10_000;
const KEPT_MS = 300_000;
const LEAST_SHOWN_MS = 60_000;

function totalsOf(dimension) {
  return {
    ...dimension.lookups,
    queries: dimension.backend.queries,
    batch_keys: dimension.backend.batch_keys,
  };
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
    if (hasShrunk) this.samples = []; // the service was restarted
    while (this.samples.length && at - this.samples[0].at > KEPT_MS) this.samples.shift();
    this.samples.push({ at, totals });
  }

  // What came in the last seconds: {seconds, totals}; zero seconds until there is something to compare.
  recent() {
    const last = this.samples.at(-1);
    const first = this.samples.findLast((sample) => last.at - sample.at >= WINDOW_MS) ?? this.samples[0];
    const totals = {};
    for (const name of Object.keys(last.totals)) totals[name] = last.totals[name] - first.totals[name];
    return { seconds: (last.at - first.at) / 1000, totals };
  }

  // How far a chart goes back: as far as is known, so that it is never mostly empty.
  get shownMs() {
    const knownMs = this.samples.length > 1 ? this.samples.at(-1).at - this.samples[1].at : 0;
    return Math.max(LEAST_SHOWN_MS, knownMs);
  }

  // Rates of the outcomes between neighbours: [{at, rates}], oldest first.
  steps() {
    return this.samples.slice(1).map(({ at, totals }, index) => {
      const before = this.samples[index];
      const seconds = (at - before.at) / 1000;
      return { at, rates: OUTCOMES.map((name) => (totals[name] - before.totals[name]) / seconds) };
    });
  }
}
