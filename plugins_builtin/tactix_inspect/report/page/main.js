// The page: its head, its views, and the keys that count everywhere.

const VIEWS = [
  ["graph", "Graph", () => graphView.element()],
  ["timeline", "Timeline", () => new Timeline().element()],
  ["time", "Time", () => new Shares().element()],
  ["memory", "Memory", () => new MemoryView().element()],
  ["roofline", "Roofline", () => new RooflineView().element()],
  ["candidates", "Candidates", () => new Candidates().element()],
  ["precision", "Precision", () => new PrecisionView().element()],
  ["shortfall", "Fast path", () => new ShortfallView().element()],
  ...(report.differences ? [["differences", "Differences", () => new Differences().element()]] : []),
];

/** Views are made when they are first shown. */
class Views {
  constructor() {
    this.tabs = VIEWS.map(([id, title], i) => el("button", {
      type: "button", role: "tab", id: `tab-${id}`, "aria-controls": `view-${id}`, "aria-keyshortcuts": String(i + 1),
      on: { click: () => this.show(i), keydown: (e) => this.key(e, i) },
    }, title));
    this.panels = VIEWS.map(([id, title]) => el("div", {
      role: "tabpanel", id: `view-${id}`, "aria-labelledby": `tab-${id}`, hidden: true, "data-title": title,
    }));
    byId("tabs").append(...this.tabs);
    byId("view").append(...this.panels);
  }

  show(index) {
    this.at = index;
    this.tabs.forEach((tab, i) => {
      tab.setAttribute("aria-selected", String(i === index));
      tab.tabIndex = i === index ? 0 : -1;
      this.panels[i].hidden = i !== index;
    });
    this.make(index);
    shown();
  }

  make(index) {
    if (!this.panels[index].firstChild) this.panels[index].append(VIEWS[index][2]());
  }

  makeAll() {
    VIEWS.forEach((_, i) => this.make(i));
  }

  key(event, index) {
    const to = { ArrowLeft: index - 1, ArrowRight: index + 1, Home: 0, End: VIEWS.length - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    this.show((to + VIEWS.length) % VIEWS.length);
    this.tabs[this.at].focus();
  }

  /** To what the keys of the view belong to. */
  focus() {
    (this.panels[this.at].querySelector("svg[tabindex]") ?? byId("view")).focus();
  }
}

function head() {
  const p = report.plan;
  const nodes = new Set(main.steps.flatMap((s) => s.origin)).size;
  byId("plan-name").textContent = p.name || p.file || "plan";
  byId("plan-about").textContent = [p.device.name, p.threads && counted(p.threads, "thread"),
    p.made_by && `tactix ${p.made_by}`, p.bytes && byteSize(p.bytes)].filter(Boolean).join(" · ");
  const memory = main.memory;
  const short = report.shortfall.text;
  const facts = [
    profile ? ["A run", duration(profile.seconds), `median of ${profile.runs}`] : null,
    ["Predicted", duration(p.predicted), "by the build"],
    ["Steps", main.steps.length.toLocaleString("en"), nodes ? `run ${counted(nodes, "node")} of the model` : ""],
    ["Weights", byteSize(p.weights), ""],
    ["Activations", memory ? byteSize(memory.arena) : "–",
      memory?.least ? `${(memory.arena / memory.least).toFixed(2)} × lower bound` : "depends on data"],
    ["Fast path", short ? "not all" : "all", short ? cut(short, 44) : counted(report.shortfall.layers ?? 0, "layer")],
  ];
  byId("facts").append(...facts.filter(Boolean).map(([name, value, more]) =>
    el("div", {}, el("dt", {}, name), el("dd", {}, value), more ? el("dd", { class: "more" }, more) : null)));
}

function keys(event) {
  const isText = event.target.matches("input, select, textarea");
  if (event.ctrlKey || event.metaKey || event.altKey || byId("help").open) return;
  if (event.key === "Escape") leave();
  else if (isText) return;
  else if (event.key === "/") byId("search").select();
  else if (event.key === "?") byId("help").showModal();
  else if (event.key >= "1" && Number(event.key) <= VIEWS.length) views.show(Number(event.key) - 1);
  else return;
  event.preventDefault();
}

/** Escape: the selection goes first, then what was searched for. */
function leave() {
  if (selection.node >= 0 || selection.row) selectNothing();
  else search.clear();
}

/** Paper has no tabs: all views are there, the graph as a whole. */
function beforePrint() {
  views.makeAll();
  for (const panel of views.panels) panel.hidden = false;
  shown();
  views.panels[0].querySelector(".canvas").append(graphView.print());
}

function afterPrint() {
  views.show(views.at);
  views.panels[0].querySelector(".paper")?.remove();
}

const graphView = new GraphView();
const views = new Views();
head();
new Details().show();
const search = new Search(() => graphView.draw());
views.show(0);
byId("help-button").addEventListener("click", () => byId("help").showModal());
addEventListener("keydown", keys);
addEventListener("beforeprint", beforePrint);
addEventListener("afterprint", afterPrint);
