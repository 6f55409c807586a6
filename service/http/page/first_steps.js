// Examples for an idle sidecar: the first lookup, and the first stream.

const EXAMPLES = {
  int: 1,
  uint: 1,
  string: "…",
  uuid: "00000000-0000-0000-0000-000000000000",
  bool: true,
  date: "2026-01-31",
  timestamp: "2026-01-31T12:00:00Z",
  decimal: "1.50",
};

function exampleOf(field) {
  const kind = Object.keys(EXAMPLES).find((name) => field.type.startsWith(name));
  return EXAMPLES[kind] ?? "…";
}

function exampleKey(fields) {
  return fields.length === 1 ? exampleOf(fields[0]) : fields.map(exampleOf);
}

function quoted(text) {
  return `'${text.replaceAll("'", "'\\''")}'`; // for a shell
}

function curlOf(dimension) {
  const body = JSON.stringify({ keys: [exampleKey(dimension.key)] });
  const shown = token ? '-H "Authorization: Bearer $TOKEN" ' : "";
  return `curl ${shown}-d ${quoted(body)} ${location.origin}/v1/dimensions/${dimension.name}/lookup`;
}

function joinOf(dimension) {
  const on = dimension.key.map((field) => JSON.stringify(field.name)).join(", ");
  const key = dimension.key.length === 1 ? on : `[${on}]`;
  const columns = dimension.columns.slice(0, 2).map((field) => JSON.stringify(field.name));
  return [
    "from spark_client import Sidecar",
    `dims = Sidecar("${location.origin}")`,
    '# or, in the same pod, through listen.unix: Sidecar("unix:///run/sidelook/sidelook.sock")',
    `df.transform(dims.lookup_join("${dimension.name}", on=${key}, columns=[${columns.join(", ")}]))`,
  ].join("\n");
}

function advise(box, words, code) {
  if (!box.childElementCount) {
    const example = element("pre", "", element("code", ""));
    example.tabIndex = 0; // scrollable by keyboard
    box.append(element("p", ""), example);
  }
  setText(box.firstElementChild, words);
  setText(box.lastElementChild.firstElementChild, code);
}

function updateFirstSteps(status) {
  const known = status.dimensions.find((dimension) => dimension.key?.length && dimension.columns?.length);
  const hasLookups = status.dimensions.some((dimension) => keysIn(dimension.lookups) > 0);
  show(byId("first-lookup"), known !== undefined && !hasLookups);
  show(byId("first-channel"), known !== undefined && status.channels.length + status.ended_streams.length === 0);
  if (known === undefined) return;
  advise(byId("first-lookup"), "No lookups yet. Look up one of your keys:", curlOf(known));
  advise(
    byId("first-channel"),
    "No stream is open. A running Spark job opens one per task and lookup join:",
    joinOf(known),
  );
}
