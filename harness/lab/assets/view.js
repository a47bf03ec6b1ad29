/* What came of one setting: verdict, summary, tenants, charts, trace. Every number is the server's; ranges are over its trials. */
import { Chart } from "./charts.js";
import { byId, make, millis, number, percent, quantile, root } from "./dom.js";
import { differences, label, rowsOf, shown } from "./settings.js";
import { Trace } from "./trace.js";

const SIGNS = { PASS: "✓", FAIL: "✕", INCONCLUSIVE: "?", INVALID: "!" };
const ORDINARY = [0, 1, 2, 3, 5, 6, 7], AGENT = 4;  // colours of the report: cool ones first
const DASHES = [[], [8, 4], [2, 3], [10, 3, 2, 3]];
const COLUMNS = [
  ["offered", "Offered", "calls that were sent, re-plans included", (row) => number(row.offered)],
  ["served", "Served", "answered as asked", (row) => number(row.served)],
  ["share", "%", "served, of offered", (row) => tenths(row.served_share)],
  ["refused", "Refused", "refused at admission", (row) => number(row.refused)],
  ["abandoned", "Abandoned", "abandoned in the queue: patience ran out", (row) => number(row.abandoned)],
  ["replans", "Re-plans", "calls that follow a failure", (row) => number(row.replans)],
  ["held", "Held back", "held back by the agent's own budget; never sent", (row) => number(row.held_back)],
  ["wait", "Mean wait", "mean queue wait of served calls", (row) => millis(row.wait_ms)],
];
const rate = (value) => value == null ? "–" : number(value, value < 10 ? 1 : 0) + "/s";
const calls = (value) => number(value);
const tenths = (share) => share == null ? "–" : share === 1 ? "100" : (share * 100).toFixed(1);
const part = (value) => value == null ? "–" : number(value * 100, 0) + " %";
const sorted = (values) => values.filter((value) => value != null).sort((a, b) => a - b);

/* [low, median, high] of a figure over the members: the whole range, as `overload simulate --ensemble` shows it. */
function spread(members, figure) {
  const values = sorted(members.map(figure));
  return values.length ? [values[0], quantile(values, 0.5), values[values.length - 1]] : null;
}

const rangeWords = (range, say) => !range ? "" :
  say(range[0]) === say(range[2]) ? `always ${say(range[1])}` : `median ${say(range[1])}, ${say(range[0])} to ${say(range[2])}`;

/* For each bin the 10th and 90th percentile over the members' lines. Members may end in another bin than this trial. */
function band(members, lines, colour, bins) {
  if (members.length < 5) return null;
  const every = members.flatMap(lines), low = [], high = [];
  for (let i = 0; i < bins; i++) {
    const values = sorted(every.map((line) => line[i]));
    low.push(quantile(values, 0.1));
    high.push(quantile(values, 0.9));
  }
  return { colour, low, high };
}

export class View {
  constructor(letter) {
    this.letter = letter;
    this.members = [];
    this.charts = new Map();
    this.head = make("div", { className: "head" });
    this.tiles = make("dl", { className: "tiles" });
    this.table = make("div", { className: "scroll", tabIndex: 0, role: "region", "aria-label": "Tenants" });
    this.service = make("div", { className: "multiples service" });
    this.multiples = make("div", { className: "multiples" });
    this.drawn = make("h2", { textContent: "Over time" });
    this.trace = new Trace((at) => this.charts.forEach((chart) => chart.markAt(at)), `trace-${letter}`);
    this.title = make("h2", { className: "letter", hidden: true });
    this.element = make("section", { className: "view", "aria-label": `Results, setting ${letter}` }, this.title, this.head, this.tiles,
      make("h2", { textContent: "Tenants" }), this.table, this.drawn, this.service, this.multiples, this.trace.panel);
  }

  close() {
    this.charts.forEach((chart) => chart.close());
    this.element.remove();
  }

