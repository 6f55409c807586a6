// Open channels by dimension, streams that ended, recent errors, and an example for an idle sidecar.

const OPENED_UP_TO = 8; // channels; larger groups start closed
const MAX_ERRORS = 30; // the service sends neither keys nor row values
const EXAMPLES = {
  int: 1,
  uint: 1,
  bool: true,
  date: "2026-01-31",
  timestamp: "2026-01-31T12:00:00Z",
  decimal: "1.50",
  uuid: "00000000-0000-0000-0000-000000000000",
};
const originOrder = new Intl.Collator("en", { numeric: true });

function originOf(channel) {
  return channel.origin || `connection ${channel.connection}, channel ${channel.channel}`;
}

function records(channels) {
  const sum = (name) => count(channels.reduce((all, channel) => all + channel[name], 0));
  const granted = channels.reduce((all, each) => all + each.exclusive_records + each.floating_records, 0);
  const parts = [
    `${sum("in_flight_records")} in flight`,
    `${sum("backlog_records")} backlog`,
    `${sum("credit_records")} of ${count(granted)} credit unused`,
  ];
  const shared = channels.reduce((all, channel) => all + channel.shared_keys, 0);
  if (shared) parts.push(`${plural(shared, "key", "keys")} from shared memory`);
  return element("span", { class: "records" }, parts.join(" · "));
}

function lag(watermarkMs) {
  const title = watermarkMs === null ? null : `watermark ${eventTime(watermarkMs)}`;
  return element("span", { class: "lag", title }, behind(watermarkMs));
}

function channelItem(channel) {
  return element(
    "li",
    { "data-key": `${channel.connection}/${channel.channel}` },
    element("span", { class: "origin" }, originOf(channel)),
    channel.is_idle ? mark("waiting", "idle") : mark("good", "active"),
    records([channel]),
    lag(channel.watermark_ms),
  );
}

function channelGroup([name, channels]) {
  const id = `channels of ${name}`;
  const isOpen = byId(id)?.open ?? channels.length <= OPENED_UP_TO;
  const active = channels.filter((channel) => !channel.is_idle);
  const known = active.map((channel) => channel.watermark_ms).filter((watermark) => watermark !== null);
  const number = plural(channels.length, "channel", "channels");
  const states = `${number}: ${count(active.length)} active, ${count(channels.length - active.length)} idle`;
  const slowest = known.length ? Math.min(...known) : null; // idle channels do not hold it back
  const line = [element("b", {}, name), element("span", {}, states), lag(slowest), records(channels)];
  channels.sort((one, other) => originOrder.compare(originOf(one), originOf(other)));
  return element(
    "details",
    { class: "group", id, "data-key": name, open: isOpen },
    element("summary", {}, element("span", { class: "line" }, line)),
    // The channels of a closed group are left out. A list is scrollable by keyboard.
    element("ul", { class: "channels", tabindex: 0, "aria-label": id }, isOpen ? channels.map(channelItem) : []),
  );
}

function showChannels({ channels }) {
  fill("channels", [...Map.groupBy(channels, (channel) => channel.dimension)].sort().map(channelGroup));
}

function endedStream(stream) {
  const channels = plural(stream.channels, "channel", "channels");
  return element(
    "li",
    { class: "group line", "data-key": stream.dimension },
    element("b", {}, stream.dimension),
    mark("waiting", `ended ${ago(stream.ended_ago_s)}`),
    element("span", { class: "origin" }, stream.origin),
    lag(stream.watermark_ms),
    element("span", { class: "records" }, `${plural(stream.keys, "key", "keys")} of ${channels}`),
  );
}

function errorItem(error) {
  const [first, last] = [error.first_ago_s, error.last_ago_s].map((s) => clockTime(Date.now() - 1000 * s));
  const counts = [[error.keys, "key", "keys"], [error.queries, "query", "queries"]];
  return element(
    "li",
    {},
    element("time", { title: `from ${first} to ${last}` }, ago(error.last_ago_s)),
    element("b", {}, error.dimension),
    element("code", {}, error.code),
    element("span", { class: "count" }, counts.filter(([n]) => n).map((each) => plural(...each)).join(", ")),
    element("p", {}, error.detail),
  );
}

function showErrors({ dimensions, uptime_s: uptime }) {
  const all = dimensions.flatMap(({ name, recent_errors: errors }) => errors.map((error) => ({ dimension: name, ...error })));
  all.sort((one, other) => one.last_ago_s - other.last_ago_s);
  fill("errors", all.slice(0, MAX_ERRORS).map(errorItem));
  fill("no-errors", all.length ? null : `None since the start, ${ago(uptime)}.`);
}

function curlOf({ name, key }) {
  const examples = key.map(({ type }) => EXAMPLES[Object.keys(EXAMPLES).find((kind) => type.startsWith(kind))] ?? "…");
  const body = JSON.stringify({ keys: [examples.length === 1 ? examples[0] : examples] });
  const header = token ? '-H "Authorization: Bearer $TOKEN" ' : "";
  return `curl ${header}-d '${body}' ${location.origin}/v1/dimensions/${name}/lookup`;
}

function showExample({ dimensions }) {
  const known = dimensions.find(({ key, columns }) => key?.length && columns?.length);
  const isUnused = dimensions.every(({ lookups }) => Object.values(lookups).every((keys) => keys === 0));
  const text = "No lookups yet. Look up one of your keys:";
  // The command is scrollable by keyboard.
  const example = known && [element("p", {}, text), element("pre", { tabindex: 0 }, element("code", {}, curlOf(known)))];
  fill("first-lookup", known && isUnused ? example : null);
}
