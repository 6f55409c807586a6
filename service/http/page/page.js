"use strict";

const OUTCOMES = ["hit", "fetched", "missing", "stale", "default", "timeout", "error"];
const WINDOW_MS = 10_000;
const PERIOD_MS = 1_000;
const MAX_CHANNELS = 50;
const MAX_SPLITS = 100;
const END_OF_INPUT_MS = 2 ** 63; // the maximal watermark, 2^63 - 1, as a number of this language
const history = new Map(); // {dimension: [{at, total, outcomes}], oldest first}
let token = "";
let refusedToken = null; // not asked with again: each refusal stands in the service's log

const whole = new Intl.NumberFormat("en");
const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const byId = (id) => document.getElementById(id);

function element(tag, className, text) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}

function size(bytes) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  const step = bytes > 0 ? Math.min(4, Math.floor(Math.log2(bytes) / 10)) : 0;
  const digits = step && bytes / 1024 ** step < 100 ? 1 : 0;
  return `${(bytes / 1024 ** step).toFixed(digits)} ${units[step]}`;
}

function span(seconds) {
  if (seconds < 120) return `${Math.round(seconds)} s`;
  return seconds < 7200 ? `${Math.round(seconds / 60)} min` : `${Math.round(seconds / 3600)} h`;
}

async function ask(path) {
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  const answer = await fetch(path, { headers, cache: "no-store" });
  if (answer.status === 401) {
    refusedToken = token;
    byId("token-form").hidden = false;
  }
  if (!answer.ok) throw new Error(`${path} answered ${answer.status}`);
  return answer;
}

function byDimension(metrics, metric) {
  const sums = new Map(); // {dimension: value, over all other labels}
  const line = new RegExp(`^${metric}\\{.*?dimension="([^"]*)".*\\} (\\S+)$`, "gm");
  for (const [, name, value] of metrics.matchAll(line)) {
    sums.set(name, (sums.get(name) ?? 0) + Number(value));
  }
  return sums;
}

function eventTime(milliseconds) {
  if (milliseconds >= END_OF_INPUT_MS) return "end of input";
  const moment = new Date(milliseconds); // invalid beyond the years that this language knows
  if (Number.isNaN(moment.getTime())) return `${whole.format(milliseconds)} ms`;
  return moment.toISOString().replace("T", " ").replace(".000Z", "Z");
}

function remember(dimension, at) {
  const outcomes = dimension.lookups;
  const total = OUTCOMES.reduce((sum, name) => sum + (outcomes[name] ?? 0), 0);
  const known = history.get(dimension.name) ?? [];
  const before = known[known.length - 1];
  const kept = before && before.total > total ? [] : known; // the service was restarted
  while (kept.length > 1 && at - kept[1].at >= WINDOW_MS) kept.shift();
  kept.push({ at, total, outcomes });
  history.set(dimension.name, kept);
  return [kept[0], kept[kept.length - 1]];
}

function bar(parts, total, label) {
  const made = element("div", "bar");
  made.setAttribute("role", "img");
  made.setAttribute("aria-label", label);
  for (const [name, count] of parts) {
    const part = element("i", name);
    part.style.flex = `${count} 0 0`;
    if (count > 0) made.append(part);
  }
  if (total === 0) made.setAttribute("aria-label", "nothing yet");
  return made;
}

function facts(pairs) {
  const list = element("dl");
  for (const [name, value] of pairs) {
    const pair = element("div");
    pair.append(element("dt", "", name), element("dd", "", value));
    list.append(pair);
  }
  return list;
}

function figure(value, name) {
  const made = element("div");
  made.append(element("b", "", value), element("span", "", name));
  return made;
}

function look(split) {
  if (split.state !== "assigned") return split.state;
  if (split.is_paused) return "paused";
  return split.is_caught_up ? "caught-up" : "reading";
}

