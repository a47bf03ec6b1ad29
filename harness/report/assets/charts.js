/* What the pages share: panels of charts over time, drawn by uPlot from the data in the page. Names are only ever set
   as text. Fetches nothing. `data` needs: starts [s], end [s], width_s; phases [{name, from, to}] if there are any. */
"use strict";
const overload = (() => {
  const root = document.documentElement;
  const fault = (what) => { root.dataset.errors = ((root.dataset.errors || "") + " " + what).trim().slice(0, 500); };
  addEventListener("error", (event) => fault(event.message));
  addEventListener("unhandledrejection", (event) => fault(String(event.reason)));
  document.addEventListener("securitypolicyviolation", (event) => fault("policy " + event.violatedDirective));

  const data = JSON.parse(document.getElementById("data").textContent);
  // A step is drawn from its start to the next start: the last bin needs an end to be seen.
  const instants = [...data.starts, data.end];
  const closed = (values) => [...values, values[values.length - 1]];
  const dashes = [[], [8, 4], [2, 3], [10, 3, 2, 3]];
  const shades = { burst: "--burst", recovery: "--recovery" };
  const plots = [];
  const css = (variable) => getComputedStyle(root).getPropertyValue(variable).trim();
  const make = (tag, properties, ...children) => {
    const element = Object.assign(document.createElement(tag), properties);
    element.append(...children);
    return element;
  };
  const number = (value, digits) => value == null ? "–" : value.toLocaleString("en", { maximumFractionDigits: digits });

  function swatch(variable, dash) {
    const space = "http://www.w3.org/2000/svg";
    const svg = document.createElementNS(space, "svg");
    svg.setAttribute("class", "swatch");
    svg.setAttribute("viewBox", "0 0 22 8");
    svg.setAttribute("aria-hidden", "true");
    const line = document.createElementNS(space, "line");
    for (const [key, value] of Object.entries({ x1: 0, y1: 4, x2: 22, y2: 4, "stroke-width": 3, "stroke-dasharray": dash.join(" ") })) {
      line.setAttribute(key, value);
    }
    line.style.stroke = `var(${variable})`;
    svg.append(line);
    return svg;
  }

  function within(u, draw) {
    const { ctx, bbox } = u;
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    ctx.clip();
    draw(ctx, bbox);
    ctx.restore();
  }

  function shadePhases(u, caption) {
    within(u, (ctx, bbox) => {
      ctx.font = `${11 * uPlot.pxRatio}px system-ui, sans-serif`;
      ctx.textBaseline = "top";
      for (const phase of data.phases || []) {
        const from = u.valToPos(phase.from, "x", true), to = u.valToPos(phase.to, "x", true);
        if (shades[phase.name]) {
          ctx.fillStyle = css(shades[phase.name]);
          ctx.fillRect(from, bbox.top, to - from, bbox.height);
        }
        if (caption) continue;
        ctx.fillStyle = css("--soft");
        ctx.fillText(phase.name, Math.max(from, bbox.left) + 5 * uPlot.pxRatio, bbox.top + 3 * uPlot.pxRatio);
      }
      ctx.fillStyle = css("--soft");
      if (caption) ctx.fillText(caption, bbox.left + 5 * uPlot.pxRatio, bbox.top + 3 * uPlot.pxRatio);
    });
  }

  function shadeSpans(u, spans) {
    within(u, (ctx, bbox) => {
      ctx.fillStyle = css("--loss");
      for (const span of spans) {
        const from = u.valToPos(span.from, "x", true), to = u.valToPos(span.to, "x", true);
        ctx.globalAlpha = span.state === "open" ? 1 : 0.4;
        ctx.fillRect(from, bbox.top, Math.max(1, to - from), bbox.height);
      }
    });
  }

  /* One chart in a box. options: height; series: [{name, values, colour (a CSS variable), dash, fill, line}]; say(value);
     least, most: of the scale; bands: the gap between the first two is shaded; spans: [{state, from, to}] shaded;
     bare: its name, in the place of an axis of time and of the phases' names; told(u): the cursor moved. */
  function plot(box, options) {
    const axis = (extra) => ({
      stroke: () => css("--soft"), grid: { stroke: () => css("--grid"), width: 1 }, ticks: { show: false },
      font: "11px system-ui, sans-serif", ...extra,
    });
    const u = new uPlot({
      width: Math.max(200, box.clientWidth), height: options.height, legend: { show: false },
      cursor: { y: false, points: { size: 5 }, sync: { key: "time" }, drag: { x: true, y: false } },
      scales: {
        x: { time: false, range: (u, from, to) => [from, to] },
        y: { range: (u, low, high) => [0, options.most || Math.max(high || 0, options.least) * 1.14] },
      },
      padding: [options.bare ? 4 : 8, 26, options.bare ? 4 : 0, 0], // the same at the sides: charts of one panel stand below each other
      axes: [
        axis(options.bare ? { size: 0, values: () => [] } : { size: 26, values: (u, ticks) => ticks.map((tick) => number(tick, 2) + " s") }),
        axis({ size: 64, space: options.bare ? 24 : 30, values: (u, ticks) => ticks.map((tick) => options.say(tick)) }),
      ],
      series: [{}, ...options.series.map((one) => ({
        stroke: () => css(one.colour), width: one.line, dash: one.dash, spanGaps: false, points: { show: false },
        fill: one.fill ? () => css(one.colour) + "2e" : undefined, paths: uPlot.paths.stepped({ align: 1 }),
      }))],
      bands: options.bands ? [{ series: [1, 2], fill: () => css("--loss") }] : [],
      hooks: {
        drawClear: [(u) => shadePhases(u, options.bare), (u) => shadeSpans(u, options.spans || [])],
        setCursor: [options.told],
      },
    }, [instants, ...options.series.map((one) => closed(one.values))], box);
    new ResizeObserver(() => {
      const width = box.clientWidth;
      if (width && width !== u.width) u.setSize({ width, height: options.height });
    }).observe(box);
    plots.push(u);
    return u;
  }

  const last = data.starts.length - 1;
  function binAt(u) {
    const left = u.cursor.left;
    if (left == null || left < 0) return null;
    const at = u.posToVal(left, "x");
    return Math.min(last, Math.max(0, Math.floor(at / (data.starts[1] - data.starts[0] || data.end) + 1e-6)));
  }

  /* A titled panel of one or more charts on one axis of time, read by hovering or by the arrow keys. quiet: its series are
     named elsewhere. Returns the charts. */
  function panel(parent, title, unit, drawn, quiet) {
    const values = make("div", { className: "values" });
    const box = make("section", { className: "panel", tabIndex: 0 }, make("h3", {}, make("bdi", { textContent: title })), values);
    box.setAttribute("aria-label", `${title}, ${unit}. Arrow keys move the cursor.`);
    parent.append(box);
    const shown = [];
    const words = (index) => drawn.flatMap((options, place) => options.series
      .filter((one, number) => !shown[place] || shown[place].series[number + 1].show)
      .map((one) => [one, index == null ? "" : options.say(one.values[index])]));
    function tell(u) {
      const index = u ? binAt(u) : null;
      values.replaceChildren();
      if (index != null) values.append(make("b", { textContent: number(data.starts[index], 2) + " s" }));
      else if (quiet) return values.append(unit);
      for (const [one, said] of words(index)) {
        values.append(make("span", {}, swatch(one.colour, one.dash), make("bdi", { textContent: one.name }), " ", make("b", { textContent: said })));
      }
    }
    for (const options of drawn) {
      const place = make("div", { className: "plot" });
      box.append(place);
      shown.push(plot(place, { told: tell, ...options }));
    }
    box.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10, Home: -1e9, End: 1e9 }[event.key];
      if (step === undefined) return;
      event.preventDefault();
      const start = binAt(shown[0]) ?? (step > 0 ? -1 : last + 1);
      const index = Math.min(last, Math.max(0, start + step));
      for (const u of shown) u.setCursor({ left: u.valToPos((instants[index] + instants[index + 1]) / 2, "x"), top: 10 });
      document.getElementById("readout").textContent =
        `${number(data.starts[index], 2)} s: ` + words(index).map(([one, said]) => `${one.name} ${said}`).join(", ");
    });
    tell(null);
    return shown;
  }

  /* To be called once all charts stand. */
  function ready() {
    const redraw = () => plots.forEach((u) => u.redraw());
    for (const query of ["(prefers-color-scheme: dark)", "print"]) matchMedia(query).addEventListener("change", redraw);
    addEventListener("beforeprint", () => {
      document.querySelectorAll("details:not(.shut)").forEach((one) => { one.open = true; });
      redraw();
    });
    root.dataset.charts = String(plots.length);
  }
  return { data, dashes, css, make, number, swatch, panel, ready };
})();
