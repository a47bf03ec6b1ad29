/* Charts over time with uPlot (docs/decisions/0002): steps, the phases shaded, an ensemble as a band, keyboard and words. */
import { byId, css, make, number, swatch } from "./dom.js";

const live = new Set();
export const redrawAll = () => live.forEach((one) => one.redraw());
for (const query of ["(prefers-color-scheme: dark)", "print"]) matchMedia(query).addEventListener("change", redrawAll);

const clipped = (u, draw) => {
  const { ctx, bbox } = u;
  ctx.save();
  ctx.beginPath();
  ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
  ctx.clip();
  draw(ctx, bbox);
  ctx.restore();
};

/* A panel with a chart. `update({starts, end, width_s, phases, series, bands, most})` draws it anew:
   series: [{name, values, colour, dash, line, fill}]; bands: [{colour, low, high}] or []; most: top of the y axis. */
export class Chart {
  constructor(title, unit, { height, say, least, loss = false, bands = 1, role = "" }) {
    Object.assign(this, { title, unit, height, say, least, loss, bandCount: bands });
    this.values = make("div", { className: "values" });
    this.box = make("div", { className: "plot" });
    this.box.style.height = `${height}px`;
    const heading = make("h3", {}, make("bdi", { textContent: title }), make("span", { className: "role", textContent: role }));
    this.panel = make("section", { className: "panel", tabIndex: 0 }, heading, this.values, this.box);
    this.panel.setAttribute("aria-label", `${title}, ${unit}. Arrow keys move the cursor.`);
    this.panel.addEventListener("keydown", (event) => this.onKey(event));
    this.watcher = new ResizeObserver(() => this.resize());
    this.watcher.observe(this.box);
    this.at = null;
    live.add(this);
  }

  close() {
    live.delete(this);
    this.watcher.disconnect();
    this.u?.destroy();
  }

  update(given) {
    this.given = given;
    const closed = (values) => values ? [...values, values[values.length - 1]] : new Array(given.starts.length + 1).fill(null);
    const bands = Array.from({ length: this.bandCount }, (_, i) => given.bands[i]);
    const columns = [
      [...given.starts, given.end],
      ...given.series.map((one) => closed(one.values)),
      ...bands.flatMap((band) => [closed(band?.high), closed(band?.low)]),
    ];
    if (this.u && this.u.series.length === columns.length) this.u.setData(columns);
    else this.build(columns, bands);
    this.tell();
  }

  build(columns, bands) {
    this.u?.destroy();
    const plain = this.given.series, first = plain.length + 1;
    const axis = (extra) => ({
      stroke: () => css("--soft"), grid: { stroke: () => css("--grid"), width: 1 }, ticks: { show: false },
      font: "11px system-ui, sans-serif", ...extra,
    });
    const band = (i) => () => css(this.given.bands[i]?.colour ?? "--c0") + "3d";
    this.u = new uPlot({
      width: Math.max(160, this.box.clientWidth), height: this.height, legend: { show: false }, padding: [8, 18, 0, 0],
      cursor: { y: false, points: { size: 5 }, sync: { key: "lab" }, drag: { x: true, y: false } },
      scales: {
        x: { time: false, range: (u, from, to) => [from, to] },
        y: { range: (u, low, high) => [0, this.given.most ?? Math.max(high || 0, this.least) * 1.14] },
      },
      axes: [
        axis({ size: 24, values: (u, ticks) => ticks.map((tick) => number(tick, 2) + " s") }),
        axis({ size: 56, values: (u, ticks) => ticks.map((tick) => this.say(tick)) }),
      ],
      series: [{}, ...plain.map((one, place) => ({
        stroke: () => css(this.given.series[place].colour), width: one.line, dash: one.dash, spanGaps: false,
        points: { show: false }, paths: uPlot.paths.stepped({ align: 1 }),
        fill: one.fill ? () => css(this.given.series[place].colour) + "2e" : undefined,
      })), ...bands.flatMap(() => [0, 0].map(() => ({ width: 0, points: { show: false }, paths: uPlot.paths.stepped({ align: 1 }) })))],
      bands: [
        ...(this.loss ? [{ series: [1, 2], fill: () => css("--loss") }] : []),
        ...bands.map((_, i) => ({ series: [first + 2 * i, first + 2 * i + 1], fill: band(i) })),
      ],
      hooks: { drawClear: [(u) => this.shade(u)], draw: [(u) => this.mark(u)], setCursor: [() => this.tell()] },
    }, columns, this.box);
  }

  shade(u) {
    clipped(u, (ctx, bbox) => {
      ctx.font = `${11 * uPlot.pxRatio}px system-ui, sans-serif`;
      ctx.textBaseline = "top";
      ctx.textAlign = "left";
      for (const phase of this.given.phases) {
        const from = u.valToPos(phase.from, "x", true), to = u.valToPos(phase.to, "x", true);
        if (phase.name === "burst") {
          ctx.fillStyle = css("--burst");
          ctx.fillRect(from, bbox.top, to - from, bbox.height);
        }
        if (ctx.measureText(phase.name).width + 8 * uPlot.pxRatio > to - Math.max(from, bbox.left)) continue;
        ctx.fillStyle = css("--soft");
        ctx.fillText(phase.name, Math.max(from, bbox.left) + 5 * uPlot.pxRatio, bbox.top + 3 * uPlot.pxRatio);
      }
    });
  }

  /* What lies behind the visible part of the trace is veiled. */
  mark(u) {
    if (this.at == null) return;
    clipped(u, (ctx, bbox) => {
      const x = u.valToPos(this.at, "x", true);
      ctx.globalAlpha = 0.55;
      ctx.fillStyle = css("--card");
      ctx.fillRect(x, bbox.top, bbox.left + bbox.width - x, bbox.height);
      ctx.globalAlpha = 1;
      ctx.fillStyle = css("--accent");
      ctx.fillRect(x, bbox.top, 1.5 * uPlot.pxRatio, bbox.height);
    });
  }

  markAt(at) {
    if (at === this.at) return;
    this.at = at;
    this.redraw();
  }

  redraw() { this.u?.redraw(false); }

  resize() {
    const width = this.box.clientWidth;
    if (this.u && width && width !== this.u.width) this.u.setSize({ width, height: this.height });
  }

  bin() {
    const left = this.u?.cursor.left;
    if (left == null || left < 0) return null;
    return Math.min(this.given.starts.length - 1, Math.max(0, Math.floor(this.u.posToVal(left, "x") / this.given.width_s + 1e-6)));
  }

  tell() {
    const index = this.bin();
    this.values.replaceChildren();
    if (index != null) this.values.append(make("b", { textContent: number(this.given.starts[index], 2) + " s" }));
    for (const one of this.given.series) {
      this.values.append(make("span", {}, swatch(one.colour, one.dash), make("bdi", { textContent: one.name }),
        ...(index == null ? [] : [" ", make("b", { textContent: this.say(one.values[index]) })])));
    }
  }

  onKey(event) {
    const step = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10, Home: -1e9, End: 1e9 }[event.key];
    if (step === undefined || !this.given) return;
    event.preventDefault();
    const { starts, end } = this.given, instants = [...starts, end];
    const index = Math.min(starts.length - 1, Math.max(0, (this.bin() ?? (step > 0 ? -1 : starts.length)) + step));
    this.u.setCursor({ left: this.u.valToPos((instants[index] + instants[index + 1]) / 2, "x"), top: 10 });
    byId("readout").textContent = `${number(starts[index], 2)} s: ` +
      this.given.series.map((one) => `${one.name} ${this.say(one.values[index])}`).join(", ");
  }
}
