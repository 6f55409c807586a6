// Elements of the page. Every text becomes a text node, never HTML.

const SVG_TAGS = ["svg", "path"];

function byId(id) {
  return document.getElementById(id);
}

// A new element; attributes and children that are null are left out.
function element(tag, attributes, ...children) {
  const kind = SVG_TAGS.includes(tag) ? "http://www.w3.org/2000/svg" : "http://www.w3.org/1999/xhtml";
  const made = document.createElementNS(kind, tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== false) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.flat().filter((child) => child !== null));
  return made;
}

// Makes the children of an element of the page those given; without any it is hidden.
function fill(id, ...children) {
  const made = byId(id).cloneNode(false);
  made.append(...children.flat().filter((child) => child !== null));
  made.hidden = made.childNodes.length === 0;
  update(byId(id), made);
}

// Changes only what differs, so focus, selections and opened groups are kept.
function update(node, made) {
  for (const name of new Set([...node.getAttributeNames(), ...made.getAttributeNames()])) {
    const value = made.getAttribute(name);
    if (name === "open" || node.getAttribute(name) === value) continue;
    if (value === null) node.removeAttribute(name);
    else node.setAttribute(name, value);
  }
  const wanted = [...made.childNodes];
  const keyed = new Map([...node.children].map((child) => [child.dataset.key, child]));
  wanted.forEach((child, at) => {
    const place = node.childNodes[at] ?? null;
    const known = child.dataset?.key === undefined ? place : keyed.get(child.dataset.key);
    if (!known || known.nodeName !== child.nodeName || known.dataset?.key !== child.dataset?.key) {
      node.insertBefore(child, place);
      return;
    }
    if (known !== place) node.insertBefore(known, place);
    if (known.nodeType !== Node.TEXT_NODE) update(known, child);
    else if (known.data !== child.data) known.data = child.data;
  });
  while (node.childNodes.length > wanted.length) node.lastChild.remove();
}

// A state: its colour, and a sign of another shape.
function mark(kind, text) {
  return element("span", { class: `mark ${kind}` }, text);
}

// Pairs of [name, value, title]; a null value leaves its pair out.
function facts(pairs) {
  return pairs
    .filter(([, value]) => value !== null)
    .map(([name, value, title = null]) =>
      element("div", { "data-key": name, title }, element("dt", {}, name), element("dd", {}, value)),
    );
}

// Large figures: [name, value, note].
function figures(all) {
  return all.map(([name, value, note]) =>
    element("div", { class: "figure" }, element("b", {}, value), element("span", {}, name), element("small", {}, note)),
  );
}
