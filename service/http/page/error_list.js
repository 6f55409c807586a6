// Recent errors of all dimensions, latest first. The service sends neither keys nor row values.

const MAX_ERRORS = 30;

function makeError() {
  const parts = ["time", "b", "code"].map((tag) => element(tag, ""));
  return element("li", "", ...parts, element("span", "count"), element("p", ""));
}

function updateError(item, error) {
  const [time, dimension, code, number, detail] = item.children;
  setText(time, ago(error.last_ago_s));
  const [first, last] = [error.first_ago_s, error.last_ago_s].map((s) => clockTime(Date.now() - 1000 * s));
  setAttribute(time, "title", `from ${first} to ${last}`);
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
  // The key holds the start of the error in seconds of uptime, which is the same in every reply.
  const key = (error) =>
    `${error.dimension} ${error.code} ${Math.round(status.uptime_s - error.first_ago_s)}`;
  keepChildren(byId("errors"), all.slice(0, MAX_ERRORS), key, makeError, updateError);
  show(byId("no-errors"), all.length === 0);
  setText(byId("no-errors"), `None since the start, ${ago(status.uptime_s)}.`);
}
