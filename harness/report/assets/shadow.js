/* Draws the charts of a what-if. */
"use strict";
(() => {
  const { data, dashes, number, panel, ready } = overload;
  const say = (value) => number(value, value < 10 ? 2 : 0);
  const colour = (one, place) => one.name === "refused in the log" ? "--ink" : "--c" + ((place * 4 + (place >> 1)) % 8);
  for (const drawn of data.charts) {
    const series = drawn.lines.map((one, place) => ({ ...one, colour: colour(one, place), dash: dashes[place % 4], line: 2 }));
    panel(document.getElementById("charts"), drawn.title, drawn.unit, [{ series, height: 220, say, least: 1 }]);
  }
  ready();
})();
