
"use strict";
(() => {
const percent = (share, digits = 1) => `${(100 * share).toFixed(digits)} %`;
const AHEAD = 2;          // texts that wait behind the one on the screen
const POLL = 1500;        // milliseconds between two looks at the state
const RETRY = 2000;       // milliseconds before what could not be sent is sent again
const DIGITS = "123456789";
const COMMANDS = "zbxnhy";  // letters that are no label
const WHY = {
  random: ["at random", "drawn at random: counts for the accuracy"], uncertain: ["uncertain", "the classifier is unsure of this one"],
  rare: ["rare class", "may be of a class with few labels"], doubted: ["doubted", "the other labels contradict the label that this text has"],
  varied: ["varied", "unlike those before"], search: ["found", "found by its words"], class: ["likely", "likely of the class you asked for"],
  review: ["again", "labelled before"],
};
let page = stored(sessionStorage, "rehead-page") || "";
if (!page) { page = Math.random().toString(36).slice(2) + Date.now().toString(36); stored(sessionStorage, "rehead-page", page); }
let by = stored(localStorage, "rehead-by") || `person-${page.slice(0, 4)}`;
stored(localStorage, "rehead-by", by);

// Text never becomes markup: everything is set as textContent.

const post = (path, body = {}) => request(path, { page, by, ...body });
function make(kind, values = {}, ...children) {
  const element = document.createElement(kind);
  for (const [name, value] of Object.entries(values)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name.includes("-") || name === "role" || name === "for") element.setAttribute(name, value);
    else element[name] = value;
  }
  element.append(...children);
  return element;
}
const say = (text) => { $("said").textContent = text; };
const breakable = (name) => name.split(/(?<=[_/.-])/).flatMap((part, place) => place ? [document.createElement("wbr"), part] : [part]);
const placeOf = (source) => source.replace(/^.*[\\/]/, "");  // the file without its folders, and the line
const marked = (key) => make("kbd", { textContent: key, "aria-hidden": "true" });
function banner(message, retry = false) {
  show("banner", Boolean(message));
  $("banner-said").textContent = message || "";
  show("retry", retry);
}

// The state of the project, looked at again and again.

let state = null, classes = [], multilabel = false, blind = false, seen = "";
const nameOf = (number) => classes[number] ? classes[number].name : "?";
const namesOf = (numbers) => numbers.length ? numbers.map(nameOf).join(", ") : "none of them";

async function look() {
  const found = await post("/state", { holding: holding() });
  lose(found.lost);
  state = found; multilabel = found.multilabel; blind = found.blind;
  takeClasses(found.classes);
  $("name").textContent = found.name;
  document.title = `${found.name} – rehead label`;
  const some = !found.whole ? " so far" : found.working < found.texts ? ` (a random ${found.working.toLocaleString()} of them are asked)` : "";
  const people = found.people > 1 ? `, by ${found.people} people` : "";
  $("what").textContent = `${found.texts.toLocaleString()} texts${some}, ${found.labelled.toLocaleString()} labelled${people}` +
    (found.conflicts ? `, ${found.conflicts} that people disagree about` : "");
  $("version").textContent = `rehead ${found.version}`;
  drawPreparing(found.preparing, found.failure);
  drawProgress(found);
  drawFinish(found.finish);
  show("show-guess-box", !blind);
  return found;
}
function takeClasses(found) {
  const now = JSON.stringify(found.map((each) => [each.name, each.seeds]));
  classes = found;
  if (now === seen) return;
  seen = now;
  giveKeys();
  drawChoices();
  drawClassList();
  for (const id of ["want-class", "review-class", "offer-class"]) {
    const chosen = $(id).value;
    $(id).replaceChildren(...(id === "review-class" ? [make("option", { value: "", textContent: "all" })] : []),
      ...classes.map((each, number) => make("option", { value: String(number), textContent: each.name })));
    if (chosen !== "") $(id).value = chosen;
  }
  drawText();
}
function drawPreparing(found, failure) {
  const busy = !found.finished && found.step;
  show("preparing", Boolean(busy || found.notes.length || failure));
  show("preparing-bar", Boolean(busy));
  if (found.share === null) $("preparing-bar").removeAttribute("value"); else $("preparing-bar").value = found.share;
  const step = busy ? `In the background: ${found.step}${found.share === null ? "" : `, ${percent(found.share, 0)}`}. You can label meanwhile.` : "";
  $("preparing-said").textContent = [step, ...found.notes.map((note) => `Note: ${note}`), failure ? `It does not learn: ${failure}` : ""].filter(Boolean).join(" ");
}
async function poll() {
  try {
    await look();
    if (!pending.length && !$("banner").hidden && $("retry").hidden) banner("");
    if (!current && !waiting) await refill();
  } catch (error) {
    if (error.status === 0) banner(error.message);
  }
  setTimeout(poll, document.hidden ? 4 * POLL : POLL);
}

// Keys of the classes.

let keyOf = [], classOf = new Map();
function giveKeys() {
  const free = [..."acdefgijklmopqrstuvw"].filter((each) => !COMMANDS.includes(each));
  keyOf = classes.map((each, number) => {
    if (number < 9) return DIGITS[number];
    const own = [...each.name.toLowerCase()].find((letter) => free.includes(letter)) || free[0];
    if (own) free.splice(free.indexOf(own), 1);
    return own || "";
  });
  classOf = new Map(keyOf.map((key, number) => [key, number]).filter(([key]) => key));
}

// The text on the screen, those behind it, and those that were here.

let current = null, queue = [], history = [], chosen = new Set(), waiting = false, pending = [], sending = false, saved = 0, backAt = -1, kept = null;

const holding = () => [current, kept, ...queue].filter(Boolean).map((each) => each.text);
function hold() { stored(sessionStorage, "rehead-holding", JSON.stringify([current, kept, ...queue].filter(Boolean).map((each) => [each.text, each.why]))); }
function lose(lost) {  // to another page, while this one was asleep
  if (!lost.length) return;
  queue = queue.filter((each) => !lost.includes(each.text));
  if (current && lost.includes(current.text) && current.why !== "review") { say("Somebody else has this text now. Next text."); advance(); refill(); }
}
const wish = () => ({
  want: $("want").value, number: $("want").value === "class" && $("want-class").value !== "" ? Number($("want-class").value) : null,
  query: $("want").value === "search" ? $("want-query").value.trim() : "",
});
async function refill() {
  if (waiting) return;
  const wanted = AHEAD + 1 - queue.length - (current ? 1 : 0);
  const asked = wish();
  if (wanted < 1 || (asked.want === "search" && !asked.query) || (asked.want === "class" && asked.number === null)) return;
  waiting = true;
  try {
    const body = { count: wanted, want: asked.want, query: asked.query, holding: holding() };
    if (asked.number !== null) body.number = asked.number;
    const found = await post("/next", body);
    if (JSON.stringify(asked) !== JSON.stringify(wish())) { queue = []; return; }
    const had = new Set([current, kept, ...queue].filter(Boolean).map((each) => each.text));
    queue.push(...found.texts.filter((each) => !had.has(each.text)));
    show("none", false);
    if (!current) advance(false);
    if (!current) nothing(asked);
  } catch (error) {
    if (error.status === 422) { if (!current) nothing(asked, error.message); } else failed(error);
  } finally { waiting = false; }
}
function nothing(asked, message) {
  show("none");
  $("none").textContent = message || (asked.want === "search" ? "No further text has these words." : "There is no text left to label.");
  drawText();
}
function advance(focus = true) {
  current = queue.shift() || null;
  chosen = new Set(multilabel && current && current.labels ? current.labels : []);
  backAt = -1; kept = null;
  hold();
  drawText();
  $("text").scrollTop = 0;
  if (focus && current && document.activeElement !== $("filter")) $("text").focus({ preventScroll: true });
  if (current) explain();
}
function drawText() {
  const here = current;
  show("why", Boolean(here)); show("given-line", Boolean(here && here.labels)); show("guess-line", false); show("suggestion-line", false);
  if (!here) { $("text").replaceChildren(); $("source").textContent = ""; return; }
  const [short, long] = WHY[here.why] || [here.why, here.why];
  $("why").textContent = short; $("why").title = long;
  $("source").textContent = placeOf(here.source); $("source").title = here.source;
  if (here.labels) $("given").textContent = namesOf(here.labels);
  const guessed = here.guess && here.guess.length && $("show-guess").checked && !blind && classes.length;
  if (guessed) {
    const given = guessLabels(here);
    show("guess-line");
    $("guess").textContent = namesOf(given);
    $("agree").replaceChildren(...(multilabel ? [...(here.suggestion ? [] : [marked("y"), " "]), "take over"] : [marked("Enter"), " agree"]));
    $("guess-share").textContent = multilabel ? "" : percent(here.guess[0][1], 0);
    $("guess-others").replaceChildren(...(multilabel ? here.guess.slice(0, 3) : here.guess.slice(1, 3)).map(([number, share]) =>
      make("button", { className: "small other", onclick: () => choose(number) }, ...breakable(nameOf(number)), make("span", { className: "soft", textContent: ` ${percent(share, 0)}` }))));
    $("text").setAttribute("aria-description", `Guess: ${namesOf(given)}`);
  } else $("text").removeAttribute("aria-description");
  if (here.suggestion) {
    show("suggestion-line");
    $("suggested-by").textContent = `Suggested by “${here.suggestion.by}”`;
    $("suggestion").textContent = namesOf(here.suggestion.labels) + (here.suggestion.confidence === null ? "" : ` (${percent(here.suggestion.confidence, 0)})`);
  }
  drawMarks(guessed ? here.words || [] : []);
  drawChoices();
}
const guessLabels = (here) => multilabel ? here.guess.filter(([, share]) => share >= state.cut).map(([number]) => number) : [here.guess[0][0]];
function drawMarks(words) {
  const characters = [...current.content], parts = [];
  const most = Math.max(0.2, ...words.map(([, , weight]) => Math.abs(weight)));
  let place = 0;
  for (const [begin, end, weight] of words) {
    const strength = Math.ceil(3 * Math.abs(weight) / most - 0.6);
    if (begin < place || strength < 1) continue;
    if (begin > place) parts.push(characters.slice(place, begin).join(""));
    parts.push(make("span", { className: `${weight > 0 ? "for" : "against"} s${strength}`, textContent: characters.slice(begin, end).join("") }));
    place = end;
  }
  parts.push(characters.slice(place).join(""));
  $("text").replaceChildren(...parts);
}
async function explain() {
  const here = current;
  if (!here || blind || !$("show-guess").checked || !here.guess || here.words) return;
  try {
    const found = await post("/words", { text: here.text });
    here.words = found.words;
    if (here === current) drawText();
  } catch { here.words = []; }
}

// Choices.

let filtered = [], first = 0;
function drawChoices() {
  const many = classes.length > 9, needle = $("filter").value.trim().toLowerCase().split(/\s+/).filter(Boolean);
  show("filter-line", many);
  filtered = classes.map((each, number) => number).filter((number) => needle.every((part) => nameOf(number).toLowerCase().includes(part)));
  if (needle.length) filtered.sort((a, b) => Number(nameOf(b).toLowerCase().startsWith(needle[0])) - Number(nameOf(a).toLowerCase().startsWith(needle[0])));
  first = Math.min(first, Math.max(0, filtered.length - 1));
  $("filter-count").textContent = many ? `${filtered.length} of ${classes.length}` : "";
  const focused = $("choices").contains(document.activeElement) ? document.activeElement.id : "";
  $("choices").replaceChildren(...filtered.map((number, place) => {
    const button = make("button", { className: "choice", id: `choice-${number}`, title: nameOf(number).length > 40 ? nameOf(number) : "", onclick: () => choose(number) },
      ...(keyOf[number] ? [marked(keyOf[number])] : []), make("span", { className: "name" }, ...breakable(nameOf(number))));
    if (multilabel) button.setAttribute("aria-pressed", String(chosen.has(number)));
    if (keyOf[number]) button.setAttribute("aria-keyshortcuts", keyOf[number]);
    if (needle.length && place === first) button.classList.add("first");
    return make("li", {}, button);
  }));
  if (focused && $(focused)) $(focused).focus();
  show("done-line", multilabel);
  $("done-said").textContent = chosen.size ? `save ${chosen.size === 1 ? "this label" : `these ${chosen.size} labels`}` : "save as none of these";
  if (!classes.length) $("choices").replaceChildren(make("li", { className: "soft", textContent: "There are no classes yet. Add one here ( + ), or see what is in the texts under Classes." }));
}
function choose(number) {
  if (!current) return;
  if (multilabel) {
    if (chosen.has(number)) chosen.delete(number); else chosen.add(number);
    say(`${nameOf(number)} ${chosen.has(number) ? "chosen" : "removed"}`);
    $("filter").value = "";
    drawChoices();
  } else give([number]);
}
function give(labels) {
  if (!current) return;
  const here = current;
  const body = { text: here.text, labels, how: here.why };
  if (here.guess && $("show-guess").checked && !blind) body.guess = guessLabels(here);
  send("/label", body, here);
  history.push(here.text);
  say(`${namesOf(labels)}. Next text.`);
  $("filter").value = ""; first = 0;
  leave();
}
function leave() {
  if (kept) { current = kept; kept = null; chosen = new Set(); backAt = -1; hold(); drawText(); $("text").focus({ preventScroll: true }); }
  else advance();
  if (!current) nothing(wish(), "Loading …");
}

// What is sent is sent in order, and stays here until the server has it on disk.

function send(path, body, here) { pending.push({ path, body, here }); drawSaved(); flush(); }
function drawSaved() {
  $("saved").textContent = pending.length ? `saving ${pending.length} …` : saved ? `${saved} saved` : "";
}
async function flush() {
  if (sending) return;
  sending = true;
  try {
    while (pending.length) {
      const answer = await post(pending[0].path, pending[0].body);
      pending.shift(); saved += 1;
      if (answer.classes) takeClasses(answer.classes);
      drawSaved();
      banner("");
    }
    sending = false;
    await refill();
    look().catch(() => {});
  } catch (error) {
    sending = false;
    failed(error);
  }
}
function failed(error) {
  if (error.status === 422 && pending.length) { pending.shift(); banner(error.message); drawSaved(); flush(); return; }
  const unsaved = pending.length ? `${pending.length === 1 ? "One label is" : `${pending.length} labels are`} not saved yet. ` : "";
  banner(unsaved + error.message, pending.length > 0);
  if (pending.length && error.status !== 401) setTimeout(flush, RETRY);
}
window.addEventListener("beforeunload", (event) => { if (pending.length) event.preventDefault(); });
const settled = async () => { while (sending || pending.length) await new Promise((done) => setTimeout(done, 30)); };

// What else can be done with a text.

async function undo() {
  await settled();
  try {
    const found = await post("/undo");
    takeClasses(found.classes);
    if (found.shown) {
      if (current) { queue.unshift(current); }
      if (kept) { queue.unshift(kept); kept = null; }
      current = found.shown; chosen = new Set(); history = history.filter((each) => each !== current.text);
      hold(); drawText(); $("text").focus({ preventScroll: true }); explain();
    }
    say(found.undone === "bulk" ? `${found.texts} labels taken back` : "Undone");
    $("saved").textContent = found.undone === "bulk" ? `${found.texts} labels taken back` : "undone";
    look().catch(() => {});
  } catch (error) { if (error.status === 422) say(error.message); else failed(error); }
}
async function back() {
  const place = (backAt < 0 ? history.length : backAt) - 1;
  if (place < 0) { say("This is the first text."); return; }
  await settled();
  try {
    const found = (await post("/text", { text: history[place] })).shown;
    if (!kept) kept = current;
    current = found; backAt = place;
    chosen = new Set(multilabel && found.labels ? found.labels : []);
    drawText(); $("text").focus({ preventScroll: true }); explain();
    say(`Back. Label so far: ${found.labels ? namesOf(found.labels) : "none"}`);
  } catch (error) { failed(error); }
}
function skip() {
  if (!current) return;
  if (kept) { leave(); return; }
  send("/skip", { text: current.text }, current);
  history.push(current.text);
  say("Skipped. Next text.");
  leave();
}
function agree() {
  if (multilabel) give([...chosen]);
  else if (current && current.guess && !$("guess-line").hidden) give(guessLabels(current));
}
function agreeGuess() {  // of several labels, the guess is where one begins
  if (!multilabel) { agree(); return; }
  if (!current || !current.guess || $("guess-line").hidden) return;
  chosen = new Set(guessLabels(current));
  say(`${namesOf([...chosen])} chosen`);
  drawChoices();
}
function agreeSuggestion() {
  if (current && current.suggestion) give(current.suggestion.labels);
  else if (multilabel) agreeGuess();
}
async function addClass(name, seeds) {
  try {
    const found = await post("/class", { name });
    takeClasses(found.classes);
    say(`Class ${name} added`);
    if (seeds) await setSeeds({ [found.number]: seeds });
    return found.number;
  } catch (error) { banner(error.message); return null; }
}
const toggle = (form, field) => { show(form, $(form).hidden); if (!$(form).hidden) $(field).focus(); };
function shortcut(key) {
  if (key === "Enter") agree();
  else if (key === "/") { if (!$("filter-line").hidden) $("filter").focus(); }
  else if (key === "z" || key === "Backspace") undo();
  else if (key === "b") back();
  else if (key === "x") skip();
  else if (key === "n") openNote();
  else if (key === "y") agreeSuggestion();
  else if (key === "+") toggle("add-form", "add-name");
  else if (key === "?") toggleHelp();
  else if (key === "h") { if (!blind) { $("show-guess").checked = !$("show-guess").checked; drawText(); explain(); say($("show-guess").checked ? "Guesses shown" : "Guesses hidden"); } }
  else if (classOf.has(key)) { flash(classOf.get(key)); choose(classOf.get(key)); }
  else return false;
  return true;
}
function flash(number) {
  const button = $(`choice-${number}`);
  if (!button) return;
  button.classList.add("flash");
  setTimeout(() => { const now = $(`choice-${number}`); if (now) now.classList.remove("flash"); }, 150);
}
function toggleHelp() { show("help", $("help").hidden); $("help-open").setAttribute("aria-expanded", String(!$("help").hidden)); }
function openNote() { if (current) { toggle("note-form", "note"); $("note").value = current.note || ""; } }

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
  const target = event.target, typing = target.matches("input:not([type=checkbox]), textarea, select");
  if (event.key === "Escape") {
    for (const form of ["add-form", "note-form"]) show(form, false);
    if (typing) { $("filter").value = ""; drawChoices(); $("text").focus({ preventScroll: true }); }
    return;
  }
  if (typing || $("view-label").hidden || !$("keys").checked) return;
  if ((event.key === "Enter" || event.key === " ") && target.closest("button, input, a")) return;
  if (shortcut(event.key.length === 1 ? event.key.toLowerCase() : event.key)) event.preventDefault();
});
const sayFirst = () => say(filtered.length ? `${nameOf(filtered[first])}, ${first + 1} of ${filtered.length}` : "No class has these letters.");
$("filter").addEventListener("input", () => { first = 0; drawChoices(); if ($("filter").value.trim()) sayFirst(); });
$("filter").addEventListener("keydown", (event) => {
  if (event.key === "ArrowDown" || event.key === "ArrowUp") {
    first = Math.max(0, Math.min(filtered.length - 1, first + (event.key === "ArrowDown" ? 1 : -1)));
    drawChoices(); sayFirst(); event.preventDefault();
    const at = $(`choice-${filtered[first]}`);
    if (at) at.scrollIntoView({ block: "nearest" });
  } else if (event.key === "Enter") {
    event.preventDefault();
    if (!$("filter").value.trim()) { if (multilabel) agree(); return; }
    if (filtered.length) choose(filtered[first]); else say("No class has these letters.");
  }
});
for (const [id, act] of Object.entries({ undo, back, skip, agree: agreeGuess, done: agree, "agree-suggestion": agreeSuggestion, "note-open": openNote, "help-open": toggleHelp })) $(id).addEventListener("click", act);
$("add-open").addEventListener("click", () => toggle("add-form", "add-name"));
$("retry").addEventListener("click", flush);
$("show-guess").addEventListener("change", () => { drawText(); explain(); });
for (const [form, field] of [["add-form", "add-name"], ["add-form-2", "add-name-2"]]) {
  $(form).addEventListener("submit", async (event) => {
    event.preventDefault();
    const name = $(field).value.trim();
    if (!name || await addClass(name) === null) return;
    $(field).value = "";
    if (form === "add-form") { show("add-form", false); $("text").focus({ preventScroll: true }); }
  });
}
$("note-form").addEventListener("submit", (event) => {
  event.preventDefault();
  if (!current) return;
  current.note = $("note").value.trim();
  send("/note", { text: current.text, note: current.note }, current);
  show("note-form", false); say("Note kept"); $("text").focus({ preventScroll: true });
});
$("want").addEventListener("change", wished);
$("want-class").addEventListener("change", wished);
$("want-form").addEventListener("submit", (event) => { event.preventDefault(); wished(); });
function wished() {
  show("want-class-box", $("want").value === "class"); show("want-form", $("want").value === "search");
  queue = []; kept = null;
  if ($("want").value === "search" && !$("want-query").value.trim()) { $("want-query").focus(); return; }
  current = null; drawText(); refill();
}
$("by").value = by;
$("by").addEventListener("change", () => { by = $("by").value.trim() || by; $("by").value = by; stored(localStorage, "rehead-by", by); });