function splitTitle(split) {
  const of = split.total === null ? "" : ` of ${whole.format(split.total)}`;
  const position = split.position === null ? "" : `, at ${whole.format(split.position)}${of}`;
  const reached = split.watermark_ms === null ? "" : `, up to ${eventTime(split.watermark_ms)}`;
  return `${split.id}: ${look(split).replace("-", " ")}${position}${reached}${split.is_idle ? ", idle" : ""}`;
}

function splits(all) {
  const counts = new Map(); // {look: splits}
  for (const each of all) counts.set(look(each), (counts.get(look(each)) ?? 0) + 1);
  const told = [...counts].map(([name, n]) => `${whole.format(n)} ${name.replace("-", " ")}`).join(", ");
  const cells = element("div", "cells");
  cells.setAttribute("role", "img");
  cells.setAttribute("aria-label", told);
  for (const each of all.slice(0, MAX_SPLITS)) {
    const cell = element("i", look(each));
    cell.title = splitTitle(each);
    cells.append(cell);
  }
  const failing = all.filter((each) => each.last_error !== null);
  const faults = failing.slice(0, 1).map((each) => element("p", "fault", `${each.id}: ${each.last_error}`));
  return all.length ? [cells, element("p", "legend", `splits: ${told}`), ...faults] : [];
}

function refreshTitle(name, state, told) {
  const title = element("p");
  title.append(element("b", "", name), element("span", `status ${state}`, state), element("small", "", told));
  return title;
}

function feedPart(feed) {
  const reached = feed.watermark_ms === null ? "no event time yet" : `up to ${eventTime(feed.watermark_ms)}`;
  const made = element("div", "refresh");
  made.append(refreshTitle("changes", feed.state, reached), ...splits(feed.splits));
  return made;
}

function loadPart(load) {
  const about = load.expected_rows === null ? "" : ` of about ${whole.format(load.expected_rows)}`;
  const rows = whole.format(load.rows);
  const last = load.last_seconds === null ? "" : `${rows} rows in ${load.last_seconds.toFixed(1)} s`;
  const made = element("div", "refresh");
  const state = load.is_whole ? "whole" : load.is_loading ? "loading" : "not whole";
  made.append(refreshTitle("whole table", state, load.is_loading ? `reading ${rows}${about} rows` : last));
  if (load.is_loading && load.expected_rows) {
    const left = Math.max(0, load.expected_rows - load.rows);
    made.append(bar([["fetched", load.rows], ["left", left]], load.expected_rows, `${rows}${about} rows`));
  }
  if (load.last_error !== null) made.append(element("p", "fault", `${load.is_loading ? "Loading fails so far." : "The last load failed."} ${load.last_error}`));
  made.append(...splits(load.splits));
  return made;
}

function names(fields) {
  return fields.map((field) => field.name).join(", ");
}

function card(dimension, { asked, reached }, at) {
  const [first, last] = remember(dimension, at);
  const seconds = (last.at - first.at) / 1000;
  const change = last.total - first.total;
  const hits = ["hit", "stale"].reduce((sum, n) => sum + last.outcomes[n] - first.outcomes[n], 0);
  const parts = OUTCOMES.map((name) => [name, last.outcomes[name] ?? 0]).filter(([, n]) => n > 0);
  const made = element("article", "card");
  made.append(element("h3", "", dimension.name));
  if (dimension.unavailable) {
    made.append(element("p", "fault", `${dimension.unavailable.code}: ${dimension.unavailable.detail}`));
  } else {
    made.append(element("p", "schema", `(${names(dimension.key)}) → ${names(dimension.columns)}`));
  }
  const big = element("div", "big");
  big.append(
    figure(seconds ? short.format(change / seconds) : "–", "lookups/s"),
    figure(change ? `${Math.floor((1000 * hits) / change) / 10} %` : "–", "hit ratio"),
  );
  const told = parts.map(([name, n]) => `${name} ${whole.format(n)}`).join(", ");
  const legend = element("p", "legend");
  for (const [name, n] of parts) legend.append(element("span", `key ${name}`, `${name} ${short.format(n)}`));
  made.append(big, bar(parts, last.total, told), legend, facts([
    ["lookups", short.format(last.total)],
    ["queries", asked === undefined ? "0" : short.format(asked)],
    ["waiting keys", short.format(dimension.waiting_keys)],
    ["cached entries", short.format(dimension.cache.rows)],
    ["cache", `${size(dimension.cache.bytes)} of ${size(dimension.cache.max_bytes)}`],
    ["staleness", dimension.freshness.staleness_s === null ? "–" : span(dimension.freshness.staleness_s)],
    ["stream watermark", reached === undefined ? "–" : eventTime(Math.round(1000 * reached))],
  ]));
  if (dimension.freshness.feed) made.append(feedPart(dimension.freshness.feed));
  if (dimension.freshness.load) made.append(loadPart(dimension.freshness.load));
  return made;
}

