/* Draws the charts of a report from the data in the page. Names are only ever set as text. Fetches nothing. */
"use strict";
(() => {
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
  const plots = [];
  const css = (variable) => getComputedStyle(root).getPropertyValue(variable).trim();
  const faint = (variable, alpha) => css(variable) + alpha;
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

  function shadePhases(u) {
    const { ctx, bbox } = u;
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    ctx.clip();
    ctx.font = `${11 * uPlot.pxRatio}px system-ui, sans-serif`;
    ctx.textBaseline = "top";
    for (const phase of data.phases) {
      const from = u.valToPos(phase.from, "x", true), to = u.valToPos(phase.to, "x", true);
      if (phase.name === "burst") {
        ctx.fillStyle = css("--burst");
        ctx.fillRect(from, bbox.top, to - from, bbox.height);
      }
      ctx.fillStyle = css("--soft");
      ctx.fillText(phase.name, Math.max(from, bbox.left) + 5 * uPlot.pxRatio, bbox.top + 3 * uPlot.pxRatio);
    }
    ctx.restore();
  }

  function shadeCircuit(u, spans) {
    const { ctx, bbox } = u;
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    ctx.clip();
    ctx.fillStyle = css("--loss");
    for (const span of spans) {
      const from = u.valToPos(span.from, "x", true), to = u.valToPos(span.to, "x", true);
      ctx.globalAlpha = span.state === "open" ? 1 : 0.4;
      ctx.fillRect(from, bbox.top, Math.max(1, to - from), bbox.height);
    }
    ctx.restore();
  }

  /* series: [{name, values, colour (a CSS variable), dash, fill, line}] */
  function chart(parent, title, unit, series, options) {
    const values = make("div", { className: "values" });
    const box = make("div", { className: "plot" });
    const heading = make("h3", {}, make("bdi", { textContent: title }));
    const panel = make("section", { className: "panel", tabIndex: 0 }, heading, values, box);
    panel.setAttribute("aria-label", `${title}, ${unit}. Arrow keys move the cursor.`);
    parent.append(panel);
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
      axes: [
        axis({ size: 26, values: (u, ticks) => ticks.map((tick) => number(tick, 2) + " s") }),
        axis({ size: 64, values: (u, ticks) => ticks.map((tick) => options.say(tick)) }),
      ],
      series: [{}, ...series.map((one) => ({
        stroke: () => css(one.colour), width: one.line, dash: one.dash, spanGaps: false, points: { show: false },
        fill: one.fill ? () => faint(one.colour, "2e") : undefined, paths: uPlot.paths.stepped({ align: 1 }),
      }))],
      bands: options.bands ? [{ series: [1, 2], fill: () => css("--loss") }] : [],
      hooks: { drawClear: [shadePhases, (u) => shadeCircuit(u, options.circuit || [])], setCursor: [(u) => tell(u)] },
    }, [instants, ...series.map((one) => closed(one.values))], box);

    function binAt(u) {
      const left = u.cursor.left;
      if (left == null || left < 0) return null;
      const at = u.posToVal(left, "x");
      return Math.min(data.starts.length - 1, Math.max(0, Math.floor(at / data.width_s + 1e-6)));
    }
    function words(index) {
      const shown = series.filter((one, place) => u.series[place + 1].show);
      return shown.map((one) => [one, options.say(one.values[index])]);
    }
    function tell(u) {
      values.replaceChildren();
      const index = binAt(u);
      if (index == null) {
        series.forEach((one, place) => {
          if (u.series[place + 1].show && !options.quiet) values.append(make("span", {}, swatch(one.colour, one.dash), one.name));
        });
        if (options.quiet) values.append(unit);
        return;
      }
      values.append(make("b", { textContent: number(data.starts[index], 2) + " s" }));
      for (const [one, said] of words(index)) {
        values.append(make("span", {}, swatch(one.colour, one.dash), make("bdi", { textContent: one.name }), " ", make("b", { textContent: said })));
      }
    }
    panel.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10, Home: -1e9, End: 1e9 }[event.key];
      if (step === undefined) return;
      event.preventDefault();
      const start = binAt(u) ?? (step > 0 ? -1 : data.starts.length);
      const index = Math.min(data.starts.length - 1, Math.max(0, start + step));
      u.setCursor({ left: u.valToPos((instants[index] + instants[index + 1]) / 2, "x"), top: 10 });
      document.getElementById("readout").textContent =
        `${number(data.starts[index], 2)} s: ` + words(index).map(([one, said]) => `${one.name} ${said}`).join(", ");
    });
    new ResizeObserver(() => {
      const width = box.clientWidth;
      if (width && width !== u.width) u.setSize({ width, height: options.height });
    }).observe(box);
    tell(u);
    plots.push(u);
    return u;
  }

  const rate = (value) => value == null ? "–" : number(value, value < 10 ? 1 : 0) + "/s";
  const multiples = document.getElementById("multiples"), charts = document.getElementById("charts");
  for (const line of data.lines) {
    const role = line.ordinary ? " · ordinary" : "";
    chart(multiples, line.name + role, "calls per second", [
      { name: "offered", values: line.offered, colour: "--ink", dash: [], line: 1 },
      { name: "served", values: line.served, colour: "--c" + line.colour, dash: [], line: 2, fill: true },
      { name: "refused", values: line.refused, colour: "--soft", dash: [2, 3], line: 1.5 },
    ], { height: 170, say: rate, least: 1, bands: true });
  }
  const compared = [
    ["Queue wait", "mean of served calls by when they were due, ms", "wait", { say: (v) => v == null ? "–" : number(v, v < 10 ? 1 : 0) + " ms", least: 1 }],
    ["Re-plan share", "calls that follow a failure, of all due", "replans", { say: (v) => v == null ? "–" : number(v * 100, 0) + " %", least: 0.05, most: 1.14 }],
  ].map(([title, unit, key, options]) => chart(charts, title, unit, data.lines.map((line) => ({
    name: line.name, values: line[key], colour: "--c" + line.colour, dash: dashes[line.colour % 4], line: 2,
  })), { height: 220, quiet: true, ...options }));

  const calls = (value) => number(value, 0);
  for (const one of data.bulkheads) {
    chart(document.getElementById("bulkheads"), one.name, "calls in use", [
      { name: "limit", values: one.limit, colour: "--ink", dash: [8, 4], line: 1 },
      { name: "in use", values: one.in_use, colour: "--c0", dash: [], line: 2, fill: true },
      { name: "waiting", values: one.waiting, colour: "--c4", dash: [2, 3], line: 1.5 },
    ], { height: 170, say: calls, least: 1, circuit: one.circuit });
  }

  const legend = document.getElementById("legend");
  data.lines.forEach((line, place) => {
    const button = make("button", { type: "button" }, swatch("--c" + line.colour, dashes[line.colour % 4]), make("bdi", { textContent: line.name }));
    button.setAttribute("aria-pressed", "true");
    button.addEventListener("click", () => {
      const show = button.getAttribute("aria-pressed") !== "true";
      button.setAttribute("aria-pressed", String(show));
      for (const u of compared) u.setSeries(place + 1, { show });
    });
    legend.append(button);
  });

  const redraw = () => plots.forEach((u) => u.redraw());
  for (const query of ["(prefers-color-scheme: dark)", "print"]) matchMedia(query).addEventListener("change", redraw);
  addEventListener("beforeprint", () => { document.querySelectorAll("details").forEach((one) => { one.open = true; }); redraw(); });
  root.dataset.charts = String(plots.length);
})();