// How good it is.

function drawProgress(found) {
  const estimate = found.estimate, known = estimate.accuracy;
  $("accuracy").replaceChildren(known ? percent(known.value) : "–", ...(known ? [make("small", { textContent: ` ${percent(known.low, 0)} to ${percent(known.high, 0)}` })] : []));
  const need = Math.max(0, 10 - (estimate.random || 0));
  const what = multilabel ? "of the texts get exactly the right labels" : "of the texts are classified right";
  $("accuracy-note").textContent = known
    ? `${what} (95 % interval), by ${estimate.random} texts drawn at random, each predicted without its own label.` +
      (estimate.macro_f1 ? ` Macro-F1 ${percent(estimate.macro_f1.value)} (${percent(estimate.macro_f1.low, 0)} to ${percent(estimate.macro_f1.high, 0)}).` : ` Macro-F1 needs ${estimate.macro_f1_needs} of them.`) +
      (estimate.macro_f1 && estimate.scarce.length ? ` Few random texts of: ${estimate.scarce.slice(0, 5).map(nameOf).join(", ")}${estimate.scarce.length > 5 ? ", …" : ""}; macro-F1 says little about them.` : "")
    : `Accuracy is estimated from texts that are drawn at random. ${need} more of them are needed.`;
  drawCurve(estimate.curve || []);
  const advice = [];
  if (typeof estimate.changed === "number") advice.push(`The last 50 labels changed ${percent(estimate.changed)} of the labels.`);
  if (estimate.gain) {
    advice.push(`50 more are expected to bring +${(100 * estimate.gain.expected).toFixed(1)} points (±${(100 * estimate.gain.half).toFixed(1)}).`);
    if (estimate.changed !== null && estimate.changed < 0.01 && estimate.gain.expected < 0.005) advice.push("It may be time to stop.");
  }
  $("advice").textContent = advice.join(" ");
  const most = Math.max(1, ...classes.map((each) => each.count));
  const order = classes.map((each, number) => number).sort((a, b) => classes[b].count - classes[a].count);
  const shares = estimate.shares || [];
  $("counts").replaceChildren(...order.slice(0, 12).map((number) => {
    const fill = make("span", { className: "fill" });
    fill.style.width = `${100 * classes[number].count / most}%`;
    const share = number < shares.length && found.labelled ? ` · ${percent(shares[number], shares[number] < 0.1 ? 1 : 0)}` : "";
    return make("li", {}, make("div", { className: "bar given" }, make("span", { className: "name" }, ...breakable(nameOf(number))),
      make("span", { className: "share soft", textContent: `${classes[number].count}${share}` }), make("span", { className: "track" }, fill)));
  }), ...(order.length > 12 ? [make("li", { className: "soft small", textContent: `and ${order.length - 12} more classes` })] : []));
  $("shares-note").textContent = found.labelled && estimate.texts ? `Of all texts, ${percent(estimate.unsure / estimate.texts, 0)} (${estimate.unsure.toLocaleString()}) would be left unsure at a threshold of ${percent(found.threshold, 0)}.` : "";
  const both = found.agreement;
  $("agreement").textContent = both.of ? `People agreed with ${both.agreed} of ${both.of} suggestions (${percent(both.agreed / both.of, 0)}).` : "";
}
const SVG = "http://www.w3.org/2000/svg";
function drawCurve(curve) {
  show("curve", false);
  $("curve").toggleAttribute("hidden", curve.length < 2);
  if (curve.length < 2) return;
  const left = 34, right = 312, top = 8, bottom = 126, most = curve[curve.length - 1].labels;
  const low = Math.floor(10 * Math.min(...curve.map((each) => each.low))) / 10;
  const x = (each) => left + (right - left) * each.labels / most, y = (value) => top + (bottom - top) * (1 - value) / (1 - low);
  const part = (kind, values, text) => {
    const element = document.createElementNS(SVG, kind);
    for (const [name, value] of Object.entries(values)) element.setAttribute(name, value);
    if (text !== undefined) element.textContent = text;
    return element;
  };
  const parts = [];
  for (const value of [low, (1 + low) / 2, 1]) {
    parts.push(part("path", { class: "grid", d: `M${left} ${y(value)}H${right}` }), part("text", { x: left - 5, y: y(value) + 4, "text-anchor": "end" }, percent(value, 0).replace(" %", "")));
  }
  for (const each of [curve[0], curve[curve.length - 1]]) parts.push(part("text", { x: x(each), y: 144, "text-anchor": each === curve[0] ? "start" : "end" }, `${each.labels} labels`));
  const points = (some) => some.map(([a, b]) => `${a.toFixed(1)},${b.toFixed(1)}`).join(" ");
  parts.push(part("polygon", { class: "band", points: points([...curve.map((each) => [x(each), y(each.high)]), ...curve.slice().reverse().map((each) => [x(each), y(each.low)])]) }));
  parts.push(part("polyline", { class: "line", points: points(curve.map((each) => [x(each), y(each.value)])) }));
  const last = curve[curve.length - 1];
  parts.push(part("circle", { class: "dot", cx: x(last), cy: y(last.value), r: 3.5 }));
  $("curve").replaceChildren(...parts);
  $("curve").setAttribute("aria-label", `Learning curve: ${curve.map((each) => `${each.labels} labels ${percent(each.value)}`).join(", ")}`);
}

