// The columns of pack.rs, in its order, as typed arrays. Times are nanoseconds.
const meta = JSON.parse(document.getElementById("meta").textContent);
const LEFT = ["not seen", "yielded", "preempted", "parked", "ended", "displaced", "left in a call", "still running"];
const HOW = ["", "created", "readied", "readied by an interrupt", "readied by its timer"];
const PREEMPTED = 2, PARKED = 3, IN_CALL = 6;
const KIND = { fire: 8, tick: 9, wakeSent: 10, wakeReceived: 11, irq: 17, procs: 19 };

// The sign is in the lowest bit.
const signed = (number) => number % 2 ? -(number + 1) / 2 : number / 2;

class Columns {
  constructor(bytes) { this.bytes = bytes; this.at = 0; }
  number() {
    let value = 0, scale = 1, byte;
    do {
      byte = this.bytes[this.at++];
      value += (byte & 127) * scale;
      scale *= 128;
    } while (byte & 128);
    return value;
  }
  all(n, Type = Float64Array) {
    const column = new Type(n);
    for (let i = 0; i < n; i++) column[i] = this.number();
    return column;
  }
  rising(n, Type = Float64Array) {
    const column = new Type(n);
    for (let i = 0, last = 0; i < n; i++) column[i] = last += this.number();
    return column;
  }
  wavering(n, Type = Uint32Array) {
    const column = new Type(n);
    for (let i = 0, last = 0; i < n; i++) {
      const step = this.number();
      column[i] = last += signed(step);
    }
    return column;
  }
  lasting() {
    const n = this.number();
    const from = this.all(n), to = this.all(n);
    for (let i = 0, end = 0; i < n; i++) {
      from[i] += end;
      end = to[i] += from[i];
    }
    return { n, from, to };
  }
}

function unbase64(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const binary = atob(text), bytes = new Uint8Array(binary.length);
  for (let i = 0; i < binary.length; i++) bytes[i] = binary.charCodeAt(i);
  return bytes;
}

function readGs(columns) {
  const n = columns.number();
  return {
    n, number: columns.rising(n, Uint32Array),
    name: columns.all(n, Uint32Array), site: columns.all(n, Uint32Array),
    // The colour's number; in the lowest bit whether it is one of the kernel's own.
    colour: columns.all(n, Uint8Array),
    run: new Float64Array(n), queued: columns.all(n), parked: columns.all(n),
    // Plus 1, and 0 if not seen; the end from the begin on.
    created: columns.wavering(n, Float64Array), life: columns.all(n),
  };
}

function readCpu(columns) {
  const { n, from, to } = columns.lasting();
  const g = columns.wavering(n), m = columns.wavering(n);
  const ends = columns.all(n, Uint8Array), reason = columns.all(n, Uint8Array);
  const woken = ends.reduce((sum, end) => sum + (end >> 4 ? 1 : 0), 0);
  const wakeCpu = columns.all(woken, Uint32Array), wakeLead = columns.all(woken), wakeBy = columns.all(woken, Uint32Array);
  const spans = { n, from, to, g, m, ends, reason, wakeCpu, wakeLead, wakeBy };
  const idle = columns.lasting(), gaps = columns.lasting();
  gaps.lost = columns.all(gaps.n);
  return { spans, idle, gaps, elsewhere: columns.lasting() };
}

// All CPUs' spans behind each other; the wake-ups get a place beside their span.
function join(cpus) {
  const n = cpus.reduce((sum, cpu) => sum + cpu.spans.n, 0);
  const spans = {
    n, from: new Float64Array(n), to: new Float64Array(n), g: new Uint32Array(n), m: new Uint32Array(n),
    cpu: new Uint16Array(n), left: new Uint8Array(n), reason: new Uint8Array(n), how: new Uint8Array(n),
    wakeCpu: new Uint16Array(n), wakeAt: new Float64Array(n), wakeBy: new Int32Array(n).fill(-1),
  };
  let at = 0;
  cpus.forEach(({ spans: part }, cpu) => {
    for (const key of ["from", "to", "g", "m", "reason"]) spans[key].set(part[key], at);
    for (let i = 0, woken = 0; i < part.n; i++) {
      spans.cpu[at + i] = cpu;
      spans.left[at + i] = part.ends[i] & 15;
      const how = spans.how[at + i] = part.ends[i] >> 4;
      if (!how) continue;
      spans.wakeCpu[at + i] = part.wakeCpu[woken];
      spans.wakeAt[at + i] = part.from[i] - part.wakeLead[woken];
      const by = part.wakeBy[woken++];
      if (by) spans.wakeBy[at + i] = part.g[i] - signed(by - 1);
    }
    at += part.n;
  });
  return spans;
}

function readWaits(columns) {
  const n = columns.number();
  return { n, g: columns.all(n, Uint32Array), from: columns.all(n), length: columns.all(n), cpu: columns.all(n, Uint32Array), reason: columns.all(n, Uint8Array) };
}

function readPoints(columns) {
  const n = columns.number();
  return steps(columns.rising(n), columns.wavering(n));
}

function read() {
  const columns = new Columns(unbase64(document.getElementById("data").textContent));
  const end = columns.number(), numCpus = columns.number();
  const gs = readGs(columns);
  const cpus = Array.from({ length: numCpus }, () => readCpu(columns));
  const mounts = { n: columns.number() };
  for (const key of ["m", "cpu", "from", "length"]) mounts[key] = columns.all(mounts.n);
  const steals = { n: columns.number() };
  steals.at = columns.rising(steals.n);
  for (const key of ["thief", "victim", "count", "g"]) steals[key] = columns.all(steals.n, Uint32Array);
  const instants = { n: columns.number() };
  instants.at = columns.rising(instants.n);
  for (const key of ["cpu", "kind", "arg"]) instants[key] = columns.all(instants.n, Uint32Array);
  const runnable = readPoints(columns), idlePs = readPoints(columns);
  const waits = { queued: readWaits(columns), parked: readWaits(columns) };
  return { end, cpus, gs, spans: join(cpus), mounts, steals, instants, runnable, idlePs, waits };
}

