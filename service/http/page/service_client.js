// Asks the service, with the token if there is one. The token stays in here, and dies with the page.

const ANSWER_TIMEOUT_MS = 5_000;
let token = "";
let refusedToken = null; // not asked with again by itself: each refusal stands in the service's log

class Refused extends Error {}

function isRefused() {
  return token === refusedToken;
}

// Also the one that was refused: the service may know it by now.
function useToken(text) {
  token = text;
  refusedToken = null;
}

async function fetchStatus() {
  const asked = token; // another may be entered before the answer
  const headers = asked ? { Authorization: `Bearer ${asked}` } : {};
  const answer = await fetch("/v1/status", {
    headers,
    cache: "no-store",
    signal: AbortSignal.timeout(ANSWER_TIMEOUT_MS),
  });
  if (answer.status === 401) {
    refusedToken = asked;
    throw new Refused();
  }
  if (!answer.ok) throw new Error(`it answered ${answer.status}`);
  return answer.json();
}
