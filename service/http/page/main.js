// Polls the status each second and shows it; pauses in a hidden tab, and slows down during an outage.

const PERIOD_MS = 1_000;
const LONGEST_PAUSE_MS = 10_000;
const histories = new Map(); // {dimension: History}; the key null has the sum of all
let failures = 0; // in a row
let seenAt = null; // wall-clock time of the last status
let nextAt = 0;
let timer = null;
let isRunning = false;
let latest = null; // the last status
let hasHistory = false; // of the service, since the page saw it last

function remember(name, totals, at) {
  if (!histories.has(name)) histories.set(name, new History());
  histories.get(name).remember(totals, at);
  return histories.get(name);
}

// The samples that the service keeps, so that charts show the minutes before the page was opened.
function takeHistory({ ages_s: ages, dimensions }) {
  const now = performance.now();
  histories.clear();
  ages.forEach((age, index) => {
    if (age * 1000 < PERIOD_MS) return; // a rate needs some time to the next sample
    const at = now - age * 1000;
    const all = dimensions.map((dimension) => totalsAt(dimension, index));
    dimensions.forEach(({ name }, place) => remember(name, all[place], at));
    remember(null, summed(all), at);
  });
  hasHistory = true;
}

function updateOverview(status, at) {
  const totals = summed(status.dimensions.map(totalsOf));
  const history = remember(null, totals, at);
  const perQuery = totals.queries ? keysIn(totals) / totals.queries : 0;
  const idle = status.channels.filter((each) => each.is_idle).length;
  setFigures(byId("overview"), [
    ...trafficFigures(history, totals),
    ["keys answered per query", perQuery ? rate(perQuery) : "–", "overall"],
    ["channels", count(status.channels.length), status.channels.length ? `${count(idle)} idle` : lastStream(status)],
  ]);
}

function updatePage(status) {
  const at = performance.now();
  showHealth(healthOf(status));
  showSince("");
  document.body.classList.remove("is-old", "is-empty");
  show(byId("token-form"), false);
  updateProcess(status);
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
  updateEndedStreams(status.ended_streams);
  updateErrors(status);
}

function requestToken() {
  show(byId("token-form"), true);
  document.body.classList.add("is-empty"); // figures shown before are hidden, too
  seenAt = null;
  failures = 0; // the service responds; the page waits for a token
  showSince("");
  showHealth({
    kind: "waiting",
    word: "A token is needed",
    reasons: [token ? "this token was refused" : "enter it to see the figures"],
  });
}

function showOutage(error) {
  hasHistory = false;
  failures += 1;
  let reason = error.message;
  if (error.name === "TimeoutError") reason = "the request timed out";
  else if (error instanceof TypeError) reason = "no connection";
  showHealth({ kind: "bad", word: "Cannot be reached", reasons: [reason] });
  document.body.classList.toggle("is-old", seenAt !== null);
}

// Happens in a tab that is older than the service. All figures are hidden: they may be half updated.
function showUnreadable() {
  failures += 1;
  seenAt = null;
  document.body.classList.add("is-empty");
  show(byId("token-form"), false);
  showHealth({
    kind: "bad",
    word: "Cannot be read",
    reasons: ["the response is not what this page expects", "reloading the page may help"],
  });
}

function showNextAttempt() {
  if (failures === 0) return;
  const next = Math.max(0, Math.round((nextAt - Date.now()) / 1000));
  const since =
    seenAt === null
      ? ""
      : `since ${clockTime(seenAt)}, for ${span(Math.round((Date.now() - seenAt) / 1000))}; the figures below date from then. `;
  showSince(`${since}${next ? `Next attempt in ${next} s.` : "Trying again …"}`);
}

function showAnswer(status) {
  try {
    updatePage(status);
  } catch (error) {
    console.info(error); // for debugging the page
    showUnreadable();
    return;
  }
  failures = 0;
  seenAt = Date.now();
  latest = status;
}

async function refresh() {
  let status;
  try {
    status = await fetchJson("/v1/status");
    if (!hasHistory) takeHistory(await fetchJson("/v1/status/history"));
  } catch (error) {
    if (error instanceof Refused) requestToken();
    else if (error instanceof SyntaxError) showUnreadable();
    else showOutage(error);
    return;
  }
  showAnswer(status);
}

async function run() {
  if (isRunning || document.hidden) return; // `visibilitychange` resumes
  isRunning = true;
  clearTimeout(timer);
  try {
    if (!isRefused()) await refresh();
  } finally {
    isRunning = false;
    const pauseMs = Math.min(LONGEST_PAUSE_MS, PERIOD_MS * 2 ** Math.max(0, failures - 1));
    nextAt = Date.now() + pauseMs;
    timer = setTimeout(run, pauseMs);
    showNextAttempt();
  }
}

document.addEventListener("visibilitychange", () => {
  if (document.hidden) hasHistory = false; // the page takes no samples
  else run();
});
byId("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  useToken(byId("token").value);
  run();
});
// Updated at once: until the next response an opened group would be empty.
byId("channels").addEventListener(
  "toggle",
  () => {
    if (latest !== null) updateChannels(latest.channels);
  },
  true,
);
setInterval(showNextAttempt, PERIOD_MS);
run();
