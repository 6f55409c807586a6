// Card of one dimension: outcomes, queries, cache, change feed and full table.

const BREAKERS = new Map([
  ["closed", ["good", "backend available"]],
  ["half_open", ["waiting", "breaker half open"]],
  ["open", ["bad", "breaker open"]],
]);

function makeCard(dimension) {
  const card = element("article", "card");
  card.setAttribute("aria-label", `dimension ${dimension.name}`);
  card.append(
    element("div", "title", element("h3", "", dimension.name), element("span", "mark")),
    element("p", "schema"),
    element("p", "fault"),
    element("div", "figures"),
    makeChart(),
    element("ul", "legend outcomes"),
    element("div", "meters", makeMeter("cache"), makeMeter("queries")),
    element("p", "shared", element("span", "", word("shared memory")), element("span", "")),
    element("dl", "facts"),
    element("div", "refreshes"),
  );
  return card;
}

function makeMeter(name) {
  const title = element("p", "", element("span", "", word(name)), element("span", ""));
  return element("div", "meter", title, element("div", "bar"));
}

function setMeter(meter, kind, [amount, of], words) {
  const [title, bar] = meter.children;
  setText(title.lastElementChild, words);
  const parts = [[kind, amount], ["left", Math.max(0, of - amount)]];
  setBar(bar, parts, `${title.firstElementChild.textContent}: ${words}`);
}

function namesOf(fields) {
  return fields.map((field) => field.name).join(", ");
}

// For one dimension, or for the sums of all dimensions.
function trafficFigures(history, totals) {
  const { seconds, totals: recent } = history.recent();
  const [keys, all] = [keysIn(recent), keysIn(totals)];
  const perSecond = (number) => (seconds ? rate(number / seconds) : "–");
  const hitRatio = all ? `${percent(hitsIn(totals), all)} overall` : "no keys yet";
  const batch = totals.queries ? `${rate(totals.batch_keys / totals.queries)} overall` : "no queries yet";
  return [
    ["keys/s", perSecond(keys), `${count(all)} in total`],
    ["hit ratio", keys ? percent(hitsIn(recent), keys) : "–", hitRatio],
    ["queries/s", perSecond(recent.queries), `${count(totals.queries)} in total`],
    ["keys per query", recent.queries ? rate(recent.batch_keys / recent.queries) : "–", batch],
  ];
}

function updateOutcomes(list, history, totals) {
  const { seconds, totals: recent } = history.recent();
  keepChildren(
    list,
    OUTCOMES.filter((name) => totals[name] > 0),
    (name) => name,
    (name) => element("li", `swatch ${name}`),
    (item, name) => {
      setText(item, seconds ? `${name} ${rate(recent[name] / seconds)}/s` : name);
      setAttribute(item, "title", `${wholeNumber.format(totals[name])} since the start`);
    },
  );
}

// Hides figures that are still zero.
function someOf(number) {
  return number ? count(number) : null;
}

function updateMeters(meters, { cache, backend }) {
  const [cached, queries] = meters.children;
  const { queries_in_flight: inFlight, concurrency_limit: limit, max_in_flight: most } = backend;
  const entries = plural(cache.rows, "entry", "entries");
  const bytes = `${size(cache.bytes)} of ${size(cache.max_bytes)}`;
  setMeter(cached, "filled", [cache.bytes, cache.max_bytes], `${entries}, ${bytes}`);
  const bound = limit < most ? ` of ${most}` : "";
  setMeter(queries, "queried", [inFlight, limit], `${inFlight} in flight, limit ${limit}${bound}`);
}

function updateShared(line, { mode, shared }) {
  const { why_private: why, bytes, keys } = shared;
  show(line, mode !== "none");
  const use = `${size(bytes)}, ${plural(keys, "key", "keys")} looked up by workers`;
  setText(line.lastElementChild, why === null ? use : `not shared: ${why}`);
}

function updateCard(card, dimension, history) {
  const [title, schema, fault, figures, chart, outcomes, meters, shared, facts, refreshes] = card.children;
  const { unavailable, backend, cache, freshness } = dimension;
  const { staleness_s: staleness } = freshness;
  const totals = totalsOf(dimension);
  const breaker = BREAKERS.get(backend.breaker) ?? ["waiting", `breaker ${backend.breaker}`];
  setMark(title.lastElementChild, ...(unavailable ? ["bad", "unavailable"] : breaker));
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
  updateShared(shared, cache);
  setFacts(facts, [
    ["staleness", staleness === null ? "–" : span(staleness)],
    ["unanswered keys", count(dimension.waiting_keys)],
    ["queued keys", count(backend.queued_keys)],
    ["coalesced keys", someOf(dimension.coalesced_keys)],
    ["connection wait", backend.connection_wait_s >= 1 ? span(backend.connection_wait_s) : null],
    ["retries", someOf(backend.retries)],
    ["evicted for size", someOf(cache.evictions.size)],
    ["index", backend.uses_index === false ? "none: each query reads the whole table" : null],
  ]);
  updateRefresh(refreshes, freshness);
}