// A count over time, with its area so far and the highest of each 64, so that a
// pixel's mean and peak need few steps.
function steps(at, value) {
  const n = at.length, area = new Float64Array(n + 1), peaks = new Float64Array(Math.ceil(n / 64));
  for (let i = 0; i < n; i++) {
    area[i + 1] = area[i] + (i + 1 < n ? (at[i + 1] - at[i]) * value[i] : 0);
    peaks[i >> 6] = Math.max(peaks[i >> 6], value[i]);
  }
  return { n, at, value, area, peaks, peak: peaks.reduce((a, b) => Math.max(a, b), 0) };
}

// The first index from lo on whose value is not below t.
function lower(array, t, lo = 0, hi = array.length) {
  while (lo < hi) {
    const mid = (lo + hi) >>> 1;
    if (array[mid] < t) lo = mid + 1; else hi = mid;
  }
  return lo;
}

function areaUntil(count, t) {
  const i = lower(count.at, t) - 1;
  return i < 0 ? 0 : count.area[i] + (t - count.at[i]) * count.value[i];
}

function peakWithin(count, from, to) {
  let i = Math.max(0, lower(count.at, from) - 1);
  const end = lower(count.at, to, i);
  let peak = 0;
  while (i < end) {
    if (i % 64 === 0 && i + 64 <= end) { peak = Math.max(peak, count.peaks[i >> 6]); i += 64; }
    else peak = Math.max(peak, count.value[i++]);
  }
  return peak;
}

const trace = read();
const { spans, gs } = trace;

// The spans of each G, by time: those of G i are byG[gStart[i]..gStart[i + 1]].
const gStart = new Uint32Array(gs.n + 1), byG = new Uint32Array(spans.n);
for (let i = 0; i < spans.n; i++) {
  gStart[spans.g[i] + 1]++;
  gs.run[spans.g[i]] += spans.to[i] - spans.from[i];
}
for (let i = 0; i < gs.n; i++) gStart[i + 1] += gStart[i];
{
  const next = gStart.slice();
  for (let i = 0; i < spans.n; i++) byG[next[spans.g[i]]++] = i;
  for (let g = 0; g < gs.n; g++) {
    if (gStart[g + 1] - gStart[g] > 1) byG.subarray(gStart[g], gStart[g + 1]).sort((a, b) => spans.from[a] - spans.from[b]);
  }
}
const spansOf = (g) => byG.subarray(gStart[g], gStart[g + 1]);

// A row of the timeline: spans by time, and how much time they take together.
function row(label, number, ids) {
  const sum = new Float64Array(ids.length + 1);
  for (let i = 0; i < ids.length; i++) sum[i + 1] = sum[i] + spans.to[ids[i]] - spans.from[ids[i]];
  return { label, number, ids, sum };
}

function rowsByP() {
  const all = Uint32Array.from({ length: spans.n }, (_, i) => i);
  let at = 0;
  return trace.cpus.map((cpu, i) => row("P" + i, i, all.subarray(at, at += cpu.spans.n)));
}

function rowsByM() {
  const lists = new Map();
  for (let i = 0; i < spans.n; i++) {
    if (!lists.has(spans.m[i])) lists.set(spans.m[i], []);
    lists.get(spans.m[i]).push(i);
  }
  const { mounts } = trace, placed = new Map();
  for (let i = 0; i < mounts.n; i++) {
    const m = mounts.m[i];
    if (!lists.has(m)) lists.set(m, []);
    if (!placed.has(m)) placed.set(m, []);
    placed.get(m).push(i);
  }
  const ms = [...lists.keys()].sort((a, b) => a - b);
  const sorted = (list) => list.sort((a, b) => mounts.from[a] - mounts.from[b]);
  const ran = ms.filter((m) => lists.get(m).length).map((m) => ({
    ...row("M" + m, m, Uint32Array.from(lists.get(m)).sort((a, b) => spans.from[a] - spans.from[b])),
    mounts: sorted(placed.get(m) || []),
  }));
  // Those that only waited share one row.
  const waited = ms.filter((m) => !lists.get(m).length);
  if (!waited.length) return ran;
  const label = waited.length === 1 ? "M" + waited[0] : waited.length + " Ms";
  return [...ran, { ...row(label, waited[0], new Uint32Array(0)), mounts: sorted(waited.flatMap((m) => placed.get(m) || [])) }];
}

// The first of a row's spans that ends after t.
function firstAfter(row, t, lo = 0) {
  let hi = row.ids.length;
  while (lo < hi) {
    const mid = (lo + hi) >>> 1;
    if (spans.to[row.ids[mid]] <= t) lo = mid + 1; else hi = mid;
  }
  return lo;
}

// The first of a row's spans that does not begin before t.
function firstFrom(row, t, lo = 0, hi = row.ids.length) {
  while (lo < hi) {
    const mid = (lo + hi) >>> 1;
    if (spans.from[row.ids[mid]] < t) lo = mid + 1; else hi = mid;
  }
  return lo;
}

// The same for one that is probably near: in longer and longer steps.
function nextFrom(row, t, lo) {
  let step = 1;
  while (lo + step < row.ids.length && spans.from[row.ids[lo + step]] < t) step *= 2;
  return firstFrom(row, t, lo + (step >> 1), Math.min(lo + step + 1, row.ids.length));
}
