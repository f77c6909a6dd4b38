// Search: names of steps, nodes, tensors and tactics; every word must be there.

const MOST_FOUND = 40;

/** Steps that the last search found; views fade the others. */
const found = {
  any: false,
  steps: new Set(),
  has(step) {
    return this.steps.has(step);
  },
};

const haystacks = graphs.flatMap((g) => g.steps).map((step) => ({
  step,
  text: [step.name, ...step.origin, ...step.layers, step.tactic, step.variant, ...step.makes, ...step.consumes,
    ...step.inputs.map((o) => o.name), ...step.outputs.map((o) => o.name), step.precision].join("\n").toLowerCase(),
}));

class Search {
  constructor(changed) {
    this.changed = changed;
    this.input = byId("search");
    this.list = byId("found");
    this.at = -1;
    this.input.addEventListener("input", () => this.look());
    this.input.addEventListener("keydown", (e) => this.key(e));
    this.input.addEventListener("focus", () => this.input.value && this.look());
    this.input.addEventListener("blur", () => this.close());
  }

  look() {
    const words = this.input.value.toLowerCase().split(/\s+/).filter(Boolean);
    this.steps = words.length ? haystacks.filter((h) => words.every((w) => h.text.includes(w))).map((h) => h.step) : [];
    Object.assign(found, { any: words.length > 0, steps: new Set(this.steps) });
    this.at = this.steps.length ? 0 : -1;
    this.draw(words);
    this.changed();
  }

  draw(words) {
    const rows = this.steps.slice(0, MOST_FOUND).map((step, i) => {
      const hit = [titleOf(step), ...step.origin, ...step.makes, ...step.consumes, step.name]
        .find((t) => words.every((w) => t.toLowerCase().includes(w))) ?? titleOf(step);
      return el("div", { role: "option", id: `found-${i}`, "aria-selected": String(i === this.at),
        on: { pointerdown: (e) => { e.preventDefault(); this.pick(i); } } },
      el("span", { class: "swatch", style: { "--colour": colourOf(step, "tactic") } }),
      el("span", { class: "label" }, cut(labelOf(step), 34)), el("span", { class: "name" }, clipped(hit, 58)));
    });
    const shown = this.steps.length > MOST_FOUND ? `${MOST_FOUND} of ` : "";
    const count = `${shown}${counted(this.steps.length, "step")}`;
    this.list.replaceChildren(...rows);
    this.list.dataset.count = words.length ? count : "";
    this.list.hidden = !words.length;
    this.input.setAttribute("aria-expanded", String(words.length > 0));
    this.mark();
    if (words.length) announce(`${counted(this.steps.length, "step")} found`);
  }

  mark() {
    [...this.list.children].forEach((row, i) => row.setAttribute("aria-selected", String(i === this.at)));
    const row = this.list.children[this.at];
    row?.scrollIntoView({ block: "nearest" });
    if (row) this.input.setAttribute("aria-activedescendant", row.id);
    else this.input.removeAttribute("aria-activedescendant");
  }

  key(event) {
    const last = Math.min(this.steps?.length ?? 0, MOST_FOUND) - 1;
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      this.at = Math.max(0, Math.min(last, this.at + (event.key === "ArrowDown" ? 1 : -1)));
      this.mark();
    } else if (event.key === "Enter" && this.at >= 0) this.pick(this.at);
    else if (event.key === "Escape") this.clear();
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  pick(index) {
    selectStep(this.steps[index]);
    this.close();
    views.focus();
  }

  close() {
    this.list.hidden = true;
    this.input.setAttribute("aria-expanded", "false");
    this.input.removeAttribute("aria-activedescendant");
  }

  clear() {
    this.input.value = "";
    this.look();
    views.focus();
  }
}
