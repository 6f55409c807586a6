// What the words of the page mean. Each is a button that tells it, so that keys and fingers find it, too.

const MEANINGS = {
  "event loop lag": "How late the sidecar came to its work, at worst in the last 15 seconds. All lookups wait so long.",
  memory: "What the process takes. What lookups and caches add to it is bounded by limits.memory.",

  "keys/s":
    "Keys that were asked for and have their answer, each second. A plain request counts all of its keys, a batch of a stream each distinct key once: so one key may stand for many records.",
  "hit ratio":
    "The share of the keys whose row came from the cache, without a query. Keys without a row count as missing, also where the cache knew.",
  "queries/s": "Queries to the store each second, further tries included.",
  "keys per query": "How many distinct keys one query asks the store for. Keys that the cache lacks are gathered into batches.",
  "answers per query": "How many keys were answered for each query to a store: what cache and batches save together.",
  channels:
    "A channel is one stream of lookups of one task to one dimension. A Spark job opens one for each task and lookup join. An idle one has nothing to ask for now.",

  cache: "What it holds: rows, and keys that are known to have none.",
  queries: "Queries that are at the store now. How many may be follows how quick the store is, up to max_in_flight.",
  staleness: "How far the rows that are held may lag behind the table, at most.",
  "unanswered keys": "Keys that were asked for and have no answer yet. A key that three ask for counts three times.",
  "queued keys":
    "Distinct keys in line for a query. Those whose askers have all given up leave the line when it is their turn, without a query: so there may be some while no key is unanswered.",
  "coalesced keys": "Keys that somebody asked for while they were being fetched already: they share that query, and cost none.",
  "further tries": "Queries made again after a failure, and keys asked for again because they had no row yet.",
  "evicted for size": "What the cache dropped to make room. If it is much, and the hit ratio low, the cache is too small.",
  changes: "The feed that tells of changes of the table. Splits are its parts, as the partitions of a topic.",
  "whole table": "All rows are held here. Splits are the parts that it is loaded in.",

  "in flight": "Records that a task has asked for, and whose answers are on their way.",
  backlog: "Records that a task has ready and may not send yet, because its credit is used up.",
  "unused credit":
    "How many records more a task may send now. The sidecar grants it, so that its memory stays bounded; answers give it back.",
  watermark:
    "What a task has promised: no record with an earlier event time will follow. Shown by how far that time is behind the clock of this browser.",
};
const MARGIN = 8; // to the word, and to the border of the window

// The word as a button, if there is something to tell; else as it is.
function word(name) {
  if (!Object.hasOwn(MEANINGS, name)) return name;
  const made = element("button", "word", name);
  made.type = "button";
  made.title = MEANINGS[name];
  made.addEventListener("click", () => explain(made));
  return made;
}

function explain(asked) {
  const meaning = byId("meaning");
  const isShown = meaning.matches(":popover-open") && meaning.textContent === asked.title;
  meaning.hidePopover();
  if (isShown) return;
  setText(meaning, asked.title);
  meaning.showPopover();
  placeBeside(meaning, asked.getBoundingClientRect());
}

// Below the word, or above it where there is no room.
function placeBeside(box, { left, top, bottom }) {
  const room = document.documentElement;
  const isBelow = bottom + box.offsetHeight + 2 * MARGIN <= room.clientHeight;
  const x = Math.max(MARGIN, Math.min(left, room.clientWidth - box.offsetWidth - MARGIN));
  const y = isBelow ? bottom + MARGIN : top - box.offsetHeight - MARGIN;
  box.style.left = `${x + scrollX}px`;
  box.style.top = `${y + scrollY}px`;
}
