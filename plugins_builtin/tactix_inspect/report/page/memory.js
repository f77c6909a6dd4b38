// What lies where in the arena, step by step, and how much must.

const MEMORY_HEIGHT = 380;

class MemoryView {
  constructor() {
    this.memory = main.memory;
  }

  element() {
    const m = this.memory;
    if (!m || !m.arena) {
      const why = m ? "No intermediate tensor needs memory." : "The memory of this plan depends on data: only a run tells it.";
      return el("section", { class: "scroll" }, el("p", { class: "empty" }, why));
    }
    this.root = chart({
      height: MEMORY_HEIGHT, className: "memory",
      label: `Memory over ${counted(main.steps.length, "step")}: ${byteSize(m.arena)} in the arena, `
        + `lower bound ${byteSize(m.least)}. Left and Right walk.`,
    });
    this.root.addEventListener("click", (e) => this.pick(e));
    this.note = el("p", { class: "note" });
    this.living = el("div");
    onWidth(this.root, (width) => this.draw(width));
    onSelection(this.root, () => this.chosen());
    const sizes = Object.entries(report.plan.sizes).map(([s, n]) => `${s} = ${n}`).join(", ");
    this.chosen();
    return el("section", { class: "scroll" },
      el("div", { class: "tools" },
        el("ul", { class: "legend" }, swatch("var(--arena)", `arena ${byteSize(m.arena)}`),
          swatch("var(--ink)", "live at the step"), swatch("var(--bound)", `lower bound ${byteSize(m.least)}`)),
        el("p", { class: "note" }, `${(m.arena / m.least).toFixed(3)} times the lower bound`, sizes && `, at ${sizes}`)),
      this.root, this.note, this.living);
  }

  scales(width) {
    const [left, top, bottom] = [76, 14, MEMORY_HEIGHT - 26];
    const x = (step) => left + (step / main.steps.length) * (width - left - 8);
    const y = (n) => bottom - (n / this.memory.arena) * (bottom - top);
    return { x, y, left, bottom };
  }

  draw(width = this.width) {
    this.width = width;
    const m = this.memory;
    const { x, y, left, bottom } = this.scales(width);
    const grid = ticks(m.arena, 6, 2).map((n) => svg("g", { class: "grid" },
      svg("line", { x1: left, x2: width - 8, y1: y(n), y2: y(n) }), text(left - 8, y(n) + 4, byteSize(n), { class: "lane" })));
    const below = ticks(main.steps.length, width / 90).map((i) => text(x(i), bottom + 17, i, { class: "tick" }));
    const boxes = new Boxes();
    for (const [name, kind, first, last, offset, n] of m.blocks) {
      const colour = kind === "workspace" ? "var(--faint)" : colourOf(main.steps[first], "tactic");
      const [left, top] = [x(first), y(offset + n)];
      boxes.add(colour, left, top, Math.max(0.7, x(last + 1) - left - 0.5), Math.max(0.7, y(offset) - top - 0.5));
    }
    const live = m.live.map((n, i) => `${i ? "L" : "M"}${x(i).toFixed(1)} ${y(n).toFixed(1)}H${x(i + 1).toFixed(1)}`).join("");
    const line = (n, name) => svg("line", { class: name, x1: left, x2: width - 8, y1: y(n), y2: y(n) });
    const step = selectedStep();
    const across = Math.max(1.5, x(1) - x(0));
    const cursor = step && svg("rect", { class: "cursor", x: x(step.index), y: 8, width: across, height: bottom - 8 });
    this.root.replaceChildren(...[...grid, ...below, ...boxes.drawn({ class: "block" }),
      svg("path", { class: "live", d: live }), line(m.arena, "arena"), line(m.least, "bound"), cursor].filter(Boolean));
  }

  pick(event) {
    const { x, y } = this.scales(this.width);
    const step = Math.floor(((event.offsetX - x(0)) / (x(1) - x(0))));
    const block = this.memory.blocks.find(([, , first, last, offset, n]) =>
      step >= first && step <= last && event.offsetY <= y(offset) && event.offsetY >= y(offset + n));
    const chosen = main.steps[block ? block[2] : step];
    if (chosen) selectStep(chosen);
  }

  chosen() {
    const step = selectedStep();
    const at = step ? step.index : this.memory.live.indexOf(Math.max(...this.memory.live));
    const living = this.memory.blocks.filter(([, , first, last]) => at >= first && at <= last);
    this.note.textContent = `${step ? "At" : "Most at"} step ${at}: `
      + `${byteSize(this.memory.live[at])} live in ${counted(living.length, "tensor")}.`;
    this.living.replaceChildren(table({
      caption: `Live at step ${at}`, rows: living.sort((a, b) => b[5] - a[5]),
      columns: [
        { title: "tensor", name: true, wide: true, text: (b) => b[0], cell: (b) => clipped(b[0], 70) },
        { title: "kind", text: (b) => b[1] },
        { title: "from step", numeric: true, text: (b) => b[2], value: (b) => b[2] },
        { title: "to step", numeric: true, text: (b) => b[3], value: (b) => b[3] },
        { title: "offset", numeric: true, text: (b) => byteSize(b[4]), value: (b) => b[4] },
        { title: "bytes", numeric: true, text: (b) => byteSize(b[5]), value: (b) => b[5] },
      ],
      choose: (b) => selectStep(main.steps[b[2]]),
    }));
    if (this.width) this.draw();
  }
}
