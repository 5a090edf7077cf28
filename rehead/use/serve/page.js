
"use strict";
(() => {
const percent = (share) => share > 0.9995 && share < 1 ? "99.9 %" : `${(100 * share).toFixed(1)} %`;
const DEBOUNCE = 160;     // milliseconds after the last key before a request is sent
const MAX_BARS = 8;       // labels shown before "show all"
const MAX_WORDS = 8;      // words in the list
const MIN_SCALE = 0.3;    // the smallest weight (in log-odds) shown in the strongest colour
const MAX_ROW = 4e6;      // characters in one row of a file
let about = null;

// Text never becomes markup: everything is set as textContent.

const wellFormed = (text) => text.replace(/[\uD800-\uDBFF](?![\uDC00-\uDFFF])|(?<![\uD800-\uDBFF])[\uDC00-\uDFFF]/g, "\uFFFD");
function showError(id, error) {
  show(id, Boolean(error));
  $(id).textContent = error ? error.message : "";
}

// One text: label, bars and words, as it is typed. Only the response to the latest request is shown.

let pending = null, timer = 0, marks = [], lastText = "", chosen = null, allBars = false;

function onInput() {
  const text = wellFormed($("text").value);
  keepMarks(lastText, text);
  lastText = text;
  draw(text);
  show("clear", text.length > 0);
  const length = [...text].length, limit = about.limits.characters;
  $("count").textContent = length > limit / 2 ? `${length.toLocaleString()} of ${limit.toLocaleString()} characters` : "";
  clearTimeout(timer);
  if (pending) pending.abort();
  pending = null;
  $("verdict").classList.add("stale");
  $("bars").classList.add("stale");
  timer = setTimeout(() => classify(text), DEBOUNCE);
}

async function classify(text) {
  if (!text.trim()) { clearResult("Enter a text."); return; }
  const current = pending = new AbortController();
  // Each failure is reported where it belongs: a label is still valid if its words cannot be explained.
  const reportErrors = (work, failed) => work.catch((error) => { if (current === pending && error.name !== "AbortError") failed(error); });
  const label = async () => {
    const found = (await request("/classify", { text }, current.signal)).results[0];
    if (current !== pending) return;
    showError("problem", null);
    if (!found.probabilities) { clearResult("Enter a text."); return; } // blank for the server, though not for trim()
    showResult(found);
    if (about.can.includes("explain")) reportErrors(explain(text, current), (error) => clearMarks(`The words could not be explained. ${error.message}`));
    if (about.can.includes("attention")) reportErrors(attend(text, current), (error) => noAttention(`Attention could not be computed. ${error.message}`));
  };
  await reportErrors(label(), (error) => { clearResult("No label for this text."); showError("problem", error); });
}

function clearResult(note) {
  clearMarks("");
  $("verdict").textContent = "–";
  $("verdict").classList.remove("stale");
  $("verdict-note").textContent = note;
  $("bars").replaceChildren();
  for (const id of ["more-bars", "problem"]) show(id, false);
  $("said").textContent = "";
  if (about.can.includes("attention")) noAttention();
}

function showResult(found) {
  const given = about.multilabel ? found.labels : [found.label];
  const order = about.labels.slice().sort((a, b) => found.probabilities[b] - found.probabilities[a]);
  $("verdict").textContent = given.length ? given.join(", ") : "no label";
  const note = about.multilabel
    ? `${given.length} of ${about.labels.length} labels`
    : `probability ${percent(found.probabilities[given[0]])}`;
  $("verdict-note").textContent = note;
  $("said").textContent = `${$("verdict").textContent}, ${note}`;
  $("verdict").classList.remove("stale");
  $("bars").classList.remove("stale");
  if (chosen && !about.labels.includes(chosen)) chosen = null;
  const few = allBars ? order : order.slice(0, MAX_BARS);
  bars(few.map((name) => ({ name, share: found.probabilities[name], given: given.includes(name) })));
  show("more-bars", order.length > MAX_BARS);
  $("more-bars").textContent = allBars ? "Show fewer" : `Show all ${order.length} labels`;
  $("more-bars").setAttribute("aria-expanded", String(allBars));
}

function bars(rows) {
  const list = $("bars"), explains = about.can.includes("explain");
  while (list.children.length > rows.length) list.lastChild.remove();
  while (list.children.length < rows.length) {
    const item = document.createElement("li"), bar = document.createElement(explains ? "button" : "div");
    if (explains) {
      bar.type = "button";
      bar.addEventListener("click", () => {
        chosen = chosen === bar.dataset.name ? null : bar.dataset.name;
        clearTimeout(timer);
        if (pending) pending.abort();
        classify(lastText);
      });
    }
    for (const kind of ["name", "share", "track"]) {
      const part = document.createElement("span");
      part.className = kind;
      bar.append(part);
    }
    const fill = document.createElement("span");
    fill.className = "fill";
    bar.lastChild.append(fill);
    item.append(bar);
    list.append(item);
  }
  rows.forEach((row, place) => {
    const bar = list.children[place].firstChild, [name, share, track] = bar.children;
    bar.dataset.name = row.name;
    bar.className = row.given ? "bar given" : "bar";
    name.textContent = row.name;
    share.textContent = percent(row.share);
    track.firstChild.style.width = `${100 * row.share}%`;
    if (explains) {
      bar.setAttribute("aria-pressed", String(chosen === row.name));
      bar.title = chosen === row.name ? "Explain the predicted label" : "Explain this label";
    }
  });
}

function clearMarks(reason) {
  marks = [];
  draw(lastText);
  show("carried", false);
  show("legend", false);
  $("unmarked").textContent = reason;
}

async function explain(text, current) {
  const limit = about.limits.explain_characters;
  if ([...text].length > limit) {
    clearMarks(`Words are explained in texts of up to ${limit.toLocaleString()} characters.`);
    return;
  }
  const found = await request("/explain", chosen ? { text, label: chosen } : { text }, current.signal);
  if (current !== pending) return;
  const at = utf16(text), highest = found.words.reduce((high, each) => Math.max(high, Math.abs(each.weight)), MIN_SCALE);
  marks = found.words
    .map((each) => ({ begin: at(each.begin), end: at(each.end), weight: each.weight, level: level(each.weight, highest) }))
    .filter((each) => each.level > 0);
  draw(text);
  const few = found.words.length < found.total;
  $("unmarked").textContent = few ? `${found.words.length.toLocaleString()} of ${found.total.toLocaleString()} words were explained, in the passages that matter most: all of them would take too long.` : "";
  $("legend-label").textContent = found.label;
  show("legend", marks.length > 0);
  listWords(text, found.label);
}

function listWords(text, label) {
  const seen = new Map();
  for (const each of marks) {
    const word = text.slice(each.begin, each.end), key = `${each.weight > 0} ${word.toLowerCase()}`;
    const known = seen.get(key) || { word, weight: 0, level: 0 };
    known.weight += each.weight;
    known.level = Math.max(known.level, each.level);
    seen.set(key, known);
  }
  const top = [...seen.values()].sort((a, b) => Math.abs(b.weight) - Math.abs(a.weight)).slice(0, MAX_WORDS);
  $("words").replaceChildren(...top.map(({ word, weight, level }) => {
    const item = document.createElement("li"), span = document.createElement("span"), number = document.createElement("small");
    span.textContent = word.length > 40 ? word.slice(0, 39) + "…" : word;
    span.className = kind(weight, level);
    number.textContent = ` ${weight > 0 ? "+" : "−"}${Math.abs(weight).toFixed(2)}`;
    number.title = `${weight > 0 ? "for" : "against"} ${label}: how much its log-odds drop without the word`;
    item.append(span, number);
    return item;
  }));
  show("carried", top.length > 0);
}

// The strength of a word's colour, 1 to 3, or 0 if it is too weak to be marked. The same rule as in `highlight.py`.
function level(weight, highest) {
  const share = 3 * Math.abs(weight) / highest;
  return share < 0.75 ? 0 : Math.max(1, Math.round(share));
}
const kind = (weight, level) => `${weight > 0 ? "for" : "against"} s${level}`;

function utf16(text) {
  if (!/[\uD800-\uDFFF]/.test(text)) return (place) => place;
  const places = [0];
  let place = 0;
  for (const character of text) places.push(place += character.length);
  return (point) => places[Math.min(point, places.length - 1)];
}

function keepMarks(before, after) {
  // Text before and after the edit keeps its marks until the new ones arrive.
  let begin = 0, end = 0;
  const most = Math.min(before.length, after.length);
  while (begin < most && before[begin] === after[begin]) begin++;
  while (end < most - begin && before[before.length - 1 - end] === after[after.length - 1 - end]) end++;
  const moved = after.length - before.length;
  marks = marks
    .filter((each) => each.end <= begin || each.begin >= before.length - end)
    .map((each) => each.end <= begin ? each : { ...each, begin: each.begin + moved, end: each.end + moved });
}

function draw(text) {
  const parts = [];
  let place = 0;
  for (const each of marks) {
    if (each.begin < place) continue;
    parts.push(text.slice(place, each.begin));
    const span = document.createElement("span");
    span.className = kind(each.weight, each.level);
    span.textContent = text.slice(each.begin, each.end);
    parts.push(span);
    place = each.end;
  }
  $("behind").replaceChildren(...parts, text.slice(place), "\n\u200b");
}

// Attention: a token is selected; the tokens it attends to are shaded.

let attended = null, selected = 0, names = [];

function noAttention(note = "Enter a text above, then select a token to see which tokens it attends to.") {
  attended = null;
  $("tokens").replaceChildren();
  show("square-figure", false);
  $("attention-said").textContent = "";
  $("attention-note").textContent = note;
}

async function attend(text, current) {
  const asked = { text, layer: Number($("layer").value) };
  if ($("head").value) asked.head = Number($("head").value);
  const found = await request("/attention", asked, current.signal);
  if (current !== pending) return;
  const same = attended && attended.tokens.join("\n") === found.tokens.join("\n");
  attended = found;
  if (!same) {
    selected = Math.max(0, found.tokens.length - 1);
    const shown = readable(found.tokens, text);
    names = shown.map((each) => each.name);
    $("tokens").replaceChildren(...shown.map(({ label, name, part }, place) => {
      const button = document.createElement("button");
      button.type = "button";
      button.className = "tok";
      button.textContent = label;
      if (part) button.title = button.ariaLabel = name;
      button.addEventListener("click", () => select(place));
      button.addEventListener("pointerenter", () => select(place));
      button.addEventListener("focus", () => select(place));
      return button;
    }));
  }
  const reads = found.causal ? "each token attends to itself and earlier tokens" : "each token attends to all tokens";
  const some = found.total > found.tokens.length ? `; showing the first ${found.tokens.length} of ${found.total} tokens` : "";
  $("attention-note").textContent = `Select a token to see which tokens it attends to: ${reads}${some}.`;
  show("square-figure", found.tokens.length > 0);
  select(selected);
  square();
}

// A token may be part of a character, given as bytes (one printable character each, as byte-level BPE has them, or <0x..>).
// The first such token then shows the whole character, and the others a dot.
const BYTES = new Map();
for (let byte = 0, more = 256; byte < 256; byte++) {
  const printed = (byte > 32 && byte < 127) || (byte > 160 && byte !== 173);
  BYTES.set(String.fromCodePoint(printed ? byte : more++), byte);
}
function bytesOf(token) {
  const coded = /^<0x([0-9A-F]{2})>$/.exec(token);
  return coded ? [parseInt(coded[1], 16)] : [...token].map((each) => BYTES.get(each));
}
function decoded(bytes) {
  try { return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(new Uint8Array(bytes)); } catch { return ""; }
}
function readable(tokens, text) {
  const even = (each) => each.normalize("NFKC").toLowerCase().trim(), read = even(text), shown = [];
  const quoted = (label) => `“${label.trim() || "␣"}”`;
  while (shown.length < tokens.length) {
    const begin = shown.length, bytes = [];
    let end = begin, label = "", cut = false;
    while (!label && end < tokens.length && !bytesOf(tokens[end]).includes(undefined)) {
      bytes.push(...bytesOf(tokens[end++]));
      label = decoded(bytes);
      cut = !label && end === tokens.length;
      if (!read.includes(even(label))) label = "";
    }
    if (!label) {
      end = begin + 1;
      label = cut && !read.includes(even(tokens[begin])) ? "" : tokens[begin];
    }
    for (let place = begin; place < end; place++) {
      const part = !label || end - begin > 1;
      const name = !label ? "part of a character" : part ? `part ${place - begin + 1} of ${quoted(label)}` : quoted(label);
      shown.push({ label: label && place === begin ? label : "·", name, part });
    }
  }
  return shown;
}

function select(place) {
  if (!attended || !attended.tokens.length) return;
  selected = place;
  const row = attended.weights[place], highest = Math.max(...row, 1e-6);
  [...$("tokens").children].forEach((each, other) => {
    each.style.background = `color-mix(in srgb, var(--for3) ${Math.round(100 * row[other] / highest)}%, transparent)`;
    each.setAttribute("aria-pressed", String(other === place));
    each.tabIndex = other === place ? 0 : -1;
  });
  const top = row.map((weight, other) => [weight, other]).sort((a, b) => b[0] - a[0]).slice(0, 3);
  $("attention-said").textContent =
    `${names[place]} attends to ${top.map(([weight, other]) => `${names[other]} (${percent(weight)})`).join(", ")}`;
  square();
}

function square() {
  if (!attended || !attended.tokens.length) return;
  const canvas = $("square"), size = attended.tokens.length, cell = Math.max(1, Math.floor(512 / size));
  canvas.width = canvas.height = cell * size;
  const brush = canvas.getContext("2d"), colours = getComputedStyle(document.documentElement);
  brush.fillStyle = colours.getPropertyValue("--ground");
  brush.fillRect(0, 0, canvas.width, canvas.height);
  brush.fillStyle = colours.getPropertyValue("--for");
  attended.weights.forEach((row, y) => {
    const highest = Math.max(...row, 1e-6);
    row.forEach((weight, x) => {
      brush.globalAlpha = weight / highest;
      brush.fillRect(x * cell, y * cell, cell, cell);
    });
  });
  brush.globalAlpha = 1;
  brush.strokeStyle = colours.getPropertyValue("--against");
  brush.lineWidth = 2;
  brush.strokeRect(1, selected * cell + 1, canvas.width - 2, Math.max(cell - 2, 1));
}

function arrows(event) {
  const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1, Home: -1e9, End: 1e9 }[event.key];
  if (!step || !attended) return;
  event.preventDefault();
  select(Math.min(attended.tokens.length - 1, Math.max(0, selected + step)));
  $("tokens").children[selected].focus();
}

// Text generation.

let generating = null;

async function generate(event) {
  event.preventDefault();
  if (generating) { generating.abort(); return; }
  const current = generating = new AbortController(), prompt = wellFormed($("prompt").value);
  $("write").textContent = "Stop";
  showError("writer-problem", null);
  $("written-note").textContent = "Generating …";
  try {
    const asked = {
      prompt, tokens: Number($("tokens-wanted").value), temperature: Number($("temperature").value), seed: Number($("seed").value),
    };
    const found = await request("/generate", asked, current.signal);
    $("written-prompt").textContent = prompt;
    $("written-text").textContent = found.text;
    show("written");
    $("written-note").textContent =
      `${found.tokens} tokens; ${found.ended ? "ended by the model" : "cut off at the limit"}. Another seed gives another text.`;
    $("seed").value = String(asked.seed + 1);
  } catch (error) {
    $("written-note").textContent = "";
    if (error.name !== "AbortError") showError("writer-problem", error);
  } finally {
    generating = null;
    $("write").textContent = "Generate";
  }
}

// A file: read in chunks and classified in batches, so that it may be larger than memory.

class Rows {
  // A streaming CSV parser: quotes, doubled quotes, any line ending. Without a delimiter, every line is a row of one
  // field, empty lines too, except at the end.
  constructor(delimiter) {
    this.delimiter = delimiter;
    this.rest = "";
    this.line = this.next = 1;  // where the row last returned begins, and the next one
    this.blank = 0;             // pending empty lines, which are rows if another one follows
  }
  *read(piece, last = false) {
    const text = this.rest + piece, size = text.length;
    let row = [], begin = 0, place = 0;
    while (begin < size) {
      const field = this.field(text, place, last);
      if (field === null) break;
      row.push(field.value);
      place = field.end;
      if (text[place] === this.delimiter) { place += 1; continue; }
      if (text[place] === "\r" && place + 1 === size && !last) break;
      this.line = this.next;
      this.next += 1 + lineEnds(text.slice(begin, place));
      if (!this.delimiter && !row[0].trim()) this.blank += 1;
      else {
        for (; this.blank; this.blank--) yield [""];
        if (place > begin) yield row;
      }
      row = [];
      begin = place += text.startsWith("\r\n", place) ? 2 : 1;
    }
    this.rest = text.slice(begin);
    if (this.rest.length > MAX_ROW) {
      throw new Error(`Line ${this.next}: the row is longer than ${MAX_ROW.toLocaleString()} characters. Shorten it, or close its quote.`);
    }
    if (last && this.rest) throw new Error(`Line ${this.next}: a quote is not closed.`);
  }
  field(text, place, last) {
    if (!this.delimiter || text[place] !== '"') {
      let end = place;
      while (end < text.length && text[end] !== this.delimiter && text[end] !== "\n" && text[end] !== "\r") end++;
      return end === text.length && !last ? null : { value: text.slice(place, end), end };
    }
    let value = "", from = place + 1;
    for (;;) {
      const quote = text.indexOf('"', from), end = quote + 1;
      if (quote < 0 || (end === text.length && !last)) return null;
      value += text.slice(from, quote);
      if (text[end] !== '"') {
        if (end === text.length || [this.delimiter, "\n", "\r"].includes(text[end])) return { value, end };
        throw new Error(`Line ${this.next}: text after a closing quote. Double every quote inside a quoted field ("").`);
      }
      value += '"';
      from = end + 1;
    }
  }
}
const lineEnds = (text) => text.split(/\r\n|\r|\n/).length - 1;
window.rehead = { Rows };

let file = null, first = [], delimiter = ",", labelling = null;

async function openFile(given) {
  if (!given || labelling) return;
  showError("file-problem", null);
  show("download", false);
  show("progress", false);
  $("file-said").textContent = "";
  file = given;
  try {
    const head = new TextDecoder("utf-8", { fatal: true }).decode(await given.slice(0, 65536).arrayBuffer(), { stream: true });
    delimiter = delimiterOf(given.name, head.split(/\r?\n|\r/, 1)[0]);
    first = [];
    for (const row of new Rows(delimiter).read(head, given.size <= 65536)) if (first.push(row) > 20) break;
    if (!first.length) throw new Error("The file is empty, or its first row is too long.");
    show("table", delimiter !== "");
    $("has-header").checked = delimiter !== "" && headed(first);
    $("file-name").textContent = `${given.name} · ${size(given.size)}`;
    columns(guess(first));
    show("file-form");
    $("start").focus();
  } catch (error) {
    file = null;
    show("file-form", false);
    showError("file-problem", error instanceof TypeError ? new Error("The file is not UTF-8 text.") : error);
  }
}
const size = (bytes) => bytes < 1e6 ? `${Math.max(1, Math.round(bytes / 1e3))} kB` : `${(bytes / 1e6).toFixed(1)} MB`;
const DELIMITERS = { ",": "comma", ";": "semicolon", "\t": "tab" };
const KNOWN = ["text", "review", "sentence", "document", "content", "body", "comment", "message", "tweet", "title"];

function delimiterOf(name, line) {
  // None in .txt, which has one text per line; a tab in .tsv; else the one that is most frequent in the first line.
  if (/\.txt$/i.test(name)) return "";
  if (/\.tsv$/i.test(name)) return "\t";
  return Object.keys(DELIMITERS).sort((a, b) => line.split(b).length - line.split(a).length)[0];
}

function headed(rows) {
  const [top, ...others] = rows, names = top.map((each) => each.trim().toLowerCase());
  if (names.some((each) => KNOWN.includes(each) || each === "label" || each === "id")) return true;
  if (!others.length || new Set(names).size < names.length || names.some((each) => !each || /^-?[\d.,]+$/.test(each))) return false;
  const mean = (place) => others.reduce((sum, row) => sum + (row[place] || "").length, 0) / others.length;
  return top.every((each) => each.length <= 30) && top.some((each, place) => mean(place) > 2 * each.length + 10);
}

function guess(rows) {
  const names = rows[0].map((each) => each.trim().toLowerCase());
  const known = $("has-header").checked ? KNOWN.map((each) => names.indexOf(each)).find((each) => each >= 0) : undefined;
  if (known !== undefined) return known;
  const below = rows.slice($("has-header").checked ? 1 : 0);
  const lengths = names.map((_, place) => below.reduce((sum, row) => sum + (row[place] || "").length, 0));
  return lengths.indexOf(Math.max(...lengths));
}

function columns(place) {
  const header = $("has-header").checked;
  $("column").replaceChildren(...first[0].map((each, number) => {
    const option = document.createElement("option");
    option.value = String(number);
    option.textContent = header && each.trim() ? each.trim().slice(0, 40) : `column ${number + 1}`;
    return option;
  }));
  $("column").value = String(place);
  sample();
}

function sample() {
  const row = first[$("has-header").checked && first.length > 1 ? 1 : 0] || [];
  const text = row[Number($("column").value)] || "";
  $("sample").textContent = text.length > 300 ? text.slice(0, 300) + "…" : text;
}

async function labelFile(event) {
  event.preventDefault();
  if (labelling || !file) return;
  const current = labelling = new AbortController(), given = file, column = Number($("column").value), named = $("has-header").checked;
  setBusy(true);
  $("stop").focus();
  show("download", false);
  show("progress");
  showError("file-problem", null);
  const out = new Output(delimiter || ","), batches = new Batches(out, given.size, current.signal);
  if (!delimiter) out.header(["text"]);
  try {
    let header = named;
    for await (const row of rowsOf(given, named, batches, current.signal)) {
      if (header) out.header(row);
      else await batches.add(row, wellFormed(row[column] || ""));
      header = false;
    }
    await batches.flush();
    $("progress").value = 1;
    offerDownload(out, given.name);
    const skipped = batches.skipped ? `; ${batches.skipped.toLocaleString()} empty or too long, without a label` : "";
    $("file-said").textContent = `Done: ${batches.done.toLocaleString()} rows${skipped}.`;
  } catch (error) {
    $("file-said").textContent = `Stopped after ${batches.done.toLocaleString()} rows.`;
    if (error.name !== "AbortError") showError("file-problem", error instanceof TypeError ? new Error("The file is not UTF-8 text.") : error);
  } finally {
    labelling = null;
    const focused = $("file").contains(document.activeElement);
    setBusy(false);
    if (focused) $($("download").hidden ? "start" : "download").focus();
  }
}

function setBusy(yes) {
  show("stop", yes);
  for (const id of ["csv", "column", "has-header", "start"]) $(id).disabled = yes;
}

async function* rowsOf(given, named, progress, signal) {
  // The rows of a file, all of the same width.
  const rows = new Rows(delimiter), decoder = new TextDecoder("utf-8", { fatal: true }), reader = given.stream().getReader();
  let width = 0;
  for (let over = false; !over;) {
    const piece = await reader.read();
    if (signal.aborted) throw new DOMException("stopped", "AbortError");
    over = piece.done;
    progress.read += over ? 0 : piece.value.length;
    for (const row of rows.read(over ? decoder.decode() : decoder.decode(piece.value, { stream: true }), over)) {
      if (width && row.length !== width) throw new Error(`Line ${rows.line}: ${uneven(row.length, width, named)}`);
      width = row.length;
      yield row;
    }
  }
}

class Batches {
  // Classifies rows in batches, within the limits of the server, and writes the results.
  constructor(out, size, signal) {
    Object.assign(this, { out, size, signal, batch: [], bytes: 0, read: 0, done: 0, skipped: 0, began: Date.now() });
  }
  async add(row, text) {
    const { body_bytes, characters, texts } = about.limits, bytes = 6 * text.length;  // in JSON, at most
    const send = text.trim() !== "" && [...text].length <= characters && bytes < body_bytes;
    if (this.batch.length && (this.bytes + bytes > body_bytes / 2 || this.batch.length >= Math.min(128, texts))) await this.flush();
    this.batch.push({ row, text, send });
    this.bytes += send ? bytes + 8 : 0;
  }
  async flush() {
    const texts = this.batch.filter((each) => each.send).map((each) => each.text);
    const results = texts.length ? (await classifyWithRetries({ texts }, this.signal)).results : [];
    let place = 0;
    for (const each of this.batch) this.out.row(each.row, each.send ? results[place++] : null);
    this.done += this.batch.length;
    this.skipped += this.batch.length - texts.length;
    this.batch = [];
    this.bytes = 0;
    $("progress").value = Math.min(1, this.read / Math.max(1, this.size));
    const rate = this.done / Math.max(0.001, (Date.now() - this.began) / 1000);
    $("file-said").textContent = `${this.done.toLocaleString()} rows, ${Math.round(rate).toLocaleString()} per second`;
  }
}

function offerDownload(out, name) {
  const link = $("download");
  if (link.href) URL.revokeObjectURL(link.href);
  link.blob = out.blob();
  link.href = URL.createObjectURL(link.blob);
  link.download = name.replace(/(\.[^.]*)?$/, delimiter ? "-labelled$1" : "-labelled.csv");
  link.textContent = `Download ${link.download}`;
  show("download");
}

function uneven(fields, width, named) {
  const found = fields === 1 ? "1 field" : `${fields} fields`;
  return `${found}, but the ${named ? "header names" : "first row has"} ${width}. `
    + `Put quotes around a field that holds a ${DELIMITERS[delimiter]} or a line break.`;
}

async function classifyWithRetries(body, signal) {
  // If the queue is full, retry after the time that the server names.
  for (let tries = 0; ; tries++) {
    try { return await request("/classify", body, signal); } catch (error) {
      if (![429, 503].includes(error.status) || tries === 20) throw error;
      await new Promise((resolve) => setTimeout(resolve, 1000 * error.retryAfter));
      if (signal.aborted) throw new DOMException("stopped", "AbortError");
    }
  }
}

class Output {
  // The input rows with the label and probabilities appended, as `rehead predict` writes them.
  constructor(delimiter) { this.delimiter = delimiter; this.parts = []; this.lines = []; this.size = 0; }
  header(row) {
    const taken = new Set(row);
    const free = (name) => { while (taken.has(name)) name = `predicted_${name}`; taken.add(name); return name; };
    this.line([...row, ...[about.multilabel ? "labels" : "label", ...about.labels.map((each) => `p_${each}`)].map(free)]);
  }
  row(row, answer) {
    const found = answer && answer.probabilities ? answer : null; // null for a blank text
    const label = !found ? "" : about.multilabel ? found.labels.join("|") : found.label;
    this.line([...row, label, ...about.labels.map((each) => found ? found.probabilities[each].toFixed(6) : "")]);
  }
  line(cells) {
    const quoted = cells.map((each) => each.includes('"') || each.includes(this.delimiter) || /[\r\n]/.test(each) ? `"${each.replaceAll('"', '""')}"` : each);
    this.lines.push(quoted.join(this.delimiter) + "\n");
    this.size += 1;
    if (this.size % 1000 === 0) this.pack();
  }
  pack() { this.parts.push(new Blob(this.lines)); this.lines = []; }
  blob() { this.pack(); return new Blob(this.parts, { type: "text/csv;charset=utf-8" }); }
}

// Start.

async function start() {
  try { about = await request("/about"); } catch (error) {
    if (error.status !== 401) $("what").textContent = error.message;
    return;
  }
  document.title = `${about.name} · rehead`;
  $("name").textContent = about.name;
  $("version").textContent = `rehead ${about.version}`;
  const some = about.labels.slice(0, 12).join(", ") + (about.labels.length > 12 ? `, and ${about.labels.length - 12} more` : "");
  $("what").textContent = about.can.includes("classify")
    ? `Classifier with the labels ${some}.`
    : "Language model for text generation.";
  show("try", about.can.includes("classify"));
  show("file", about.can.includes("classify"));
  show("attention", about.can.includes("attention"));
  show("writer", about.can.includes("generate"));
  if (about.multilabel) $("result-title").textContent = "Predicted labels";
  const option = (value, text) => { const made = document.createElement("option"); made.value = value; made.textContent = text; return made; };
  $("layer").replaceChildren(...Array.from({ length: about.layers }, (_, place) => option(place + 1, String(place + 1))));
  $("layer").value = String(Math.max(1, about.layers));
  $("head").replaceChildren(option("", "all (mean)"), ...Array.from({ length: about.heads }, (_, place) => option(place + 1, String(place + 1))));
  $("tokens-wanted").max = String(about.limits.generate_tokens);
  $("tokens-wanted").value = String(Math.min(100, about.limits.generate_tokens));
  draw("");
  if (about.can.includes("classify") && $("text").value) onInput();
  else if (about.can.includes("classify")) $("text").focus({ preventScroll: true });
}

onToken(start);
$("text").addEventListener("input", onInput);
$("clear").addEventListener("click", () => { $("text").value = ""; onInput(); $("text").focus(); });
$("more-bars").addEventListener("click", () => { allBars = !allBars; classify(lastText); });
for (const id of ["layer", "head"]) $(id).addEventListener("change", () => { if (lastText.trim()) { if (pending) pending.abort(); classify(lastText); } });
$("tokens").addEventListener("keydown", arrows);
$("square").addEventListener("pointermove", (event) => {
  if (attended) select(Math.max(0, Math.min(attended.tokens.length - 1, Math.floor(attended.tokens.length * event.offsetY / $("square").clientHeight))));
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", square);
$("writer-form").addEventListener("submit", generate);
$("csv").addEventListener("click", () => { $("csv").value = ""; });  // so that the same file, corrected, can be chosen again
$("csv").addEventListener("change", () => { openFile($("csv").files[0]); });
$("has-header").addEventListener("change", () => columns(Number($("column").value)));
$("column").addEventListener("change", sample);
$("file-form").addEventListener("submit", labelFile);
$("stop").addEventListener("click", () => { if (labelling) labelling.abort(); });
const drop = $("drop");
for (const name of ["dragenter", "dragover"]) drop.addEventListener(name, (event) => { event.preventDefault(); drop.classList.add("over"); });
for (const name of ["dragleave", "drop"]) drop.addEventListener(name, () => drop.classList.remove("over"));
for (const name of ["dragover", "drop"]) document.addEventListener(name, (event) => event.preventDefault());
drop.addEventListener("drop", (event) => { event.preventDefault(); openFile(event.dataTransfer.files[0]); });
start();
})();
