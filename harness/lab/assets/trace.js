/* The decision trace: how much of it is visible is the reader's choice; it changes no figure. Only rows in sight are made. */
import { make, number, seconds } from "./dom.js";

const ROW_PX = 26, WINDOW_PX = 338, SPARE = 8;
const WORDS = {
  queued: "queued", started: "started", served: "served", refused: "refused at admission",
  abandoned: "abandoned in the queue", held_back: "held back by its budget", open: "left open",
};
const HEADS = ["time, s", "decision", "tenant", "call", "round", "follows", "waiting", "running"];

export class Trace {
  /* onMove(seconds or null): the instant up to which decisions are shown; null: all of them. */
  constructor(onMove, prefix) {
    this.onMove = onMove;
    this.all = true;
    this.visible = 0;
    this.build(prefix);
  }

  build(prefix) {
    const button = (words, act) => {
      const made = make("button", { type: "button", textContent: words });
      made.addEventListener("click", act);
      return made;
    };
    this.slider = make("input", { type: "range", min: "0", max: "0", value: "0", step: "1" });
    this.slider.setAttribute("aria-label", "How much of the trace is visible");
    this.slider.addEventListener("input", () => this.show(Number(this.slider.value)));
    this.count = make("output", { className: "count" });
    this.tenant = this.select("Tenant", prefix);
    this.kind = this.select("Decision", prefix);
    this.buttons = [
      button("Start", () => this.show(0)), button("Step back", () => this.show(this.visible - 1)),
      button("Next step", () => this.show(this.visible + 1)), button("Show all", () => this.show(Infinity)),
    ];
    this.body = make("tbody");
    const head = make("tr", {}, ...HEADS.map((words, i) => make("th", { scope: "col", textContent: words, className: i === 0 || i > 2 ? "n" : "" })));
    this.table = make("table", { className: "trace" }, make("caption", { className: "sr", textContent: "Decision trace" }), make("thead", {}, head), this.body);
    this.pane = make("div", { className: "pane", tabIndex: 0, role: "region" }, this.table);
    this.pane.setAttribute("aria-label", "Decisions in the order of time");
    this.pane.style.height = `${WINDOW_PX}px`;
    this.pane.addEventListener("scroll", () => this.trace && this.paint());
    this.note = make("p", { className: "note" });
    this.panel = make("section", { className: "tracing" },
      make("h2", { textContent: "Decision trace" }),
      make("div", { className: "controls" }, make("div", { className: "steps", role: "group", "aria-label": "Steps" }, ...this.buttons),
        this.slider, this.count, this.tenant.parentElement, this.kind.parentElement),
      this.pane, this.note);
  }

  select(words, prefix) {
    const id = `${prefix}-${words.toLowerCase()}`;
    const made = make("select", { id });
    made.addEventListener("change", () => this.filter());
    make("div", { className: "pick" }, make("label", { htmlFor: id, textContent: words }), made);
    return made;
  }

  /* names: tenants by index. A new run keeps the instant and the filters where it can. */
  update(trace, names) {
    const until = this.all || !this.trace ? null : this.instant();
    this.trace = trace;
    this.names = names;
    this.fill(this.tenant, [["", "all"], ...names.map((name, i) => [String(i), name])]);
    this.fill(this.kind, [["", "all"], ...trace.kinds.map((kind, i) => [String(i), WORDS[kind]])]);
    const held = trace.columns.t_us.length;
    this.note.textContent = "Table, verdict and charts describe the whole run, whatever is visible here." +
      (held < trace.total ? ` The trace holds the first ${number(held)} of ${number(trace.total)} decisions.` : "");
    this.filter(until);
  }

  fill(select, options) {
    const kept = select.value;
    select.replaceChildren(...options.map(([value, words]) => make("option", { value, textContent: words })));
    select.value = options.some(([value]) => value === kept) ? kept : "";
  }

