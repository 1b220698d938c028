// What is around the timeline: facts, details, search, waits, theme, help.
const byId = (id) => document.getElementById(id);

// An element; what it holds are texts and elements, never markup.
function node(name, attributes, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "onclick") element.onclick = value; else element.setAttribute(key, value);
  }
  element.append(...children);
  return element;
}

const dot = (g) => {
  const element = node("span", { class: "dot", "aria-hidden": "true" });
  element.style.background = colours.g[colourOf(g)];
  return element;
};

function showFacts() {
  byId("title").textContent = meta.title;
  const fact = (value, what, bad) => node("li", bad ? { class: "bad" } : {}, node("b", {}, value), " " + what);
  byId("facts").replaceChildren(
    fact(trace.cpus.length, trace.cpus.length === 1 ? "P" : "Ps"), fact(length(trace.end), "long"),
    fact(group(meta.events), "events"), fact(group(gs.n), "Gs"),
    fact(Math.round(meta.busy * 100) + "\u202f%", "busy"),
    fact(group(meta.lost), "lost", meta.lost > 0),
    ...(meta.elsewhere ? [fact((meta.elsewhere * 100).toFixed(1) + "\u202f%", "host elsewhere", meta.elsewhere > 0.05)] : []),
    ...(meta.clock ? [fact("", meta.clock)] : []),
    ...(meta.exit ? [fact("exit code " + meta.exit, "", true)] : []),
  );
  byId("findings").replaceChildren(...meta.findings.map(({ text, bad }) => node("li", bad ? { class: "bad" } : {}, text)));
  byId("notes").textContent = [meta.agreement, ...meta.warnings].filter(Boolean).join("\n");
  canvas.setAttribute("aria-label", `Timeline of ${trace.cpus.length} Ps over ${length(trace.end)}`);
}

function showRange() {
  byId("range").textContent = `${point(Math.max(0, view.from), axisStep() / 10)} + ${length(view.to - view.from)}`;
}

function showDetails() {
  const { span, g } = chosen, box = byId("details");
  if (span < 0) {
    box.replaceChildren(node("p", {}, "Choose a block in the timeline, or find a G: here is its name, how long it ran, and what woke it."), summary());
    return;
  }
  const pairs = node("dl", { class: "pairs" });
  const pair = (what, ...value) => pairs.append(node("dt", {}, what), node("dd", {}, ...value));
  const ran = spans.to[span] - spans.from[span];
  pair("ran", `${length(ran)} on P${spans.cpu[span]}, M${spans.m[span]}`);
  pair("from, to", `${point(spans.from[span])} – ${point(spans.to[span])}`);
  pair("then", leftInWords(span));
  if (spans.how[span]) pair("before", ...wakeInWords(span));
  if (text(gs.site[g])) pair("spawned at", text(gs.site[g]));
  const sum = (value, what) => node("div", {}, node("b", {}, value), node("span", {}, what));
  const own = spansOf(g), at = own.indexOf(span);
  const sums = node("div", { class: "sums" }, sum(length(gs.run[g]), "ran"), sum(length(gs.queued[g]), "in queues"), sum(length(gs.parked[g]), "parked"), sum(lifeOf(g), "life"));
  const previous = node("button", { onclick: () => step(-1) }, "Previous"), next = node("button", { onclick: () => step(1) }, "Next");
  previous.disabled = at === 0;
  next.disabled = at === own.length - 1;
  const steps = node("div", { class: "steps" }, previous, next, node("button", { onclick: () => reachG(g) }, "Whole life"), node("span", {}, `span ${group(at + 1)} of ${group(own.length)}`));
  box.replaceChildren(node("h3", {}, dot(g), "G" + gs.number[g], node("small", {}, text(gs.name[g]))), pairs, sums, steps);
}

