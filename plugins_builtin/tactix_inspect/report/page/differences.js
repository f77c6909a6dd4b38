// Two plans beside each other.

class Differences {
  constructor() {
    this.told = report.differences;
  }

  element() {
    const d = this.told;
    if (d.same) return el("section", { class: "scroll" }, el("p", { class: "verdict" }, "The plans are the same."));
    const others = ["inputs", "outputs", "profiles", "requirements", "device", "meta"];
    return el("section", { class: "scroll" },
      el("p", { class: "note" }, "First: ", el("code", {}, d.files[0]), ", second: ", el("code", {}, d.files[1]),
        ". Times are those of the builds."),
      this.times(), this.choices(), this.precision(), this.only(), this.bytes(), others.map((part) => this.part(part)));
  }

  times() {
    const rows = this.told.times.steps.filter((r) => r.seconds.every(isNumber));
    const most = Math.max(...rows.map((r) => Math.abs(r.seconds[1] - r.seconds[0])), 1e-12);
    const [a, b] = this.told.times.predicted;
    rows.sort((p, q) => Math.abs(q.seconds[1] - q.seconds[0]) - Math.abs(p.seconds[1] - p.seconds[0]));
    return [
      el("p", { class: "verdict" }, [`Predicted: ${duration(a)} and ${duration(b)}`, change(a, b)].filter(Boolean).join(", ")),
      rows.length ? table({
        caption: "Times of steps", rows,
        columns: [
          { title: "step", name: true, wide: true, text: (r) => r.name, cell: (r) => clipped(r.name, 52) },
          { title: "first", numeric: true, text: (r) => duration(r.seconds[0]), value: (r) => r.seconds[0] },
          { title: "second", numeric: true, text: (r) => duration(r.seconds[1]), value: (r) => r.seconds[1] },
          { title: "apart", numeric: true, text: (r) => change(...r.seconds), value: (r) => r.seconds[1] - r.seconds[0] },
          { title: "", text: () => "", cell: (r) => bar(Math.abs(r.seconds[1] - r.seconds[0]) / most,
            r.seconds[1] < r.seconds[0] ? "var(--better)" : "var(--worse)") },
        ],
        choose: (r) => selectName(r.name),
      }) : null,
    ];
  }

  choices() {
    const said = (r, i) => `${shortKey(r.tactic[i] ?? "–")} ${r.variant[i] ?? ""}`.trim();
    return this.told.choices.length ? table({
      caption: "Other choices", rows: this.told.choices,
      columns: [
        { title: "step", name: true, wide: true, text: (r) => r.name, cell: (r) => clipped(r.name, 48) },
        { title: "first", text: (r) => said(r, 0), cell: (r) => cut(said(r, 0), 34) },
        { title: "second", text: (r) => said(r, 1), cell: (r) => cut(said(r, 1), 34) },
      ],
      choose: (r) => selectName(r.name),
    }) : null;
  }

  precision() {
    return this.told.precision.length ? table({
      caption: "Other precision", rows: this.told.precision,
      columns: [
        { title: "step", name: true, wide: true, text: (r) => r.name, cell: (r) => clipped(r.name, 52) },
        { title: "first", text: (r) => String(r.precision[0]) },
        { title: "second", text: (r) => String(r.precision[1]) },
      ],
      choose: (r) => selectName(r.name),
    }) : null;
  }

  only() {
    const rows = this.told.steps.only.flatMap((steps, i) => steps.map((s) => ({ ...s, which: i ? "second" : "first" })));
    const [a, b] = this.told.steps.count;
    return rows.length ? table({
      caption: `Steps of one alone (${a} and ${b} in all)`, rows,
      columns: [
        { title: "in", text: (r) => r.which },
        { title: "step", name: true, wide: true, text: (r) => r.name, cell: (r) => clipped(r.name, 52) },
        { title: "tactic", text: (r) => shortKey(r.tactic ?? "–") },
        { title: "precision", text: (r) => String(r.precision) },
        { title: "time", numeric: true, text: (r) => duration(r.seconds), value: (r) => r.seconds },
      ],
      choose: (r) => r.which === "first" && selectName(r.name),
    }) : null;
  }

  bytes() {
    return table({
      caption: "Bytes", rows: Object.entries(this.told.bytes),
      columns: [
        { title: "of", text: ([name]) => name },
        { title: "first", numeric: true, text: ([, p]) => byteSize(p[0]), value: ([, p]) => p[0] },
        { title: "second", numeric: true, text: ([, p]) => byteSize(p[1]), value: ([, p]) => p[1] },
        { title: "apart", numeric: true, text: ([, p]) => change(...p), value: ([, p]) => p[1] - p[0] },
      ],
    });
  }

  part(name) {
    const rows = Object.entries(this.told[name] ?? {});
    const said = (x) => (x === null || x === undefined ? "–" : typeof x === "string" ? x : JSON.stringify(x));
    return rows.length ? table({
      caption: name[0].toUpperCase() + name.slice(1), rows,
      columns: [
        { title: "name", text: ([key]) => key },
        { title: "first", wide: true, text: ([, p]) => said(p[0]), cell: ([, p]) => cut(said(p[0]), 120) },
        { title: "second", wide: true, text: ([, p]) => said(p[1]), cell: ([, p]) => cut(said(p[1]), 120) },
      ],
    }) : null;
  }
}

/** `+12.0 %` of the second beside the first. */
function change(a, b) {
  if (!isNumber(a) || !isNumber(b) || !a || a === b) return "";
  const p = (b / a - 1) * 100;
  return `${p < 0 ? "−" : "+"}${Math.abs(p).toFixed(1)} %`;
}
