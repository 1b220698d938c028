// Mouse, touch and keys.
const tip = document.getElementById("tip");
const pointers = new Map();
let pressed = null, moved = false, pinch = null;

// The span under a point of the timeline, or the nearest within two pixels.
function hit(x, y) {
  const index = rowAt(y);
  if (index < 0 || x < size.gutter) return -1;
  const row = rows[index], t = timeAt(x), near = 2 * (view.to - view.from) / plot();
  const i = firstAfter(row, t), after = row.ids[i], before = row.ids[i - 1];
  if (after !== undefined && spans.from[after] <= t) return after;
  const behind = after === undefined ? Infinity : spans.from[after] - t;
  const ahead = before === undefined ? Infinity : t - spans.to[before];
  if (Math.min(behind, ahead) > near) return -1;
  return behind < ahead ? after : before;
}

function place(event) {
  const box = canvas.getBoundingClientRect();
  return { x: event.clientX - box.left, y: event.clientY - box.top };
}

function hover(event) {
  const { x, y } = place(event), span = hit(x, y);
  const lines = span >= 0 ? tipOfSpan(span) : tipOfPlace(x, y);
  tip.hidden = !lines;
  canvas.style.cursor = span >= 0 ? "pointer" : "";
  if (!lines) return;
  tip.replaceChildren(...lines);
  const box = tip.getBoundingClientRect();
  const left = event.clientX + 14 + box.width > innerWidth - 8 ? event.clientX - box.width - 10 : event.clientX + 14;
  const top = event.clientY + 18 + box.height > innerHeight - 8 ? event.clientY - box.height - 12 : event.clientY + 18;
  tip.style.transform = `translate(${Math.max(8, left)}px, ${Math.max(8, top)}px)`;
}

function tipOfSpan(span) {
  const waited = spans.how[span] ? spans.from[span] - spans.wakeAt[span] : 0;
  const lines = [
    node("b", {}, label(spans.g[span])),
    node("div", {}, `${length(spans.to[span] - spans.from[span])}, then ${leftInWords(span)}`),
    node("span", {}, `P${spans.cpu[span]} · M${spans.m[span]} · from ${point(spans.from[span])}`),
  ];
  const site = text(gs.site[spans.g[span]]);
  if (site) lines.push(node("div", {}, node("span", {}, "spawned at " + site)));
  if (waited > 0) lines.push(node("div", {}, node("span", {}, `waited ${length(waited)} for it`)));
  return lines;
}

function tipOfPlace(x, y) {
  const t = timeAt(x), bottom = yOf(rows.length);
  if (x < size.gutter || t < 0 || t > whole.to) return null;
  if (y > bottom) {
    const at = (count) => { const i = lower(count.at, t + 1e-9) - 1; return i < 0 ? 0 : count.value[i]; };
    return [node("b", {}, `${group(at(trace.runnable))} runnable, ${at(trace.idlePs)} idle`), node("span", {}, "at " + point(t, axisStep() / 100))];
  }
  const index = rowAt(y);
  if (index < 0 || byM) return null;
  const { idle, gaps } = trace.cpus[index];
  const within = (list) => { const i = lower(list.to, t); return i < list.n && list.from[i] <= t ? i : -1; };
  const gap = within(gaps), halt = within(idle);
  if (gap >= 0) return [node("b", {}, `${group(gaps.lost[gap])} events lost`), node("span", {}, length(gaps.to[gap] - gaps.from[gap]))];
  if (halt >= 0) return [node("b", {}, "halted"), node("span", {}, `${length(idle.to[halt] - idle.from[halt])} from ${point(idle.from[halt])}`)];
  return null;
}

canvas.addEventListener("pointerdown", (event) => {
  pointers.set(event.pointerId, place(event));
  canvas.setPointerCapture(event.pointerId);
  pressed = { ...place(event), from: view.from, to: view.to };
  moved = false;
  if (pointers.size === 2) {
    const [a, b] = [...pointers.values()];
    pinch = { apart: Math.max(Math.abs(a.x - b.x), 8), at: timeAt((a.x + b.x) / 2), width: view.to - view.from };
  }
});

canvas.addEventListener("pointermove", (event) => {
  if (!pointers.has(event.pointerId)) return hover(event);
  pointers.set(event.pointerId, place(event));
  if (pinch && pointers.size === 2) return pinched();
  const { x } = place(event);
  if (!moved && Math.abs(x - pressed.x) < 4) return;
  moved = true;
  tip.hidden = true;
  canvas.classList.add("dragging");
  const by = (pressed.x - x) / plot() * (pressed.to - pressed.from);
  show(pressed.from + by, pressed.to + by);
});

