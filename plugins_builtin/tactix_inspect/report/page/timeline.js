// Steps over time: by thread where a profile tells, else one behind the other.

const LANE = 34;
const LANE_GAP = 6;
const LEFT = 76;

/** Bars: { step, lane, start, seconds }. */
function timelineBars() {
  const bars = [];
  let end = 0;
  for (const step of main.steps) {
    const time = step.profile;
    const seconds = secondsOf(step);
    if (!isNumber(seconds)) continue;
    const start = time ? time.start : end;
    const shares = time?.threads?.length ? time.threads : [seconds];
    shares.forEach((share, lane) => share > 0 && bars.push({ step, lane, start, seconds: share }));
    end = start + seconds;
  }
  return bars;
}

class Timeline {
  constructor() {
    this.bars = timelineBars();
    this.end = this.bars.reduce((most, b) => Math.max(most, b.start + b.seconds), 0) || 1;
    this.lanes = this.bars.reduce((most, b) => Math.max(most, b.lane), 0) + 1;
    this.from = 0;
    this.to = this.end;
    this.root = chart({
      height: this.lanes * (LANE + LANE_GAP) + 34, className: "timeline",
      label: `Timeline of ${counted(main.steps.length, "step")}, ${duration(this.end)}. `
        + "Left and Right walk, plus and minus zoom.",
    });
  }

  element() {
    this.root.addEventListener("keydown", (e) => this.key(e));
    this.root.addEventListener("wheel", (e) => this.wheel(e), { passive: false });
    this.root.addEventListener("pointerdown", (e) => this.grab(e));
    onWidth(this.root, (width) => this.draw(width));
    onSelection(this.root, () => this.chosen());
    const about = profile
      ? `Medians of ${counted(profile.runs, "run")} on ${counted(profile.threads, "thread")}; `
        + `a run took ${duration(profile.seconds)}, ${duration(profile.profiled)} with timestamps (${profile.method}). `
        + "One run in ten is under low, one over high."
      : "Without a profile: the seconds that the build measured or estimated, one step behind the other. "
        + "`tactix profile PLAN --json` writes one for --profile.";
    return el("section", { class: "scroll" },
      el("div", { class: "tools" },
        el("div", { class: "buttons", role: "group", "aria-label": "Zoom" },
          button("−", () => this.scale(1 / 1.6), { "aria-label": "Zoom out" }),
          button("+", () => this.scale(1.6), { "aria-label": "Zoom in" }),
          button("All", () => this.window(0, this.end), { "aria-label": "Show all of the time" })),
        el("p", { class: "note" }, about)),
      this.root, this.steps());
  }

  steps() {
    if (!profile) return stepTable("Steps", main.steps);
    const extra = [
      { title: "start", numeric: true, text: (s) => duration(s.profile?.start), value: (s) => s.profile?.start },
      { title: "low", numeric: true, text: (s) => duration(s.profile?.low), value: (s) => s.profile?.low },
      { title: "high", numeric: true, text: (s) => duration(s.profile?.high), value: (s) => s.profile?.high },
    ];
    return stepTable("Steps", main.steps, ["index", "layers", "name", "tactic", ...extra, "time", "share", "bar"]);
  }

  draw(width = this.width) {
    this.width = width;
    const at = (t) => LEFT + ((t - this.from) / (this.to - this.from)) * (width - LEFT - 8);
    const bottom = this.lanes * (LANE + LANE_GAP);
    const marks = ticks(this.to - this.from, Math.max(2, width / 130)).map((t) => this.from + t);
    const grid = marks.map((t) => svg("g", { class: "grid" },
      svg("line", { x1: at(t), x2: at(t), y1: 0, y2: bottom }),
      text(at(t), bottom + 16, duration(t) === "0 µs" ? "0" : duration(t), { class: "tick" })));
    const names = Array.from({ length: this.lanes }, (_, i) =>
      text(LEFT - 10, i * (LANE + LANE_GAP) + LANE / 2 + 4, profile ? `thread ${i}` : "steps", { class: "lane" }));
    const shown = this.bars.filter((b) => b.start <= this.to && b.start + b.seconds >= this.from);
    this.root.replaceChildren(...grid, ...this.drawnBars(shown, at, width), ...names);
  }