// Classes, and words for them.

let further = {};
const split = (text) => text.split(/[,;\n]+/).map((each) => each.trim()).filter(Boolean);
async function setSeeds(changed) {
  try {
    const found = await post("/seeds", { words: changed });
    further = found.further;
    seen = "";
    await look();
  } catch (error) { banner(error.message); }
}
function drawClassList() {
  if ($("class-list").contains(document.activeElement) && document.activeElement.matches("input")) { seen = ""; return; }
  $("class-list").replaceChildren(...classes.map((each, number) => {
    const name = make("input", { value: each.name, maxLength: 100, "aria-label": `Name of class ${number + 1}` });
    name.addEventListener("change", async () => {
      try { takeClasses((await post("/rename", { number, name: name.value })).classes); look().catch(() => {}); } catch (error) { banner(error.message); name.value = each.name; }
    });
    const words = make("input", { value: each.seeds.join(", "), placeholder: "words that stand for it, separated by commas", "aria-label": `Words for ${each.name}` });
    words.addEventListener("change", () => setSeeds({ [number]: split(words.value) }));
    const more = (further[number] || []).map((word) => make("button", { textContent: `+ ${word}`, onclick: () => setSeeds({ [number]: [...classes[number].seeds, word] }) }));
    return make("li", {}, name, words, ...(more.length ? [make("div", { className: "further small" }, make("span", { className: "soft", textContent: "near these:" }), ...more)] : []));
  }), ...(classes.length ? [] : [make("li", { className: "soft", textContent: "No classes yet. Name one below, or make one of a group of similar texts." })]));
}
$("clusters-find").addEventListener("click", findGroups);
async function findGroups() {
  $("clusters").replaceChildren(make("p", { className: "soft", textContent: "Reading …" }));
  try {
    const found = await post("/clusters");
    $("clusters").replaceChildren(...found.clusters.map((group) => make("div", { className: "group" },
      make("p", {}, make("b", { textContent: group.words.slice(0, 6).join(", ") || "…" }), make("span", { className: "soft", textContent: ` · ${percent(group.share, 0)}` })),
      ...group.texts.map((text) => make("p", { className: "sample small soft", textContent: text })),
      make("button", { className: "small", textContent: "Make a class of it", onclick: async (event) => {
        const name = prompt("Name of the class", group.words[0] || "");
        if (name && await addClass(name, group.words.slice(0, 6)) !== null) event.target.disabled = true;
      } }))));
    if (!found.clusters.length) $("clusters").replaceChildren(make("p", { className: "soft", textContent: found.ready ? "There are too few texts." : "The texts are still being read. Try again in a moment." }));
    return found.ready;
  } catch (error) { banner(error.message); $("clusters").replaceChildren(); return true; }
}
async function suggestClasses() {  // to somebody who has named none
  select("classes");
  while (!classes.length && !$("view-classes").hidden && !await findGroups()) await new Promise((done) => setTimeout(done, POLL));
}

