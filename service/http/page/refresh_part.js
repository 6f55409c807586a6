// Change feed and full table of a dimension, with their splits as cells.

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
  const title = element("p", "title", element("b", "", word(name)), element("span", "mark"), element("small", ""));
  const rest = [element("div", "cells"), element("p", "legend"), element("p", "fault")];
  return element("div", "refresh", title, element("div", "bar"), ...rest);
}

function updateSplits(cells, legend, splits) {
  const counts = new Map(); // {look: splits}
  for (const split of splits) counts.set(lookOf(split), (counts.get(lookOf(split)) ?? 0) + 1);
  const shown = [...counts].map(([look, number]) => `${count(number)} ${look.replace("-", " ")}`);
  const words = `splits: ${shown.join(", ")}`;
  show(cells, splits.length > 0);
  show(legend, splits.length > 0);
  setText(legend, words);
  setAttribute(cells, "role", "img");
  setAttribute(cells, "aria-label", words);
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

function updateRefreshPart(part, { kind, state, detail, progress, splits, fault }) {
  const [title, bar, cells, legend, faultLine] = part.children;
  setMark(title.children[1], kind, state);
  setText(title.children[2], detail);
  show(bar, progress !== null);
  if (progress) {
    const { rows, of } = progress;
    setBar(bar, [["fetched", rows], ["left", Math.max(0, of - rows)]], detail);
  }
  updateSplits(cells, legend, splits);
  show(faultLine, fault !== null);
  setText(faultLine, fault ?? "");
}

function auditWords({ is_audited: isAudited, audited_keys: { agreed, suspect, contradicted } }) {
  if (!isAudited) return ["not audited"];
  const compared = agreed + suspect;
  if (compared === 0) return [];
  const wrong = contradicted === 0 ? "" : ` (${count(contradicted)} wrong)`;
  return [`${plural(compared, "key", "keys")} audited${wrong}`];
}

function feedView(feed) {
  const { state, watermark_ms: watermark, splits, last_error: error } = feed;
  const failing = splits.find((split) => split.last_error !== null);
  const reached = watermark === null ? "no event time yet" : `${behind(watermark)}, up to ${eventTime(watermark)}`;
  return {
    kind: { live: "good", silent: "bad", incomplete: "bad" }[state] ?? "waiting",
    state,
    detail: [reached, ...auditWords(feed)].join(", "),
    progress: null,
    splits,
    fault: error ?? (failing ? `${failing.id}: ${failing.last_error}` : null),
  };
}

function loadView({ is_loading, is_whole, rows, expected_rows: expected, last_seconds: last, splits, last_error }) {
  const common = { splits, fault: last_error };
  if (is_loading) {
    const about = expected === null ? "" : ` of about ${count(expected)}`;
    const share = expected ? `, ${percent(rows, expected)}` : "";
    return {
      ...common,
      kind: "waiting",
      state: is_whole ? "reloading" : "loading",
      detail: `${count(rows)}${about} rows read${share}`,
      progress: expected ? { rows, of: expected } : null,
    };
  }
  return {
    ...common,
    kind: is_whole ? "good" : "bad",
    state: is_whole ? "loaded" : "not loaded",
    detail: last === null ? "" : `${plural(rows, "row", "rows")} in ${span(last)}`,
    progress: null,
  };
}

function updateRefresh(box, { feed, load }) {
  const parts = [["change feed", feed && feedView(feed)], ["full table", load && loadView(load)]];
  keepChildren(
    box,
    parts.filter(([, view]) => view),
    ([name]) => name,
    ([name]) => makeRefreshPart(name),
    (part, [, view]) => updateRefreshPart(part, view),
  );
}
