// How a dimension is followed and loaded: its feed, its whole table, and their splits as cells.

const MAX_SPLITS = 100;

function lookOf(split) {
  if (split.state !== "assigned") return split.state;
  if (split.is_paused) return "paused";
  return split.is_caught_up ? "caught-up" : "reading";
}

function splitTitle(split) {
  const of = split.total === null ? "" : ` of ${count(split.total)}`;
  const position = split.position === null ? "" : `, at ${count(split.position)}${of}`;
  const reached = split.watermark_ms === null ? "" : `, up to ${eventTime(split.watermark_ms)}`;
  return `${split.id}: ${lookOf(split).replace("-", " ")}${position}${reached}${split.is_idle ? ", idle" : ""}`;
}

function makeRefreshPart(name) {
  const bar = element("div", "bar");
  const title = element("p", "title", element("b", "", word(name)), element("span", "mark"), element("small", ""));
  return element(
    "div",
    "refresh",
    title,
    bar,
    element("div", "cells"),
    element("p", "legend"),
    element("p", "fault"),
  );
}

function updateSplits(cells, legend, splits) {
  const counts = new Map(); // {look: splits}
  for (const split of splits) counts.set(lookOf(split), (counts.get(lookOf(split)) ?? 0) + 1);
  const told = [...counts].map(([look, number]) => `${count(number)} ${look.replace("-", " ")}`).join(", ");
  show(cells, splits.length > 0);
  show(legend, splits.length > 0);
  setText(legend, `splits: ${told}`);
  setAttribute(cells, "role", "img");
  setAttribute(cells, "aria-label", `splits: ${told}`);
  keepChildren(
    cells,
    splits.slice(0, MAX_SPLITS),
    (split) => split.id,
    () => element("i", ""),
    (cell, split) => {
      setAttribute(cell, "class", lookOf(split));
      setAttribute(cell, "title", splitTitle(split));
    },
  );
}

function updateRefreshPart(part, { kind, word, told, progress, splits, fault }) {
  const [title, bar, cells, legend, faultLine] = part.children;
  setMark(title.children[1], kind, word);
  setText(title.children[2], told);
  show(bar, progress !== null);
  if (progress)
    setBar(
      bar,
      [
        ["fetched", progress.rows],
        ["left", Math.max(0, progress.of - progress.rows)],
      ],
      told,
    );
  updateSplits(cells, legend, splits);
  show(faultLine, fault !== null);
  setText(faultLine, fault ?? "");
}

function feedView(feed) {
  const failing = feed.splits.find((split) => split.last_error !== null);
  return {
    kind: { live: "good", silent: "bad" }[feed.state] ?? "waiting",
    word: feed.state,
    told:
      feed.watermark_ms === null
        ? "no event time yet"
        : `${behind(feed.watermark_ms)}, up to ${eventTime(feed.watermark_ms)}`,
    progress: null,
    splits: feed.splits,
    fault: feed.last_error ?? (failing ? `${failing.id}: ${failing.last_error}` : null),
  };
}

function loadView(load) {
  const about = load.expected_rows === null ? "" : ` of about ${count(load.expected_rows)}`;
  const last = load.last_seconds === null ? "" : `${plural(load.rows, "row", "rows")} in ${span(load.last_seconds)}`;
  const share = load.expected_rows ? `, ${percent(load.rows, load.expected_rows)}` : "";
  const begun = load.is_loading ? "Loading fails so far." : "The last load failed.";
  return {
    kind: load.is_whole && !load.is_loading ? "good" : load.is_loading ? "waiting" : "bad",
    word: load.is_loading
      ? load.is_whole
        ? "loading anew"
        : "loading"
      : load.is_whole
        ? "whole"
        : "not whole",
    told: load.is_loading ? `${count(load.rows)}${about} rows read${share}` : last,
    progress: load.is_loading && load.expected_rows ? { rows: load.rows, of: load.expected_rows } : null,
    splits: load.splits,
    fault: load.last_error === null ? null : `${begun} ${load.last_error}`,
  };
}

function updateRefresh(box, { feed, load }) {
  const parts = [
    ["changes", feed && feedView(feed)],
    ["whole table", load && loadView(load)],
  ].filter(([, view]) => view);
  keepChildren(
    box,
    parts,
    ([name]) => name,
    ([name]) => makeRefreshPart(name),
    (part, [, view]) => updateRefreshPart(part, view),
  );
}