// Review.

let offset = 0, offered = null;
const labelSelect = (value, given, label) => {
  const select = make("select", { "aria-label": label }, ...(given ? [] : [make("option", { value: "", textContent: "no label" })]),
    ...classes.map((each, number) => make("option", { value: String(number), textContent: each.name })));
  select.value = value;
  return select;
};
async function drawRows() {
  const label = $("review-class").value;
  const body = { show: $("review-show").value, query: $("review-query").value.trim(), offset };
  if (label !== "") body.label = Number(label);
  try {
    const found = await post("/review", body);
    $("review-count").textContent = `${found.total.toLocaleString()} texts`;
    show("review-less", offset > 0); show("review-more", offset + found.rows.length < found.total);
    $("rows").replaceChildren(...found.rows.map(drawRow));
  } catch (error) { banner(error.message); }
}
function drawRow(row) {
  const change = make("div", { className: "change" });
  const path = row.conflict ? "/decide" : "/label";
  const put = async (labels) => {
    try {
      await post(path, row.conflict ? { text: row.text, labels } : { text: row.text, labels, how: "review" });
      say(`Changed to ${namesOf(labels)}`);
      const place = [...$("rows").children].findIndex((each) => each.contains(change));
      await drawRows(); look().catch(() => {});
      const next = $("rows").children[Math.min(place, $("rows").children.length - 1)];
      if (next) next.querySelector("select, button").focus();
    } catch (error) { banner(error.message); }
  };
  if (multilabel) {
    change.append(make("span", { textContent: row.labels ? namesOf(row.labels) : "–" }),
      make("button", { className: "small", textContent: "Change", onclick: () => open(row.text) }));
  } else {
    const select = labelSelect(row.labels ? String(row.labels[0]) : "", Boolean(row.labels), "Label of this text");
    select.addEventListener("change", () => { if (select.value !== "") put([Number(select.value)]); });
    change.append(select);
  }
  const people = row.people.map((each) => `${each.by}: ${namesOf(each.labels)}`).join(" · ");
  const how = row.how === "bulk" ? `accepted in bulk by ${row.by}` : row.how === "imported" ? "labelled before" : people;
  const meta = make("p", { className: "meta small soft" }, [how, row.skipped ? "skipped" : "", row.note ? `note: ${row.note}` : "", placeOf(row.source)].filter(Boolean).join(" · "));
  if (row.doubt > 0) meta.prepend(make("span", { className: "doubt", textContent: row.instead === null ? `contradicted (${percent(row.doubt, 0)}) ` : `the classifier says ${nameOf(row.instead)} (${percent(row.doubt, 0)}) ` }));
  if (row.conflict) meta.prepend(make("span", { className: "doubt", textContent: "people disagree " }));
  const snippet = make("p", { className: "snippet", textContent: row.snippet + (row.cut ? "…" : "") });
  return make("li", {}, snippet, change, meta);
}
async function open(text) {
  try {
    const found = (await post("/text", { text })).shown;
    if (!kept) kept = current;
    current = found; chosen = new Set(found.labels || []); select("label"); drawText(); explain();
  } catch (error) { banner(error.message); }
}
for (const id of ["review-show", "review-class", "review-query"]) $(id).addEventListener("change", () => { offset = 0; drawRows(); });
$("review-more").addEventListener("click", () => { offset += 50; drawRows(); });
$("review-less").addEventListener("click", () => { offset = Math.max(0, offset - 50); drawRows(); });
$("offer-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  show("offer", false); show("offer-problem", false);
  const label = Number($("offer-class").value);
  try {
    offered = await post("/offer", { label, count: Number($("offer-count").value) || 1 });
    $("offer-note").textContent = `${offered.count} texts, each with at least ${percent(offered.least, 0)}. Mark those that are not “${nameOf(label)}”.`;
    $("offer-rows").replaceChildren(...offered.shown.map((each) => {
      const box = make("input", { type: "checkbox", value: String(each.text), onchange: drawAccept });
      return make("li", {}, make("p", { className: "snippet", textContent: each.snippet }), make("label", { className: "inline small" }, box, "not this class"));
    }));
    show("offer"); drawAccept();
  } catch (error) { show("offer-problem"); $("offer-problem").textContent = error.message; }
});
const wrong = () => [...$("offer-rows").querySelectorAll("input:checked")].map((each) => Number(each.value));
function drawAccept() { $("accept").textContent = `Accept ${offered.count - wrong().length} texts as “${nameOf(Number($("offer-class").value))}”`; }
$("accept").addEventListener("click", async () => {
  try {
    const found = await post("/accept", { offer: offered.offer, wrong: wrong() });
    show("offer", false); say(`${found.accepted} texts accepted`);
    show("offer-problem", false);
    $("review-show").value = "bulk"; offset = 0;
    await drawRows(); look().catch(() => {});
  } catch (error) { show("offer-problem"); $("offer-problem").textContent = error.message; }
});

