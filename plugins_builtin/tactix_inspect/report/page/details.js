// All that is known of what is selected; of the plan, where nothing is.

const FIRST_BIDS = 12;

class Details {
  constructor() {
    this.host = byId("details");
    onSelection(this.host, () => this.show());
  }

  show() {
    const { graph, node, row } = selection;
    const content = node >= 0 ? this.node(graphs[graph], node) : row ? this.row(row) : this.plan();
    this.host.replaceChildren(...content.flat(Infinity).filter(Boolean));
    this.host.scrollTop = 0;
  }

  heading(kicker, title, name) {
    return [
      el("div", { class: "kicker" }, kicker, selection.node >= 0 || selection.row
        ? button("×", () => selectNothing(), { "aria-label": "Close the details", class: "close" }) : null),
      el("h2", {}, title), name && name !== title ? el("p", { class: "full-name" }, name) : null,
    ];
  }

  plan() {
    const p = report.plan;
    const facts = [
      ["File", p.file], ["Built by", p.made_by && `tactix ${p.made_by}`], ["Threads", p.threads],
      ["Device", p.device.name], ["Kind", p.device.kind], ["Cores", p.device.cores],
      ["Vectors", p.device.vector_bits && `${p.device.vector_bits} bits`],
      ["Sizes", Object.entries(p.sizes).map(([s, n]) => `${s} = ${n}`).join(", ")],
    ];
    const rules = Object.entries(report.rules).sort((a, b) => b[1] - a[1]);
    return [
      this.heading("plan", p.name || "plan"), this.facts(facts),
      this.tensors("Inputs", main.inputs), this.tensors("Outputs", main.outputs),
      this.section("Profiles", p.profiles.filter((q) => Object.keys(q.dims).length).map((q) => el("p", {}, `${q.name}: `,
        Object.entries(q.dims).map(([s, [low, opt, high]]) => `${s} ${low} to ${high ?? "any"}, tuned for ${opt}`).join("; ")))),
      this.section("Rules that fired", rules.length ? el("p", {}, rules.map(([r, n]) => `${shortKey(r)} ${n}`).join(", ")) : []),
      this.section("Needs at run time", this.list(p.requirements)),
    ];
  }

  node(graph, id) {
    const { kind, step, io } = graph.node(id);
    if (kind !== "step") {
      return [this.heading(kind, io.name), this.facts([["Type", io.dtype], ["Shape", shapeText(io.shape)]]),
        this.neighbours("Read by", graph, graph.readers[id]), this.neighbours("Made by", graph, graph.makers[id])];
    }
    return this.step(graph, step);
  }

  step(graph, step) {
    const told = graph === main ? explained.get(step.name) : undefined;
    const inside = graph === main ? "" : `, ${graph.name}`;
    return [
      this.heading(`step ${step.index} of ${graph.steps.length}${inside}`, labelOf(step), step.name),
      this.facts(this.stepFacts(step)),
      this.inner(step), this.bodies(step),
      this.section("Nodes of the model", this.list(step.origin, "name")),
      this.section("Tensors of the model", [step.consumes.length ? el("p", {}, "reads ", codes(step.consumes)) : [],
        step.makes.length ? el("p", {}, "makes ", codes(step.makes)) : []].flat()),
      this.tensors("Reads", step.inputs.filter((o) => o.name), graph), this.tensors("Writes", step.outputs),
      this.tensors("Constants", step.constants),
      told && this.bids(told), told && this.rejections(told), told && this.rewrites(told),
      this.kernel(step),
      this.neighbours("After", graph, graph.makers[step.index]), this.neighbours("Before", graph, graph.readers[step.index]),
    ];
  }

  stepFacts(step) {
    const time = step.profile;
    const seconds = secondsOf(step);
    const all = [...step.inputs, ...step.outputs, ...step.constants];
    return [
      ["Time", isNumber(seconds) && `${duration(seconds)}, ${percent(seconds / totalSeconds)}`],
      ["Nine runs in ten", time && `${duration(time.low)} to ${duration(time.high)}`],
      ["In the build", time && isNumber(step.seconds) && `${duration(step.seconds)}, ${step.status}`],
      ["Of the roofline", time && isNumber(time.of_roofline) && percent(time.of_roofline)],
      ["Arithmetic", time?.flops && `${rate(time.flops)}flop, ${rate(time.flops / time.seconds)}flop/s`],
      ["Tactic", shortKey(step.tactic)], ["Variant", step.variant !== "default" && step.variant],
      ["Chosen", !time && step.status], ["Precision", step.precision],
      ["Bytes", all.some((o) => isNumber(o.bytes)) && byteSize(all.reduce((sum, o) => sum + (o.bytes ?? 0), 0))],
      ["Workspace", step.workspace && byteSize(step.workspace)],
      ["Launcher", shortKey(step.launcher)], ["Host code", step.host_code && "yes"],
    ];
  }

  inner(step) {
    if (step.inner.length < 2) {
      const attrs = step.inner[0]?.attrs;
      return attrs ? this.section("Attributes", el("p", {}, codes([attrs]))) : null;
    }
    return this.section("Layers inside", el("ol", { class: "layers", start: 0 }, step.inner.map((n) =>
      el("li", {}, el("b", {}, n.op), " ", el("span", { class: "name" }, n.name),
        n.attrs ? el("span", { class: "attrs" }, n.attrs) : null))));
  }

  bodies(step) {
    return this.section("Plans inside", step.bodies.map((g) => button(
      `${graphs[g].name}: ${counted(graphs[g].steps.length, "step")}`, () => select(g, 0), { class: "link" })));
  }

