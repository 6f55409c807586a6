// One dimension: how its lookups end, what its store is asked, what its cache holds.

const BREAKERS = new Map([
  ["closed", ["good", "store answers"]],
  ["half_open", ["waiting", "breaker half open"]],
  ["open", ["bad", "breaker open"]],
]);

function breakerMark(state) {
  return BREAKERS.get(state) ?? ["waiting", `breaker ${state}`];
}

function makeCard(dimension) {
  const title = `dimension ${dimension.name}`;
  const made = element("article", "card");
  made.setAttribute("aria-label", title);
  made.append(
    element("div", "title", element("h3", "", dimension.name), element("span", "mark")),
    element("p", "schema"),
    element("p", "fault"),
    element("div", "figures"),
    makeChart(),
    element("ul", "legend outcomes"),
    element("div", "meters", makeMeter("cache"), makeMeter("queries")),
    element("dl", "facts"),
    element("div", "refreshes"),
  );
  return made;
}

function makeMeter(name) {
  return element(
    "div",
    "meter",
    element("p", "", element("span", "", word(name)), element("span", "")),
    element("div", "bar"),
  );
}

function setMeter(meter, kind, [amount, of], words) {
  setText(meter.firstElementChild.lastElementChild, words);
  setBar(
    meter.lastElementChild,
    [
      [kind, amount],
      ["left", Math.max(0, of - amount)],
    ],
    `${meter.firstElementChild.firstElementChild.textContent}: ${words}`,
  );
}

function namesOf(fields) {
  return fields.map((field) => field.name).join(", ");
}

// For one dimension, and for the sums of all of them.
function trafficFigures(history, totals) {
  const { seconds, totals: recent } = history.recent();
  const keys = keysIn(recent);
  const all = keysIn(totals);
  const perSecond = (number) => (seconds ? rate(number / seconds) : "–");
  return [
    ["keys/s", perSecond(keys), `${count(all)} in all`],
    [
      "hit ratio",
      keys ? percent(hitsIn(recent), keys) : "–",
      all ? `${percent(hitsIn(totals), all)} overall` : "no keys yet",
    ],
    ["queries/s", perSecond(recent.queries), `${count(totals.queries)} in all`],
    [
      "keys per query",
      recent.queries ? rate(recent.batch_keys / recent.queries) : "–",
      totals.queries ? `${rate(totals.batch_keys / totals.queries)} overall` : "no queries yet",
    ],
  ];
}

function updateOutcomes(list, history, totals) {
  const { seconds, totals: recent } = history.recent();
  const seen = OUTCOMES.filter((name) => totals[name] > 0);
  keepChildren(
    list,
    seen,
    (name) => name,
    (name) => element("li", `swatch ${name}`),
    (item, name) => {
      setText(item, seconds ? `${name} ${rate(recent[name] / seconds)}/s` : name);
      setAttribute(item, "title", `${wholeNumber.format(totals[name])} since the start`);
    },
  );
}

// What has never happened takes no room.
function someOf(number) {
  return number ? count(number) : null;
}

function updateMeters(meters, { cache, backend }) {
  const [cached, queries] = meters.children;
  setMeter(
    cached,
    "filled",
    [cache.bytes, cache.max_bytes],
    `${plural(cache.rows, "entry", "entries")}, ${size(cache.bytes)} of ${size(cache.max_bytes)}`,
  );
  const outOf = backend.concurrency_limit < backend.max_in_flight ? ` of ${backend.max_in_flight}` : "";
  setMeter(
    queries,
    "asked",
    [backend.queries_in_flight, backend.concurrency_limit],
    `${backend.queries_in_flight} in flight, limit ${backend.concurrency_limit}${outOf}`,
  );
}

function updateCard(card, dimension, history) {
  const [title, schema, fault, figures, chart, outcomes, meters, facts, refreshes] = card.children;
  const { unavailable, backend, cache } = dimension;
  const { staleness_s: staleness } = dimension.freshness;
  const totals = totalsOf(dimension);
  const [kind, words] = unavailable ? ["bad", "unavailable"] : breakerMark(backend.breaker);
  setMark(title.lastElementChild, kind, words);
  show(fault, unavailable !== null);
  setText(fault, unavailable ? `${unavailable.code}: ${unavailable.detail}` : "");
  show(schema, unavailable === null);
  const fields = unavailable ? "" : `${namesOf(dimension.key)} → ${namesOf(dimension.columns)}`;
  setText(schema, fields);
  setAttribute(schema, "title", fields);
  setFigures(figures, trafficFigures(history, totals));
  updateChart(chart, history, dimension.name);
  updateOutcomes(outcomes, history, totals);
  updateMeters(meters, dimension);
  setFacts(facts, [
    ["staleness", staleness === null ? "–" : span(staleness)],
    ["unanswered keys", count(dimension.waiting_keys)],
    ["queued keys", count(backend.queued_keys)],
    ["coalesced keys", someOf(dimension.coalesced_keys)],
    ["further tries", someOf(backend.retries)],
    ["evicted for size", someOf(cache.evictions.size)],
    ["index", backend.uses_index === false ? "none: reads all rows" : null],
  ]);
  updateRefresh(refreshes, dimension.freshness);
}
