// The graph: what is in sight is drawn, near by with its texts, from afar as boxes.

const TEXTS_FROM = 0.42; // scale from which texts can be read
const NEAREST = 2.5;
const LEAST_HOME = 0.75; // scale at which a wide graph begins
const MARGIN = 300; // of the plane around what is in sight, drawn ahead
const MAP_WIDTH = 84;

class GraphView {
  constructor() {
    this.by = "tactic";
    this.planes = new Map();
    this.edges = svg("path", { class: "edges" });
    this.ways = svg("path", { class: "ways" });
    this.nodes = svg("g");
    this.scene = svg("g", {}, this.edges, this.ways, this.nodes);
    this.root = svg("svg", {
      class: "graph", tabindex: 0, role: "application", "aria-roledescription": "graph",
      "aria-describedby": "graph-keys",
    }, this.scene);
    this.map = svg("svg", { class: "map", "aria-hidden": "true", preserveAspectRatio: "none" });
    this.legend = el("ul", { class: "legend" });
    this.zoom = { x: 0, y: 0, k: 1 };
    this.show(graphs[selection.graph]);
  }

  element() {
    const choices = graphs.map((g) => [String(g.index), g.name]);
    this.which = graphs.length > 1
      ? chooser("Plan", choices, String(this.graph.index), (v) => this.show(graphs[Number(v)])) : null;
    const bys = [...Object.entries(GROUPINGS).slice(0, 3).map(([k, g]) => [k, g.title]), ["time", "time"]];
    const tools = el("div", { class: "tools" }, this.which,
      chooser("Colours", bys, this.by, (by) => this.colour(by)),
      el("div", { class: "buttons", role: "group", "aria-label": "Zoom" },
        button("−", () => this.scale(1 / 1.4), { "aria-label": "Zoom out" }),
        button("+", () => this.scale(1.4), { "aria-label": "Zoom in" }),
        button("All", () => this.fit(), { "aria-label": "Show the whole graph" }),
        button("Top", () => this.home(), { "aria-label": "Go to the top of the graph" })),
      button("Open groups", () => this.openAll(true)),
      button("Close groups", () => this.openAll(false)),
      this.legend);
    const hint = el("p", { id: "graph-keys", class: "hidden" },
      "Up goes to what a step reads, Down to what reads it, Left and Right along the row. ",
      "Enter opens a fused group. Plus, minus and 0 zoom.");
    this.listen();
    this.colour(this.by);
    return el("section", { class: "graph-view" }, tools, hint,
      el("div", { class: "canvas" }, this.root, this.map));
  }

  show(graph) {
    this.graph = graph;
    if (!this.planes.has(graph)) this.planes.set(graph, new Plane(graph));
    this.plane = this.planes.get(graph);
    const inside = `${counted(graph.steps.length, "step")} of ${graph.name}`;
    this.root.setAttribute("aria-label", `Graph of ${inside}`);
    if (this.which) this.which.querySelector("select").value = String(graph.index);
    this.home();
    this.drawMap();
  }

  colour(by) {
    this.by = by;
    const shown = by === "time"
      ? [["var(--h0)", "shortest"], [`var(--h${HEATS - 1})`, `longest, ${duration(longestSeconds)}`]]
      : grouped(this.graph.steps, GROUPINGS[by].of).slice(0, COLOURS)
        .map((g) => [palettes[by].get(g.key), g.key || "–"]);
    this.legend.replaceChildren(...shown.map(([colour, said]) => swatch(colour, said)));
    this.draw();
    this.drawMap();
  }

  // -- moving ------------------------------------------------------------------------------------

  listen() {
    this.root.addEventListener("wheel", (e) => this.wheel(e), { passive: false });
    this.root.addEventListener("pointerdown", (e) => this.grab(e));
    this.root.addEventListener("keydown", (e) => this.key(e));
    this.root.addEventListener("dblclick", (e) => this.toggle(this.nodeAt(e)));
    for (const kind of ["pointerdown", "pointermove"]) {
      this.map.addEventListener(kind, (e) => e.buttons && this.centre(
        (e.offsetX / this.map.clientWidth) * this.plane.width,
        (e.offsetY / this.map.clientHeight) * this.plane.height));
    }
    new ResizeObserver(() => this.resized()).observe(this.root);
    onSelection(this.root, () => this.selected());
  }

  resized() {
    const width = this.root.clientWidth;
    if (width && !this.seen) this.home();
    this.seen ||= width > 0;
    this.draw();
  }

  wheel(event) {
    event.preventDefault();
    if (event.ctrlKey || event.metaKey) {
      this.scale(Math.exp(-event.deltaY / 300), event.offsetX, event.offsetY);
    } else {
      this.move(-(event.shiftKey ? event.deltaY : event.deltaX), event.shiftKey ? 0 : -event.deltaY);
    }
  }

