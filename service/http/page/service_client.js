// Client of `/v1/status` and its history. The token is kept in this module only, until the page is closed.

const TIMEOUT_MS = 5_000;
let token = "";
let refusedToken = null; // not sent again by itself, because the service logs each refusal

class Refused extends Error {}

function isRefused() {
  return token === refusedToken;
}

// Also accepts a refused token: the service may accept it by now.
function useToken(text) {
  token = text;
  refusedToken = null;
}

async function fetchJson(path) {
  const sent = token; // another one may be entered before the response
  const headers = sent ? { Authorization: `Bearer ${sent}` } : {};
  const response = await fetch(path, {
    headers,
    cache: "no-store",
    signal: AbortSignal.timeout(TIMEOUT_MS),
  });
  if (response.status === 401) {
    refusedToken = sent;
    throw new Refused();
  }
  if (!response.ok) throw new Error(`the service returned ${response.status}`);
  return response.json();
}
