/* A setting is a flat mapping of texts, as typed. Here: the link that holds it, and what differs from the worked example. */
import { byId } from "./dom.js";

export const data = JSON.parse(byId("data").textContent);
const B = "b.";

export const defaults = () => ({ ...data.defaults });
export const same = (one, other) => {
  const names = Object.keys({ ...one, ...other });
  return names.every((name) => one[name] === other[name]);
};

/* How many rows of tenants there are to show, whatever a link says. */
export const rowsOf = (inputs) => Math.min(Math.max(0, Math.floor(Number(inputs.tenants)) || 0), data.most_tenants);

/* The names of all inputs: those that another policy uses are kept, and change nothing. */
export function names(inputs) {
  const rows = [];
  for (let i = 0; i < rowsOf(inputs); i++) for (const part of data.row) rows.push(`tenant.${i}.${part}`);
  const fixed = Object.keys(data.defaults).filter((name) => !name.startsWith("tenant."));
  return [...fixed, ...rows];
}

export const counts = (inputs, name) => {
  if (name.endsWith(".weight")) return inputs.policy === "fair_queues";
  if (name.startsWith("budget.")) return inputs.budget === "on";
  return !(name in data.policies) || data.policies[name].includes(inputs.policy);
};

export const label = (name) => {
  const [, place, part] = name.match(/^tenant\.(\d+)\.(.*)$/) || [];
  return part ? `tenant ${Number(place) + 1} ${part}` : name === "tenants" ? "ordinary tenants" : data.labels[name];
};
export const shown = (name, value) => name === "budget" ? (value ? "on" : "off") : (data.words[name]?.[value] ?? (value === "" ? "none" : value));

/* [{name, from, to}] of what differs from another setting and matters to one of the two. A tenant that only one of them
   has is told of by their number. */
export function differences(inputs, other) {
  const theirs = new Set(names(other));
  return names(inputs).filter((name) => theirs.has(name))
    .filter((name) => inputs[name] !== other[name] && (counts(inputs, name) || counts(other, name)))
    .map((name) => ({ name, from: other[name], to: inputs[name] }));
}

/* Settings -> the part of the address behind #: only what differs from the worked example. */
export function toLink(settings, trials) {
  const link = new URLSearchParams();
  settings.forEach((inputs, place) => {
    for (const name of names(inputs)) {
      if (inputs[name] !== data.defaults[name]) link.set((place ? B : "") + name, inputs[name]);
    }
  });
  if (settings.length > 1) link.set("compare", "1");
  if (trials !== 20) link.set("trials", String(trials));
  return link.toString();
}

export function fromLink(text) {
  const link = new URLSearchParams(text.replace(/^#/, ""));
  const settings = [defaults()];
  if (link.has("compare")) settings.push(defaults());
  for (const [name, value] of link) {
    if (name === "compare" || name === "trials") continue;
    const place = name.startsWith(B) && settings.length > 1 ? 1 : 0;
    settings[place][place ? name.slice(B.length) : name] = value;
  }
  const trials = Number(link.get("trials") ?? 20);
  return { settings: settings.map(trimmed), trials: data.trials.includes(trials) ? trials : 20 };
}

/* Rows beyond the number of tenants left out; rows that are wanted and not given filled in. */
export function trimmed(inputs) {
  const made = {};
  for (const [name, value] of Object.entries(inputs)) {
    const place = name.match(/^tenant\.(\d+)\./)?.[1];
    if (place === undefined || Number(place) < rowsOf(inputs)) made[name] = value;
  }
  for (let i = 0; i < rowsOf(inputs); i++) {
    made[`tenant.${i}.name`] ??= freeName(made);
    made[`tenant.${i}.rate`] ??= "8/s";
    made[`tenant.${i}.weight`] ??= "1";
  }
  return made;
}

export function freeName(inputs) {
  const taken = new Set(Object.entries(inputs).filter(([name]) => name.endsWith(".name")).map(([, value]) => value));
  return [..."ABCDEFGHIJKLMNOPQRSTUVWXYZ"].find((letter) => !taken.has(letter)) ?? "tenant";
}
