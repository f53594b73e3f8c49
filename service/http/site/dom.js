// Elements and numbers. Whatever comes from a server or a person becomes a text node, never markup.

export const byId = (id) => document.getElementById(id);

// An element with attributes and children; strings become text.
export function make(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes ?? {})) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

// Only what differs is written: focus, selection and screen readers stay where they are.
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export function setBar(bar, value, limit, text) {
  const share = limit > 0 ? Math.min(1, value / limit) : 0;
  bar.querySelector("i").style.width = `${100 * share}%`;
  bar.classList.toggle("full", limit > 0 && value >= limit);
  bar.setAttribute("aria-valuemin", "0");
  bar.setAttribute("aria-valuemax", String(limit));
  bar.setAttribute("aria-valuenow", String(Math.min(value, limit)));
  bar.setAttribute("aria-valuetext", text);
}

// A link to what an error code means.
export function codeLink(code) {
  const link = make("a", { href: `errors/${encodeURIComponent(code)}` });
  link.append(make("code", null, code));
  return link;
}

// Names and values; written anew only when something changed.
export function setFacts(list, facts) {
  const shown = JSON.stringify(facts);
  if (list.dataset.shown === shown) return;
  list.dataset.shown = shown;
  list.replaceChildren(
    ...Object.entries(facts).flatMap(([name, value]) => [
      make("dt", null, name),
      make("dd", null, value === null || value === "" ? "–" : plain(value)),
    ]),
  );
}

const plain = (value) =>
  typeof value === "number" ? String(Number(value.toPrecision(4))) : String(value);

// Anything a second: 0, 0.3, 12.
export const perSecond = (rate) =>
  rate === null ? "–" : rate > 0 && rate < 9.95 ? rate.toFixed(1) : rate.toFixed(0);

// A time: 8 ms, 310 ms, 1.25 s.
export function duration(seconds) {
  if (seconds < 0.9995) return `${(1000 * seconds).toFixed(seconds < 0.01 ? 1 : 0)} ms`;
  return `${seconds.toFixed(seconds < 10 ? 2 : 0)} s`;
}

export const clock = (date) => date.toLocaleTimeString("en-GB");
