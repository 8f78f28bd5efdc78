// The page of viz.explore: shows one step of `data.steps` at a time. It loads nothing and computes nothing.
"use strict";

const data = JSON.parse(document.getElementById("data").textContent);
const slider = document.getElementById("step");
const jump = document.getElementById("jump");
const details = document.getElementById("details");
const pane = document.getElementById("graph");
const status = document.getElementById("status");
const play = document.getElementById("play");
const calm = matchMedia("(prefers-reduced-motion: reduce)");
let at = 0;
let timer = null;

// --- making elements ---

function make(tag, attributes, ...children) {
  const drawn = ["svg", "rect"].includes(tag);
  const element = drawn ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) element.setAttribute(name, value);
  element.append(...children.filter((child) => child !== null));
  return element;
}

function shown(value) {
  if (typeof value === "string") return value;
  if (Number.isInteger(value) && Math.abs(value) < 1e6) return String(value);
  const [digits, power] = value.toExponential(4).split("e");
  return value && (power < -3 || power > 6) ? Number(digits) + "e" + power : String(Number(value.toPrecision(5)));
}

const count = (number, noun) => number + " " + noun + (number === 1 ? "" : "s");

// --- a tensor ---

function range(tensor) {
  if (tensor.low === undefined) return "";
  if (tensor.count === 1) return shown(tensor.low);
  if (tensor.low === tensor.high) return "all " + shown(tensor.low);
  return "from " + shown(tensor.low) + " to " + shown(tensor.high) + ", mean " + shown(tensor.mean);
}

function heat(value, most, strength) {
  if (typeof value !== "number" || !most || !value) return {};
  const part = Math.round((Math.abs(value) / most) * strength);
  return { class: value > 0 ? "plus" : "minus", style: "--heat:" + part + "%" };
}

function table(tensor, name, most) {
  const across = tensor.shape.length ? tensor.rows[0].length : 0;
  const caption = make("caption", {}, name + ", " + describe(tensor));
  const head = make("tr", {}, make("th", { scope: "col" }, "index"));
  for (let j = 0; j < across; j++) head.append(make("th", { scope: "col" }, String(j)));
  const body = tensor.rows.map((row, i) => {
    const cells = row.map((value) => make("td", { title: value, ...heat(value, most, 45) }, shown(value)));
    return across > 0 ? make("tr", {}, make("th", { scope: "row" }, place(tensor, i)), ...cells) : make("tr", {}, ...cells);
  });
  const parts = across > 0 ? [make("thead", {}, head)] : [];
  const frame = { class: "scroll", tabindex: "0", role: "group", "aria-label": name };
  return make("div", frame, make("table", {}, caption, ...parts, make("tbody", {}, ...body)));
}

function place(tensor, row) {
  if (tensor.shape.length < 2) return row * tensor.rows[0].length + (tensor.rows.length > 1 ? " +" : "");
  const index = [];
  for (const size of tensor.shape.slice(0, -1).reverse()) {
    index.unshift(row % size);
    row = Math.floor(row / size);
  }
  return index.join(", ");
}

function map(tensor) {
  const most = Math.max(...tensor.rows.flat().filter((value) => typeof value === "number").map(Math.abs), 0);
  const [height, width] = [tensor.rows.length, tensor.rows[0].length];
  const label = "Heat map, " + count(height, "row") + " of " + count(width, "block") + ", each the mean of "
    + tensor.block.join(" by ") + " values; " + range(tensor);
  const tall = Math.max(height, width / 4);
  const frame = { class: "map", viewBox: "0 0 " + width + " " + tall, role: "img", "aria-label": label, preserveAspectRatio: "none" };
  const cells = tensor.rows.flatMap((row, i) => row.map((value, j) => make("rect", {
    x: j, y: (i * tall) / height, width: 1.02, height: (tall / height) * 1.02, fill: "none", ...heat(value, most, 90) })));
  return make("div", {}, make("svg", frame, ...cells),
    make("p", { class: "note" }, "Means of blocks of " + tensor.block.join(" × ") + " values: blue up to " + shown(most)
      + ", orange down to " + shown(-most) + "."));
}

function histogram(tensor) {
  const highest = Math.max(...tensor.bins);
  const label = "Histogram of " + tensor.count + " values " + range(tensor);
  const bars = tensor.bins.map((n, i) => make("rect", { x: i * 10, y: 60 - (58 * n) / highest, width: 9, height: (58 * n) / highest }));
  const frame = { class: "histogram", viewBox: "0 0 " + tensor.bins.length * 10 + " 60", role: "img", "aria-label": label };
  return make("div", {}, make("svg", frame, ...bars),
    make("p", { class: "bounds" }, make("span", {}, shown(tensor.low)), make("span", {}, shown(tensor.high))));
}

