// Elements. Texts become text nodes and attributes, never HTML: names in plans are anybody's.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "on") {
      for (const [event, listener] of Object.entries(value)) element.addEventListener(event, listener);
    } else if (name === "style") {
      for (const [property, text] of Object.entries(value)) element.style.setProperty(property, text);
    } else {
      element.setAttribute(name, value === true ? "" : String(value));
    }
  }
  for (const child of children.flat(Infinity)) {
    if (child === undefined || child === null || child === false) continue;
    element.append(child instanceof Node ? child : String(child));
  }
  return element;
}

/** An HTML element: `el("p", { class: "note" }, "text", child)`. */
function el(tag, attributes, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** An SVG element. */
function svg(tag, attributes, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function byId(id) {
  return document.getElementById(id);
}

/** A push button with a visible or a spoken name. */
function button(text, onClick, attributes = {}) {
  return el("button", { type: "button", ...attributes, on: { click: onClick } }, text);
}

/** A labelled select; `options` are pairs of value and text. */
function chooser(label, options, value, onChange) {
  const select = el("select", { on: { change: () => onChange(select.value) } },
    options.map(([v, text]) => el("option", { value: v, selected: v === value }, text)));
  return el("label", { class: "chooser" }, el("span", {}, label), select);
}

/** A colour with its meaning. */
function swatch(colour, text) {
  return el("li", {}, el("span", { class: "swatch", style: { "--colour": colour } }), text);
}

function announce(text) {
  byId("announce").textContent = text;
}