function watermark(channel) {
  if (channel.watermark_ms === null) return "no watermark";
  const told = eventTime(channel.watermark_ms);
  return channel.watermark_ms >= END_OF_INPUT_MS ? told : `watermark ${told}`;
}

function granted(channel) {
  return [channel.exclusive_records, channel.floating_records].map((n) => whole.format(n)).join(" + ");
}

function row(channel) {
  const parts = [
    ["in-flight", channel.in_flight_records],
    ["backlog", channel.backlog_records],
    ["credit", channel.credit_records],
  ];
  const told = parts.map(([name, n]) => `${name} ${whole.format(n)}`).join(", ");
  const made = element("div", "channel");
  const title = element("p");
  title.append(
    element("b", "", channel.dimension),
    element("span", "", channel.origin || `${channel.connection}/${channel.channel}`),
    element("span", channel.is_idle ? "status idle" : "status", channel.is_idle ? "idle" : "active"),
    element("small", "", `${told} of ${granted(channel)}, ${watermark(channel)}`),
  );
  made.append(title, bar(parts, parts.reduce((sum, [, n]) => sum + n, 0), told));
  return made;
}

function say(text, isBad) {
  byId("state").textContent = text;
  byId("state").className = isBad ? "bad" : "";
}

async function refresh() {
  const list = await (await ask("/v1/dimensions")).json();
  const paths = list.dimensions.map((name) => `/v1/dimensions/${encodeURIComponent(name)}`);
  const [metrics, channels, ...answers] = await Promise.all(["/metrics", "/v1/channels", ...paths].map(ask));
  const text = await metrics.text();
  const asked = byDimension(text, "sidelook_backend_queries_total");
  const reached = byDimension(text, "sidelook_stream_watermark_seconds");
  const open = (await channels.json()).channels;
  const dimensions = await Promise.all(answers.map((answer) => answer.json()));
  const at = performance.now();
  byId("token-form").hidden = true;
  byId("dimensions").replaceChildren(...dimensions.map((each) => {
    const figures = { asked: asked.get(each.name), reached: reached.get(each.name) };
    return card(each, figures, at);
  }));
  const more = open.length ? `${open.length - MAX_CHANNELS} more are not shown.` : "No stream is open.";
  byId("channels").replaceChildren(...open.slice(0, MAX_CHANNELS).map(row));
  if (!open.length || open.length > MAX_CHANNELS) byId("channels").append(element("p", "none", more));
  const ready = await fetch("/readyz", { cache: "no-store" });
  say(ready.ok ? "Ready" : `Not ready. ${(await ready.json()).detail}`, !ready.ok);
}

async function run() {
  try {
    if (!document.hidden && token !== refusedToken) await refresh();
  } catch (error) {
    say(`No figures: ${error.message}.${history.size ? " Those below are old." : ""}`, true);
  }
  setTimeout(run, PERIOD_MS);
}

byId("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  token = byId("token").value;
});
run();
