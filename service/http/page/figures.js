// What a figure looks like: as a bar, as a pair with its name, large with a note, or as a mark with a shape.

// A bar of parts: [[class, amount]], and what it says in words.
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

// Pairs of a name and a value; an absent value hides its pair.
function setFacts(list, pairs) {
  const told = pairs.filter(([, value]) => value !== null);
  const make = ([name]) => element("div", "", element("dt", "", word(name)), element("dd", ""));
  keepChildren(
    list,
    told,
    ([name]) => name,
    make,
    (pair, [, value, title]) => {
      setText(pair.lastElementChild, value);
      if (title) setAttribute(pair, "title", title);
    },
  );
}

// Large figures: [name, value, what else there is to say of it].
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
