// Axes and marks that charts share.

/** About `count` round numbers from 0 to `most`; of bytes in powers of two. */
function ticks(most, count, base = 10) {
  if (!(most > 0)) return [0];
  const rough = most / count;
  const power = base ** Math.floor(Math.log(rough) / Math.log(base));
  const factors = base === 10 ? [1, 2, 5, 10] : [1, 2, 4, 8, 16];
  const step = power * (factors.find((f) => f * power >= rough) ?? base);
  return Array.from({ length: Math.floor(most / step) + 1 }, (_, i) => i * step);
}

/** Powers of ten from one number to another. */
function decades(least, most) {
  const out = [];
  for (let e = Math.floor(Math.log10(least)); e <= Math.ceil(Math.log10(most)); e += 1) out.push(10 ** e);
  return out;
}

function text(x, y, said, attributes = {}) {
  return svg("text", { x, y, ...attributes }, said);
}

/** Rectangles of one colour as one path: thousands of elements would be slow. */
class Boxes {
  constructor() {
    this.paths = new Map();
  }

  add(colour, x, y, width, height) {
    const parts = this.paths.get(colour) ?? [];
    parts.push(`M${x.toFixed(1)} ${y.toFixed(1)}h${width.toFixed(1)}v${height.toFixed(1)}h${(-width).toFixed(1)}z`);
    this.paths.set(colour, parts);
  }

  drawn(attributes = {}) {
    return [...this.paths].map(([colour, parts]) =>
      svg("path", { d: parts.join(""), style: { fill: colour }, ...attributes }));
  }
}

/** Calls `draw(width)` now and whenever the element gets another width. */
function onWidth(element, draw) {
  let known = 0;
  new ResizeObserver(([entry]) => {
    const width = Math.floor(entry.contentRect.width);
    if (width > 0 && width !== known) {
      known = width;
      draw(width);
    }
  }).observe(element);
}

/** A figure over steps that is walked by keys: `draw(width)` gives the SVG's content. */
function chart({ label, height, className = "" }) {
  const root = svg("svg", { class: `chart ${className}`.trim(), height, tabindex: 0, role: "application",
    "aria-roledescription": "chart", "aria-label": label });
  root.addEventListener("keydown", chartKeys);
  return root;
}
