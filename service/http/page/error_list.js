// What failed lately, of all dimensions, the latest first. Neither keys nor values of rows are told to this page.

const MAX_ERRORS = 30;

function makeError() {
  return element(
    "li",
    "",
    element("time", ""),
    element("b", ""),
    element("code", ""),
    element("span", "count"),
    element("p", ""),
  );
}

function updateError(item, error) {
  const [time, dimension, code, number, detail] = item.children;
  setText(time, ago(error.last_ago_s));
  setAttribute(
    time,
    "title",
    `from ${clockTime(Date.now() - 1000 * error.first_ago_s)} to ${clockTime(Date.now() - 1000 * error.last_ago_s)}`,
  );
  setText(dimension, error.dimension);
  setText(code, error.code);
  const counts = [
    error.keys && plural(error.keys, "key", "keys"),
    error.queries && plural(error.queries, "query", "queries"),
  ];
  setText(number, counts.filter(Boolean).join(", "));
  setText(detail, error.detail);
}

function updateErrors(status) {
  const all = status.dimensions.flatMap((dimension) =>
    dimension.recent_errors.map((error) => ({ dimension: dimension.name, ...error })),
  );
  all.sort((one, other) => one.last_ago_s - other.last_ago_s);
  // The moment when it began is its name: as whole seconds of the service's life, which do not waver.
  const key = (error) =>
    `${error.dimension} ${error.code} ${Math.round(status.uptime_s - error.first_ago_s)}`;
  keepChildren(byId("errors"), all.slice(0, MAX_ERRORS), key, makeError, updateError);
  show(byId("no-errors"), all.length === 0);
  setText(byId("no-errors"), `None since the start, ${ago(status.uptime_s)}.`);
}