  filter(until = this.all ? null : this.instant()) {
    const { t_us: times, tenant, kind } = this.trace.columns;
    const wantTenant = this.tenant.value === "" ? -1 : Number(this.tenant.value);
    const wantKind = this.kind.value === "" ? -1 : Number(this.kind.value);
    const rows = [];
    for (let i = 0; i < times.length; i++) {
      if ((wantTenant < 0 || tenant[i] === wantTenant) && (wantKind < 0 || kind[i] === wantKind)) rows.push(i);
    }
    this.rows = rows;
    this.slider.max = String(rows.length);
    this.show(until == null ? Infinity : rows.filter((i) => times[i] <= until * 1e6).length);
  }

  /* Seconds of the newest visible decision; 0 before the first one. */
  instant() {
    return this.visible ? this.trace.columns.t_us[this.rows[this.visible - 1]] / 1e6 : 0;
  }

  show(count) {
    this.visible = Math.max(0, Math.min(this.rows.length, count));
    this.all = this.visible === this.rows.length;
    this.slider.value = String(this.visible);
    this.count.textContent = `${number(this.visible)} of ${number(this.rows.length)}`;
    this.slider.setAttribute("aria-valuetext", this.count.textContent + (this.visible ? `, up to ${seconds(this.instant())} s` : ""));
    this.table.setAttribute("aria-rowcount", String(this.visible + 1));
    this.buttons[0].disabled = this.buttons[1].disabled = this.visible === 0;
    this.buttons[2].disabled = this.buttons[3].disabled = this.all;
    this.painted = "";
    this.paint(count === Infinity ? 0 : this.visible * ROW_PX);
    this.onMove(this.all ? null : this.instant());
  }

  paint(scrollTo = null) {
    const top = scrollTo ?? this.pane.scrollTop;
    const room = Math.ceil(WINDOW_PX / ROW_PX);
    const last = Math.max(0, this.visible - room);
    const from = Math.max(0, Math.min(last, Math.floor(top / ROW_PX)) - SPARE);
    const to = Math.min(this.visible, from + room + 2 * SPARE);
    const key = `${from} ${to}`;
    if (key !== this.painted) {
      this.painted = key;
      const gap = (rows) => {
        const cell = make("td", { colSpan: HEADS.length });
        cell.style.height = `${rows * ROW_PX}px`;
        return make("tr", { className: "gap", "aria-hidden": "true" }, cell);
      };
      const rows = [];
      if (from) rows.push(gap(from));
      for (let place = from; place < to; place++) rows.push(this.row(place));
      if (to < this.visible) rows.push(gap(this.visible - to));
      if (!this.visible) rows.push(make("tr", { className: "none" }, make("td", { colSpan: HEADS.length, textContent: this.rows.length ? "Next step shows the first decision." : "No such decision in this run." })));
      this.body.replaceChildren(...rows);
    }
    if (scrollTo != null) this.pane.scrollTop = scrollTo;
  }

  row(place) {
    const c = this.trace.columns, i = this.rows[place], kind = this.trace.kinds[c.kind[i]];
    const index = c.tenant[i];
    const texts = [
      seconds(c.t_us[i] / 1e6), WORDS[kind], this.names[index], `${index}.${c.seq[i]}`, c.round[i] ? String(c.round[i]) : "",
      c.parent[i] >= 0 ? `${index}.${c.parent[i]}` : "", c.waiting[i] >= 0 ? number(c.waiting[i]) : "", c.running[i] >= 0 ? number(c.running[i]) : "",
    ];
    const cells = texts.map((text, n) => {
      const cell = make("td", { className: n === 0 || n > 2 ? "n" : "" });
      if (n === 1) cell.append(make("span", { className: `mark ${kind}`, "aria-hidden": "true" }), text);
      else if (n === 2) cell.append(make("bdi", { textContent: text }));
      else cell.textContent = text;
      return cell;
    });
    const newest = !this.all && place === this.visible - 1;
    return make("tr", { className: newest ? "newest" : "", "aria-rowindex": String(place + 2) }, ...cells);
  }
}
