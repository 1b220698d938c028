// Arrows between rows, the counts below them, and the small picture above.
let overviewPicture = null;

function drawArrows() {
  const visible = [];
  let count = 0;
  for (const row of rows) {
    const lo = firstAfter(row, view.from), hi = firstFrom(row, view.to);
    count += hi - lo;
    if (count > 4 * mostArrows()) break;
    for (let i = lo; i < hi; i++) if (spans.how[row.ids[i]] && isFromElsewhere(row.ids[i])) visible.push(row.ids[i]);
  }
  const few = count <= 4 * mostArrows() && visible.length <= mostArrows();
  if (few) visible.forEach((span) => { if (spans.g[span] !== chosen.g) wakeArrow(span, chosen.g < 0 ? 0.75 : 0.25); });
  if (chosen.g >= 0) {
    const own = spansOf(chosen.g);
    if (own.length <= 2000) own.forEach((span) => { if (spans.how[span]) wakeArrow(span, 1); });
  }
  drawSteals();
}

// Within a row an arrow says little; that of the chosen G is drawn all the same.
const isFromElsewhere = (span) => byM || spans.wakeCpu[span] !== spans.cpu[span];

function wakeArrow(span, alpha) {
  const from = xOf(spans.wakeAt[span]), to = xOf(spans.from[span]);
  if (to < size.gutter || from > size.width) return;
  const start = byM ? rowOfWaker(span) : spans.wakeCpu[span];
  if (start < 0 || start >= rows.length) return;
  arrow(from, start, to, rowOf(span), colours.wake, alpha, []);
}

// On which M the waker ran; its own row if that is not known.
function rowOfWaker(span) {
  const by = spans.wakeBy[span], at = spans.wakeAt[span];
  if (by < 0) return rowOf(span);
  const own = spansOf(by);
  let k = own.length - 1;
  while (k > 0 && spans.from[own[k]] > at) k--;
  return own.length ? rowOf(own[k]) : rowOf(span);
}

function drawSteals() {
  const { steals } = trace, lo = lower(steals.at, view.from), hi = lower(steals.at, view.to);
  if (byM || hi - lo > mostSteals()) return;
  const lastIn = new Map();
  for (let i = lo; i < hi; i++) {
    if (steals.victim[i] >= rows.length) continue;
    const x = xOf(steals.at[i]), isFree = x - (lastIn.get(steals.thief[i]) ?? -99) > 34;
    arrow(x - 14, steals.victim[i], x, steals.thief[i], colours.steal, chosen.g < 0 ? 0.9 : 0.35, [4, 3]);
    if (isFree && size.row > 20) {
      lastIn.set(steals.thief[i], x);
      ctx.globalAlpha = chosen.g < 0 ? 1 : 0.45;
      ctx.fillStyle = colours.steal;
      ctx.textAlign = "right";
      ctx.fillText("×" + steals.count[i], x - 4, yOf(steals.thief[i]) + size.row / 2 + (steals.thief[i] > steals.victim[i] ? -9 : 9));
      ctx.globalAlpha = 1;
    }
  }
}

// From the edge of one row to the edge of the other; within a row a small bow.
function arrow(x1, row1, x2, row2, colour, alpha, dash) {
  const down = row2 > row1, same = row1 === row2;
  const y1 = yOf(row1) + (same ? 4 : down ? size.row - 3 : 3), y2 = yOf(row2) + (same || down ? 3 : size.row - 3);
  if (same && x2 - x1 < 10) return;
  ctx.globalAlpha = alpha;
  ctx.strokeStyle = ctx.fillStyle = colour;
  ctx.lineWidth = 1.25;
  ctx.setLineDash(dash);
  ctx.beginPath();
  ctx.moveTo(x1, y1);
  const tip = same ? 0.6 : Math.max(0.35, Math.min(1, (x2 - x1) / 40));
  if (same) ctx.bezierCurveTo(x1 + 4, y1 - 7, x2 - 6, y2 - 7, x2, y2);
  else ctx.bezierCurveTo(x1 + (x2 - x1) * 0.5, y1, x2 - (x2 - x1) * tip * 0.5, y2 - (y2 - y1) * 0.55, x2, y2 - (down ? 4 : -4));
  ctx.stroke();
  ctx.setLineDash([]);
  const point = same || down ? -1 : 1;
  ctx.beginPath();
  ctx.moveTo(x2, y2);
  ctx.lineTo(x2 - 3.2, y2 + 6 * point);
  ctx.lineTo(x2 + 3.2, y2 + 6 * point);
  ctx.fill();
  ctx.globalAlpha = 1;
  ctx.lineWidth = 1;
}

