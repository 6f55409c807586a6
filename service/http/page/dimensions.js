// Cards of the dimensions: rates, outcomes, queries, cache, change feed and full table.

const OUTCOMES = ["hit", "stale", "fetched", "missing", "default", "timeout", "error"];
const WINDOW_MS = 10_000;
const BREAKERS = new Map([
  ["closed", ["good", "backend available"]],
  ["half_open", ["waiting", "breaker half open"]],
  ["open", ["bad", "breaker open"]],
]);
const samples = new Map(); // {dimension: [{at, totals}]}, oldest first; the key null has the sum of all

function totalsOf({ lookups, backend: { queries, batch_keys } }) {
  return { ...lookups, queries, batch_keys };
}

function summed(all) {
  const names = [...OUTCOMES, "queries", "batch_keys"];
  return Object.fromEntries(names.map((name) => [name, all.reduce((sum, totals) => sum + totals[name], 0)]));
}

function keysIn(totals) {
  return OUTCOMES.reduce((sum, name) => sum + totals[name], 0);
}

// Growth in the last seconds: {seconds, totals}; zero seconds before the second sample.
function recentGrowth(name, totals, at) {
  let known = samples.get(name) ?? [];
  if (known.length && Object.keys(totals).some((each) => totals[each] < known.at(-1).totals[each])) {
    known = []; // the service restarted
  }
  known.push({ at, totals });
  while (known.length > 2 && at - known[1].at >= WINDOW_MS) known.shift();
  samples.set(name, known);
  const growth = Object.entries(totals).map(([each, total]) => [each, total - known[0].totals[each]]);
  return { seconds: (at - known[0].at) / 1000, totals: Object.fromEntries(growth) };
}

// For one dimension, or for the sums of all dimensions.
function trafficFigures({ seconds, totals: recent }, totals) {
  const [keys, all] = [keysIn(recent), keysIn(totals)];
  const hits = ({ hit, stale }) => hit + stale;
  const perSecond = (number) => (seconds ? rate(number / seconds) : "–");
  const batch = totals.queries ? `${rate(totals.batch_keys / totals.queries)} overall` : "no queries yet";
  return [
    ["keys/s", perSecond(keys), `${count(all)} in total`],
    ["hit ratio", keys ? percent(hits(recent), keys) : "–", all ? `${percent(hits(totals), all)} overall` : "no keys yet"],
    ["queries/s", perSecond(recent.queries), `${count(totals.queries)} in total`],
    ["keys per query", recent.queries ? rate(recent.batch_keys / recent.queries) : "–", batch],
  ];
}

function outcomesText({ seconds, totals: recent }, totals) {
  const seen = OUTCOMES.filter((name) => totals[name] > 0);
  return seen.map((name) => (seconds ? `${name} ${rate(recent[name] / seconds)}/s` : name)).join(" · ");
}

// Keys per second between the samples of the service.
function chart(name, { ages_s: ages, dimensions }) {
  const own = dimensions.find((dimension) => dimension.name === name);
  if (!own || ages.length < 3) return null;
  const keys = ages.map((_, at) => OUTCOMES.reduce((sum, outcome) => sum + own.lookups[outcome][at], 0));
  const rates = keys.slice(1).map((total, at) => (total - keys[at]) / (ages[at] - ages[at + 1]));
  const peak = Math.max(...rates);
  const x = (at) => Math.round(600 * (1 - (ages[at] - ages.at(-1)) / (ages[0] - ages.at(-1))));
  const points = rates.map((each, at) => `${x(at + 1)} ${Math.round(64 - 62 * (peak ? each / peak : 0))}`);
  const words = `keys per second in the last ${span(Math.round(ages[0]))}, at most ${rate(peak)}`;
  const box = { viewBox: "0 0 600 64", preserveAspectRatio: "none", role: "img", "aria-label": words };
  const area = element("svg", box, element("path", { d: `M0 64L${points.join("L")}L600 64Z` }));
  return element("figure", {}, area, element("figcaption", { class: "quiet" }, words));
}

