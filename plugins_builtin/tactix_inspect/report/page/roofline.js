// How near steps come to what the machine can do: work a second over work a byte.

const ROOF_HEIGHT = 400;

class RooflineView {
  element() {
    const roof = profile?.roofline;
    if (!roof) {
      const why = profile ? "The profile has no measured peaks."
        : "A roofline needs a profile: `tactix profile PLAN --json > p.json`, then `tactix report PLAN --profile p.json`.";
      return el("section", { class: "scroll" }, el("p", { class: "empty" }, why));
    }
    this.points = main.steps.filter((s) => s.profile?.flops > 0 && s.profile.nbytes > 0 && s.profile.seconds > 0)
      .map((step) => ({ step, x: step.profile.flops / step.profile.nbytes, y: step.profile.flops / step.profile.seconds }));
    this.root = chart({
      height: ROOF_HEIGHT, className: "roofline",
      label: `Roofline: ${counted(this.points.length, "step")} that count arithmetic. Left and Right walk.`,
    });
    this.root.addEventListener("click", (e) => this.pick(e));
    onWidth(this.root, (width) => this.draw(width));
    onSelection(this.root, () => this.width && this.draw());
    const peaks = Object.entries(roof.flops).map(([dtype, f]) => `${rate(f)}flop/s in ${dtype}`);
    return el("section", { class: "scroll" },
      el("div", { class: "tools" }, el("p", { class: "note" },
        `Peaks measured on the device: ${[...peaks, `${rate(roof.nbytes)}B/s from memory`].join(", ")}. `,
        "A mark's area is its share of the time.")),
      this.points.length ? this.root : null, this.losses());
  }

  bounds() {
    const { flops, nbytes } = profile.roofline;
    const tops = Object.values(flops);
    const xs = [...this.points.map((p) => p.x), ...tops.map((f) => f / nbytes)];
    const ys = [...this.points.map((p) => p.y), ...tops];
    const least = (v) => v.reduce((a, b) => Math.min(a, b)) / 2;
    const most = (v) => v.reduce((a, b) => Math.max(a, b)) * 2;
    return { x: [least(xs), most(xs)], y: [least(ys), most(ys)] };
  }

  draw(width = this.width) {
    this.width = width;
    const [left, bottom] = [84, ROOF_HEIGHT - 44];
    const b = this.bounds();
    const log = ([least, most], from, to) => (v) =>
      from + (Math.log(v / least) / Math.log(most / least)) * (to - from);
    const [x, y] = [log(b.x, left, width - 12), log(b.y, bottom, 12)];
    const inside = (v, [least, most]) => v >= least && v <= most;
    const down = decades(...b.x).filter((v) => inside(v, b.x)).map((v) => svg("g", { class: "grid" },
      svg("line", { x1: x(v), x2: x(v), y1: 12, y2: bottom }), text(x(v), bottom + 16, rate(v).trim(), { class: "tick" })));
    const across = decades(...b.y).filter((v) => inside(v, b.y)).map((v) => svg("g", { class: "grid" },
      svg("line", { x1: left, x2: width - 12, y1: y(v), y2: y(v) }), text(left - 8, y(v) + 4, rate(v), { class: "lane" })));
    const { flops, nbytes } = profile.roofline;
    const roofs = Object.entries(flops).flatMap(([dtype, peak]) => {
      const knee = peak / nbytes;
      const start = Math.max(b.x[0], b.y[0] / nbytes);
      return [svg("path", { class: "roof", d: `M${x(start)} ${y(start * nbytes)}L${x(knee)} ${y(peak)}H${width - 12}` }),
        text(width - 16, y(peak) - 6, `${dtype} ${rate(peak)}flop/s`, { class: "roof-name" })];
    });
    const radius = (step) => 3 + 22 * Math.sqrt(step.profile.seconds / totalSeconds);
    this.marks = this.points.map((p) => ({ ...p, cx: x(p.x), cy: y(p.y), r: radius(p.step) }));
    const circles = this.marks.map((p) => svg("circle", {
      cx: p.cx, cy: p.cy, r: p.r, class: p.step === selectedStep() ? "point chosen" : "point",
      style: { fill: colourOf(p.step, "tactic") },
    }, svg("title", {}, `${p.step.name}\n${rate(p.y)}flop/s, ${digits(p.x)} flop/B`)));
    this.root.replaceChildren(...down, ...across, ...roofs, ...circles,
      text((left + width) / 2, ROOF_HEIGHT - 6, "arithmetic for each byte, flop/B", { class: "axis" }),
      text(14, 12 + (bottom - 12) / 2, "flop/s", { class: "axis", transform: `rotate(-90 14 ${12 + (bottom - 12) / 2})` }));
  }

  pick(event) {
    const away = (p) => Math.hypot(p.cx - event.offsetX, p.cy - event.offsetY) - p.r;
    const [nearest] = [...this.marks].sort((a, b) => away(a) - away(b));
    if (nearest && away(nearest) < 8) selectStep(nearest.step);
  }

  /** What could be gained at most, the most first. */
  losses() {
    const lost = (s) => s.profile.seconds * (1 - s.profile.of_roofline);
    const known = main.steps.filter((s) => isNumber(s.profile?.of_roofline)).sort((a, b) => lost(b) - lost(a));
    const extra = [
      { title: "of the roofline", numeric: true, text: (s) => percent(s.profile.of_roofline), value: (s) => s.profile.of_roofline },
      { title: "above it", numeric: true, text: (s) => duration(lost(s)), value: lost },
      { title: "flops", numeric: true, text: (s) => rate(s.profile.flops ?? 0), value: (s) => s.profile.flops },
      { title: "bytes", numeric: true, text: (s) => byteSize(s.profile.nbytes), value: (s) => s.profile.nbytes },
    ];
    return stepTable("Time above the roofline, the most first", known, ["index", "layers", "name", "tactic", "time", ...extra]);
  }
}