// What each P did over the whole run.
let summed = null;
function summary() {
  if (summed) return summed;
  const stolen = new Uint32Array(trace.cpus.length), preempted = new Uint32Array(trace.cpus.length);
  for (let i = 0; i < trace.steals.n; i++) stolen[trace.steals.thief[i]]++;
  for (let i = 0; i < spans.n; i++) if (spans.left[i] === PREEMPTED) preempted[spans.cpu[i]]++;
  const cell = (value) => node("td", { class: "n" }, value);
  const lines = trace.cpus.map((cpu, i) => {
    let busy = 0;
    for (let k = 0; k < cpu.spans.n; k++) busy += cpu.spans.to[k] - cpu.spans.from[k];
    return node("tr", {}, node("th", { scope: "row" }, "P" + i), cell(Math.round(100 * busy / whole.to) + "\u202f%"), cell(group(cpu.spans.n)), cell(group(preempted[i])), cell(group(stolen[i])), cell(group(cpu.idle.n)));
  });
  const heads = ["busy", "switches", "preempted", "thefts", "halts"].map((name) => node("th", { scope: "col", class: "n" }, name));
  const table = node("table", { class: "ps" }, node("thead", {}, node("tr", {}, node("th", { scope: "col" }, "P"), ...heads)), node("tbody", {}, ...lines));
  return summed = node("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "What each P did" }, table);
}

function wakeInWords(span) {
  const by = spans.wakeBy[span], waited = length(spans.from[span] - spans.wakeAt[span]);
  const who = by < 0 ? [` on P${spans.wakeCpu[span]}`] : [" by ", node("button", { onclick: toWaker, title: "Go there (w)" }, label(by)), ` on P${spans.wakeCpu[span]}`];
  return [HOW[spans.how[span]], ...who, `, waited ${waited}`];
}

function lifeOf(g) {
  if (!gs.created[g]) return "–";
  return length(gs.life[g] ? gs.life[g] - 1 : trace.end - (gs.created[g] - 1));
}

// Gs whose number or name fits, exact numbers first, then those that ran longest.
function find(said) {
  const words = said.trim().toLowerCase();
  if (!words) return [];
  const number = /^g?(\d+)$/.exec(words);
  if (number) {
    const g = lower(gs.number, Number(number[1]));
    return g < gs.n && gs.number[g] === Number(number[1]) ? [g] : [];
  }
  const texts = meta.texts.map((known) => known.toLowerCase().includes(words));
  const best = [];
  for (let g = 0; g < gs.n; g++) {
    if (!texts[gs.name[g]] || !(gStart[g + 1] > gStart[g])) continue;
    if (best.length === 8 && gs.run[g] <= gs.run[best[7]]) continue;
    best.push(g);
    best.sort((a, b) => gs.run[b] - gs.run[a]).splice(8);
  }
  return best;
}

function setUpSearch() {
  const input = byId("search"), list = byId("found");
  let found = [], active = 0;
  const paint = () => {
    list.hidden = !input.value.trim() || document.activeElement !== input;
    input.setAttribute("aria-expanded", String(!list.hidden));
    input.setAttribute("aria-activedescendant", found.length && !list.hidden ? "found-" + active : "");
    const items = found.map((g, i) => node("li", { id: "found-" + i, role: "option", "aria-selected": String(i === active) }, dot(g), label(g), node("small", {}, "ran " + length(gs.run[g]))));
    items.forEach((item, i) => { item.onpointerdown = (event) => { event.preventDefault(); take(i); }; });
    list.replaceChildren(...(items.length ? items : [node("li", {}, "no such G")]));
  };
  const take = (i) => {
    if (found[i] === undefined) return;
    reachG(found[i]);
    input.value = "";
    found = [];
    paint();
    canvas.focus({ preventScroll: true });
  };
  input.oninput = () => { found = find(input.value); active = 0; paint(); };
  input.onfocus = input.onblur = paint;
  input.onkeydown = (event) => {
    if (event.key === "Enter") take(active);
    else if (event.key === "Escape") { input.value = ""; paint(); canvas.focus({ preventScroll: true }); }
    else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      active = Math.max(0, Math.min(found.length - 1, active + (event.key === "ArrowDown" ? 1 : -1)));
      paint();
    } else return;
    event.preventDefault();
  };
}

let waitsOf = "queued";
function showWaits() {
  const waits = trace.waits[waitsOf], isQueued = waitsOf === "queued";
  byId("queued").setAttribute("aria-pressed", String(isQueued));
  byId("parked").setAttribute("aria-pressed", String(!isQueued));
  byId("why").textContent = isQueued ? "then on" : "for";
  const lines = Array.from({ length: waits.n }, (_, i) => {
    const g = waits.g[i], last = isQueued ? "P" + waits.cpu[i] : meta.reasons[waits.reason[i]] || "–";
    const line = node("tr", {}, node("td", {}, node("button", {}, dot(g), label(g))), node("td", { class: "n" }, length(waits.length[i])), node("td", { class: "n" }, point(waits.from[i], Math.max(1, whole.to / 1e5))), node("td", {}, last));
    line.onclick = () => toWait(waits, i);
    return line;
  });
  byId("waits").replaceChildren(...(lines.length ? lines : [node("tr", {}, node("td", { colspan: 4 }, "none"))]));
}

