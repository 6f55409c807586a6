// Glossary of the page. Each term is a button, so that it works by keyboard and touch, too.

const MEANINGS = {
  "event loop lag": "The largest delay of the sidecar's event loop in the last 15 seconds. It delays every lookup.",
  memory: "Resident memory of the process. limits.memory bounds the part of lookups and caches.",

  "keys/s":
    "Keys answered per second. An HTTP request counts all of its keys; a stream batch counts each distinct key once, so one key may stand for many records.",
  "hit ratio":
    "The share of keys whose row came from the cache, without a query. Keys without a row count as missing, even if the cache knew that.",
  "queries/s": "Queries to the backend per second, retries included.",
  "keys per query": "Distinct keys per query. Keys that are not cached are collected into batches.",
  "keys answered per query": "Keys answered per query to a backend: the saving by cache and batches together.",
  channels:
    "A channel is one stream of lookups of one task to one dimension. A Spark job opens one per task and lookup join. An idle channel has no input at present.",

  cache: "Cached rows, and keys that are known to have no row.",
  "shared memory":
    "Files of the cache that workers on this machine read themselves: their hits need no message to the sidecar. The keys count among all others.",
  queries:
    "Queries that run now. The limit adapts to the backend's latency, up to max_in_flight and the dimension's share of limits.database_connections.",
  "connection wait":
    "The time since the start in which a query was due and all connections to its database were in use.",
  staleness: "How far the cached rows may lag behind the table, at most.",
  "unanswered keys": "Requested keys without an answer yet. A key requested three times counts three times.",
  "queued keys":
    "Distinct keys that wait for a query. A key whose requests have all ended leaves the queue at its turn, without a query. So keys may be queued although no key is unanswered.",
  "coalesced keys": "Keys that were already being fetched when they were requested: they share that query.",
  retries: "Queries repeated after a failure, and lookups of missing keys repeated.",
  "evicted for size": "Entries dropped to make room. If there are many and the hit ratio is low, the cache is too small.",
  "change feed": "The feed of changes to the table. A split is one part of it, such as a partition of a topic.",
  "full table": "All rows of the table are cached. A split is one part of a load.",

  "in flight": "Records of a task whose answers are not sent yet.",
  backlog: "Records that a task has ready and may not send yet, because its credit is used up.",
  "unused credit":
    "Records that a task may still send now. Credit bounds the memory of the sidecar; answers return it.",
  watermark:
    "The event time of a task: no record with an earlier one will follow. Shown is how far it is behind the clock of this browser.",
};
const MARGIN = 8; // pixels to the term, and to the edge of the window

// The term as a button that shows its definition; a plain text if it has none.
function word(name) {
  if (!Object.hasOwn(MEANINGS, name)) return name;
  const made = element("button", "word", name);
  made.type = "button";
  made.title = MEANINGS[name];
  made.addEventListener("click", () => explain(made));
  return made;
}

function explain(term) {
  const meaning = byId("meaning");
  const isShown = meaning.matches(":popover-open") && meaning.textContent === term.title;
  meaning.hidePopover();
  if (isShown) return;
  setText(meaning, term.title);
  meaning.showPopover();
  placeNextTo(meaning, term.getBoundingClientRect());
}

// Below the term, or above it if there is no room.
function placeNextTo(box, { left, top, bottom }) {
  const room = document.documentElement;
  const isBelow = bottom + box.offsetHeight + 2 * MARGIN <= room.clientHeight;
  const x = Math.max(MARGIN, Math.min(left, room.clientWidth - box.offsetWidth - MARGIN));
  const y = isBelow ? bottom + MARGIN : top - box.offsetHeight - MARGIN;
  box.style.left = `${x + scrollX}px`;
  box.style.top = `${y + scrollY}px`;
}