  /* The place that the figures will take, so that nothing moves when they come. */
  blank(inputs, wanted) {
    const names = [...Array.from({ length: rowsOf(inputs) }, (_, i) => inputs[`tenant.${i}.name`]), inputs["agent.name"]];
    const empty = [null], rows = names.map((name, i) => ({ name, ordinary: i < names.length - 1 }));
    const lines = rows.map((row) => ({ ...row, offered: empty, served: empty, refused: empty, wait: empty, replans: empty }));
    const verdicts = [{ word: "", check: "", sentence: "Running…", add: "" }];
    this.update({
      inputs, members: [], wanted, against: inputs, comparing: false, most: null,
      result: { tenants: rows, summary: {}, verdicts, phases: [], trace: null,
        series: { starts: [0], end: 120, width_s: 120, lines, waiting: empty, running: empty } },
    });
    this.element.setAttribute("aria-busy", "true");
  }

  /* against: the setting that this one is told apart from. most: figures that share a scale with the other view. */
  update({ inputs, result, members, wanted, against, comparing, most }) {
    Object.assign(this, { inputs, result, members, wanted });
    this.element.setAttribute("aria-busy", "false");
    this.title.hidden = !comparing;
    this.title.textContent = this.letter;
    this.heading(against, comparing);
    this.summary();
    this.tenants();
    this.draw(most);
  }

  heading(against, comparing) {
    const main = this.result.verdicts.find((one) => one.check === "fairness.ordinary_unmoved") ?? this.result.verdicts[0];
    this.main = main;
    const chip = !main.word ? "" : make("span", { className: `chip ${main.word.toLowerCase()}` },
      make("span", { textContent: SIGNS[main.word], "aria-hidden": "true" }), ` ${main.word}`);
    const changes = differences(this.inputs, against);
    const first = changes.slice(0, 4).map(({ name, from, to }) => `${label(name)} ${shown(name, from)} → ${shown(name, to)}`);
    const more = changes.length > 4 ? ` and ${changes.length - 4} more` : "";
    const base = comparing && this.letter === "B" ? "The same as A" : "The worked example, unchanged";
    const others = this.result.verdicts.filter((one) => one !== main);
    this.head.replaceChildren(
      make("p", { className: "what", textContent: changes.length ? first.join(", ") + more : base }),
      make("p", { className: "word" }, chip, make("span", { className: "sentence", textContent: main.sentence })),
      make("details", { hidden: !others.length }, make("summary", { textContent: `${others.length} other checks: ${others.map((one) => one.word).join(", ")}` }),
        ...[main, ...others].map((one) => make("p", { className: "note" }, make("code", { textContent: one.check }), ` ${one.word}. ${one.sentence} ${one.add}`))),
      make("p", { className: "note spread", textContent: [main.add && `To add: ${main.add}.`, this.overall()].filter(Boolean).join(" ") }),
    );
  }

  /* What the ensemble says of the verdict. One trial of a chaotic setting is no prediction, and says so. */
  overall() {
    const many = this.members.length, range = spread(this.members, (one) => one.summary.ordinary_served);
    if (!many || many < this.wanted) return "";
    const counted = new Map();
    for (const one of this.members) counted.set(one.word, (counted.get(one.word) ?? 0) + 1);
    const words = counted.size === 1 ? `${this.members[0].word} in all of them` : [...counted].map(([word, n]) => `${word} in ${n}`).join(", ");
    const chaotic = range && range[2] - range[0] >= 0.02 ? " One trial is no prediction here: read the ranges." : "";
    return `Over ${many} trials with other phases: ${words}.${chaotic}`;
  }

