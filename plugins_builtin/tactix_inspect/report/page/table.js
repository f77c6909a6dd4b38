// Tables that sort, and whose rows can be walked and chosen by keys.

const FIRST_ROWS = 100; // drawn at once: more of them take longer than a click may

/**
 * `columns`: { title, text(row), value(row) to sort by, cell(row) in place of text, numeric, wide }.
 * `choose(row)` is called for a row that is clicked; `isChosen(row)` tells which is shown.
 */
function table({ caption, columns, rows, choose, isChosen }) {
  const body = el("tbody");
  const state = { rows: [...rows], sorted: -1, up: false, most: FIRST_ROWS };
  const more = button("", () => {
    state.most = Infinity;
    draw();
    body.rows[FIRST_ROWS]?.focus();
  });

  function draw() {
    body.replaceChildren(...state.rows.slice(0, state.most).map(rowOf));
    if (choose && body.rows.length) body.rows[0].tabIndex = 0;
    const rest = state.rows.length - body.rows.length;
    more.hidden = rest <= 0;
    more.textContent = `Show all: ${rest.toLocaleString("en")} more`;
  }

  function rowOf(row) {
    const cells = columns.map((c) => el("td", { class: cellClass(c) },
      c.cell ? c.cell(row) : c.text(row)));
    if (!choose) return el("tr", {}, cells);
    const said = columns.map((c) => c.text(row)).filter((t) => t !== "").join(", ");
    const tr = el("tr", { tabindex: -1, class: "choice", "aria-label": said, on: { click: () => pick(tr, row) } }, cells);
    tr.addEventListener("keydown", (event) => keys(event, tr, row));
    if (isChosen?.(row)) tr.setAttribute("aria-current", "true");
    return tr;
  }

  function pick(tr, row) {
    for (const other of body.querySelectorAll("[aria-current]")) other.removeAttribute("aria-current");
    tr.setAttribute("aria-current", "true");
    choose(row);
  }

  function keys(event, tr, row) {
    const to = {
      ArrowDown: tr.nextElementSibling, ArrowUp: tr.previousElementSibling,
      Home: body.firstElementChild, End: body.lastElementChild,
    };
    if (event.key === "Enter" || event.key === " ") pick(tr, row);
    else if (to[event.key]) {
      tr.tabIndex = -1;
      to[event.key].tabIndex = 0;
      to[event.key].focus();
    } else return;
    event.preventDefault();
  }

  function sort(index, header) {
    state.up = state.sorted === index ? !state.up : !columns[index].numeric;
    state.sorted = index;
    const value = columns[index].value ?? columns[index].text;
    const sign = state.up ? 1 : -1;
    state.rows.sort((a, b) => sign * compared(value(a), value(b)));
    for (const th of header.parentElement.children) th.removeAttribute("aria-sort");
    header.setAttribute("aria-sort", state.up ? "ascending" : "descending");
    draw();
  }

  const headers = columns.map((c, i) => {
    const th = el("th", { scope: "col", class: cellClass(c) });
    th.append(c.title ? button(c.title, () => sort(i, th)) : el("span", { class: "hidden" }, "bar"));
    return th;
  });
  draw();
  return el("div", { class: "table" },
    el("table", {}, el("caption", {}, caption), el("thead", {}, el("tr", {}, headers)), body), more);
}

function cellClass(column) {
  return [column.numeric && "number", column.wide && "wide", column.name && "name"].filter(Boolean).join(" ");
}

/** What is not known comes last, whichever way. */
function compared(a, b) {
  if (isNumber(a) && isNumber(b)) return a - b;
  if (isNumber(a) !== isNumber(b)) return isNumber(a) ? 1 : -1;
  return String(a ?? "").localeCompare(String(b ?? ""));
}

/** A bar as wide as its share, beside a number that says the same. */
function bar(share, colour = "var(--accent)") {
  const width = `${Math.max(0, Math.min(1, share || 0)) * 100}%`;
  return el("span", { class: "bar", "aria-hidden": "true" },
    el("span", { style: { width, "--colour": colour } }));
}

/** Columns that tables of steps share. */
const STEP_COLUMNS = {
  index: { title: "#", numeric: true, text: (s) => s.index, value: (s) => s.index },
  layers: { title: "layers", text: labelOf, cell: (s) => cut(labelOf(s), 26) },
  name: { title: "node of the model", name: true, wide: true, text: titleOf,
    cell: (s) => el("span", { title: s.name }, clipped(titleOf(s), 34)) },
  tactic: { title: "tactic", text: (s) => shortKey(s.tactic),
    cell: (s) => [el("span", { class: "swatch", style: { "--colour": colourOf(s, "tactic") } }),
      shortKey(s.tactic)] },
  time: { title: "time", numeric: true, text: (s) => duration(secondsOf(s)), value: secondsOf },
  share: { title: "share", numeric: true, value: secondsOf,
    text: (s) => percent((secondsOf(s) ?? NaN) / totalSeconds) },
  bar: { title: "", wide: false, text: () => "",
    cell: (s) => bar((secondsOf(s) ?? 0) / longestSeconds, colourOf(s, "tactic")) },
};

function stepTable(caption, steps, columns = ["index", "layers", "name", "tactic", "time", "share", "bar"]) {
  return table({
    caption, rows: steps, columns: columns.map((c) => STEP_COLUMNS[c] ?? c),
    choose: selectStep, isChosen: (s) => s === selectedStep(),
  });
}
