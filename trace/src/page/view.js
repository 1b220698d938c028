// What is visible and what is chosen, and how times are said.
const MIN_WIDTH = 50; // ns
const view = { from: 0, to: 1 };
const chosen = { span: -1, g: -1 };
const whole = { from: 0, to: Math.max(trace.end, MIN_WIDTH) };
const calm = matchMedia("(prefers-reduced-motion: reduce)");
let rows = rowsByP(), byM = false, glide = 0;

function limited(from, to) {
  const most = whole.to * 1.04;
  const width = Math.min(Math.max(to - from, MIN_WIDTH), most);
  const middle = (from + to) / 2;
  const start = Math.min(Math.max(middle - width / 2, -0.02 * whole.to), whole.to * 1.02 - width);
  return { from: start, to: start + width };
}

// From the first span to the last, with a little around; the whole run if there is none.
function activity() {
  let from = Infinity, to = 0;
  for (let i = 0; i < spans.n; i++) {
    from = Math.min(from, spans.from[i]);
    to = Math.max(to, spans.to[i]);
  }
  const margin = (to - from) * 0.01;
  return spans.n ? { from: from - margin, to: to + margin } : whole;
}

function show(from, to) {
  cancelAnimationFrame(glide);
  glide = 0;
  Object.assign(view, limited(from, to));
  redraw();
}

// The same in a sixth of a second, for those who like to see where they go.
function glideTo(from, to) {
  const target = limited(from, to);
  if (calm.matches || document.hidden) return show(target.from, target.to);
  cancelAnimationFrame(glide);
  const begin = { ...view }, started = performance.now();
  const step = (now) => {
    const done = Math.min(1, (now - started) / 160), ease = 1 - (1 - done) ** 3;
    view.from = begin.from + (target.from - begin.from) * ease;
    view.to = begin.to + (target.to - begin.to) * ease;
    glide = done < 1 ? requestAnimationFrame(step) : 0;
    redraw();
  };
  glide = requestAnimationFrame(step);
}

function zoom(factor, at = (view.from + view.to) / 2, smooth = false) {
  const width = Math.max(view.to - view.from, MIN_WIDTH) * factor;
  const share = (at - view.from) / (view.to - view.from);
  const clipped = Math.max(width, MIN_WIDTH);
  (smooth ? glideTo : show)(at - share * clipped, at + (1 - share) * clipped);
}

function pan(share, smooth = false) {
  const step = (view.to - view.from) * share;
  (smooth ? glideTo : show)(view.from + step, view.to + step);
}

function rowOf(span) {
  return byM ? rows.findIndex((row) => row.number === spans.m[span]) : spans.cpu[span];
}

function choose(span, announce = true) {
  chosen.span = span;
  chosen.g = span < 0 ? -1 : spans.g[span];
  showDetails();
  if (announce) document.getElementById("live").textContent = span < 0 ? "Nothing chosen" : inWords(span);
  redraw();
}

// Chooses a span and moves so that it is seen, zooming in if it is too small.
function reach(span) {
  choose(span);
  const { from, to } = { from: spans.from[span], to: spans.to[span] };
  const width = view.to - view.from, length = Math.max(to - from, 1);
  const target = length < width / 400 ? length * 60 : length > width ? length * 1.5 : width;
  if (target !== width || from < view.from || to > view.to) {
    glideTo((from + to) / 2 - target / 2, (from + to) / 2 + target / 2);
  }
}

// Chooses a G and shows its whole life.
function reachG(g) {
  const own = spansOf(g);
  if (!own.length) return;
  choose(own[0]);
  const from = spans.from[own[0]], to = spans.to[own[own.length - 1]];
  const margin = Math.max((to - from) * 0.15, 200);
  glideTo(from - margin, to + margin);
}

const UNITS = [[1e9, "s"], [1e6, "ms"], [1e3, "µs"], [1, "ns"]];

// A length of time with three or four digits.
function length(ns) {
  const [size, unit] = UNITS.find(([size]) => ns >= size) || UNITS[3];
  const value = ns / size, digits = unit === "ns" ? 0 : value < 10 ? 2 : value < 100 ? 1 : 0;
  return value.toFixed(digits) + "\u202f" + unit;
}

// A point in time, as exactly as `step` needs it.
function point(ns, step = 1) {
  const [size, unit] = UNITS.find(([size]) => Math.max(Math.abs(ns), step) >= size) || UNITS[3];
  const digits = Math.max(0, Math.min(9, Math.ceil(Math.log10(size / step) - 1e-9)));
  return group((ns / size).toFixed(digits)) + "\u202f" + unit;
}

// 1234567.8912 as 1 234 567.8912, with thin spaces.
function group(text) {
  const [whole, rest] = String(text).split(".");
  const grouped = whole.replace(/\B(?=(\d{3})+$)/g, "\u202f");
  return rest ? grouped + "." + rest : grouped;
}

const text = (number) => meta.texts[number] || "";
const label = (g) => "G" + gs.number[g] + (text(gs.name[g]) ? " " + text(gs.name[g]) : "");
const colourOf = (g) => gs.colour[g] >> 1;
const isKernels = (g) => (gs.colour[g] & 1) === 1;

function leftInWords(span) {
  const why = spans.left[span] === PARKED ? meta.reasons[spans.reason[span]] : "";
  return LEFT[spans.left[span]] + (why ? ": " + why : "");
}

function inWords(span) {
  const time = `${length(spans.to[span] - spans.from[span])} from ${point(spans.from[span])}`;
  return `${label(spans.g[span])} on P${spans.cpu[span]}, ${time}, ${leftInWords(span)}`;
}
