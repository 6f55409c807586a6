// Elements of the page: creation and updates. Every text becomes a text node, never HTML.

const SVG = "http://www.w3.org/2000/svg";
const ICONS = {
  // paths in a square of 16; their shapes differ, not only their colours
  good: "M8 1a7 7 0 1 0 0 14A7 7 0 0 0 8 1Zm3.6 5.1-4.3 5a1 1 0 0 1-1.5 0L4.3 9.4l1.4-1.2 .9 1 3.5-4.2Z",
  warning: "M8 1 .6 14.5h14.8ZM7 6h2v4.5H7Zm0 5.6h2v1.8H7Z",
  bad: "M5 1 1 5v6l4 4h6l4-4V5l-4-4Zm6.3 8.9-1.4 1.4L8 9.4l-1.9 1.9-1.4-1.4L6.6 8 4.7 6.1l1.4-1.4L8 6.6l1.9-1.9 1.4 1.4L9.4 8Z",
  waiting: "M8 1a7 7 0 1 0 0 14A7 7 0 0 0 8 1Zm0 2a5 5 0 1 1 0 10A5 5 0 0 1 8 3Zm-1 2h2v3.5l2 2-1.3 1.2L7 9Z",
};

function byId(id) {
  return document.getElementById(id);
}

function element(tag, className, ...children) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  made.append(...children);
  return made;
}

function svgElement(tag, attributes) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}

function icon(name) {
  const made = svgElement("svg", { viewBox: "0 0 16 16", class: `icon ${name}`, "aria-hidden": "true" });
  made.append(svgElement("path", { d: ICONS[name], "fill-rule": "evenodd" }));
  return made;
}

// Each setter changes the page only if the value differs, so focus and selections are kept.

function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

function setAttribute(node, name, value) {
  if (node.getAttribute(name) !== value) node.setAttribute(name, value);
}

function show(node, isShown) {
  if (node.hidden === isShown) node.hidden = !isShown;
}

// Gives `parent` one child per item, in order; children with a known key are reused.
function keepChildren(parent, items, keyOf, make, update) {
  const known = new Map([...parent.children].map((child) => [child.dataset.key, child]));
  let place = parent.firstElementChild;
  for (const item of items) {
    const key = String(keyOf(item));
    const child = known.get(key) ?? make(item);
    known.delete(key);
    if (child.dataset.key !== key) child.dataset.key = key;
    update(child, item);
    if (child === place) place = place.nextElementSibling;
    else parent.insertBefore(child, place);
  }
  for (const child of known.values()) child.remove();
}

// A bar of [[class, amount]], with its text alternative.
function setBar(bar, parts, words) {
  setAttribute(bar, "role", "img");
  setAttribute(bar, "aria-label", words);
  keepChildren(
    bar,
    parts.filter(([, amount]) => amount > 0),
    ([name]) => name,
    ([name]) => element("i", name),
    (part, [, amount]) => {
      part.style.flexGrow = String(amount);
    },
  );
}

// Pairs of [name, value, title]; a null value hides its pair.
function setFacts(list, pairs) {
  const make = ([name]) => element("div", "", element("dt", "", word(name)), element("dd", ""));
  keepChildren(
    list,
    pairs.filter(([, value]) => value !== null),
    ([name]) => name,
    make,
    (pair, [, value, title]) => {
      setText(pair.lastElementChild, value);
      if (title) setAttribute(pair, "title", title);
    },
  );
}

// Large figures: [name, value, note].
function setFigures(group, figures) {
  const make = ([name]) =>
    element("div", "figure", element("b", ""), element("span", "", word(name)), element("small", ""));
  keepChildren(
    group,
    figures,
    ([name]) => name,
    make,
    (figure, [, value, note]) => {
      setText(figure.children[0], value);
      setText(figure.children[2], note);
    },
  );
}

function setMark(mark, kind, words) {
  if (mark.dataset.kind !== kind) {
    mark.dataset.kind = kind;
    mark.className = `mark ${kind}`;
    mark.replaceChildren(icon(kind), element("span", ""));
  }
  setText(mark.lastElementChild, words);
}
