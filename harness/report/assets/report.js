/* What a trial's report does beside standing there: its charts, the filter of the decision log, the way to a witness. */
"use strict";
(() => {
  const { data, dashes, make, number, panel, ready, swatch } = overload;
  const byId = (id) => document.getElementById(id);

  const rate = (value) => value == null ? "–" : number(value, value < 10 ? 1 : 0) + "/s";
  const calls = (value) => number(value, value < 10 ? 1 : 0);
  for (const line of data.lines) {
    const own = "--c" + line.colour;
    const drawn = [{
      series: [
        { name: "offered", values: line.offered, colour: "--ink", dash: [], line: 1 },
        { name: "served", values: line.served, colour: own, dash: [], line: 2, fill: true },
        { name: "refused", values: line.refused, colour: "--fail", dash: [2, 3], line: 1.5 },
        { name: "abandoned", values: line.abandoned, colour: "--soft", dash: [6, 3], line: 1.5 },
      ], height: 160, say: rate, least: 1, bands: true,
    }];
    if (line.waiting.some((value) => value != null)) {
      drawn.push({ series: [{ name: "waiting", values: line.waiting, colour: own, dash: [], line: 1.5, fill: true }], height: 62, say: calls, least: 1, bare: "waiting" });
    }
    panel(byId("multiples"), line.name + (line.ordinary ? " · ordinary" : ""), "calls per second, and waiting", drawn);
  }
  const compared = [
    ["Queue wait", "mean of served calls by when they were due, ms", "wait", { say: (v) => v == null ? "–" : number(v, v < 10 ? 1 : 0) + " ms", least: 1 }],
    ["Re-plan share", "calls that follow a failure, of all due", "replans", { say: (v) => v == null ? "–" : number(v * 100, 0) + " %", least: 0.05, most: 1.14 }],
  ].map(([title, unit, key, options]) => panel(byId("charts"), title, unit, [{
    series: data.lines.map((line) => ({ name: line.name, values: line[key], colour: "--c" + line.colour, dash: dashes[line.colour % 4], line: 2 })),
    height: 220, ...options,
  }], true)[0]);
  for (const one of data.bulkheads) {
    panel(byId("bulkheads"), one.name, "calls in use", [{
      series: [
        { name: "limit", values: one.limit, colour: "--ink", dash: [8, 4], line: 1 },
        { name: "in use", values: one.in_use, colour: "--c0", dash: [], line: 2, fill: true },
        { name: "waiting", values: one.waiting, colour: "--c4", dash: [2, 3], line: 1.5 },
      ], height: 170, say: calls, least: 1, spans: one.circuit,
    }]);
  }

  data.lines.forEach((line, place) => {
    const button = make("button", { type: "button" }, swatch("--c" + line.colour, dashes[line.colour % 4]), make("bdi", { textContent: line.name }));
    button.setAttribute("aria-pressed", "true");
    button.addEventListener("click", () => {
      const show = button.getAttribute("aria-pressed") !== "true";
      button.setAttribute("aria-pressed", String(show));
      for (const u of compared) u.setSeries(place + 1, { show });
    });
    byId("legend").append(button);
  });

  /* The decision log: rows of texts, a place of `log.texts` each; filtered here, never sent anywhere. */
  const log = data.log, PAGE = 100;
  function decisions() {
    const body = byId("log-rows"), form = byId("log-filter"), count = byId("log-count"), more = byId("log-more");
    const [who, what, words] = ["log-tenant", "log-outcome", "log-text"].map(byId);
    const text = (row, column) => log.texts[row[column]] ?? "";
    const lines = log.rows.map((row) => row.map((place) => log.texts[place]).join(" ").toLowerCase());
    const WHO = log.columns.indexOf("tenant"), WHAT = log.columns.indexOf("outcome"), NAMED = log.columns.length;
    let found = [], shown = 0;
    const cell = (row, column) => make("td", { className: log.numbers.includes(column) ? "n" : "" }, make("bdi", { textContent: text(row, column) }));
    function page() {
      for (const place of found.slice(shown, shown + PAGE)) {
        const row = log.rows[place];
        body.append(make("tr", { className: row[NAMED] ? "named" : "" }, ...log.columns.map((_, column) => cell(row, column))));
      }
      shown = Math.min(found.length, shown + PAGE);
      more.hidden = shown === found.length;
      more.textContent = `Show ${Math.min(PAGE, found.length - shown)} more`;
      count.textContent = `${number(found.length, 0)} of ${number(log.rows.length, 0)} rows match; ${number(shown, 0)} are shown.`;
    }
    function filter() {
      const wanted = words.value.trim().toLowerCase().split(/\s+/).filter(Boolean);
      found = [];
      log.rows.forEach((row, place) => {
        if (who.value && text(row, WHO) !== who.value) return;
        if (what.value && text(row, WHAT) !== what.value) return;
        if (byId("log-named").checked && !row[NAMED]) return;
        if (wanted.every((word) => lines[place].includes(word))) found.push(place);
      });
      shown = 0;
      body.replaceChildren();
      page();
    }
    for (const [select, column] of [[who, WHO], [what, WHAT]]) {
      const values = [...new Set(log.rows.map((row) => text(row, column)))].filter(Boolean).sort();
      select.append(...values.map((value) => make("option", { value, textContent: value })));
    }
    form.addEventListener("input", filter);
    form.addEventListener("submit", (event) => event.preventDefault());
    form.addEventListener("reset", () => setTimeout(filter));
    more.addEventListener("click", page);
    form.hidden = false;
    filter();
  }
  if (log) decisions();

  /* A link to a witness opens it: its calls are what the reader came for. */
  function open() {
    const target = location.hash.length > 1 && byId(location.hash.slice(1));
    if (!target) return;
    for (let one = target; one; one = one.parentElement) if (one.tagName === "DETAILS") one.open = true;
    target.scrollIntoView();
    if (target.classList.contains("witness")) target.querySelector("summary").focus({ preventScroll: true });
  }
  addEventListener("hashchange", open);
  document.addEventListener("click", (event) => { if (event.target.closest('a[href^="#"]')) setTimeout(open); });
  open();
  ready();
})();