// What the Gs of each spawn site did together, those that ran longest first.
function showSites() {
  const bySite = new Map();
  for (let g = 0; g < gs.n; g++) {
    const key = gs.site[g] + " " + gs.name[g];
    if (!bySite.has(key)) bySite.set(key, { first: g, longest: g, n: 0, run: 0, queued: 0, parked: 0 });
    const site = bySite.get(key);
    site.n++;
    site.run += gs.run[g];
    site.queued += gs.queued[g];
    site.parked += gs.parked[g];
    if (gs.run[g] > gs.run[site.longest]) site.longest = g;
  }
  const sites = [...bySite.values()].sort((a, b) => b.run - a.run).slice(0, 100);
  const cell = (value) => node("td", { class: "n" }, value);
  const lines = sites.map((site) => {
    const name = node("button", { title: "The one that ran longest" }, dot(site.longest), text(gs.name[site.first]) || "–");
    const line = node("tr", {}, node("td", {}, name), node("td", { title: text(gs.site[site.first]) }, node("bdi", {}, text(gs.site[site.first]) || "–")), cell(group(site.n)), cell(length(site.run)), cell(length(site.queued)), cell(length(site.parked)));
    line.onclick = () => reachG(site.longest);
    return line;
  });
  byId("sites").replaceChildren(...(lines.length ? lines : [node("tr", {}, node("td", { colspan: 6 }, "none"))]));
}

// Shows the wait with a little around it, and chooses the span that follows it.
function toWait(waits, i) {
  const from = waits.from[i], to = from + waits.length[i], own = spansOf(waits.g[i]);
  let k = 0;
  while (k < own.length - 1 && spans.from[own[k]] < to) k++;
  if (own.length) choose(own[k]);
  const margin = (to - from) * 0.25 + 200;
  glideTo(from - margin, to + margin);
  canvas.scrollIntoView({ block: "nearest" });
}

function setRows(m) {
  if (byM === m) return;
  byM = m;
  rows = m ? rowsByM() : rowsByP();
  byId("by-p").setAttribute("aria-pressed", String(!m));
  byId("by-m").setAttribute("aria-pressed", String(m));
  measure();
}

function setTheme(name) {
  if (name) document.documentElement.dataset.theme = name;
  readColours();
  overviewPicture = null;
  showDetails();
  showWaits();
  showSites();
  redraw();
}

function setUp() {
  try { const kept = localStorage.getItem("runnext-theme"); if (kept) document.documentElement.dataset.theme = kept; } catch { /* a page from a file may keep nothing */ }
  byId("theme").onclick = () => {
    const name = isDark() ? "light" : "dark";
    setTheme(name);
    try { localStorage.setItem("runnext-theme", name); } catch { /* likewise */ }
  };
  byId("help").onclick = () => byId("help-box").showModal();
  byId("in").onclick = () => zoom(0.5, undefined, true);
  byId("out").onclick = () => zoom(2, undefined, true);
  byId("all").onclick = () => glideTo(whole.from, whole.to);
  byId("by-p").onclick = () => setRows(false);
  byId("by-m").onclick = () => setRows(true);
  byId("queued").onclick = () => { waitsOf = "queued"; showWaits(); };
  byId("parked").onclick = () => { waitsOf = "parked"; showWaits(); };
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => setTheme());
  new ResizeObserver(() => { if (canvas.clientWidth !== size.width) measure(); }).observe(canvas);
  setUpSearch();
  readColours();
  showFacts();
  showDetails();
  showWaits();
  showSites();
  const active = activity();
  Object.assign(view, limited(active.from, active.to));
  measure();
}
setUp();

// For the tests: where things are, and what is shown.
window.runnext = {
  state: () => ({ from: view.from, to: view.to, end: whole.to, redraws, lastMs, gliding: glide !== 0, span: chosen.span, g: chosen.g < 0 ? 0 : gs.number[chosen.g], spans: spans.n, rows: rows.length, byM }),
  place: (span) => ({ x: xOf((spans.from[span] + spans.to[span]) / 2), y: yOf(rowOf(span)) + size.row / 2, from: spans.from[span], to: spans.to[span], g: gs.number[spans.g[span]] }),
  timeAt, show,
};
