// What bid for each layer, and how the race ended.

const FILTERS = {
  all: ["all layers", () => true],
  ties: ["near ties", (r) => r.bids.some((c) => c.near_tie)],
  noisy: ["times apart by more than 10 %", (r) => (r.won?.spread ?? 0) > 0.1],
  guessed: ["chosen by estimate", (r) => r.won?.status === "estimated"],
  rejected: ["with a rejected candidate", (r) => r.bids.some((c) => c.status === "rejected")],
  alone: ["one bid alone", (r) => r.bids.length === 1],
};

class Candidates {
  constructor() {
    this.rows = report.nodes.map((n) => {
      const won = n.candidates.find((c) => c.chosen);
      const rivals = n.candidates.filter((c) => isNumber(c.costs_more));
      const next = rivals.reduce((best, c) => (!best || c.costs_more < best.costs_more ? c : best), null);
      const lost = n.candidates.filter((c) => c.status === "rejected").length + n.rejections.length;
      return { name: n.name, origin: n.origin, bids: n.candidates, won, next, lost };
    });
    this.list = el("div");
  }

  element() {
    const options = Object.entries(FILTERS).map(([k, [title, holds]]) => [k, `${title} (${this.rows.filter(holds).length})`]);
    this.show("all");
    return el("section", { class: "scroll" },
      el("div", { class: "tools" }, chooser("Show", options, "all", (which) => this.show(which)),
        el("p", { class: "note" }, "Times are those of the build. The details of a layer have all that bid for it.")),
      this.list);
  }

  show(which) {
    const title = (c) => (c ? `${shortKey(c.tactic)} ${c.variant === "default" ? "" : c.variant}`.trim() : "–");
    this.list.replaceChildren(table({
      caption: "Layers and their candidates", rows: this.rows.filter(FILTERS[which][1]),
      columns: [
        { title: "layer", name: true, wide: true, text: (r) => r.name, cell: (r) => clipped(r.origin[0] ?? r.name, 34) },
        { title: "won", text: (r) => title(r.won), cell: (r) => cut(title(r.won), 28) },
        { title: "time", numeric: true, text: (r) => duration(r.won?.seconds), value: (r) => r.won?.seconds },
        { title: "spread", numeric: true, text: (r) => percent(r.won?.spread), value: (r) => r.won?.spread },
        { title: "next best", text: (r) => title(r.next), cell: (r) => cut(title(r.next), 24) },
        { title: "costs more", numeric: true, text: (r) => duration(r.next?.costs_more), value: (r) => r.next?.costs_more,
          cell: (r) => [duration(r.next?.costs_more), r.next?.near_tie && el("span", { class: "tag" }, "near tie")] },
        { title: "bids", numeric: true, text: (r) => r.bids.length, value: (r) => r.bids.length },
        { title: "not able", numeric: true, text: (r) => r.lost, value: (r) => r.lost },
      ],
      choose: (r) => selectName(r.name),
    }));
  }
}
