// Reads the service's status each second and shows it; stops while nobody looks, and asks less while it is away.

const PERIOD_MS = 1_000;
const LONGEST_PAUSE_MS = 10_000;
const histories = new Map(); // {dimension: History}; null is the sum of all
let failures = 0; // in a row
let seenAt = null; // when the service answered last, as the clock says
let nextAt = 0;
let timer = null;
let isRunning = false;
let latest = null; // the last status

function remember(name, totals, at) {
  if (!histories.has(name)) histories.set(name, new History());
  histories.get(name).remember(totals, at);
  return histories.get(name);
}

function updateOverview(status, at) {
  const totals = summed(status.dimensions.map(totalsOf));
  const history = remember(null, totals, at);
  const perQuery = totals.queries ? keysIn(totals) / totals.queries : 0;
  const channels = status.channels.length;
  setFigures(byId("overview"), [
    ...trafficFigures(history, totals),
    ["answers per query", perQuery ? rate(perQuery) : "–", "overall"],
    [
      "channels",
      count(channels),
      channels ? `${count(status.channels.filter((each) => each.is_idle).length)} idle` : "no stream is open",
    ],
  ]);
}

function updatePage(status) {
  const at = performance.now();
  sayHealth(healthOf(status));
  saySince("");
  document.body.classList.remove("is-old", "is-empty");
  show(byId("token-form"), false);
  updateVitals(status);
  updateOverview(status, at);
  keepChildren(
    byId("dimensions"),
    status.dimensions,
    (dimension) => dimension.name,
    makeCard,
    (card, dimension) => updateCard(card, dimension, remember(dimension.name, totalsOf(dimension), at)),
  );
  updateFirstSteps(status);
  updateChannels(status.channels);
  updateErrors(status);
}

function askForToken() {
  show(byId("token-form"), true);
  document.body.classList.add("is-empty"); // also of what was shown: it is for who has a token
  seenAt = null;
  failures = 0; // it is there, and not asked again until there is a token
  saySince("");
  sayHealth({
    kind: "waiting",
    word: "A token is needed",
    reasons: [token ? "this one was refused" : "the figures are for who has it"],
  });
}

function sayAway(error) {
  failures += 1;
  const why =
    error.name === "TimeoutError"
      ? "no answer in time"
      : error instanceof TypeError
        ? "no connection"
        : error.message;
  sayHealth({ kind: "bad", word: "Cannot be reached", reasons: [why] });
  document.body.classList.toggle("is-old", seenAt !== null);
}

// A tab that is older than the service, say. Nothing is left of the figures: some may be new and some old.
function sayUnreadable() {
  failures += 1;
  seenAt = null;
  document.body.classList.add("is-empty");
  show(byId("token-form"), false);
  sayHealth({
    kind: "bad",
    word: "Cannot be read",
    reasons: ["the service answers, but not as this page expects", "reloading the page may help"],
  });
}

function tellAway() {
  if (failures === 0) return;
  const next = Math.max(0, Math.round((nextAt - Date.now()) / 1000));
  const since =
    seenAt === null
      ? ""
      : `since ${clockTime(seenAt)}, for ${span(Math.round((Date.now() - seenAt) / 1000))}; the figures below are from then. `;
  saySince(`${since}${next ? `Next try in ${next} s.` : "Trying again …"}`);
}

function showAnswer(status) {
  try {
    updatePage(status);
  } catch (error) {
    console.info(error); // for who mends the page
    sayUnreadable();
    return;
  }
  failures = 0;
  seenAt = Date.now();
  latest = status;
}

async function refresh() {
  let status;
  try {
    status = await fetchStatus();
  } catch (error) {
    if (error instanceof Refused) askForToken();
    else if (error instanceof SyntaxError) sayUnreadable();
    else sayAway(error);
    return;
  }
  showAnswer(status);
}

async function run() {
  if (isRunning || document.hidden) return; // `visibilitychange` goes on
  isRunning = true;
  clearTimeout(timer);
  try {
    if (!isRefused()) await refresh();
  } finally {
    isRunning = false;
    const pauseMs = Math.min(LONGEST_PAUSE_MS, PERIOD_MS * 2 ** Math.max(0, failures - 1));
    nextAt = Date.now() + pauseMs;
    timer = setTimeout(run, pauseMs);
    tellAway();
  }
}

document.addEventListener("visibilitychange", () => {
  if (!document.hidden) run();
});
byId("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  useToken(byId("token").value);
  run();
});
// At once, not with the next answer: an empty group would flash.
byId("channels").addEventListener(
  "toggle",
  () => {
    if (latest !== null) updateChannels(latest.channels);
  },
  true,
);
setInterval(tellAway, PERIOD_MS);
run();
