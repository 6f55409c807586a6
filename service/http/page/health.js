// The head of the page: in one word how the service is, why, and since when it cannot be reached.

const LATELY_S = 15;
// These are faults of single keys, and none of the service's.
const FAULTS_OF_KEYS = ["type", "invalid_text", "key_too_large", "key_rejected", "ambiguous"];
const BREAKER_REASONS = new Map([
  ["open", "the store does not answer, queries are held back"],
  ["half_open", "the store is being probed"],
]);
const ALL_ANSWER = { 1: "the dimension answers", 2: "both dimensions answer" }; // {dimensions: words}

function breakerReason(state) {
  return BREAKER_REASONS.get(state) ?? `breaker ${state}`;
}

function reasonsOf(dimension, notReady) {
  const { backend, freshness } = dimension;
  if (dimension.unavailable) return [`${dimension.unavailable.code}: ${dimension.unavailable.detail}`];
  const reasons = [];
  if (notReady !== undefined) reasons.push(notReady);
  if (backend.breaker !== "closed") reasons.push(breakerReason(backend.breaker));
  if (freshness.feed?.state === "silent") reasons.push("its feed is silent, so the cache is passed by");
  // Who is not ready has said already what its load waits for.
  if (notReady === undefined && freshness.load && !freshness.load.is_whole && !freshness.load.is_loading)
    reasons.push("its table could not be loaded");
  const failing = dimension.recent_errors.filter(
    (error) => error.last_ago_s < LATELY_S && !FAULTS_OF_KEYS.includes(error.code),
  );
  if (failing.length && backend.breaker === "closed")
    reasons.push(`lookups fail (${failing.map((error) => error.code).join(", ")})`);
  return reasons;
}

// A dimension may be called as something that every object inherits: `constructor`.
function notReadyOf(status, name) {
  return Object.hasOwn(status.not_ready, name) ? status.not_ready[name] : undefined;
}

function healthOf(status) {
  if (status.is_draining)
    return {
      kind: "warning",
      word: "Shutting down",
      reasons: ["what was taken in is answered, nothing new is"],
    };
  const names = new Map(); // {reason: dimensions}
  for (const dimension of status.dimensions) {
    for (const reason of reasonsOf(dimension, notReadyOf(status, dimension.name))) {
      names.set(reason, [...(names.get(reason) ?? []), dimension.name]);
    }
  }
  const reasons = [...names].map(([reason, having]) => `${having.join(", ")}: ${reason}`);
  if (reasons.length) return { kind: "warning", word: "Degraded", reasons };
  const answering = ALL_ANSWER[status.dimensions.length] ?? "all dimensions answer";
  return { kind: "good", word: "Healthy", reasons: [answering] };
}

function sayHealth({ kind, word, reasons }) {
  const box = byId("health");
  if (box.dataset.kind !== kind) {
    box.dataset.kind = kind;
    box.className = `health ${kind}`;
    byId("health-icon").replaceChildren(icon(kind));
  }
  // Only what has changed is read out: this is a live region.
  setText(byId("state-word"), word);
  setText(byId("state-reasons"), reasons.map((reason) => ` ${reason}`).join(" ·"));
  const title = kind === "good" ? "Sidelook" : `${word} – Sidelook`;
  if (document.title !== title) document.title = title;
}

// Beside the live region: a time that counts must not be read out.
function saySince(text) {
  show(byId("state-since"), text !== "");
  setText(byId("state-since"), text);
}

function updateVitals(status) {
  const { resident_bytes: resident, limit_bytes: limit } = status.memory;
  setFacts(byId("vitals"), [
    ["version", status.version],
    ["up", span(status.uptime_s)],
    ["memory", resident === null ? null : size(resident), `limits.memory is ${size(limit)}`],
    ["event loop lag", status.event_loop_lag_s < 0.0005 ? "< 1 ms" : span(status.event_loop_lag_s)],
  ]);
}