const describe = (tensor) => tensor.dtype + (tensor.shape.length ? " [" + tensor.shape.join(", ") + "]" : " scalar");

function statistics(tensor) {
  const parts = [count(tensor.count, "value")];
  if (tensor.magnitude) parts.push("shown as magnitudes");
  if (tensor.low !== undefined && tensor.count > 1) parts.push(range(tensor), "standard deviation " + shown(tensor.std));
  if (tensor.zeros) parts.push(tensor.zeros + " of them zero");
  if (tensor.odd) parts.push(tensor.odd + " infinite or nan");
  return make("p", { class: "note" }, parts.join(", "));
}

function tensorView(tensor, name) {
  if (!tensor.rows.length) return make("p", {}, name + ", " + describe(tensor) + ": no values.");
  const most = Math.max(Math.abs(tensor.low || 0), Math.abs(tensor.high || 0));
  const inner = tensor.exact ? [table(tensor, name, most)] : [make("p", {}, name + ", " + describe(tensor)), map(tensor)];
  if (tensor.count > 1) inner.push(statistics(tensor));
  if (tensor.bins.length) inner.push(histogram(tensor));
  return make("div", {}, ...inner);
}

function tensorViews(tensors, name, missing) {
  return tensors.map((tensor, i) => {
    const full = tensors.length > 1 ? name + " of output " + i : name;
    return tensor ? tensorView(tensor, full) : make("p", { class: "note" }, full + ": " + missing);
  });
}

// --- a step ---

function section(heading, ...children) {
  return children.length ? make("section", {}, make("h3", {}, heading), ...children) : null;
}

function links(vertices) {
  return make("ul", { class: "links" }, ...vertices.map(([i, note]) => {
    const button = make("button", { type: "button" }, data.vertices[i].name + (note ? " (" + note + ")" : ""));
    button.addEventListener("click", () => {
      goTo(i);
      details.querySelector("h2").focus(); // the button that had the focus is gone
    });
    return make("li", {}, button);
  }));
}

function formulas(vertex) {
  return vertex.derivatives.flatMap(([input, text]) => [
    make("p", {}, input ? "gradient of " + input : "gradients of all inputs"),
    make("pre", {}, text || "(source not available)")]);
}

function code(heading, text) {
  return text ? section(heading, make("pre", {}, text)) : null;
}

function forward(vertex) {
  const unknown = "not kept by the graph. Pass a function to see every value: explore(lambda: loss).";
  return [
    section("Value", ...tensorViews(vertex.values, "value", unknown)),
    vertex.inputs.length ? section("Computed from", links(vertex.inputs.map((a) => [a.vertex, a.name]))) : null,
    code("Signature", vertex.signature),
    code("The same in simpler operations", vertex.twin),
  ];
}

function backward(vertex) {
  const receivers = vertex.inputs.filter((a) => a.number >= 0);
  const none = "no gradient flows here.";
  const name = vertex.kind === "leaf" ? "gradient, added to .grad" : "gradient g of the result";
  return [
    section("Gradient", ...tensorViews(vertex.gradients, name, none)),
    receivers.length ? section("Passes gradients to", links(receivers.map((a) => [a.vertex, "input " + a.number]))) : null,
    section("Formulas", ...formulas(vertex)),
    vertex.saved.length ? section("Saved for backward", make("ul", { class: "saved" },
      ...vertex.saved.map((s) => make("li", {}, s.filter(Boolean).join(", "))))) : null,
    section("Value", ...tensorViews(vertex.values, "value", "not kept by the graph.")),
  ];
}

function say(step, vertex) {
  const back = step.phase === "backward";
  const tensor = (back ? vertex.gradients : vertex.values).find(Boolean);
  const what = back ? (vertex.kind === "leaf" ? "gets its gradient" : "receives the gradient") : { op: "computes", leaf: "is a leaf", input: "is an input" }[vertex.kind];
  const known = tensor ? ", " + describe(tensor) + ", " + range(tensor) : vertex.outputs.length ? ", " + vertex.outputs[0] : "";
  return step.phase + ": " + (back && vertex.node ? vertex.node : vertex.name) + " " + what + known;
}

function show() {
  const step = data.steps[at];
  const vertex = data.vertices[step.vertex];
  const back = step.phase === "backward";
  const where = vertex.scope ? "in module " + vertex.scope + (vertex.module ? " (" + vertex.module + ")" : "") : "";
  details.replaceChildren(...[
    make("h2", { tabindex: "-1" }, back && vertex.node ? vertex.node : vertex.name),
    make("p", {}, make("span", { class: "badge " + step.phase }, step.phase), " " + [where, vertex.arguments].filter(Boolean).join(", ")),
    vertex.summary ? make("p", {}, ...vertex.summary.split("`").map((part, i) => (i % 2 ? make("code", {}, part) : part))) : null,
    ...(back ? backward(vertex) : forward(vertex)),
  ].filter(Boolean));
  const sentence = say(step, vertex);
  status.textContent = "Step " + (at + 1) + " of " + data.steps.length + ", " + sentence;
  slider.value = at;
  slider.setAttribute("aria-valuetext", "step " + (at + 1) + " of " + data.steps.length + ", " + sentence);
  jump.value = step.vertex;
  paint(step);
  if (location.protocol !== "about:") history.replaceState(null, "", "#step=" + (at + 1)); // a frame in a notebook has no address
}

