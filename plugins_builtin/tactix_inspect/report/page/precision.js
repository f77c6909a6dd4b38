// In what each step computes, in the order of the steps, and why what was not lowered stayed.

const CELL = 15;

class PrecisionView {
  element() {
    const groups = grouped(main.steps, GROUPINGS.precision.of);
    const counts = groups.map((g) => `${g.key} ${g.steps.length}`).join(", ");
    this.root = chart({
      height: CELL, className: "cells",
      label: `Precision of ${counted(main.steps.length, "step")}: ${counts}. Left and Right walk.`,
    });
    this.root.addEventListener("click", (e) => this.pick(e));
    onWidth(this.root, (width) => this.draw(width));
    onSelection(this.root, () => this.width && this.draw());
    const { lowered = [], wide = {}, times = {} } = report.precision;
    return el("section", { class: "scroll" },
      el("div", { class: "tools" }, el("ul", { class: "legend" }, groups.map((g) => swatch(palettes.precision.get(g.key),
        `${g.key || "–"}: ${counted(g.steps.length, "step")}, ${percent(g.seconds / totalSeconds)} of the time`)))),
      el("p", { class: "note" }, "A cell is a step, in the order of the run: ",
        "the narrowest type of numbers that it reads or writes."),
      this.root,
      Object.keys(wide).length ? this.wide(wide) : null,
      lowered.length ? this.lowered(lowered, times) : el("p", { class: "note" },
        "No layer was lowered: the build had no flag that allows it, or none gained."));
  }

  draw(width = this.width) {
    this.width = width;
    this.across = Math.max(1, Math.floor(width / CELL));
    this.root.setAttribute("height", Math.ceil(main.steps.length / this.across) * CELL);
    const boxes = new Boxes();
    for (const s of main.steps) boxes.add(colourOf(s, "precision"), ...this.corner(s), CELL - 2, CELL - 2);
    const step = selectedStep();
    const [x, y] = step ? this.corner(step) : [];
    const mark = step && svg("rect", { class: "mark", x: x - 1, y: y - 1, width: CELL, height: CELL });
    this.root.replaceChildren(...[...boxes.drawn(), mark].filter(Boolean));
  }

  corner(step) {
    return [(step.index % this.across) * CELL + 1, Math.floor(step.index / this.across) * CELL + 1];
  }

  pick(event) {
    const step = main.steps[Math.floor(event.offsetY / CELL) * this.across + Math.floor(event.offsetX / CELL)];
    if (step) selectStep(step);
  }

  wide(wide) {
    return table({
      caption: "Stayed as they were", rows: Object.entries(wide),
      columns: [
        { title: "layer", name: true, wide: true, text: ([name]) => name, cell: ([name]) => clipped(name, 60) },
        { title: "why", wide: true, text: ([, why]) => String(why) },
      ],
      choose: ([name]) => selectName(name),
    });
  }

  lowered(names, times) {
    const of = (name) => times[name] ?? {};
    return table({
      caption: "Lowered", rows: names,
      columns: [
        { title: "layer", name: true, wide: true, text: (n) => n, cell: (n) => clipped(n, 60) },
        { title: "lowered", numeric: true, text: (n) => duration(of(n).lowered), value: (n) => of(n).lowered },
        { title: "as it was", numeric: true, text: (n) => duration(of(n).wide), value: (n) => of(n).wide },
        { title: "timed", text: (n) => of(n).source ?? "–" },
      ],
      choose: (name) => selectName(name),
    });
  }
}
