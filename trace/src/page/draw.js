// Draws what is visible. A row costs a few steps for each pixel, however many
// spans there are: those that share a pixel are found by halving, and how much
// of it they fill by their sums.
const canvas = document.getElementById("timeline"), ctx = canvas.getContext("2d");
const overview = document.getElementById("overview"), octx = overview.getContext("2d");
const FONT = '12px system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif';
const AXIS = 26, RUNNABLE = 66, IDLE = 36, BETWEEN = 26;
const size = { width: 0, height: 0, gutter: 0, row: 0, ratio: 1 };
const colours = {};
let asked = 0, redraws = 0, lastMs = 0;

function readColours() {
  const style = getComputedStyle(document.documentElement);
  for (const name of ["card", "ink", "soft", "line", "row", "accent", "idle", "wake", "steal", "irq", "lost", "host", "run", "mean"]) {
    colours[name] = style.getPropertyValue("--" + name).trim();
  }
  colours.g = meta.colours[isDark() ? "dark" : "light"];
}

function isDark() {
  const said = document.documentElement.dataset.theme;
  return said ? said === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

function measure() {
  const width = canvas.clientWidth, few = rows.length <= 10;
  size.width = width;
  size.ratio = Math.min(window.devicePixelRatio || 1, 3);
  size.gutter = width < 600 ? 40 : 62;
  size.row = few ? 38 : rows.length <= 20 ? 28 : rows.length <= 64 ? 20 : 14;
  size.height = AXIS + rows.length * size.row + BETWEEN + RUNNABLE + BETWEEN + IDLE + 8;
  for (const [one, height] of [[canvas, size.height], [overview, 30]]) {
    one.style.height = height + "px";
    one.width = Math.round(width * size.ratio);
    one.height = Math.round(height * size.ratio);
  }
  overviewPicture = null;
  redraw();
}

const plot = () => size.width - size.gutter;
const xOf = (t) => size.gutter + (t - view.from) / (view.to - view.from) * plot();
const timeAt = (x) => view.from + (x - size.gutter) / plot() * (view.to - view.from);
const yOf = (row) => AXIS + row * size.row;
const rowAt = (y) => y >= AXIS && y < AXIS + rows.length * size.row ? Math.floor((y - AXIS) / size.row) : -1;

// As many as can be told apart.
const mostArrows = () => plot() / 6, mostSteals = () => plot() / 16, mostMarks = () => plot() / 3;

function redraw() {
  if (!asked) asked = requestAnimationFrame(draw);
}

function draw() {
  asked = 0;
  redraws++;
  const begun = performance.now();
  ctx.setTransform(size.ratio, 0, 0, size.ratio, 0, 0);
  ctx.fillStyle = colours.card;
  ctx.fillRect(0, 0, size.width, size.height);
  ctx.font = FONT;
  ctx.textBaseline = "middle";
  drawAxis();
  ctx.save();
  ctx.beginPath();
  ctx.rect(size.gutter, 0, plot(), size.height);
  ctx.clip();
  rows.forEach(drawRow);
  if (!byM) drawMarks();
  drawChosen();
  drawArrows();
  ctx.restore();
  drawLabels();
  drawRunnable(yOf(rows.length) + BETWEEN);
  drawIdle(yOf(rows.length) + BETWEEN + RUNNABLE + BETWEEN);
  drawOverview();
  showRange();
  lastMs = performance.now() - begun;
}

function axisStep() {
  const rough = (view.to - view.from) / Math.max(2, plot() / (size.width < 600 ? 84 : 110));
  const ten = 10 ** Math.floor(Math.log10(rough));
  return [1, 2, 5, 10].map((n) => n * ten).find((step) => step >= rough);
}

function drawAxis() {
  const step = Math.max(1, axisStep()), bottom = yOf(rows.length);
  const below = [[bottom + BETWEEN, RUNNABLE], [bottom + BETWEEN * 2 + RUNNABLE, IDLE]];
  ctx.textAlign = "center";
  for (let t = Math.ceil(view.from / step) * step; t <= view.to; t += step) {
    const x = Math.round(xOf(t)) + 0.5;
    if (x < size.gutter) continue;
    ctx.fillStyle = colours.line;
    ctx.fillRect(x - 0.5, AXIS - 5, 1, bottom - AXIS + 5);
    for (const [y, height] of below) ctx.fillRect(x - 0.5, y, 1, height);
    if (t < 0) continue;
    ctx.fillStyle = colours.soft;
    const said = t ? point(t, step) : "0", half = ctx.measureText(said).width / 2;
    if (x - half > size.gutter - 8 && x + half < size.width) ctx.fillText(said, x, 11);
  }
}

function drawLabels() {
  ctx.fillStyle = colours.soft;
  ctx.textAlign = "left";
  const every = size.row < 14 ? 2 : 1, active = chosen.span < 0 ? -1 : rowOf(chosen.span);
  rows.forEach((row, i) => {
    if (i % every) return;
    ctx.fillStyle = i === active ? colours.ink : colours.soft;
    ctx.fillText(row.label, 2, yOf(i) + size.row / 2);
  });
}

function drawRow(row, i) {
  const y = yOf(i) + 3, height = size.row - 6;
  const from = Math.max(0, xOf(0)), to = Math.min(size.width, xOf(whole.to));
  ctx.fillStyle = colours.row;
  ctx.fillRect(from, y, to - from, height);
  if (!byM) drawIdleOf(trace.cpus[i], y, height);
  else { drawMounts(row, y, height); drawCalls(row, y, height); }
  drawSpans(row, y, height);
  if (!byM) {
    drawHatched(trace.cpus[i].elsewhere, y, height, colours.host, 4);
    drawHatched(trace.cpus[i].gaps, y, height, colours.lost, 6);
  }
}

// Halts, as a thin line; pixels in which nothing else was are joined.
function drawIdleOf(cpu, y, height) {
  const { idle } = cpu, perPixel = (view.to - view.from) / plot();
  ctx.fillStyle = colours.idle;
  let i = lower(idle.to, view.from);
  while (i < idle.n && idle.from[i] < view.to) {
    const x = xOf(idle.from[i]), width = (idle.to[i] - idle.from[i]) / perPixel;
    ctx.fillRect(x, y + height / 2 - 1, Math.max(width, 0.6), 2);
    // Of short ones one a pixel is enough; the last may be a long one.
    i = width >= 1 ? i + 1 : Math.max(i + 1, lower(idle.from, idle.from[i] + perPixel, i) - 1);
  }
}

function drawMounts(row, y, height) {
  const { mounts } = trace;
  ctx.fillStyle = colours.idle;
  let last = -1;
  for (const i of row.mounts) {
    const x = xOf(mounts.from[i]), end = xOf(mounts.from[i] + mounts.length[i]);
    if (x > size.width || end < Math.max(size.gutter, last + 1)) continue;
    last = end;
    ctx.fillRect(x, y + height / 2 - 1, Math.max(end - x, 1), 2);
  }
}

// An M that is away in a call: a line in the colour of its G, until that goes on.
function drawCalls(row, y, height) {
  const lo = Math.max(0, firstAfter(row, view.from) - 1), hi = firstFrom(row, view.to);
  if (hi - lo > 20 * plot()) return;
  for (let i = lo; i < hi; i++) {
    const span = row.ids[i], next = row.ids[i + 1];
    if (spans.left[span] !== IN_CALL) continue;
    const x = xOf(spans.to[span]), end = next === undefined ? xOf(whole.to) : xOf(spans.from[next]);
    ctx.fillStyle = colours.g[colourOf(spans.g[span])];
    ctx.fillRect(x, y + height / 2 - 1, end - x, 2);
  }
}

// Times of which the row says nothing: the host was elsewhere, or events are missing.
function drawHatched(times, y, height, colour, every) {
  const perPixel = (view.to - view.from) / plot();
  let i = lower(times.to, view.from);
  while (i < times.n && times.from[i] < view.to) {
    const x = Math.max(xOf(times.from[i]), size.gutter), end = Math.min(xOf(times.to[i]), size.width);
    hatch(x, y, Math.max(end - x, 1.5), height, colour, every);
    i = end - x >= 1 ? i + 1 : Math.max(i + 1, lower(times.from, times.from[i] + perPixel, i) - 1);
  }
}

function hatch(x, y, width, height, colour, every) {
  ctx.save();
  ctx.beginPath();
  ctx.rect(x, y, width, height);
  ctx.clip();
  ctx.fillStyle = colours.row;
  ctx.globalAlpha = 0.55;
  ctx.fillRect(x, y, width, height);
  ctx.globalAlpha = 1;
  ctx.strokeStyle = colour;
  ctx.beginPath();
  for (let s = Math.floor((x - height) / every) * every; s < x + width; s += every) { ctx.moveTo(s, y + height); ctx.lineTo(s + height, y); }
  ctx.stroke();
  ctx.restore();
}

function drawSpans(row, y, height) {
  const unit = (view.to - view.from) / plot() / size.ratio; // ns in a device pixel
  const dim = chosen.g >= 0;
  ctx.globalAlpha = dim ? 0.38 : 1;
  let i = firstAfter(row, view.from);
  const named = [], own = [];
  while (i < row.ids.length) {
    const span = row.ids[i], from = spans.from[span], to = spans.to[span];
    if (from >= view.to) break;
    if (to - from >= unit) {
      const x = xOf(Math.max(from, view.from)), width = xOf(Math.min(to, view.to)) - x;
      ctx.fillStyle = colours.g[colourOf(spans.g[span])];
      ctx.fillRect(x, y, width > 4 ? width - 1 : width, height);
      if (width > 4 && isKernels(spans.g[span])) own.push(x, width - 1);
      if (width > 34 && height > 12) named.push(span, x, width);
      i++;
      continue;
    }
    i = drawPixel(row, i, unit, y, height);
  }
  // The kernel's own Gs have stripes.
  ctx.fillStyle = colours.card;
  for (let n = 0; n < own.length; n += 2) for (let x = own[n] + 2; x < own[n] + own[n + 1]; x += 5) ctx.fillRect(x, y, 1, height);
  ctx.globalAlpha = dim ? 0.65 : 1;
  ctx.fillStyle = dim ? colours.ink : "#10151c";
  ctx.textAlign = "left";
  for (let n = 0; n < named.length; n += 3) drawName(named[n], named[n + 1], named[n + 2], y + height / 2);
  ctx.globalAlpha = 1;
}

// The spans that share one device pixel: as high as their part of it, in the
// colour of the longest (of the first few, if they are many).
function drawPixel(row, i, unit, y, height) {
  const pixel = Math.floor((spans.from[row.ids[i]] - view.from) / unit);
  const start = view.from + pixel * unit;
  let end = nextFrom(row, start + unit, i + 1);
  // The last of them may be a long one, which is drawn for itself.
  if (end - 1 > i && spans.to[row.ids[end - 1]] - spans.from[row.ids[end - 1]] >= unit) end--;
  let longest = row.ids[i];
  for (let k = i + 1; k < Math.min(end, i + 8); k++) {
    const other = row.ids[k];
    if (spans.to[other] - spans.from[other] > spans.to[longest] - spans.from[longest]) longest = other;
  }
  // With what reaches into the pixel from before, without what reaches out of it.
  const before = i ? Math.max(0, spans.to[row.ids[i - 1]] - start) : 0;
  const beyond = Math.max(0, spans.to[row.ids[end - 1]] - start - unit);
  const share = Math.min(1, (row.sum[end] - row.sum[i] + before - beyond) / unit);
  const high = Math.max(height * share, Math.min(height * 0.28, 6));
  ctx.fillStyle = colours.g[colourOf(spans.g[longest])];
  ctx.fillRect(size.gutter + pixel / size.ratio, y + height - high, 1 / size.ratio, high);
  return end;
}

function drawName(span, x, width, y) {
  const full = label(spans.g[span]), short = "G" + gs.number[spans.g[span]];
  const room = width - 10;
  const said = ctx.measureText(full).width <= room ? full : short;
  if (ctx.measureText(said).width <= room) ctx.fillText(said, x + 5, y + 0.5);
}

function drawMarks() {
  const { instants } = trace, lo = lower(instants.at, view.from), hi = lower(instants.at, view.to);
  if (hi - lo > mostMarks() || size.row < 20) return;
  for (let i = lo; i < hi; i++) {
    const x = xOf(instants.at[i]), y = yOf(instants.cpu[i]) + size.row - 3, kind = instants.kind[i];
    const round = kind === KIND.irq || kind === KIND.fire;
    ctx.fillStyle = round ? colours.irq : kind === KIND.tick ? colours.soft : colours.wake;
    ctx.beginPath();
    if (round) ctx.arc(x, y, 2.5, 0, 7);
    else if (kind === KIND.tick) ctx.rect(x - 0.5, y - 5, 1, 7);
    else if (kind === KIND.wakeSent) { ctx.moveTo(x - 3, y - 1.5); ctx.lineTo(x + 3, y - 1.5); ctx.lineTo(x, y + 3); }
    else { ctx.moveTo(x - 3, y + 2.5); ctx.lineTo(x + 3, y + 2.5); ctx.lineTo(x, y - 2); }
    ctx.fill();
  }
}

function drawChosen() {
  if (chosen.g < 0) return;
  const own = spansOf(chosen.g), height = size.row - 6;
  ctx.fillStyle = colours.g[colourOf(chosen.g)];
  let lastX = -9;
  for (const span of own) {
    if (spans.to[span] < view.from || spans.from[span] > view.to) continue;
    const x = xOf(spans.from[span]), width = Math.max(xOf(spans.to[span]) - x, 2), y = yOf(rowOf(span)) + 3;
    if (width === 2 && own.length > 4000 && x - lastX < 1) continue;
    lastX = x;
    ctx.fillRect(x, y, width, height);
    if (width > 34 && height > 12) {
      ctx.fillStyle = "#10151c";
      ctx.textAlign = "left";
      drawName(span, Math.max(x, size.gutter), width, y + height / 2);
      ctx.fillStyle = colours.g[colourOf(chosen.g)];
    }
    if (span === chosen.span) {
      ctx.strokeStyle = colours.ink;
      ctx.lineWidth = 2;
      ctx.strokeRect(x - 1, y - 1, width + 2, height + 2);
      ctx.lineWidth = 1;
    }
  }
}