  summary() {
    const now = this.result.summary, over = (figure) => spread(this.members, (one) => figure(one.summary));
    const originals = now.agent_due - now.agent_replans;
    const tiles = [
      ["Ordinary tenants", percent(now.ordinary_served), `served; ${number(now.ordinary_lost)} of ${number(now.ordinary_offered)} lost` +
        (now.worst?.share < 1 ? `, worst ${now.worst.name} at ${percent(now.worst.share)}` : ""), rangeWords(over((s) => s.ordinary_served), percent)],
      ["Agent", number(now.agent_offered), `calls offered for ${number(originals || null)} wanted; ${number(now.agent_replans)} re-plans, ${number(now.agent_held_back)} held back`,
        rangeWords(over((s) => s.agent_offered), calls)],
      ["Queue", number(now.most_waiting), now.most_waiting ? `waiting at most, at ${number(now.most_waiting_s, 1)} s` : "waiting at any time",
        rangeWords(over((s) => s.most_waiting), calls)],
      ["Still waiting at the end", number(now.waiting_at_end), `in the queue as the trial ends; ${number(now.open)} unfinished. ${number(now.worker_s)} worker-seconds`,
        rangeWords(over((s) => s.waiting_at_end), calls)],
    ];
    const done = this.members.length, wanted = this.wanted;
    const progress = done < wanted ? `${done} of ${wanted} trials…` : "";
    this.tiles.classList.toggle("ranged", wanted > 0);
    this.tiles.replaceChildren(...tiles.map(([term, figure, words, range]) => make("div", { className: "tile" },
      make("dt", { textContent: term }), make("dd", {}, make("b", { textContent: figure }), make("span", { className: "about", textContent: words }),
        wanted ? make("span", { className: "range", textContent: range ? `${progress || `${done} trials:`} ${range}` : progress }) : ""))));
  }

  tenants() {
    const head = make("tr", {}, make("th", { scope: "col", textContent: "Tenant" }),
      ...COLUMNS.map(([, words, about]) => make("th", { scope: "col", className: "n", textContent: words, title: about })));
    const rows = this.result.tenants.map((row, place) => make("tr", { className: row.ordinary ? "" : "agent" },
      make("th", { scope: "row" }, make("span", { className: "dot", "data-colour": this.colour(place) }), make("bdi", { textContent: row.name }),
        make("span", { className: "role", textContent: row.ordinary ? "" : " agent" })),
      ...COLUMNS.map(([key, , , say]) => this.cell(key, say(row), row, place))));
    this.table.replaceChildren(make("table", { className: "who" },
      make("caption", { className: "sr", textContent: "Each tenant over the whole run" }), make("thead", {}, head), make("tbody", {}, ...rows)));
  }

  cell(key, text, row, place) {
    const cell = make("td", { className: `n ${key}` + (text === "0" || text === "–" ? " nil" : ""), textContent: text });
    if (key === "share") {
      if (row.ordinary && row.served_share != null && row.served_share < 0.99) cell.classList.add("hurt");
      if (this.wanted) {
        const range = spread(this.members, (one) => one.tenants[place].served_share);
        const say = (value) => number(value * 100, 0);
        const words = !range ? "" : say(range[0]) === say(range[2]) ? `always ${say(range[0])}` : `${say(range[0])} to ${say(range[2])}`;
        cell.append(make("small", { textContent: words, title: "lowest and highest of the ensemble" }));
      }
    }
    return cell;
  }

  colour(place) {
    return this.result.tenants[place].ordinary ? ORDINARY[place % ORDINARY.length] : AGENT;
  }

  /* Figures that two views draw to one scale. */
  static most(results) {
    const top = (values) => values.reduce((most, value) => Math.max(most, value ?? 0), 0) * 1.14;
    const made = {};
    for (const { series } of results) {
      for (const line of series.lines) {
        const key = line.ordinary ? "ordinary" : "agent";
        made[key] = Math.max(made[key] ?? 1.14, top(line.offered), top(line.served));
        made.wait = Math.max(made.wait ?? 1.14, top(line.wait));
      }
      made.queue = Math.max(made.queue ?? 1.14, top(series.waiting));
    }
    return made;
  }