  grab(event) {
    if (event.button !== 0) return;
    const from = { x: event.clientX, y: event.clientY, moved: false };
    const drag = (e) => {
      const [dx, dy] = [e.clientX - from.x, e.clientY - from.y];
      from.moved ||= Math.hypot(dx, dy) > 4;
      if (!from.moved) return;
      [from.x, from.y] = [e.clientX, e.clientY];
      this.move(dx, dy);
    };
    const drop = (e) => {
      removeEventListener("pointermove", drag);
      removeEventListener("pointerup", drop);
      if (!from.moved) this.click(e);
    };
    addEventListener("pointermove", drag);
    addEventListener("pointerup", drop);
  }

  click(event) {
    const id = this.nodeAt(event);
    if (id < 0) selectNothing();
    else select(this.graph.index, id);
    if (event.target.closest?.(".opener")) this.toggle(id);
  }

  nodeAt(event) {
    const bounds = this.root.getBoundingClientRect();
    const x = (event.clientX - bounds.left - this.zoom.x) / this.zoom.k;
    const y = (event.clientY - bounds.top - this.zoom.y) / this.zoom.k;
    return this.plane.at(x, y);
  }

  move(dx, dy) {
    this.zoom.x += dx;
    this.zoom.y += dy;
    const { left, right, top, bottom } = this.sight(0);
    const d = this.drawn;
    if (d && left >= d.left && right <= d.right && top >= d.top && bottom <= d.bottom) this.place();
    else this.draw();
  }

  scale(factor, x = this.root.clientWidth / 2, y = this.root.clientHeight / 2) {
    const k = Math.min(NEAREST, Math.max(this.least(), this.zoom.k * factor));
    this.zoom.x = x - ((x - this.zoom.x) * k) / this.zoom.k;
    this.zoom.y = y - ((y - this.zoom.y) * k) / this.zoom.k;
    this.zoom.k = k;
    this.draw();
  }

  /** The scale at which all of it is in sight. */
  least() {
    const { clientWidth, clientHeight } = this.root;
    return Math.min(1, (clientWidth - 24) / this.plane.width, (clientHeight - 24) / this.plane.height) || 1;
  }

  fit() {
    const k = Math.max(1e-3, this.least());
    this.zoom = {
      k, x: (this.root.clientWidth - this.plane.width * k) / 2,
      y: (this.root.clientHeight - this.plane.height * k) / 2,
    };
    this.draw();
  }

  /** The top, as wide as texts can be read well; what is given in the middle. */
  home() {
    const width = this.root.clientWidth;
    const k = Math.min(1, Math.max(LEAST_HOME, (width - 40) / this.plane.width));
    const first = this.plane.rows[0] ?? [];
    const middle = first.reduce((sum, id) => sum + this.plane.box(id).x + NODE_WIDTH / 2, 0) / (first.length || 1);
    const isWhole = this.plane.width * k <= width;
    this.zoom = { x: width / 2 - (isWhole ? this.plane.width / 2 : middle) * k, y: 20, k };
    this.draw();
  }

  centre(x, y) {
    this.zoom.x = this.root.clientWidth / 2 - x * this.zoom.k;
    this.zoom.y = this.root.clientHeight / 2 - y * this.zoom.k;
    this.draw();
  }