// Finish.

$("finish").addEventListener("click", async () => {
  await settled();
  try { drawFinish((await post("/finish")).finish); } catch (error) { show("finish-problem"); $("finish-problem").textContent = error.message; }
});
function drawFinish(found) {
  const busy = found.state === "training";
  $("finish").disabled = busy;
  show("finish-state", busy);
  if (found.job && found.job.share !== null) $("finish-bar").value = found.job.share; else $("finish-bar").removeAttribute("value");
  $("finish-said").textContent = found.job ? found.job.said : "";
  show("finish-problem", found.state === "failed");
  $("finish-problem").textContent = found.state === "failed" ? sentence(found.error) : "";
  show("finished", found.state === "done");
  if (found.state !== "done") return;
  $("finished-said").textContent = found.labels ? `The classifier is trained on ${found.labels.toLocaleString()} labels.` : "There is a classifier.";
  for (const [id, text] of [["csv", found.csv], ["run", found.classifier], ["report", found.report], ["predict", found.predict]]) $(`result-${id}`).textContent = text;
}

// Tabs, token, start.

const TABS = ["label", "classes", "review", "finish"];
function select(name) {
  for (const each of TABS) {
    const on = each === name;
    $(`tab-${each}`).setAttribute("aria-selected", String(on)); $(`tab-${each}`).tabIndex = on ? 0 : -1;
    show(`view-${each}`, on);
  }
  if (name === "review") { offset = 0; drawRows(); }
  if (name === "label" && current) $("text").focus({ preventScroll: true });
}
for (const [place, name] of TABS.entries()) {
  $(`tab-${name}`).addEventListener("click", () => select(name));
  $(`tab-${name}`).addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const next = TABS[(place + step + TABS.length) % TABS.length];
    select(next); $(`tab-${next}`).focus(); event.preventDefault();
  });
}
onToken(() => { banner(""); begin(); });
async function begin() {
  try {
    await look();
    const held = JSON.parse(stored(sessionStorage, "rehead-holding") || "[]");
    for (const [text, why] of held) {
      try { const found = (await post("/text", { text })).shown; if (!found.labels) queue.push({ ...found, why }); } catch { /* it is gone */ }
    }
    if (queue.length) advance(false);
    await refill();
    if (!classes.length && !state.labelled) suggestClasses();
  } catch (error) { if (error.status !== 401) banner(error.message); }
}
begin().then(() => setTimeout(poll, POLL));
})();