function card(dimension, at, minutes) {
  const { name, unavailable, backend, cache, freshness } = dimension;
  const { queries_in_flight: inFlight, concurrency_limit: limit, max_in_flight: most } = backend;
  const { why_private: why, bytes, keys } = cache.shared;
  const namesOf = (fields) => fields.map((field) => field.name).join(", ");
  const schema = unavailable ? null : `${namesOf(dimension.key)} → ${namesOf(dimension.columns)}`;
  const [kind, state] = BREAKERS.get(backend.breaker) ?? ["waiting", `breaker ${backend.breaker}`];
  const totals = totalsOf(dimension);
  const growth = recentGrowth(name, totals, at);
  const cached = `${plural(cache.rows, "entry", "entries")}, ${size(cache.bytes)} of ${size(cache.max_bytes)}`;
  const use = `${size(bytes)}, ${plural(keys, "key", "keys")} looked up by workers`;
  const shared = why === null ? use : `not shared: ${why}`;
  const some = (number) => (number ? count(number) : null); // figures that are still zero are left out
  return element(
    "article",
    { class: "card", "data-key": name, "aria-label": `dimension ${name}` },
    element("div", { class: "title" }, element("h3", {}, name), unavailable ? mark("bad", "unavailable") : mark(kind, state)),
    schema && element("p", { class: "schema", title: schema }, schema),
    unavailable && element("p", { class: "fault" }, `${unavailable.code}: ${unavailable.detail}`),
    element("div", { class: "figures" }, figures(trafficFigures(growth, totals))),
    chart(name, minutes),
    element("p", { class: "outcomes" }, outcomesText(growth, totals)),
    element("dl", { class: "facts" }, facts([
      ["cache", cached],
      ["queries", `${inFlight} in flight, limit ${limit}${limit < most ? ` of ${most}` : ""}`],
      ["shared memory", cache.mode === "none" ? null : shared],
      ["staleness", freshness.staleness_s === null ? "–" : span(freshness.staleness_s)],
      ["unanswered keys", count(dimension.waiting_keys)],
      ["queued keys", count(backend.queued_keys)],
      ["coalesced keys", some(dimension.coalesced_keys)],
      ["connection wait", backend.connection_wait_s >= 1 ? span(backend.connection_wait_s) : null],
      ["retries", some(backend.retries)],
      ["evicted for size", some(cache.evictions.size)],
      ["index", backend.uses_index === false ? "none: each query reads the whole table" : null],
    ])),
    freshness.feed && feedPart(freshness.feed),
    freshness.load && loadPart(freshness.load),
  );
}

function lookOf(split) {
  if (split.state !== "assigned") return split.state;
  if (split.is_paused) return "paused";
  return split.is_caught_up ? "caught up" : "reading";
}

// The change feed or the full table; its splits are counted by state.
function refreshPart(name, { kind, state, detail, splits, fault }) {
  const looks = [...Map.groupBy(splits, lookOf)].map(([look, all]) => `${count(all.length)} ${look}`);
  return element(
    "div",
    { class: "refresh", "data-key": name },
    element("p", { class: "title" }, element("b", {}, name), mark(kind, state), element("small", {}, detail)),
    looks.length ? element("p", { class: "quiet" }, `splits: ${looks.join(", ")}`) : null,
    fault && element("p", { class: "fault" }, fault),
  );
}

function auditWords({ is_audited: isAudited, audited_keys: { agreed, suspect, contradicted } }) {
  if (!isAudited) return ", not audited";
  if (agreed + suspect === 0) return "";
  return `, ${plural(agreed + suspect, "key", "keys")} audited${contradicted ? ` (${count(contradicted)} wrong)` : ""}`;
}

function feedPart(feed) {
  const { state, watermark_ms: watermark, splits, last_error: error } = feed;
  const failing = splits.find((split) => split.last_error !== null);
  const reached = watermark === null ? "no event time yet" : `${behind(watermark)}, up to ${eventTime(watermark)}`;
  return refreshPart("change feed", {
    kind: { live: "good", silent: "bad", incomplete: "bad" }[state] ?? "waiting",
    state,
    detail: reached + auditWords(feed),
    splits,
    fault: error ?? (failing ? `${failing.id}: ${failing.last_error}` : null),
  });
}

function loadPart({ is_loading, is_whole, rows, expected_rows: expected, last_seconds: last, splits, last_error: fault }) {
  if (!is_loading) {
    const [kind, state] = is_whole ? ["good", "loaded"] : ["bad", "not loaded"];
    const detail = last === null ? "" : `${plural(rows, "row", "rows")} in ${span(last)}`;
    return refreshPart("full table", { kind, state, detail, splits, fault });
  }
  const share = expected ? `, ${percent(rows, expected)}` : "";
  const detail = `${count(rows)}${expected === null ? "" : ` of about ${count(expected)}`} rows read${share}`;
  const state = is_whole ? "reloading" : "loading";
  return refreshPart("full table", { kind: "waiting", state, detail, splits, fault });
}
