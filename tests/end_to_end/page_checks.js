// Accessibility checks of a page in the browser: contrast, focus, names.
({
  // {text: contrast to its background} of all visible texts.
  contrasts() {
    const context = Object.assign(document.createElement("canvas"), { width: 1, height: 1 }).getContext(
      "2d",
      { willReadFrequently: true },
    );
    const painted = (colours) => {
      context.clearRect(0, 0, 1, 1);
      for (const colour of colours) {
        context.fillStyle = colour;
        context.fillRect(0, 0, 1, 1);
      }
      return [...context.getImageData(0, 0, 1, 1).data].slice(0, 3);
    };
    const luminance = (rgb) => {
      const [r, g, b] = rgb
        .map((each) => each / 255)
        .map((each) => (each <= 0.04045 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4));
      return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const found = {};
    const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    for (let text = texts.nextNode(); text; text = texts.nextNode()) {
      const holder = text.parentElement;
      if (!text.data.trim() || !holder.checkVisibility() || holder.matches("script, noscript")) continue;
      const grounds = [];
      for (let each = holder; each; each = each.parentElement) {
        grounds.unshift(getComputedStyle(each).backgroundColor);
      }
      const under = ["Canvas", ...grounds];
      const [dark, light] = [painted(under), painted([...under, getComputedStyle(holder).color])]
        .map(luminance)
        .sort((one, other) => one - other);
      const place = `${holder.tagName}.${holder.className || holder.parentElement.className}: ${text.data}`;
      found[place] = (light + 0.05) / (dark + 0.05);
    }
    return found;
  },

  // The number of visible elements that Tab can reach.
  focusable() {
    return [...document.querySelectorAll('a[href], button, input, summary, [tabindex="0"]')].filter((each) =>
      each.checkVisibility(),
    ).length;
  },

  // Records the focused elements and their outlines in `window.outlines`.
  outlines() {
    window.outlines = {};
    const names = new Map();
    document.addEventListener("focusin", ({ target }) => {
      if (!names.has(target))
        names.set(target, `${names.size} ${target.tagName} ${target.textContent.slice(0, 30)}`);
      window.outlines[names.get(target)] = getComputedStyle(target).outlineStyle;
    });
  },

  // Faults of names, headings, landmarks and labels.
  problems() {
    const all = (selector) => [...document.querySelectorAll(selector)];
    const problems = [];
    const check = (isSo, what) => {
      if (!isSo) problems.push(what);
    };
    const named = (each) => each.getAttribute("aria-label") || each.textContent.trim();
    check(document.documentElement.lang === "en", "no language");
    check(document.title.trim() !== "", "no title");
    for (const landmark of ["header", "main", "footer", "h1"]) {
      check(all(landmark).length === 1, `not one ${landmark}`);
    }
    for (const each of all("nav, section")) {
      check(
        each.hasAttribute("aria-label") || each.hasAttribute("aria-labelledby"),
        `${each.tagName} without a name`,
      );
    }
    for (const each of all("[aria-labelledby], [aria-describedby]")) {
      for (const id of (each.getAttribute("aria-labelledby") ?? each.getAttribute("aria-describedby")).split(
        " ",
      )) {
        check(document.getElementById(id), `no element ${id}`);
      }
    }
    let level = 0;
    for (const each of all("h1, h2, h3, h4, h5, h6")) {
      const own = Number(each.tagName[1]);
      check(own <= level + 1, `${each.tagName} after H${level}: ${each.textContent}`);
      level = own;
    }
    const ids = all("[id]").map((each) => each.id);
    check(new Set(ids).size === ids.length, "a duplicate id");
    for (const each of all("input")) check(each.labels.length > 0, `${each.id} without a label`);
    for (const each of all('a, button, summary, [role=img], [tabindex="0"]')) {
      check(named(each), `${each.tagName}.${each.className} without a name`);
    }
    for (const each of all("svg")) {
      check(
        each.getAttribute("aria-hidden") === "true" || each.getAttribute("role") === "img",
        "a picture without a role",
      );
    }
    for (const each of all(".mark")) check(each.textContent.trim(), "a state by its colour alone");
    for (const each of all("ul, ol")) {
      check(
        [...each.children].every((child) => child.tagName === "LI"),
        `${each.className} has more than items`,
      );
    }
    for (const each of all("dl > div")) {
      check(
        each.querySelectorAll("dt").length === 1 && each.querySelectorAll("dd").length === 1,
        "an incomplete pair",
      );
    }
    check(all("[role=status], [aria-live]").length === 1, "more than one live region");
    check(all("[style*=color]").length === 0, "a colour outside the style sheet");
    return problems;
  },
});