  chart(key, title, unit, options, into = this.multiples) {
    let chart = this.charts.get(key);
    if (!chart) {
      chart = new Chart(title, unit, options);
      this.charts.set(key, chart);
    }
    this.wantedCharts.add(key);
    if (chart.panel.parentElement !== into) into.append(chart.panel);
    return chart;
  }

  draw(most) {
    const { series, phases } = this.result, frame = { starts: series.starts, end: series.end, width_s: series.width_s, phases };
    const fit = this.members.filter((one) => one.series.width_s === series.width_s);
    const bins = series.starts.length;
    this.wantedCharts = new Set();
    const queue = this.chart("queue", "Queue", "calls waiting and running", { height: 150, say: calls, least: 1 }, this.service);
    queue.update({ ...frame, most: most?.queue, series: [
      { name: "waiting", values: series.waiting, colour: "--c7", dash: [], line: 2, fill: true },
      { name: "running", values: series.running, colour: "--ink", dash: [2, 3], line: 1.5 },
    ], bands: [band(fit, (one) => [one.series.waiting], "--c7", bins)] });
    const wait = this.chart("wait", "Queue wait", "mean of served calls by when they were due, ms", { height: 150, say: millis, least: 1 }, this.service);
    const ordinary = (one) => one.series.lines.filter((line) => line.ordinary);
    wait.update({ ...frame, most: most?.wait, series: series.lines.map((line, i) => (
      { name: line.name, values: line.wait, colour: "--c" + this.colour(i), dash: line.ordinary ? DASHES[i % 4] : [], line: 2 }
    )), bands: [band(fit, (one) => ordinary(one).map((line) => line.wait), "--c0", bins)] });
    series.lines.forEach((line, i) => {
      const colour = "--c" + this.colour(i);
      const chart = this.chart(`tenant ${i} ${line.name} ${line.ordinary}`, line.name, "calls per second", { height: 150, say: rate, least: 1, loss: true, role: line.ordinary ? "" : "agent" });
      chart.update({ ...frame, most: most?.[line.ordinary ? "ordinary" : "agent"], series: [
        { name: "offered", values: line.offered, colour: "--ink", dash: [], line: 1 },
        { name: "served", values: line.served, colour, dash: [], line: 2, fill: true },
        { name: "refused", values: line.refused, colour: "--soft", dash: [2, 3], line: 1.5 },
      ], bands: [band(fit, (one) => [one.series.lines[i].served], colour, bins)] });
    });
    const agent = series.lines.findIndex((line) => !line.ordinary);
    const share = this.chart("share", "Re-plan share", "calls that follow a failure, of all due", { height: 150, say: part, least: 0.05 }, this.service);
    const colour = "--c" + this.colour(agent);
    share.update({ ...frame, most: 1.14, series: [{ name: "of the agent's calls", values: series.lines[agent].replans, colour, dash: [], line: 2, fill: true }],
      bands: [band(fit, (one) => [one.series.lines[agent].replans], colour, bins)] });
    for (const [key, chart] of this.charts) {
      if (this.wantedCharts.has(key)) continue;
      chart.close();
      chart.panel.remove();
      this.charts.delete(key);
    }
    root.dataset.charts = String(document.querySelectorAll(".uplot").length);
    const banded = fit.length >= 5 ? make("span", { className: "note", textContent: `darker bands: the middle 80 % of ${fit.length} trials` }) : "";
    this.drawn.replaceChildren("Over time ", banded);
    if (this.result.trace && this.traced !== this.result) {
      this.traced = this.result;
      this.trace.update(this.result.trace, this.result.tenants.map((row) => row.name));
    }
  }

  say() {
    const now = this.result.summary, { main } = this;
    byId("status").textContent = `Setting ${this.letter}: ${main.word}. Ordinary tenants served ${percent(now.ordinary_served)}, ` +
      `agent offered ${number(now.agent_offered)} calls, at most ${number(now.most_waiting)} waiting.`;
  }
}
