/* The lab: the form, the link, the runs. A run is the server's; a change asks for a new one and gives the old one up. */
import { byId, make, root } from "./dom.js";
import { download, exported, imported } from "./files.js";
import { counts, data, defaults, differences, freeName, fromLink, label, names, rowsOf, same, shown, toLink, trimmed } from "./settings.js";
import { View } from "./view.js";

const fault = (what) => { root.dataset.errors = ((root.dataset.errors || "") + " " + what).trim().slice(0, 500); };
addEventListener("error", (event) => fault(event.message));
addEventListener("unhandledrejection", (event) => fault(String(event.reason)));
document.addEventListener("securitypolicyviolation", (event) => fault("policy " + event.violatedDirective));

const WAIT_MS = 120, BATCH = 4;
const form = byId("form"), narrow = matchMedia("(max-width: 860px)");
let settings = [], active = 0, trials = 20;
let slots = [];  // one a setting: {view, inputs, result, members, errors, abort, timer, busy}
let expected = null;  // tables of an imported file, to be met again

const slot = (letter) => ({ view: new View(letter), inputs: null, result: null, members: [], errors: null, abort: null, timer: 0, busy: null });
const inputs = () => settings[active];
const comparing = () => settings.length > 1;
const say = (words, stay = false) => {
  byId("said").textContent = words;
  byId("status").textContent = words;
  clearTimeout(say.timer);
  byId("said").classList.toggle("bad", stay);
  if (!stay) say.timer = setTimeout(() => { byId("said").textContent = ""; }, 6_000);
};

async function ask(path, body, signal) {
  const answer = await fetch(path, {
    method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body), signal,
  });
  if (!answer.ok) throw new Error(await answer.text());
  return answer.json();
}

/* ---- runs */
function run(place, wait = WAIT_MS) {
  const one = slots[place], wanted = { ...settings[place] };
  clearTimeout(one.timer);
  one.abort?.abort();
  one.abort = new AbortController();
  root.dataset.state = "running";
  one.timer = setTimeout(() => {
    one.timer = 0;
    answer(one, place, wanted, one.abort.signal);
  }, wait);
}

async function answer(one, place, wanted, signal) {
  const begun = performance.now();
  one.busy = signal;
  try {
    const result = await ask("/api/run", { inputs: wanted }, signal);
    one.errors = result.errors ?? null;
    if (!one.errors) {
      Object.assign(one, { result, inputs: wanted, members: [] });
      root.dataset.took = String(Math.round(performance.now() - begun));
    }
    show();
    if (one.errors) return;
    one.view.say();
    meet(place);
    await gather(one, wanted, signal);
  } catch (error) {
    if (error.name === "AbortError") return;
    one.errors = { "": [error instanceof TypeError ? "the lab does not answer; is overload lab still running?" : error.message] };
    show();
  } finally {
    if (one.busy === signal) one.busy = null;
    if (slots.every((each) => !each.busy && !each.timer)) root.dataset.state = "done";
  }
}

async function gather(one, wanted, signal) {
  for (let from = 0; from < trials; from += BATCH) {
    const more = await ask("/api/ensemble", { inputs: wanted, from, count: Math.min(BATCH, trials - from) }, signal);
    if (more.errors || signal.aborted) return;
    one.members = [...one.members, ...more.members];
    show();
  }
}

/* The figures of an imported file against those of this run. */
function meet(place) {
  const table = expected?.[place];
  if (!table) return;
  delete expected[place];
  const now = JSON.stringify(slots[place].result.tenants);
  say(JSON.stringify(table) === now ? "Imported. The run gives the same figures as the file." : "Imported. The file's figures were made by another version: the run gives others.");
}

function show() {
  const ready = slots.filter((one) => one.result);
  const most = ready.length > 1 ? View.most(ready.map((one) => one.result)) : null;
  slots.forEach((one, place) => {
    if (!one.result) return;
    const against = place ? settings[0] : data.defaults;
    one.view.update({ inputs: one.inputs, result: one.result, members: one.members, wanted: trials, against, comparing: comparing(), most });
    one.view.element.classList.toggle("stale", Boolean(one.errors));
  });
  faults();
}

