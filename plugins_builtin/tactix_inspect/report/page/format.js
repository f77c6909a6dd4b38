// Numbers and names as people read them.

const DURATIONS = [["µs", 1e6], ["ms", 1e3], ["s", 1]];

function isNumber(x) {
  return typeof x === "number" && Number.isFinite(x);
}

/** `12.3 µs`: three digits. */
function duration(seconds) {
  if (!isNumber(seconds)) return "–";
  const [unit, factor] = DURATIONS.find(([, f]) => Math.abs(seconds) * f < 1000) ?? DURATIONS[2];
  return `${digits(seconds * factor)} ${unit}`.replace("-", "−");
}

/** Three significant digits of a number below 1000. */
function digits(x) {
  const size = Math.abs(x);
  if (size === 0) return "0";
  return x.toFixed(size < 10 ? 2 : size < 100 ? 1 : 0);
}

/** `1.50 MiB`. */
function byteSize(n) {
  if (!isNumber(n)) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (Math.abs(n) >= 1024 && unit < units.length - 1) {
    n /= 1024;
    unit += 1;
  }
  return unit ? `${digits(n)} ${units[unit]}` : `${n} B`;
}

/** A rate with a prefix: `12.3 G`. */
function rate(x) {
  if (!isNumber(x)) return "–";
  const prefixes = ["", "k", "M", "G", "T", "P"];
  let i = 0;
  while (Math.abs(x) >= 1000 && i < prefixes.length - 1) {
    x /= 1000;
    i += 1;
  }
  return `${digits(x)} ${prefixes[i]}`;
}

function percent(share) {
  if (!isNumber(share)) return "–";
  const p = share * 100;
  if (p > 0 && p < 0.05) return "< 0.1 %";
  return `${p >= 10 || p === 0 ? p.toFixed(0) : p.toFixed(1)} %`;
}

function counted(n, noun) {
  return `${n.toLocaleString("en")} ${noun}${n === 1 ? "" : "s"}`;
}

/** `1 × 128 × 768`. */
function shapeText(shape) {
  return shape.length ? shape.join(" × ") : "scalar";
}

/** tactix's own keys without name space; all without a version of 1. */
function shortKey(key) {
  return String(key).replace(/^tactix\./, "").replace(/@1$/, "");
}

/** Text of at most so many characters: names differ at their ends, so that the middle is left out. */
function clipped(text, most) {
  if (text.length <= most) return text;
  const head = Math.max(1, Math.floor((most - 1) / 3));
  return `${text.slice(0, head)}…${text.slice(text.length - (most - 1 - head))}`;
}

/** Text of at most so many characters, from its beginning. */
function cut(text, most) {
  return text.length <= most ? text : `${text.slice(0, most - 1)}…`;
}
