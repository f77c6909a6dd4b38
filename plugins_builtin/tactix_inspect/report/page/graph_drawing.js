// Where the nodes of a graph lie on the plane, and the ways of its edges.

const NODE_WIDTH = 212;
const NODE_PITCH = 236;
const NODE_HEIGHT = 46;
const IO_HEIGHT = 30;
const LINE_HEIGHT = 17; // of a layer in an open group
const ROW_GAP = 30;

/** The plane of one graph: `open` are the steps whose layers show. */
class Plane {
  constructor(graph) {
    this.graph = graph;
    this.open = new Set();
    this.rows = [];
    graph.layout.rows.forEach((row, id) => (this.rows[row] ??= []).push(id));
    for (const row of this.rows) row.sort((a, b) => graph.layout.places[a] - graph.layout.places[b]);
    const places = [graph.layout.places.map((p) => p + 0.5), ...Object.values(graph.layout.trunks)].flat();
    this.width = NODE_PITCH * places.reduce((most, p) => Math.max(most, p), 1);
    this.lay();
  }

  /** Rows below each other, each as high as its highest node. */
  lay() {
    this.tops = [];
    this.heights = [];
    let y = 0;
    this.rows.forEach((row, r) => {
      this.tops[r] = y;
      this.heights[r] = Math.max(...row.map((id) => this.heightOf(id)));
      y += this.heights[r] + ROW_GAP;
    });
    this.height = Math.max(1, y - ROW_GAP);
    this.laid = (this.laid ?? 0) + 1;
  }

  heightOf(id) {
    const { kind, step } = this.graph.node(id);
    if (kind !== "step") return IO_HEIGHT;
    return NODE_HEIGHT + (this.open.has(id) ? step.inner.length * LINE_HEIGHT + 8 : 0);
  }

  box(id) {
    const { rows, places } = this.graph.layout;
    const height = this.heightOf(id);
    return { x: places[id] * NODE_PITCH - NODE_WIDTH / 2, y: this.tops[rows[id]], width: NODE_WIDTH, height };
  }

  /** The node at a point; -1 for none. */
  at(x, y) {
    const row = this.rowAt(y);
    for (const id of this.rows[row] ?? []) {
      const b = this.box(id);
      if (x >= b.x && x <= b.x + b.width && y >= b.y && y <= b.y + b.height) return id;
    }
    return -1;
  }

  /** The last row that begins at or above a height. */
  rowAt(y) {
    let low = 0;
    let high = this.tops.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.tops[middle] <= y) low = middle;
      else high = middle - 1;
    }
    return low;
  }

  /** Edges as a path: from a node to those readers, as far as they pass rows from `first` to `last`. */
  ways(from, readers, first = 0, last = Infinity) {
    const { rows, trunks } = this.graph.layout;
    const bends = trunks[from] ?? [];
    const begin = rows[from];
    const end = readers.reduce((most, to) => Math.max(most, rows[to]), begin);
    const stop = Math.min(bends.length, end - begin - 1, last - begin + 1);
    let path = "";
    for (let k = Math.max(0, first - begin - 1); k < stop; k += 1) {
      path += this.line(this.bottom(from, k), [bends[k] * NODE_PITCH, this.tops[begin + 1 + k]])
        + `V${this.bottom(from, k + 1)[1].toFixed(1)}`;
    }
    for (const to of readers) {
      if (rows[to] < first || rows[to] - 1 > last) continue;
      const box = this.box(to);
      path += this.line(this.bottom(from, Math.min(bends.length, rows[to] - begin - 1)), [box.x + NODE_WIDTH / 2, box.y]);
    }
    return path;
  }

  /** Where an edge leaves the row so many rows below its node. */
  bottom(from, below) {
    const row = this.graph.layout.rows[from] + below;
    if (below) return [this.graph.layout.trunks[from][below - 1] * NODE_PITCH, this.tops[row] + this.heights[row]];
    const box = this.box(from);
    return [box.x + NODE_WIDTH / 2, box.y + box.height];
  }

  line([x0, y0], [x1, y1]) {
    const bend = Math.max(8, (y1 - y0) / 2);
    const at = (x, y) => `${x.toFixed(1)} ${y.toFixed(1)}`;
    return `M${at(x0, y0)}C${at(x0, y0 + bend)} ${at(x1, y1 - bend)} ${at(x1, y1)}`;
  }

  /** The last row that edges from a node reach. */
  reach(from) {
    const { rows } = this.graph.layout;
    return this.graph.readers[from].reduce((most, to) => Math.max(most, rows[to]), rows[from]);
  }
}