  // -- choosing ----------------------------------------------------------------------------------

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const actions = {
      "+": () => this.scale(1.4), "=": () => this.scale(1.4), "-": () => this.scale(1 / 1.4),
      0: () => this.fit(), Enter: () => this.toggle(this.chosen()),
      ArrowDown: () => this.walk("readers"), ArrowUp: () => this.walk("makers"),
      ArrowLeft: () => this.along(-1), ArrowRight: () => this.along(1),
      Home: () => this.go(0), End: () => this.go(this.graph.steps.length - 1),
    };
    if (!(event.key in actions)) return;
    event.preventDefault();
    actions[event.key]();
  }

  chosen() {
    return selection.graph === this.graph.index ? selection.node : -1;
  }

  go(id) {
    if (id >= 0 && id < this.graph.count) select(this.graph.index, id);
  }

  /** To the neighbour nearest to straight on. */
  walk(way) {
    const from = this.chosen();
    if (from < 0) return this.go(this.plane.rows[0]?.[0] ?? -1);
    const { places, rows } = this.graph.layout;
    const far = (id) => Math.abs(rows[id] - rows[from]) * 4 + Math.abs(places[id] - places[from]);
    const next = [...this.graph[way][from]].sort((a, b) => far(a) - far(b));
    return this.go(next[0] ?? -1);
  }

  along(offset) {
    const from = this.chosen();
    if (from < 0) return this.walk("readers");
    const row = this.plane.rows[this.graph.layout.rows[from]];
    return this.go(row[row.indexOf(from) + offset] ?? -1);
  }

  selected() {
    if (graphs[selection.graph] !== this.graph && selection.node >= 0) this.show(graphs[selection.graph]);
    const id = this.chosen();
    if (id >= 0) this.reveal(id);
    this.draw();
  }

  /** Bring a node into sight, if it is not. */
  reveal(id) {
    const b = this.plane.box(id);
    const { x, y, k } = this.zoom;
    const [width, height] = [this.root.clientWidth, this.root.clientHeight];
    const inSight = b.x * k + x >= 0 && (b.x + b.width) * k + x <= width
      && b.y * k + y >= 0 && (b.y + b.height) * k + y <= height;
    if (!inSight && width) {
      this.zoom.k = Math.max(this.zoom.k, TEXTS_FROM * 1.5);
      this.centre(b.x + b.width / 2, b.y + b.height / 2);
    }
  }

  toggle(id) {
    const step = id >= 0 ? this.graph.node(id).step : undefined;
    if (!step || step.inner.length < 2) return;
    if (!this.plane.open.delete(id)) this.plane.open.add(id);
    announce(`${this.plane.open.has(id) ? "open" : "closed"}: ${step.inner.map((n) => n.op).join(", ")}`);
    this.relay(id);
  }

  openAll(open) {
    const groups = this.graph.steps.filter((s) => s.inner.length > 1).map((s) => s.index);
    this.plane.open = new Set(open ? groups : []);
    this.relay(this.chosen());
  }

  /** Lay it out again, so that a node stays where it is on the screen. */
  relay(id) {
    const before = id >= 0 ? this.plane.box(id).y : 0;
    this.plane.lay();
    this.zoom.y -= ((id >= 0 ? this.plane.box(id).y : 0) - before) * this.zoom.k;
    this.draw();
    this.drawMap();
  }

  // -- drawing -----------------------------------------------------------------------------------

  draw() {
    if (!this.root.clientWidth) return;
    this.drawn = this.sight(MARGIN);
    this.drawNodes(this.drawn, this.zoom.k >= TEXTS_FROM);
    this.drawEdges(this.drawn);
    this.drawWays();
    this.place();
  }

  /** What of the plane is in sight, and so much around it. */
  sight(margin) {
    const { x, y, k } = this.zoom;
    const [width, height] = [this.root.clientWidth, this.root.clientHeight];
    return {
      left: -x / k - margin, right: (width - x) / k + margin,
      top: -y / k - margin, bottom: (height - y) / k + margin,
    };
  }

  /** Move what is drawn. */
  place() {
    const { x, y, k } = this.zoom;
    this.scene.setAttribute("transform", `translate(${x} ${y}) scale(${k})`);
    this.drawFrame();
  }

  inSight(sight) {
    const [first, last] = [this.plane.rowAt(sight.top), this.plane.rowAt(sight.bottom)];
    const out = [];
    for (let r = first; r <= last; r += 1) {
      for (const id of this.plane.rows[r]) {
        const b = this.plane.box(id);
        if (b.x < sight.right && b.x + b.width > sight.left) out.push(id);
      }
    }
    return out;
  }

  drawNodes(sight, withTexts) {
    const ids = this.inSight(sight);
    this.nodes.replaceChildren(...(withTexts ? ids.map((id) => this.node(id)) : this.boxes(ids)));
  }

  /** From afar: a path a colour, and what is chosen and found above them. */
  boxes(ids) {
    const boxes = new Boxes();
    const marks = [];
    for (const id of ids) {
      const b = this.plane.box(id);
      const { step } = this.graph.node(id);
      const faded = found.any && step && !found.has(step);
      boxes.add(step && !faded ? colourOf(step, this.by) : "var(--faint)", b.x, b.y, b.width, b.height);
      if (id === this.chosen()) marks.push(svg("rect", { ...b, class: "mark" }));
    }
    return [...boxes.drawn(), ...marks];
  }

  node(id) {
    const b = this.plane.box(id);
    const { kind, step, io } = this.graph.node(id);
    const group = svg("g", { class: this.classOf(id, kind, step), transform: `translate(${b.x} ${b.y})`, "data-node": id },
      svg("rect", { class: "body", width: b.width, height: b.height, rx: kind === "step" ? 6 : 15 }));
    if (kind === "step") group.append(...this.stepTexts(id, step, b));
    else {
      group.append(text(b.width / 2, 13, cut(io.name, 30), { class: "io" }),
        text(b.width / 2, 25, `${io.dtype} ${cut(shapeText(io.shape), 26)}`, { class: "io small" }));
    }
    return group;
  }

  classOf(id, kind, step) {
    const isFaded = found.any && !(step && found.has(step));
    const isNear = this.chosen() >= 0 && (this.graph.makers[this.chosen()].includes(id)
      || this.graph.readers[this.chosen()].includes(id));
    return ["node", kind, id === this.chosen() && "chosen", isNear && "near", isFaded && "faded"]
      .filter(Boolean).join(" ");
  }

  stepTexts(id, step, box) {
    const seconds = secondsOf(step);
    const isGroup = step.inner.length > 1;
    const isOpen = this.plane.open.has(id);
    const parts = [
      svg("path", { class: "stripe", d: stripe(box.height), style: { fill: colourOf(step, this.by) } }),
      svg("title", {}, `${step.name}\n${shortKey(step.tactic)} ${step.variant}`),
      text(14, 18, cut(labelOf(step), isGroup ? 23 : 31), { class: "label" }),
      text(14, 34, clipped(titleOf(step), 21), { class: "name" }),
      text(box.width - 8, 34, isNumber(seconds) ? duration(seconds) : "", { class: "time" }),
    ];
    if (longestSeconds && isNumber(seconds)) {
      const length = Math.max(1, (seconds / longestSeconds) * (box.width - 22));
      parts.push(svg("rect", { class: "share", x: 14, y: 40, width: length, height: 2.5, rx: 1 }));
    }
    if (isGroup) {
      parts.push(svg("g", { class: "opener" },
        svg("rect", { x: box.width - 36, y: 5, width: 30, height: 17, rx: 8 }),
        text(box.width - 21, 17, `${isOpen ? "▾" : "▸"}${step.inner.length}`)));
    }
    if (isOpen) {
      step.inner.forEach((inner, i) => {
        const y = NODE_HEIGHT + 12 + i * LINE_HEIGHT;
        parts.push(text(14, y, cut(inner.op, 14), { class: "inner" }),
          text(106, y, clipped(inner.name, 16), { class: "inner name" }));
      });
    }
    return parts;
  }

  drawEdges(sight) {
    const [first, last] = [this.plane.rowAt(sight.top), this.plane.rowAt(sight.bottom)];
    const { rows } = this.graph.layout;
    const key = [this.graph.index, this.plane.laid, first, last].join();
    if (key === this.edgesOf) return;
    this.edgesOf = key;
    this.reaches ??= new Map();
    if (!this.reaches.has(this.graph)) {
      this.reaches.set(this.graph, rows.map((_, id) => this.plane.reach(id)));
    }
    const reaches = this.reaches.get(this.graph);
    let path = "";
    for (const id of rows.keys()) {
      if (rows[id] > last || reaches[id] < first) continue;
      path += this.plane.ways(id, this.graph.readers[id], first, last);
    }
    this.edges.setAttribute("d", path);
  }

  /** The edges of what is chosen. */
  drawWays() {
    const id = this.chosen();
    const ways = id < 0 ? [] : [...this.graph.makers[id].map((m) => this.plane.ways(m, [id])),
      this.plane.ways(id, this.graph.readers[id])];
    this.ways.setAttribute("d", ways.join(""));
  }

  drawMap() {
    const { width, height } = this.plane;
    const boxes = new Boxes();
    for (let id = 0; id < this.graph.count; id += 1) {
      const b = this.plane.box(id);
      const { step } = this.graph.node(id);
      boxes.add(step ? colourOf(step, this.by) : "var(--faint)", b.x, b.y, b.width, b.height);
    }
    this.frame = svg("rect", { class: "frame" });
    this.map.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.map.replaceChildren(...boxes.drawn(), this.frame);
    this.drawFrame();
  }

  /** What is in sight, on the map. */
  drawFrame() {
    const { x, y, k } = this.zoom;
    for (const [name, value] of Object.entries({
      x: -x / k, y: -y / k, width: this.root.clientWidth / k, height: this.root.clientHeight / k,
    })) this.frame?.setAttribute(name, value);
  }

  /** For paper: all of it, from afar. */
  print() {
    const { width, height } = this.plane;
    const boxes = new Boxes();
    for (const s of this.graph.steps) {
      const b = this.plane.box(s.index);
      boxes.add(colourOf(s, this.by), b.x, b.y, b.width, b.height);
    }
    const ways = this.graph.readers.map((readers, id) => this.plane.ways(id, readers));
    const edges = svg("path", { class: "edges", d: ways.join("") });
    return svg("svg", { class: "paper", viewBox: `0 0 ${width} ${height}`, role: "img",
      "aria-label": this.root.getAttribute("aria-label") }, edges, ...boxes.drawn());
  }
}

/** The left end of a node with round corners, in the colour of its group. */
function stripe(height) {
  return `M6 0H5A5 5 0 0 0 0 5V${height - 5}A5 5 0 0 0 5 ${height}H6Z`;
}
