/* Small helpers: elements whose text is only ever text, and numbers as people read them. */
export const root = document.documentElement;
export const byId = (id) => document.getElementById(id);
export const css = (variable) => getComputedStyle(root).getPropertyValue(variable).trim();

export function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [key, value] of Object.entries(properties)) {
    if (key in element && !key.includes("-")) element[key] = value;
    else element.setAttribute(key, value);
  }
  element.append(...children);
  return element;
}

export const number = (value, digits = 0) =>
  value == null ? "–" : value.toLocaleString("en", { maximumFractionDigits: digits });
export const percent = (share) => share == null ? "–" : number(share * 100, 1) + " %";
export const millis = (value) => value == null ? "–" : number(value, value < 10 ? 1 : 0) + " ms";
export const seconds = (value) => value.toLocaleString("en", { minimumFractionDigits: 3, maximumFractionDigits: 3 });

/* quantile of sorted numbers; null of none */
export function quantile(sorted, share) {
  if (!sorted.length) return null;
  const at = (sorted.length - 1) * share, low = Math.floor(at);
  return sorted[low] + ((sorted[low + 1] ?? sorted[low]) - sorted[low]) * (at - low);
}

export function swatch(colour, dash = []) {
  const space = "http://www.w3.org/2000/svg";
  const svg = document.createElementNS(space, "svg");
  for (const [key, value] of Object.entries({ class: "swatch", viewBox: "0 0 22 8", "aria-hidden": "true" })) svg.setAttribute(key, value);
  const line = document.createElementNS(space, "line");
  const parts = { x1: 0, y1: 4, x2: 22, y2: 4, "stroke-width": 3, "stroke-dasharray": dash.join(" ") };
  for (const [key, value] of Object.entries(parts)) line.setAttribute(key, value);
  line.style.stroke = `var(${colour})`;
  svg.append(line);
  return svg;
}