function heading(text, y, peak) {
  ctx.fillStyle = colours.soft;
  ctx.textAlign = "left";
  ctx.fillText(text, size.gutter, y - 11);
  ctx.fillText(group(peak), 2, y + 6);
  ctx.fillText("0", 2, y + (text.startsWith("R") ? RUNNABLE : IDLE) - 6);
}

// The mean of each pixel as an area, the highest as a line above it.
function drawRunnable(y) {
  const count = trace.runnable, step = (view.to - view.from) / plot();
  let top = 1;
  const means = [], peaks = [];
  for (let x = 0; x < plot(); x++) {
    const from = view.from + x * step, to = from + step;
    means.push(to < 0 || from > whole.to ? 0 : (areaUntil(count, Math.min(to, whole.to)) - areaUntil(count, Math.max(from, 0))) / step);
    peaks.push(to < 0 || from > whole.to ? 0 : peakWithin(count, from, to));
    top = Math.max(top, peaks[x]);
  }
  heading("Runnable Gs, that wait for a P", y, top);
  area(peaks, y, RUNNABLE, top, colours.run);
  area(means, y, RUNNABLE, top, colours.mean);
  ctx.fillStyle = colours.line;
  ctx.fillRect(size.gutter, y + RUNNABLE, plot(), 1);
}

function drawIdle(y) {
  const count = trace.idlePs, step = (view.to - view.from) / plot(), top = Math.max(1, trace.cpus.length);
  const means = [];
  for (let x = 0; x < plot(); x++) {
    const from = Math.max(0, view.from + x * step), to = Math.min(whole.to, view.from + (x + 1) * step);
    means.push(to > from ? (areaUntil(count, to) - areaUntil(count, from)) / (to - from) : 0);
  }
  heading("Idle Ps", y, top);
  area(means, y, IDLE, top, colours.idle);
  ctx.fillStyle = colours.line;
  ctx.fillRect(size.gutter, y + IDLE, plot(), 1);
}

function area(values, y, height, top, colour) {
  ctx.fillStyle = colour;
  ctx.beginPath();
  ctx.moveTo(size.gutter, y + height);
  values.forEach((value, x) => {
    const at = y + height - value / top * (height - 1);
    ctx.lineTo(size.gutter + x, at);
    ctx.lineTo(size.gutter + x + 1, at);
  });
  ctx.lineTo(size.gutter + values.length, y + height);
  ctx.fill();
}

// How busy all Ps were over the whole run. It changes with the size only.
function paintOverview() {
  const width = overview.width, height = overview.height;
  const picture = document.createElement("canvas");
  picture.width = width;
  picture.height = height;
  const paint = picture.getContext("2d"), left = Math.round(size.gutter * size.ratio), wide = width - left;
  const ps = byM ? rowsByP() : rows, step = whole.to / wide;
  paint.fillStyle = colours.row;
  paint.fillRect(left, 0, wide, height);
  paint.fillStyle = colours.mean;
  for (let x = 0; x < wide; x++) {
    let busy = 0;
    for (const row of ps) busy += busyUntil(row, (x + 1) * step) - busyUntil(row, x * step);
    const high = Math.max(busy > 0 ? 1 : 0, height * busy / step / ps.length);
    paint.fillRect(left + x, height - high, 1, high);
  }
  return picture;
}

// How long the spans of a row had run by then.
function busyUntil(row, t) {
  const i = firstAfter(row, t);
  return row.sum[i] + (i < row.ids.length ? Math.max(0, t - spans.from[row.ids[i]]) : 0);
}

const overviewX = (t) => size.gutter + t / whole.to * plot();

function drawOverview() {
  overviewPicture ||= paintOverview();
  octx.setTransform(1, 0, 0, 1, 0, 0);
  octx.fillStyle = colours.card;
  octx.fillRect(0, 0, overview.width, overview.height);
  octx.drawImage(overviewPicture, 0, 0);
  octx.setTransform(size.ratio, 0, 0, size.ratio, 0, 0);
  octx.font = FONT;
  octx.textBaseline = "middle";
  octx.fillStyle = colours.soft;
  octx.fillText("All", 2, 15);
  const from = Math.max(overviewX(view.from), size.gutter), to = Math.min(overviewX(view.to), size.width);
  octx.globalAlpha = 0.72;
  octx.fillStyle = colours.card;
  octx.fillRect(size.gutter, 0, from - size.gutter, 30);
  octx.fillRect(to, 0, size.width - to, 30);
  octx.globalAlpha = 1;
  octx.strokeStyle = colours.accent;
  octx.lineWidth = 2;
  octx.strokeRect(from + 1, 1, Math.max(to - from - 2, 2), 28);
}
