// Where the time goes: by tactic, kind of layer, precision or kernel.

class Shares {
  constructor() {
    this.by = "tactic";
    this.key = null;
    this.whole = el("div", { class: "stack", role: "img" });
    this.groups = el("div");
    this.steps = el("div");
  }

  element() {
    const bys = Object.entries(GROUPINGS).map(([k, g]) => [k, g.title]);
    this.show("tactic");
    return el("section", { class: "scroll" },
      el("div", { class: "tools" }, chooser("Time by", bys, this.by, (by) => this.show(by)),
        el("p", { class: "note" }, `${duration(totalSeconds)} in all, ${timesAre}`)),
      this.whole, this.groups, this.steps);
  }

  show(by) {
    this.by = by;
    this.key = null;
    const { of, title } = GROUPINGS[by];
    const groups = grouped(main.steps, of);
    const colour = (g) => palettes[by].get(g.key);
    this.whole.setAttribute("aria-label", groups.slice(0, 6)
      .map((g) => `${g.key} ${percent(g.seconds / totalSeconds)}`).join(", "));
    this.whole.replaceChildren(...groups.filter((g) => g.seconds > 0).map((g) => {
      const share = g.seconds / totalSeconds;
      return el("span", { title: `${g.key}: ${percent(share)}`, style: { "flex-grow": String(share), "--colour": colour(g) } },
        share > 0.07 && el("span", {}, `${g.key} ${percent(share)}`));
    }));
    this.groups.replaceChildren(table({
      caption: `By ${title}`, rows: groups,
      columns: [
        { title, wide: true, text: (g) => g.key,
          cell: (g) => [el("span", { class: "swatch", style: { "--colour": colour(g) } }), g.key || "–"] },
        { title: "steps", numeric: true, text: (g) => g.steps.length, value: (g) => g.steps.length },
        { title: "time", numeric: true, text: (g) => duration(g.seconds), value: (g) => g.seconds },
        { title: "share", numeric: true, text: (g) => percent(g.seconds / totalSeconds), value: (g) => g.seconds },
        { title: "", text: () => "", cell: (g) => bar(g.seconds / (groups[0].seconds || 1), colour(g)) },
      ],
      choose: (g) => this.list(g), isChosen: (g) => g.key === this.key,
    }));
    this.list({ key: null, steps: main.steps });
  }

  list(group) {
    this.key = group.key;
    const steps = [...group.steps].sort((a, b) => (secondsOf(b) ?? 0) - (secondsOf(a) ?? 0));
    const caption = group.key === null ? "All steps, the longest first" : `Steps of ${group.key || "–"}`;
    this.steps.replaceChildren(stepTable(caption, steps));
  }
}
