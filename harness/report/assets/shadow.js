/* Draws the charts of a what-if from the data in the page. Names are only ever set as text. Fetches nothing. */
"use strict";
(() => {
  const root = document.documentElement;
  const fault = (what) => { root.dataset.errors = ((root.dataset.errors || "") + " " + what).trim().slice(0, 500); };
  addEventListener("error", (event) => fault(event.message));
  document.addEventListener("securitypolicyviolation", (event) => fault("policy " + event.violatedDirective));

  const data = JSON.parse(document.getElementById("data").textContent);
  // A step is drawn from its start to the next start: the last bin needs an end to be seen.
  const instants = [...data.starts, data.end];
  const closed = (values) => [...values, values[values.length - 1]];
  const dashes = [[], [8, 4], [2, 3], [10, 3, 2, 3]];
  const plots = [];
  const css = (variable) => getComputedStyle(root).getPropertyValue(variable).trim();
  const make = (tag, properties, ...children) => {
    const element = Object.assign(document.createElement(tag), properties);
    element.append(...children);
    return element;
  };
  const number = (value) => value == null ? "–" : value.toLocaleString("en", { maximumFractionDigits: value < 10 ? 2 : 0 });
  const colour = (one, place) => one.name === "refused in the log" ? "--ink" : "--c" + ((place * 4 + (place >> 1)) % 8);

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

  for (const drawn of data.charts) {
    const values = make("div", { className: "values" });
    const box = make("div", { className: "plot" });
    const panel = make("section", { className: "panel", tabIndex: 0 }, make("h3", { textContent: drawn.title }), values, box);
    panel.setAttribute("aria-label", `${drawn.title}, ${drawn.unit}. Arrow keys move the cursor.`);
    document.getElementById("charts").append(panel);
    const axis = (extra) => ({
      stroke: () => css("--soft"), grid: { stroke: () => css("--grid"), width: 1 }, ticks: { show: false },
      font: "11px system-ui, sans-serif", ...extra,
    });
    const u = new uPlot({
      width: Math.max(200, box.clientWidth), height: 220, legend: { show: false },
      cursor: { y: false, points: { size: 5 }, sync: { key: "time" }, drag: { x: true, y: false } },
      scales: { x: { time: false, range: (u, from, to) => [from, to] }, y: { range: (u, low, high) => [0, Math.max(high || 0, 1) * 1.14] } },
      axes: [
        axis({ size: 26, values: (u, ticks) => ticks.map((tick) => number(tick) + " s") }),
        axis({ size: 64, values: (u, ticks) => ticks.map(number) }),
      ],
      series: [{}, ...drawn.lines.map((one, place) => ({
        stroke: () => css(colour(one, place)), width: 2, dash: dashes[place % 4], spanGaps: false, points: { show: false },
        paths: uPlot.paths.stepped({ align: 1 }),
      }))],
      hooks: { setCursor: [(u) => tell(u)] },
    }, [instants, ...drawn.lines.map((one) => closed(one.values))], box);
    const binAt = (u) => u.cursor.left == null || u.cursor.left < 0 ? null
      : Math.min(data.starts.length - 1, Math.max(0, u.posToIdx(u.cursor.left)));
    function tell(u) {
      const index = binAt(u);
      values.replaceChildren(make("b", { textContent: index == null ? drawn.unit : number(data.starts[index]) + " s" }));
      drawn.lines.forEach((one, place) => values.append(make("span", {}, swatch(colour(one, place), dashes[place % 4]),
        make("bdi", { textContent: one.name }), index == null ? "" : " " + number(one.values[index]))));
    }
    panel.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10, Home: -1e9, End: 1e9 }[event.key];
      if (step === undefined) return;
      event.preventDefault();
      const index = Math.min(data.starts.length - 1, Math.max(0, (binAt(u) ?? -1) + step));
      u.setCursor({ left: u.valToPos(instants[index], "x") + 1, top: 10 });
      document.getElementById("readout").textContent =
        `${number(data.starts[index])} s: ` + drawn.lines.map((one) => `${one.name} ${number(one.values[index])}`).join(", ");
    });
    new ResizeObserver(() => {
      const width = box.clientWidth;
      if (width && width !== u.width) u.setSize({ width, height: 220 });
    }).observe(box);
    tell(u);
    plots.push(u);
  }
  const redraw = () => plots.forEach((u) => u.redraw());
  for (const query of ["(prefers-color-scheme: dark)", "print"]) matchMedia(query).addEventListener("change", redraw);
  root.dataset.charts = String(plots.length);
})();
