// Polls the status each second and shows it; pauses in a hidden tab, and slows down during an outage.

const TIMEOUT_MS = 5_000;
const PERIOD_MS = 1_000;
const MINUTES_PERIOD_MS = 5_000;
const LONGEST_PAUSE_MS = 10_000;
let token = ""; // kept here only, until the page is closed
let refusedToken = null; // not sent again by itself, because the service logs each refusal
let failures = 0; // in a row
let seenAt = null; // wall-clock time of the last status
let nextAt = 0;
let timer = null;
let isRunning = false;
let latest = null; // the last status
let minutes = null; // the last ten, as the service has sampled them
let minutesAt = -Infinity;

class Refused extends Error {}

async function fetchJson(path) {
  const sent = token; // another one may be entered before the response
  const headers = sent ? { Authorization: `Bearer ${sent}` } : {};
  const signal = AbortSignal.timeout(TIMEOUT_MS);
  const response = await fetch(path, { headers, cache: "no-store", signal });
  if (response.status === 401) {
    refusedToken = sent;
    throw new Refused();
  }
  if (!response.ok) throw new Error(`the service returned ${response.status}`);
  return response.json();
}

function showState(kind, word, reasons) {
  byId("health").className = `health ${kind}`;
  fill("state-word", word); // in a live region: screen readers announce the changed part only
  fill("state-reasons", reasons.join(" · "));
  document.title = kind === "good" ? "Sidelook" : `${word} – Sidelook`;
}

// Health as the service reports it; the page judges nothing itself.
function showHealth({ state, summary, reasons }) {
  const warnings = reasons.filter(({ severity }) => severity === "warning");
  const word = (state[0].toUpperCase() + state.slice(1)).replaceAll("_", " ");
  const texts = warnings.map(({ dimensions, text }) => `${dimensions.join(", ")}: ${text}`);
  showState(state === "healthy" ? "good" : "warning", word, texts.length ? texts : [summary]);
}

function showOverview({ dimensions, channels, ended_streams: ended }, at) {
  const totals = summed(dimensions.map(totalsOf));
  const idle = channels.filter((channel) => channel.is_idle).length;
  const last = ended.length ? `last one ${ago(Math.min(...ended.map((stream) => stream.ended_ago_s)))}` : "no stream is open";
  fill("overview", figures([
    ...trafficFigures(recentGrowth(null, totals, at), totals),
    ["keys answered per query", totals.queries ? rate(keysIn(totals) / totals.queries) : "–", "overall"],
    ["channels", count(channels.length), channels.length ? `${count(idle)} idle` : last],
  ]));
}

function showStatus(status) {
  const at = performance.now();
  const { resident_bytes: resident, limit_bytes: limit } = status.memory;
  const lagS = status.event_loop_lag_s;
  fill("process", facts([
    ["version", status.version],
    ["up", span(status.uptime_s)],
    ["memory", resident === null ? null : size(resident), `limits.memory is ${size(limit)}`],
    ["event loop lag", lagS < 0.0005 ? "< 1 ms" : span(lagS)],
  ]));
  showOverview(status, at);
  fill("dimensions", status.dimensions.map((dimension) => card(dimension, at, minutes)));
  showChannels(status);
  fill("ended-streams", status.ended_streams.map(endedStream));
  showErrors(status);
  showExample(status);
  showHealth(status.health);
  byId("token-form").hidden = true;
  document.body.classList.remove("is-old", "is-empty");
}

// Hides the figures: the page has none, or they may be half updated.
function showNoFigures(kind, word, reasons) {
  document.body.classList.add("is-empty");
  seenAt = null;
  showState(kind, word, reasons);
}

function showFailure(error) {
  const isRefused = error instanceof Refused;
  failures = isRefused ? 0 : failures + 1; // the service responds; the page waits for a token
  byId("token-form").hidden = !isRefused;
  if (isRefused) {
    showNoFigures("waiting", "A token is needed", [token ? "this token was refused" : "enter it to see the figures"]);
  } else if (error instanceof Unreadable) {
    showNoFigures("bad", "Cannot be read", ["the response is not what this page expects", "reloading the page may help"]);
  } else {
    const reasons = { TimeoutError: "the request timed out", TypeError: "no connection" };
    showState("bad", "Cannot be reached", [reasons[error.name] ?? error.message]);
    document.body.classList.toggle("is-old", seenAt !== null);
  }
}

// Outside the live region, because a counting time must not be announced.
function showNextAttempt() {
  const next = Math.max(0, Math.round((nextAt - Date.now()) / 1000));
  const passed = span(Math.round((Date.now() - seenAt) / 1000));
  const since = seenAt === null ? "" : `since ${clockTime(seenAt)}, for ${passed}; the figures below date from then. `;
  fill("state-since", failures ? `${since}${next ? `Next attempt in ${next} s.` : "Trying again …"}` : null);
}

// A response of another version, in a tab that is older than the service, or of no service at all.
class Unreadable extends Error {}

function tryShow(status) {
  try {
    showStatus(status);
  } catch (error) {
    console.info(error); // for debugging the page
    throw new Unreadable();
  }
}

async function refresh() {
  try {
    const status = await fetchJson("/v1/status");
    if (performance.now() - minutesAt >= MINUTES_PERIOD_MS) {
      minutes = await fetchJson("/v1/status/history");
      minutesAt = performance.now();
    }
    tryShow(status);
    [failures, seenAt, latest] = [0, Date.now(), status];
  } catch (error) {
    showFailure(error instanceof SyntaxError ? new Unreadable() : error);
  }
}

async function run() {
  if (isRunning || document.hidden) return; // `visibilitychange` resumes
  isRunning = true;
  clearTimeout(timer);
  if (token !== refusedToken) await refresh();
  isRunning = false;
  const pauseMs = Math.min(LONGEST_PAUSE_MS, PERIOD_MS * 2 ** Math.max(0, failures - 1));
  nextAt = Date.now() + pauseMs;
  timer = setTimeout(run, pauseMs);
  showNextAttempt();
}

document.addEventListener("visibilitychange", () => {
  if (document.hidden) samples.clear(); // rates are those of the last seconds
  else run();
});
byId("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  token = byId("token").value;
  refusedToken = null; // also a refused token: the service may accept it by now
  run();
});
// Shown at once: until the next response an opened group would be empty.
byId("channels").addEventListener("toggle", () => latest && showChannels(latest), true);
setInterval(showNextAttempt, PERIOD_MS);
run();