/* ---- what is wrong, at its field and above the results */
function faults() {
  const errors = slots[active].errors ?? {};
  for (const place of form.querySelectorAll(".error")) {
    const messages = errors[place.id.replace("error-", "")] ?? [];
    place.replaceChildren(...messages.map((words) => make("span", { textContent: words })));
    place.hidden = !messages.length;
  }
  for (const control of form.querySelectorAll("[name]")) {
    if (errors[control.name]) control.setAttribute("aria-invalid", "true");
    else control.removeAttribute("aria-invalid");
  }
  const box = byId("wrong"), wrong = Object.keys(errors);
  const before = box.textContent;
  const links = wrong.filter((name) => field(name)).map((name) => {
    const button = make("button", { type: "button", textContent: label(name) });
    button.addEventListener("click", () => { byId("settings").open = true; field(name).focus(); });
    return button;
  });
  const general = wrong.filter((name) => !field(name)).flatMap((name) => errors[name].map((words) => (name ? `${label(name)}: ` : "") + words));
  const words = links.length ? [links.length > 1 ? `${links.length} inputs to correct: ` : "To correct: ", ...links] : [];
  const after = slots[active].result ? [make("span", { className: "note", textContent: "The figures are those of the last sound setting." })] : [];
  const made = wrong.length ? [make("p", {}, ...words, ...general), ...after] : [];
  if (before !== made.map((one) => one.textContent).join("")) box.replaceChildren(...made);
  box.hidden = !wrong.length;
}
const field = (name) => name && form.elements.namedItem(name);

/* ---- the form */
function fill() {
  rows();
  for (const name of names(inputs())) {
    const control = field(name);
    if (!control) continue;
    if (control.type === "checkbox") control.checked = inputs()[name] === "on";
    else if (control.value !== inputs()[name]) control.value = inputs()[name];
  }
  byId("trials").value = String(trials);
  marks();
}

function rows() {
  const box = byId("rows"), count = rowsOf(inputs());
  while (box.children.length > count) box.lastElementChild.remove();
  while (box.children.length < count) box.append(row(box.children.length));
  byId("add").disabled = count >= data.most_tenants;
  for (const button of box.querySelectorAll(".remove")) button.disabled = count <= 1;
}

function row(place) {
  const parts = data.row.map((part) => {
    const name = `tenant.${place}.${part}`;
    const control = make("input", {
      type: "text", name, id: `in-${name}`, maxLength: 200, autocapitalize: "off", spellcheck: false, className: part,
      "data-kind": { name: "text", rate: "rate", weight: "count" }[part], "aria-label": label(name), "aria-describedby": `error-${name}`,
    });
    return control;
  });
  const remove = make("button", { type: "button", className: "remove quiet", textContent: "×", "aria-label": `Remove tenant ${place + 1}` });
  remove.addEventListener("click", () => removeTenant(place));
  const errors = data.row.map((part) => make("p", { className: "error", id: `error-tenant.${place}.${part}`, hidden: true }));
  return make("div", { className: "row" }, ...parts, remove, ...errors);
}

function removeTenant(place) {
  const now = inputs(), count = Number(now.tenants);
  for (let i = place; i < count - 1; i++) for (const part of data.row) now[`tenant.${i}.${part}`] = now[`tenant.${i + 1}.${part}`];
  settings[active] = trimmed({ ...now, tenants: String(count - 1) });
  changed();
  (field(`tenant.${Math.min(place, count - 2)}.name`) ?? byId("add")).focus();
}

function addTenant() {
  const place = Number(inputs().tenants);
  settings[active] = trimmed({ ...inputs(), [`tenant.${place}.name`]: freeName(inputs()), tenants: String(place + 1) });
  changed();
  field(`tenant.${place}.name`).focus();
}

/* Which fields count, which differ, and the step of the tour that this is. */
function marks() {
  const now = inputs(), base = active ? settings[0] : data.defaults;
  for (const box of form.querySelectorAll("[data-field]")) {
    const name = box.dataset.field, differs = now[name] !== base[name];
    box.hidden = !counts(now, name);
    box.classList.toggle("changed", differs);
    box.querySelector(".was").textContent = differs ? `was ${shown(name, base[name])}` : "";
  }
  form.classList.toggle("weighted", counts(now, "agent.weight"));
  for (const control of form.querySelectorAll("#rows [name]")) control.classList.toggle("changed", now[control.name] !== base[control.name]);
  const changes = differences(now, base).length;
  byId("changes").textContent = changes ? `${changes} changed` : "";
  byId("which").hidden = !comparing();
  for (const button of byId("which").children) {
    const on = Number(button.dataset.which) === active;
    button.setAttribute("aria-checked", String(on));
    button.tabIndex = on ? 0 : -1;
  }
  byId("compare").setAttribute("aria-pressed", String(comparing()));
  const step = data.tour.findIndex((one) => same(now, trimmed({ ...data.defaults, ...one.change })));
  for (const button of document.querySelectorAll(".step")) {
    if (Number(button.dataset.step) === step) button.setAttribute("aria-current", "step");
    else button.removeAttribute("aria-current");
  }
  const look = step < 0 ? "A setting of your own. Each step of this row goes back to the worked example and changes one thing." : data.tour[step].look;
  if (byId("look").textContent !== look) byId("look").textContent = look;
}