// The time between the fingers stays between them.
function pinched() {
  const [a, b] = [...pointers.values()], apart = Math.max(Math.abs(a.x - b.x), 8);
  const width = pinch.width * pinch.apart / apart, share = ((a.x + b.x) / 2 - size.gutter) / plot();
  moved = true;
  show(pinch.at - share * width, pinch.at + (1 - share) * width);
}

function released(event) {
  const wasOurs = pointers.delete(event.pointerId);
  pinch = null;
  canvas.classList.remove("dragging");
  if (wasOurs && !moved && event.type === "pointerup") {
    const { x, y } = place(event);
    choose(hit(x, y));
  }
  // Whichever finger stays goes on from where the view is now.
  for (const rest of pointers.values()) pressed = { ...rest, from: view.from, to: view.to };
}
canvas.addEventListener("pointerup", released);
canvas.addEventListener("pointercancel", released);
canvas.addEventListener("pointerleave", () => { tip.hidden = true; });
canvas.addEventListener("dblclick", (event) => zoom(0.25, timeAt(place(event).x), true));

canvas.addEventListener("wheel", (event) => {
  const line = event.deltaMode === 1 ? 20 : 1;
  const sideways = event.shiftKey ? event.deltaX || event.deltaY : Math.abs(event.deltaX) > Math.abs(event.deltaY) ? event.deltaX : 0;
  event.preventDefault();
  if (sideways) pan(sideways * line / plot());
  else zoom(Math.exp(Math.max(-120, Math.min(120, event.deltaY * line)) * (event.ctrlKey ? 0.01 : 0.003)), timeAt(place(event).x));
  hover(event);
}, { passive: false });

function overviewTo(event) {
  const share = (event.clientX - overview.getBoundingClientRect().left - size.gutter) / plot();
  const width = view.to - view.from, at = share * whole.to;
  show(at - width / 2, at + width / 2);
}
overview.addEventListener("pointerdown", (event) => { overview.setPointerCapture(event.pointerId); overviewTo(event); });
overview.addEventListener("pointermove", (event) => { if (event.buttons) overviewTo(event); });

// The next or previous span of the chosen G.
function step(by) {
  if (chosen.g < 0) return chooseNear(0);
  const own = spansOf(chosen.g), at = own.indexOf(chosen.span) + by;
  if (own[at] !== undefined) reach(own[at]);
}

// Chooses in another row what is nearest in time; with nothing chosen, what is
// in the middle of the first row.
function chooseNear(by) {
  const t = chosen.span < 0 ? (view.from + view.to) / 2 : (spans.from[chosen.span] + spans.to[chosen.span]) / 2;
  let index = chosen.span < 0 ? 0 : rowOf(chosen.span) + by;
  while (rows[index] && !rows[index].ids.length) index += by || 1;
  const row = rows[index];
  if (!row) return;
  reach(row.ids[Math.min(firstAfter(row, t), row.ids.length - 1)]);
}

// The span of who woke the chosen one.
function toWaker() {
  if (chosen.span < 0 || spans.wakeBy[chosen.span] < 0) return;
  const own = spansOf(spans.wakeBy[chosen.span]), at = spans.wakeAt[chosen.span];
  for (let k = own.length - 1; k >= 0; k--) if (spans.from[own[k]] <= at) return reach(own[k]);
}

const KEYS = {
  ArrowLeft: () => pan(-0.2, true), ArrowRight: () => pan(0.2, true), ArrowUp: () => chooseNear(-1), ArrowDown: () => chooseNear(1),
  "+": () => zoom(0.5, undefined, true), "=": () => zoom(0.5, undefined, true), "-": () => zoom(2, undefined, true), "_": () => zoom(2, undefined, true),
  "0": () => glideTo(whole.from, whole.to), n: () => step(1), p: () => step(-1), w: toWaker, Escape: () => choose(-1),
  Home: () => { const width = view.to - view.from; glideTo(0, width); },
  End: () => { const width = view.to - view.from; glideTo(whole.to - width, whole.to); },
  "/": () => document.getElementById("search").focus(), "?": () => document.getElementById("help-box").showModal(),
};
// Keys that also mean something to a button or a list stay theirs.
const OF_TIMELINE = new Set(["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown", "Home", "End"]);

addEventListener("keydown", (event) => {
  const { target, key } = event;
  if (event.ctrlKey || event.metaKey || event.altKey || target.closest("dialog, input")) return;
  if (OF_TIMELINE.has(key) && target !== canvas && target !== document.body) return;
  if (!KEYS[key]) return;
  event.preventDefault();
  tip.hidden = true;
  KEYS[key]();
});
