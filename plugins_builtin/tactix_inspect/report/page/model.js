// The document that Python wrote, what is selected in it, and who wants to know.

const report = JSON.parse(byId("document").textContent);

const COLOURS = 8; // --c0 to --c7; --c8 is for all others
const HEATS = 6; // --h0 to --h5, from nothing to the longest

/** A step as views use it: what Python told of it, and its time. */
function prepared(step, index, graph) {
  return {
    kind: "", layers: [], origin: [], makes: [], consumes: [], variant: "", status: "", source: "",
    inputs: [], outputs: [], constants: [], inner: [], bodies: [], precision: "", workspace: 0,
    seconds: null, profile: null, ...step, index, graph,
  };
}

class Graph {
  constructor(told, index) {
    Object.assign(this, { index, name: told.name, inputs: told.inputs, outputs: told.outputs });
    Object.assign(this, { layout: told.layout, memory: told.memory, edges: told.edges });
    this.steps = told.steps.map((step, i) => prepared(step, i, index));
    this.count = this.steps.length + this.inputs.length + this.outputs.length;
    this.makers = Array.from({ length: this.count }, () => []);
    this.readers = Array.from({ length: this.count }, () => []);
    for (const [from, to] of this.edges) {
      this.makers[to].push(from);
      this.readers[from].push(to);
    }
  }

  /** What a node is: a step, an input or an output. */
  node(id) {
    if (id < this.steps.length) return { kind: "step", step: this.steps[id], name: this.steps[id].name };
    const k = id - this.steps.length;
    const isInput = k < this.inputs.length;
    const io = isInput ? this.inputs[k] : this.outputs[k - this.inputs.length];
    return { kind: isInput ? "input" : "output", io, name: io.name };
  }
}

const graphs = report.graphs.map((told, i) => new Graph(told, i));
const main = graphs[report.main];
const explained = new Map(report.nodes.map((n) => [n.name, n]));
const profile = report.profile;

for (const time of profile?.steps ?? []) main.steps[time.index].profile = time;

/** Seconds of a step: of the profile's runs where there is one, else of the build. */
function secondsOf(step) {
  return step.profile ? step.profile.seconds : profile && step.graph === main.index ? null : step.seconds;
}

const totalSeconds = main.steps.reduce((sum, s) => sum + (secondsOf(s) ?? 0), 0);
const longestSeconds = main.steps.reduce((most, s) => Math.max(most, secondsOf(s) ?? 0), 0);
const timesAre = profile ? "profiled" : "of the build";

/** Steps by a key, with their seconds; the longest first. */
function grouped(steps, keyOf) {
  const groups = new Map();
  for (const s of steps) {
    const key = keyOf(s);
    const group = groups.get(key) ?? { key, seconds: 0, steps: [] };
    group.seconds += secondsOf(s) ?? 0;
    group.steps.push(s);
    groups.set(key, group);
  }
  return [...groups.values()].sort((a, b) => b.seconds - a.seconds || b.steps.length - a.steps.length);
}

const GROUPINGS = {
  tactic: { title: "tactic", of: (s) => shortKey(s.tactic) },
  kind: { title: "kind of layer", of: (s) => s.kind || shortKey(s.tactic) },
  precision: { title: "precision", of: (s) => s.precision || "–" },
  kernel: { title: "kernel", of: (s) => `${shortKey(s.tactic)} ${s.variant}`.trim() },
};

const palettes = {};
for (const [name, { of }] of Object.entries(GROUPINGS)) {
  const every = graphs.length > 1 ? graphs.flatMap((g) => g.steps) : main.steps;
  palettes[name] = new Map(grouped(every, of).map((g, i) => [g.key, `var(--c${Math.min(i, COLOURS)})`]));
}

/** The colour of a step: by one of GROUPINGS, or by `time`. */
function colourOf(step, by) {
  if (by === "time") {
    const share = longestSeconds ? (secondsOf(step) ?? 0) / longestSeconds : 0;
    return `var(--h${Math.min(HEATS - 1, Math.floor(Math.sqrt(share) * HEATS))})`;
  }
  return palettes[by].get(GROUPINGS[by].of(step)) ?? `var(--c${COLOURS})`;
}

/** What a step computes, in a few words. */
function labelOf(step) {
  const layers = step.layers.length ? step.layers : [step.kind || shortKey(step.tactic)];
  return layers.map(shortKey).join(" + ");
}

/** A name that people know: that of the model's first node, if there is one. */
function titleOf(step) {
  return step.origin[0] ?? step.name;
}

// -- selection: a node of a graph, a row of the explanation without a step, or nothing ------------

const selection = { graph: main.index, node: -1, row: "" };
const listeners = [];

/** Calls `listener` after each selection; what is hidden waits until it is shown: see `shown`. */
function onSelection(element, listener) {
  listeners.push({ element, listener, isLate: false });
}

function tell(entry) {
  entry.isLate = entry.element.closest("[hidden]") !== null;
  if (!entry.isLate) entry.listener();
}

/** A view has come into sight. */
function shown() {
  listeners.filter((entry) => entry.isLate).forEach(tell);
}

function select(graph, node, row = "") {
  Object.assign(selection, { graph, node, row });
  listeners.forEach(tell);
  if (node >= 0) announce(spoken(graphs[graph], node));
  else if (row) announce(row);
}

function selectStep(step) {
  select(step.graph, step.index);
}

/** A row of the explanation: its step, if there is one. */
function selectName(name) {
  const step = main.steps.find((s) => s.name === name);
  if (step) selectStep(step);
  else select(main.index, -1, name);
}

function selectNothing() {
  select(selection.graph, -1);
  announce("nothing selected");
}

/** The selected step of the main graph; undefined if there is none. */
function selectedStep() {
  return selection.graph === main.index ? main.steps[selection.node] : undefined;
}

/** What a screen reader says of a node. */
function spoken(graph, id) {
  const { kind, step, io } = graph.node(id);
  if (kind !== "step") return `${kind} ${io.name}, ${io.dtype} ${shapeText(io.shape)}`;
  const seconds = secondsOf(step);
  const time = isNumber(seconds) ? `, ${duration(seconds)}` : "";
  const group = step.inner.length > 1 ? `, ${counted(step.inner.length, "layer")} fused` : "";
  return `step ${step.index}, ${labelOf(step)}, ${titleOf(step)}${time}${group}`;
}

/** Left and Right: the step before and behind the selected one. */
function stepBeside(offset) {
  const at = selectedStep()?.index ?? (offset > 0 ? -1 : main.steps.length);
  const next = main.steps[Math.min(main.steps.length - 1, Math.max(0, at + offset))];
  if (next) selectStep(next);
}

/** Keys of charts over steps. */
function chartKeys(event) {
  const moves = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10, Home: -Infinity, End: Infinity };
  if (!(event.key in moves) || event.ctrlKey || event.metaKey || event.altKey) return false;
  event.preventDefault();
  stepBeside(moves[event.key]);
  return true;
}