  /** Those wide enough for a text as elements; the others are a path a colour. */
  drawnBars(bars, at, width) {
    const narrow = new Boxes();
    const out = [];
    for (const b of bars) {
      const [x, end] = [Math.max(LEFT, at(b.start)), Math.min(width - 8, at(b.start + b.seconds))];
      const y = b.lane * (LANE + LANE_GAP);
      const wide = Math.max(0.8, end - x - 0.6);
      if (wide < 30) narrow.add(colourOf(b.step, "tactic"), x, y, wide, LANE);
      else {
        const said = cut(labelOf(b.step), Math.floor((wide - 8) / 6.2));
        out.push(svg("g", {}, svg("title", {}, `${b.step.name}\n${duration(b.seconds)}`),
          svg("rect", { x, y, width: wide, height: LANE, rx: 2, style: { fill: colourOf(b.step, "tactic") } }),
          text(x + 5, y + LANE / 2 + 4, said, { class: "on-bar" })));
      }
      if (b.step === selectedStep()) {
        out.push(svg("rect", { class: "mark", x: x - 1, y: y - 1, width: wide + 2, height: LANE + 2 }));
      }
    }
    return [...narrow.drawn(), ...out];
  }

  window(from, to) {
    const least = this.end / 1e5;
    const length = Math.min(this.end, Math.max(least, to - from));
    this.from = Math.min(Math.max(0, from), this.end - length);
    this.to = this.from + length;
    this.draw();
  }

  scale(factor, at = (this.from + this.to) / 2) {
    this.window(at - (at - this.from) / factor, at + (this.to - at) / factor);
  }

  timeAt(event) {
    const share = (event.offsetX - LEFT) / (this.width - LEFT - 8);
    return this.from + share * (this.to - this.from);
  }

  wheel(event) {
    if (!event.ctrlKey && !event.metaKey && Math.abs(event.deltaX) <= Math.abs(event.deltaY)) return;
    event.preventDefault();
    if (event.ctrlKey || event.metaKey) this.scale(Math.exp(-event.deltaY / 300), this.timeAt(event));
    else this.shift(event.deltaX);
  }

  shift(pixels) {
    const t = (pixels / this.width) * (this.to - this.from);
    this.window(this.from + t, this.to + t);
  }

  grab(event) {
    let [last, moved] = [event.clientX, false];
    const down = event;
    const drag = (e) => {
      moved ||= Math.abs(e.clientX - down.clientX) > 4;
      if (moved) this.shift(last - e.clientX);
      last = e.clientX;
    };
    const drop = () => {
      removeEventListener("pointermove", drag);
      removeEventListener("pointerup", drop);
      if (!moved) this.pick(down);
    };
    addEventListener("pointermove", drag);
    addEventListener("pointerup", drop);
  }

  pick(event) {
    const time = this.timeAt(event);
    const lane = Math.floor(event.offsetY / (LANE + LANE_GAP));
    const near = (this.to - this.from) / this.width; // a pixel
    const bar = this.bars.find((b) => b.lane === lane && time >= b.start - near && time <= b.start + b.seconds + near);
    if (bar) selectStep(bar.step);
  }

  key(event) {
    const [nearer, further] = [() => this.scale(1.6), () => this.scale(1 / 1.6)];
    const actions = { "+": nearer, "=": nearer, "-": further, 0: () => this.window(0, this.end) };
    actions[event.key]?.();
  }

  chosen() {
    const step = selectedStep();
    const bar = step && this.bars.find((b) => b.step === step);
    if (bar && (bar.start + bar.seconds < this.from || bar.start > this.to)) {
      const half = (this.to - this.from) / 2;
      this.window(bar.start - half, bar.start + half);
    } else if (this.width) this.draw();
  }
}
