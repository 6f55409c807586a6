// Page header: health of the sidecar, and figures of its process.

// Health as the service reports it; the page judges nothing itself.
function healthOf({ health: { state, summary, reasons } }) {
  const warnings = reasons.filter(({ severity }) => severity === "warning");
  return {
    kind: state === "healthy" ? "good" : "warning",
    word: (state[0].toUpperCase() + state.slice(1)).replaceAll("_", " "),
    reasons: warnings.length
      ? warnings.map(({ dimensions, text }) => `${dimensions.join(", ")}: ${text}`)
      : [summary],
  };
}

function showHealth({ kind, word, reasons }) {
  const box = byId("health");
  if (box.dataset.kind !== kind) {
    box.dataset.kind = kind;
    box.className = `health ${kind}`;
    byId("health-icon").replaceChildren(icon(kind));
  }
  // A live region: screen readers announce the changed part only.
  setText(byId("state-word"), word);
  setText(byId("state-reasons"), reasons.map((reason) => ` ${reason}`).join(" ·"));
  const title = kind === "good" ? "Sidelook" : `${word} – Sidelook`;
  if (document.title !== title) document.title = title;
}

// Outside the live region, because a counting time must not be announced.
function showSince(text) {
  show(byId("state-since"), text !== "");
  setText(byId("state-since"), text);
}

function updateProcess(status) {
  const { resident_bytes: resident, limit_bytes: limit } = status.memory;
  setFacts(byId("process"), [
    ["version", status.version],
    ["up", span(status.uptime_s)],
    ["memory", resident === null ? null : size(resident), `limits.memory is ${size(limit)}`],
    ["event loop lag", status.event_loop_lag_s < 0.0005 ? "< 1 ms" : span(status.event_loop_lag_s)],
  ]);
}