function changed(all = false) {
  fill();
  history.replaceState(null, "", "#" + toLink(settings, trials));
  if (all) settings.forEach((_, place) => run(place, 0));
  else run(active);
}

/* ---- the settings as a whole */
function take(given, first = false) {
  settings = given.settings;
  trials = given.trials ?? trials;
  active = Math.min(active, settings.length - 1);
  layOut();
  changed(true);
  if (first) root.dataset.ready = "1";
}

function layOut() {
  while (slots.length > settings.length) {
    const gone = slots.pop();
    clearTimeout(gone.timer);
    gone.abort?.abort();
    gone.view.close();
  }
  while (slots.length < settings.length) {
    slots.push(slot("AB"[slots.length]));
    const { view } = slots[slots.length - 1];
    byId("views").append(view.element);
    view.blank(settings[slots.length - 1], trials);
  }
  byId("views").classList.toggle("two", comparing());
  document.body.classList.toggle("comparing", comparing());
}

function toggleCompare() {
  const kept = inputs();
  active = comparing() ? 0 : 1;
  take({ settings: comparing() ? [kept] : [kept, { ...kept }] });
  say(comparing() ? "Two settings side by side. Changes go to B." : "One setting.");
}

function choose(place) {
  active = place;
  fill();
  faults();
  byId("status").textContent = `Changes go to ${"AB"[place]}.`;
}

/* ---- events */
form.addEventListener("submit", (event) => event.preventDefault());
form.addEventListener("input", (event) => {
  const { name, value, type, checked } = event.target;
  if (event.target.id === "trials") {
    trials = Number(value);
    changed(true);
  } else if (name) {
    inputs()[name] = type === "checkbox" ? (checked ? "on" : "") : value;
    changed();
  }
});
form.addEventListener("keydown", (event) => {
  const up = { ArrowUp: 1, ArrowDown: -1 }[event.key], { target } = event;
  const found = up && target.dataset.kind && target.dataset.kind !== "text" ? target.value.match(/^\s*(\d{1,9})(\s*\D.*)?$/) : null;
  if (!found) return;
  event.preventDefault();
  const size = Number(found[1]), step = Math.max(1, 10 ** (Math.floor(Math.log10(size || 1)) - 1)) * (event.shiftKey ? 10 : 1);
  target.value = String(Math.max(0, size + up * step)) + (found[2] ?? "");
  target.dispatchEvent(new Event("input", { bubbles: true }));
});
byId("which").addEventListener("click", (event) => event.target.dataset.which && choose(Number(event.target.dataset.which)));
byId("which").addEventListener("keydown", (event) => {
  if (!event.key.startsWith("Arrow")) return;
  event.preventDefault();
  choose(1 - active);
  byId("which").children[active].focus();
});
byId("add").addEventListener("click", addTenant);
byId("reset").addEventListener("click", () => {
  active = 0;
  take({ settings: [defaults()], trials: 20 });
  say("Back to the worked example.");
});
byId("compare").addEventListener("click", toggleCompare);
byId("link").addEventListener("click", async () => {
  try {
    await navigator.clipboard.writeText(location.href);
    say("The link is copied. Another lab takes what stands behind its #.");
  } catch {
    say("The address bar holds the link: copy it from there.");
  }
});
byId("export").addEventListener("click", () => {
  const ready = slots.filter((one) => one.result);
  if (!ready.length) return say("There is nothing to export yet.");
  download("overload-lab.json", exported(ready), "application/json");
  return say("Exported: inputs, tables and traces.");
});
byId("import").addEventListener("click", () => byId("file").click());
byId("file").addEventListener("change", async (event) => {
  const [file] = event.target.files;
  event.target.value = "";
  if (!file) return;
  try {
    const found = await imported(file);
    expected = found.map((one) => one.table);
    take({ settings: found.map((one) => trimmed(one.inputs)) });
  } catch (error) {
    say(error.message, true);
  }
});
byId("save").addEventListener("click", async () => {
  const answer = await ask("/api/profile", { inputs: inputs() });
  if (answer.errors) {
    slots[active].errors = answer.errors;
    show();
    return say("Correct the inputs first.");
  }
  download("from-the-lab.yaml", answer.yaml, "application/yaml");
  return say("Saved. overload profile check from-the-lab.yaml says what it does.");
});
for (const button of document.querySelectorAll(".step")) {
  button.addEventListener("click", () => {
    settings[active] = trimmed({ ...data.defaults, ...data.tour[Number(button.dataset.step)].change });
    changed();
  });
}
const fold = () => { byId("settings").open = !narrow.matches; };
narrow.addEventListener("change", fold);
addEventListener("hashchange", () => take(fromLink(location.hash)));

fold();
take(fromLink(location.hash), true);
