// Open channels, grouped by dimension: the sums in one line, the channels below.

const OPENED_UP_TO = 8; // channels; larger groups start closed

const originOrder = new Intl.Collator("en", { numeric: true });

const LEGEND = [
  ["swatch in-flight", "in flight"],
  ["swatch backlog", "backlog"],
  ["swatch credit", "unused credit"],
  ["", "watermark"],
];

function originOf(channel) {
  return channel.origin || `connection ${channel.connection}, channel ${channel.channel}`;
}

function recordsOf(channel) {
  return {
    inFlight: channel.in_flight_records,
    backlog: channel.backlog_records,
    credit: channel.credit_records,
    granted: channel.exclusive_records + channel.floating_records,
    shared: channel.shared_keys,
  };
}

function addRecords(one, other) {
  return Object.fromEntries(Object.keys(one).map((name) => [name, one[name] + other[name]]));
}

function setRecords(bar, text, { inFlight, backlog, credit, granted, shared }) {
  const words = `${count(inFlight)} in flight · ${count(backlog)} backlog · ${count(credit)} of ${count(granted)} credit unused`;
  setText(text, shared ? `${words} · ${plural(shared, "key", "keys")} from shared memory` : words);
  setBar(bar, [["in-flight", inFlight], ["backlog", backlog], ["credit", credit]], words);
}

function updateLegend(legend, isShown) {
  show(legend, isShown);
  if (legend.childElementCount) return;
  legend.append(...LEGEND.map(([className, name]) => element("span", className, word(name))));
}

// Idle channels do not hold the watermark back.
function slowest(channels) {
  const known = channels.filter((channel) => !channel.is_idle && channel.watermark_ms !== null);
  return known.length ? Math.min(...known.map((channel) => channel.watermark_ms)) : null;
}

function setLag(node, watermarkMs) {
  setText(node, behind(watermarkMs));
  setAttribute(node, "title", watermarkMs === null ? "" : `watermark ${eventTime(watermarkMs)}`);
}

function makeGroup({ name, channels }) {
  const figures = ["", "lag", "records"].map((className) => element("span", className));
  const line = element("span", "line", element("b", "", name), ...figures);
  const summary = element("summary", "", line, element("span", "bar"));
  const group = element("details", "group", summary, element("ul", "channels"));
  group.open = channels.length <= OPENED_UP_TO;
  const list = group.lastElementChild;
  list.tabIndex = 0; // scrollable by keyboard
  list.setAttribute("aria-label", `channels of ${name}`);
  return group;
}

function updateGroup(group, { name, channels }) {
  const [summary, list] = group.children;
  const [line, bar] = summary.children;
  const idle = channels.filter((channel) => channel.is_idle).length;
  const number = plural(channels.length, "channel", "channels");
  setText(line.children[0], name);
  setText(line.children[1], `${number}: ${count(channels.length - idle)} active, ${count(idle)} idle`);
  setLag(line.children[2], slowest(channels));
  setRecords(bar, line.children[3], channels.map(recordsOf).reduce(addRecords));
  // The channels of a closed group are not updated.
  keepChildren(
    list,
    group.open ? channels : [],
    (channel) => `${channel.connection}/${channel.channel}`,
    makeChannel,
    updateChannel,
  );
}

function makeChannel() {
  const parts = ["origin", "mark", "bar", "records", "lag"].map((name) => element("span", name));
  return element("li", "", ...parts);
}

function updateChannel(item, channel) {
  const [origin, mark, bar, records, lag] = item.children;
  setText(origin, originOf(channel));
  setMark(mark, channel.is_idle ? "waiting" : "good", channel.is_idle ? "idle" : "active");
  setRecords(bar, records, recordsOf(channel));
  setLag(lag, channel.watermark_ms);
}

function updateChannels(channels) {
  const groups = new Map(); // {dimension: channels}
  for (const channel of channels)
    groups.set(channel.dimension, [...(groups.get(channel.dimension) ?? []), channel]);
  const sorted = [...groups].sort().map(([name, all]) => ({
    name,
    channels: all.sort((one, other) => originOrder.compare(originOf(one), originOf(other))),
  }));
  updateLegend(byId("channels-legend"), channels.length > 0);
  keepChildren(byId("channels"), sorted, ({ name }) => name, makeGroup, updateGroup);
}

// Between two micro-batches of a streaming query no channel is open.
function lastStream({ ended_streams: ended }) {
  if (!ended.length) return "no stream is open";
  return `last one ${ago(Math.min(...ended.map((stream) => stream.ended_ago_s)))}`;
}

function updateEndedStreams(streams) {
  show(byId("ended-streams"), streams.length > 0);
  keepChildren(
    byId("ended-streams"),
    streams,
    (stream) => stream.dimension,
    makeEndedStream,
    updateEndedStream,
  );
}

function makeEndedStream({ dimension }) {
  const parts = ["mark", "origin", "lag", "records"].map((name) => element("span", name));
  return element("li", "group line", element("b", "", dimension), ...parts);
}

function updateEndedStream(item, stream) {
  const [, mark, origin, lag, records] = item.children;
  setMark(mark, "waiting", `ended ${ago(stream.ended_ago_s)}`);
  setText(origin, stream.origin);
  const channels = plural(stream.channels, "channel", "channels");
  setText(records, `${plural(stream.keys, "key", "keys")} of ${channels}`);
  setLag(lag, stream.watermark_ms);
}
