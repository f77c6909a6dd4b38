// What falls short of the fast path, and which steps that concerns.

class ShortfallView {
  element() {
    const short = report.shortfall;
    const parts = [this.references(short), this.estimated(), this.split(), this.rejected()].filter(Boolean);
    return el("section", { class: "scroll" },
      el("p", { class: short.text ? "verdict short" : "verdict" },
        short.text ? short.text : `All ${counted(short.layers ?? main.steps.length, "layer")} are on the fast path.`),
      parts);
  }

  references({ references = {} }) {
    const sources = Object.keys(references);
    const steps = graphs.flatMap((g) => g.steps).filter((s) => sources.includes(s.source));
    return steps.length ? stepTable(`Run on ${sources.join(", ")}`, steps) : null;
  }

  estimated() {
    if (!report.shortfall.estimated) return null;
    const steps = main.steps.filter((s) => s.status === "estimated");
    return steps.length ? stepTable("Chosen by estimate", steps) : null;
  }

  split() {
    const seen = new Map();
    for (const s of report.nodes.flatMap((n) => n.split)) seen.set(s.node, s);
    return seen.size ? table({
      caption: "Groups fused in vain", rows: [...seen.values()],
      columns: [
        { title: "group", name: true, wide: true, text: (s) => s.node, cell: (s) => clipped(s.node, 60) },
        { title: "into", numeric: true, text: (s) => s.parts.length, value: (s) => s.parts.length },
        { title: "why", wide: true, text: (s) => s.reason },
      ],
      choose: (s) => selectName(s.parts[0] ?? ""),
    }) : null;
  }

  rejected() {
    const rows = report.nodes.flatMap((n) =>
      n.candidates.filter((c) => c.status === "rejected").map((c) => ({ name: n.name, ...c })));
    const title = (r) => `${shortKey(r.tactic)} ${r.variant}`;
    return rows.length ? table({
      caption: "Rejected candidates", rows,
      columns: [
        { title: "layer", name: true, wide: true, text: (r) => r.name, cell: (r) => clipped(r.name, 48) },
        { title: "candidate", text: title, cell: (r) => cut(title(r), 48) },
        { title: "why", wide: true, text: (r) => r.reason },
      ],
      choose: (r) => selectName(r.name),
    }) : null;
  }
}