// --- the graph ---

const boxes = data.vertices.map((_, i) => document.getElementById("v-box" + i));
const edges = data.vertices.flatMap((vertex, target) => vertex.inputs.map((a) => ({ ...a, target })))
  .map((a, i) => ({ ...a, element: document.getElementById("v-edge" + i) }));

function paint(step) {
  const reached = new Set();
  const returned = new Set();
  for (const past of data.steps.slice(0, at + 1)) (past.phase === "forward" ? reached : returned).add(past.vertex);
  boxes.forEach((box, i) => {
    box.classList.toggle("reached", reached.has(i));
    box.classList.toggle("returned", returned.has(i));
    box.classList.toggle("current", i === step.vertex);
  });
  const back = step.phase === "backward";
  for (const edge of edges) {
    const near = edge.target === step.vertex && (!back || edge.number >= 0);
    edge.element.classList.toggle("current", near);
    edge.element.classList.toggle("returned", near && back);
  }
  follow(boxes[step.vertex]);
}

function follow(box) {
  const [frame, inside] = [pane.getBoundingClientRect(), box.getBoundingClientRect()];
  pane.scrollBy({
    left: inside.left + inside.width / 2 - frame.left - frame.width / 2,
    top: inside.top + inside.height / 2 - frame.top - frame.height / 2,
    behavior: calm.matches ? "auto" : "smooth",
  });
}

// --- moving ---

function move(to) {
  at = Math.max(0, Math.min(data.steps.length - 1, to));
  show();
  if (at === data.steps.length - 1) stop();
}

function goTo(vertex) {
  const same = data.steps.findIndex((step) => step.vertex === vertex && step.phase === data.steps[at].phase);
  stop();
  move(same >= 0 ? same : data.steps.findIndex((step) => step.vertex === vertex));
}

function stop() {
  clearInterval(timer);
  timer = null;
  play.textContent = "Play";
}

function toggle() {
  if (timer !== null) return stop();
  if (at === data.steps.length - 1) move(0);
  timer = setInterval(() => move(at + 1), 1200);
  play.textContent = "Pause";
}

const moves = {
  ArrowRight: () => move(at + 1), ArrowLeft: () => move(at - 1), Home: () => move(0), End: () => move(data.steps.length - 1),
};
const buttons = { first: moves.Home, back: moves.ArrowLeft, next: moves.ArrowRight, last: moves.End };
for (const [id, action] of Object.entries(buttons)) {
  document.getElementById(id).addEventListener("click", () => { stop(); action(); });
}
play.addEventListener("click", toggle);
slider.addEventListener("input", () => { stop(); move(Number(slider.value)); });
jump.addEventListener("change", () => goTo(Number(jump.value)));
data.vertices.forEach((vertex, i) => jump.append(make("option", { value: i }, (i + 1) + ". " + vertex.name)));
boxes.forEach((box, i) => box.addEventListener("click", () => goTo(i)));

document.addEventListener("keydown", (event) => {
  if (event.altKey || event.ctrlKey || event.metaKey || ["INPUT", "SELECT"].includes(event.target.tagName)) return;
  const scrolls = event.target.closest(".scroll");
  if (scrolls && scrolls.scrollWidth > scrolls.clientWidth && event.key.startsWith("Arrow")) return;
  const action = event.key === " " && event.target.tagName !== "BUTTON" ? toggle : moves[event.key];
  if (!action) return;
  event.preventDefault();
  if (action !== toggle) stop();
  action();
});

let touched = null;
details.addEventListener("touchstart", (event) => {
  const scrolls = event.target.closest(".scroll");
  touched = scrolls && scrolls.scrollWidth > scrolls.clientWidth ? null : event.changedTouches[0];
}, { passive: true });
details.addEventListener("touchend", (event) => {
  if (touched === null) return;
  const end = event.changedTouches[0];
  const [right, down] = [end.clientX - touched.clientX, end.clientY - touched.clientY];
  if (Math.abs(right) > 60 && Math.abs(down) < 40) { stop(); move(right < 0 ? at + 1 : at - 1); }
}, { passive: true });

const asked = /^#step=(\d+)$/.exec(location.hash);
move(asked ? Number(asked[1]) - 1 : 0);
