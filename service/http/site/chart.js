// Two small charts. The picture is stretched to its box, so all of its words stand outside of it.

import { make, setText } from "./dom.js";
import { WINDOW_S } from "./history.js";

const WIDTH = 600;
const HEIGHT = 140;
const GAP_S = 5; // longer without news: the line breaks

const across = (point, now) => (WIDTH * (1 - (now - point.at) / WINDOW_S)).toFixed(1);
const upTo = (value, top) => (HEIGHT * (1 - Math.min(value, top) / top)).toFixed(1);

// Lines over a limit: values are parts of it, the wall stands at 1.
export function drawLines(svg, points, now, names) {
  const top = 1.5;
  const shapes = [rule(0.5, top, "grid"), rule(1, top, "wall")];
  for (const name of names) {
    const strokes = runs(points, (point) => point[name]).map((run) => {
      const steps = run.map((point) => `${across(point, now)} ${upTo(point[name], top)}`);
      return `M${steps.join("L")}`;
    });
    shapes.push(path(strokes.join(""), `line ${name}`));
  }
  svg.replaceChildren(...shapes);
}

// Areas one on another; returns the value at the upper edge.
export function drawAreas(svg, points, now, names) {
  const sum = (point, upto) => names.slice(0, upto).reduce((all, name) => all + point[name], 0);
  const parts = runs(points, (point) => point[names[0]]);
  const top = roundUp(Math.max(1, ...parts.flat().map((point) => sum(point, names.length))));
  const edge = (point, upto) => `${across(point, now)} ${upTo(sum(point, upto), top)}`;
  const shapes = names.map((name, index) => {
    const areas = parts.map((run) => {
      const over = run.map((point) => edge(point, index + 1));
      const under = run.map((point) => edge(point, index)).reverse();
      return `M${[...over, ...under].join("L")}Z`;
    });
    return path(areas.join(""), `area ${name}`);
  });
  svg.replaceChildren(...shapes, rule(top / 2, top, "grid"));
  return top;
}

// What each colour means, with its present value; entries are [name, text].
export function drawLegend(list, entries) {
  if (!list.children.length) {
    const items = entries.map(([name]) => make("li", null, swatch(name), make("span")));
    list.append(...items);
  }
  entries.forEach(([, text], index) => setText(list.children[index].lastChild, text));
}

function swatch(name) {
  return make("span", { class: `swatch ${name}`, "aria-hidden": "true" });
}

// The points in unbroken runs: nothing is drawn where nothing was known.
function runs(points, value) {
  const found = [];
  let last = null;
  for (const point of points) {
    if (!point.gap && value(point) !== null && value(point) !== undefined) {
      if (last && point.at - last.at < GAP_S) found.at(-1).push(point);
      else found.push([point]);
      last = point;
    } else {
      last = null;
    }
  }
  return found;
}

function roundUp(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return power * [1, 2, 5, 10].find((step) => value <= step * power * 1.0001);
}

function path(d, kind) {
  return shape("path", { d, class: kind });
}

function rule(value, top, kind) {
  const y = upTo(value, top);
  return shape("line", { x1: 0, x2: WIDTH, y1: y, y2: y, class: kind });
}

function shape(tag, attributes) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
}