  bids(told) {
    if (!told.candidates.length) return null;
    const most = told.candidates.reduce((m, c) => Math.max(m, c.status === "rejected" ? 0 : c.seconds ?? 0), 0);
    const items = told.candidates.map((c) => this.bid(c, most));
    return this.section(`Candidates (${items.length})`, this.first("ol", "bids", items));
  }

  bid(c, most) {
    const state = c.chosen ? "won" : c.near_tie ? "near tie" : c.status;
    const spread = isNumber(c.spread) ? ` ± ${percent(c.spread)}` : "";
    return el("li", { class: c.chosen ? "won" : "" },
      el("div", { class: "row" }, el("b", {}, shortKey(c.tactic)), el("span", { class: "tag" }, state),
        isNumber(c.seconds) ? el("span", { class: "number" }, `${duration(c.seconds)}${spread}`) : null),
      c.variant && c.variant !== "default" ? el("div", { class: "variant" }, c.variant) : null,
      isNumber(c.seconds) && most && c.status !== "rejected"
        ? bar(c.seconds / most, c.chosen ? "var(--accent)" : "var(--faint)") : null,
      isNumber(c.costs_more) || isNumber(c.error) ? el("div", { class: "note" },
        [isNumber(c.costs_more) && `${c.costs_more < 0 ? "−" : "+"}${duration(Math.abs(c.costs_more))}`,
          isNumber(c.error) && `error ${c.error.toPrecision(2)} of its budget`].filter(Boolean).join(", ")) : null,
      c.reason ? el("div", { class: "note" }, c.reason) : null);
  }

  rejections(told) {
    const items = told.rejections.map((r) => el("li", {}, el("b", {}, shortKey(r.tactic)), ": ", r.reason));
    return this.section(`Not asked, or not able (${items.length})`, items.length ? this.first("ul", "reasons", items) : []);
  }

  rewrites(told) {
    const fired = Object.entries(told.fired).map(([rule, n]) => `${shortKey(rule)}${n > 1 ? ` × ${n}` : ""}`);
    const nearly = told.nearly.map((m) => el("li", {}, el("b", {}, shortKey(m.rule)), ` at ${m.node}: ${m.reason}`));
    const split = told.split.map((s) => el("li", {}, `${s.node}: ${s.reason}`));
    return [
      this.section("Rules that made it", fired.length ? el("p", {}, fired.join(", ")) : []),
      this.section("Rules that nearly fired", nearly.length ? this.first("ul", "reasons", nearly) : []),
      this.section("Part of a group that was split", split.length ? this.first("ul", "reasons", split) : []),
    ];
  }

  kernel(step) {
    const k = step.kernel;
    if (!k) return null;
    const language = { c: "C", cuda_c: "CUDA C" }[k.language] ?? k.language;
    const command = `tactix inspect ${report.plan.file || "PLAN"} --source '${step.name.replaceAll("'", "'\\''")}'`;
    return this.section("Kernel", [
      k.title ? el("p", {}, k.title) : [],
      this.facts([["Entry", k.entry], ["Text", k.lines && `${counted(k.lines, "line")}${language ? ` of ${language}` : ""}`],
        ["Machine code", byteSize(k.bytes)], ["Compiler", k.compiler && cut(k.compiler, 60)]]),
      k.lines ? el("pre", { tabindex: 0, "aria-label": "Command that shows the text" }, command) : [],
    ].flat());
  }

  neighbours(title, graph, ids) {
    return this.section(title, ids.slice(0, 24).map((id) => {
      const { step, name } = graph.node(id);
      const said = step ? `${step.index} ${cut(labelOf(step), 30)}` : name;
      return button(said, () => select(graph.index, id), { class: "link", title: name });
    }));
  }

  /** A row of the explanation that no step runs: a view, or of another set of kernels. */
  row(name) {
    const told = explained.get(name);
    if (!told) return [this.heading("layer", name), el("p", {}, "No step of this plan has that name.")];
    return [
      this.heading("layer without a step of its own", told.kind, name),
      this.section("Nodes of the model", this.list(told.origin, "name")),
      this.bids(told), this.rejections(told), this.rewrites(told),
    ];
  }

  // -- parts -------------------------------------------------------------------------------------

  section(title, content) {
    const some = Array.isArray(content) ? content.length : content;
    return some ? el("section", {}, el("h3", {}, title), content) : null;
  }

  facts(rows) {
    return el("dl", { class: "facts" }, rows.filter(([, value]) => value)
      .map(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]));
  }

  list(texts, name = "") {
    return texts.length ? el("ul", { class: `plain ${name}` }, texts.map((t) => el("li", {}, t))) : [];
  }

  tensors(title, operands, graph) {
    return this.section(title, operands.length ? el("ul", { class: "tensors" }, operands.map((o) => el("li", {},
      graph && o.from >= 0
        ? button(o.name, () => select(graph.index, o.from), { class: "link name" })
        : el("span", { class: "name" }, o.name),
      el("span", { class: "note" }, `${o.dtype} ${shapeText(o.shape)}`,
        o.format && o.format !== "linear" ? `, ${o.format}` : "", isNumber(o.bytes) ? `, ${byteSize(o.bytes)}` : "")))) : []);
  }

  /** The first of many; a button shows the rest. */
  first(tag, name, items) {
    const list = el(tag, { class: name }, items.slice(0, FIRST_BIDS));
    if (items.length <= FIRST_BIDS) return list;
    const more = button(`Show ${items.length - FIRST_BIDS} more`, () => {
      list.append(...items.slice(FIRST_BIDS));
      more.remove();
    });
    return [list, more];
  }
}

function codes(texts) {
  return texts.map((t) => el("code", {}, t));
}
