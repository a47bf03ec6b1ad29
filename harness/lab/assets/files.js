/* What leaves the page as a file, and comes back as one. */
import { make } from "./dom.js";

const FORMAT = "overload-lab", MOST_BYTES = 64e6;

export function download(name, text, type) {
  const url = URL.createObjectURL(new Blob([text], { type }));
  const link = make("a", { href: url, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

/* entries: [{inputs, result}] */
export function exported(entries) {
  const settings = entries.map(({ inputs, result }) => ({
    inputs, table: result.tenants, summary: result.summary, verdicts: result.verdicts, trace: result.trace,
  }));
  return JSON.stringify({ format: FORMAT, version: 1, settings }, null, 1);
}

/* The settings of such a file. Throws Error with a sentence that says what is wrong with it. */
export async function imported(file) {
  if (file.size > MOST_BYTES) throw new Error(`${file.name} is larger than an export of the lab can be`);
  let content;
  try {
    content = JSON.parse(await file.text());
  } catch {
    throw new Error(`${file.name} is not JSON; choose a file that Export JSON has made`);
  }
  const settings = content?.format === FORMAT && content.version === 1 && Array.isArray(content.settings) ? content.settings.slice(0, 2) : [];
  const sound = settings.every((one) => one?.inputs && typeof one.inputs === "object" && Object.values(one.inputs).every((value) => typeof value === "string"));
  if (!settings.length || !sound) throw new Error(`${file.name} is no export of the lab; choose a file that Export JSON has made`);
  return settings;
}
