// Puts what /status says on the page, with the rates that the history makes of it.

import { drawAreas, drawLegend, drawLines } from "./chart.js";
import { byId, codeLink, duration, make, perSecond, setBar, setFacts, setText } from "./dom.js";
import { ENDS } from "./history.js";

const STATES = {
  ready: "good",
  starting: "busy",
  loading: "busy",
  restarting: "busy",
  draining: "busy",
};

const BREAKER = {
  closed: ["good", "Closed: the model answers. It opens when the model fails its self-test."],
  open: ["bad", "Open: the model fails its self-test. Requests get 503 until it passes again."],
  half_open: ["busy", "Half open: a few requests at a time try whether the model works again."],
};

// How a class of outcomes is called in the charts, and what it means in the table.
const CLASSES = {
  ok: ["answered", "answered"],
  shed: ["refused", "refused: more work than can be done in time"],
  late: ["late", "its deadline passed"],
  server: ["failed", "the server could not serve it"],
  client: ["client's fault", "the request cannot be served as it is"],
  gone: ["client's fault", "the client left"],
};

// Refused before anything is done, though not for load.
const NOT_READY = ["circuit_open", "model_loading"];

export function showState(state, ready, reason) {
  const pill = byId("state");
  setText(pill, state);
  pill.className = `pill ${ready ? "good" : (STATES[state] ?? "bad")}`;
  setText(byId("reason"), reason);
}

export function showStatus(status, history) {
  showDoor(status, history);
  showQueue(status);
  showModel(status, history);
  showAnswered(history);
  showOutcomes(status, history);
  showHealth(status);
}

const rateOf = (history, name) =>
  history.rate(({ outcomes }) => total(outcomes[name]));

const total = (codes) => Object.values(codes).reduce((sum, count) => sum + count, 0);

function showDoor(status, history) {
  const shed = rateOf(history, "shed");
  const unready = history.rate(({ outcomes }) =>
    NOT_READY.reduce((sum, code) => sum + outcomes.server[code], 0),
  );
  const refused = shed === null ? null : shed + unready;
  const overloaded = status.ready && shed > 0;
  showState(
    status.state,
    status.ready,
    overloaded ? "more work than can be done: the rest is refused" : status.reason,
  );
  setText(byId("arrive"), perSecond(history.rate(history.all)));
  const line = byId("refuse");
  line.classList.toggle("shed-now", refused > 0);
  setText(line, refused > 0 ? `${perSecond(refused)} of them refused (503)` : "nobody is refused");
}

function showQueue({ queue, limits }) {
  const depth = `${queue.depth} of ${queue.limit} inputs`;
  setText(byId("depth-text"), depth);
  setBar(byId("depth"), queue.depth, queue.limit, depth);
  const mark = byId("depth").querySelector("u");
  mark.style.width = `${Math.min(100, (100 * queue.peak) / queue.limit)}%`;
  mark.hidden = queue.peak < 1;
  const wait = limits
    ? `${queue.predicted_wait_s.toFixed(2)} of ${limits.wait_cap_s.toFixed(2)} s`
    : "not known yet";
  setText(byId("wait-text"), wait);
  setBar(byId("wait"), queue.predicted_wait_s, limits?.wait_cap_s ?? 0, wait);
}

function showModel({ workers }, history) {
  const running = workers.reduce((sum, worker) => sum + worker.running_items, 0);
  setText(byId("running"), String(running));
  const items = history.ratio(
    ({ batches }) => batches.items,
    ({ batches }) => batches.count,
  );
  if (items === null) {
    setText(byId("batch"), running ? "a batch is running" : "no work just now");
    return;
  }
  const seconds = history.ratio(
    ({ batches }) => batches.seconds,
    ({ batches }) => batches.count,
  );
  const busy = history.rate(({ batches }) => batches.seconds) / Math.max(1, workers.length);
  const share = Math.min(100, 100 * busy).toFixed(0);
  setText(byId("batch"), `batches of ${items.toFixed(1)}, ${duration(seconds)} each, ${share}\u00a0% busy`);
}

function showAnswered(history) {
  setText(byId("answer-rate"), perSecond(rateOf(history, "ok")));
  const waited = history.ratio(
    ({ queue }) => queue.waited_s,
    ({ queue }) => queue.left,
  );
  const late = rateOf(history, "late");
  const parts = [waited === null ? "nobody waits" : `waited ${duration(waited)} on average`];
  if (late > 0) parts.push(`${perSecond(late)} late`);
  setText(byId("waited"), parts.join(", "));
}

const rows = new Map();

// One row for each outcome that has occurred; rows stay, so that focus stays too.
function showOutcomes(status, history) {
  for (const [name, codes] of Object.entries(status.outcomes)) {
    for (const [code, count] of Object.entries(codes)) {
      if (!count && code !== "ok" && !rows.has(code)) continue;
      if (!rows.has(code)) rows.set(code, outcomeRow(code, name));
      const [, rate, all] = rows.get(code).children;
      setText(rate, perSecond(history.rate((one) => one.outcomes[name][code])));
      setText(all, count.toLocaleString("en"));
    }
  }
}

function outcomeRow(code, name) {
  const shown = code === "ok" ? make("code", null, code) : codeLink(code);
  const number = { class: "number" };
  const meaning = make("span", { class: "meaning why" }, CLASSES[name][1]);
  const head = make("th", { scope: "row" }, shown, code === "ok" ? "" : meaning);
  const row = make("tr", null, head, make("td", number), make("td", number));
  byId("outcomes").append(row);
  return row;
}

function showHealth(status) {
  const [mood, sentence] = BREAKER[status.breaker.state];
  const pill = byId("breaker");
  setText(pill, status.breaker.state.replace("_", " "));
  pill.className = `pill ${mood}`;
  setText(byId("breaker-why"), sentence);
  showWorkers(status.workers);
  const lost = Object.entries(status.restarts).filter(([, count]) => count);
  setText(
    byId("restarts"),
    lost.length
      ? `Lost and started again: ${lost.map(([why, count]) => `${count} × ${why}`).join(", ")}.`
      : "No worker has been lost since the start.",
  );
  const { limits, queue } = status;
  setFacts(byId("limits"), { queue_limit: queue.limit, ...limits });
  setFacts(byId("settings"), status.settings);
}

function showWorkers(workers) {
  const table = byId("workers");
  while (table.children.length > workers.length) table.lastChild.remove();
  workers.forEach((worker, index) => {
    table.children[index] ?? table.append(workerRow());
    const values = [
      worker.index, worker.state, worker.running_items, worker.preparing_items, worker.pid ?? "–",
    ];
    values.forEach((value, column) => setText(table.children[index].children[column], String(value)));
  });
}

function workerRow() {
  const number = { class: "number" };
  const row = make("tr", null, make("th", { scope: "row" }), make("td"));
  row.append(make("td", number), make("td", number), make("td", number));
  return row;
}

export function showPast(history, now) {
  const { points } = history;
  const known = points.filter((point) => !point.gap);
  const last = points.at(-1)?.gap ? null : known.at(-1);
  const percent = (value) => (value === null || value === undefined ? "–" : `${Math.round(100 * value)}\u00a0%`);
  drawLines(byId("fill-chart"), points, now, ["depth", "wait"]);
  drawLegend(byId("fill-legend"), [
    ["depth", `waiting ${percent(last?.depth)} of the queue's limit`],
    ["wait", `wait ahead ${percent(last?.wait)} of its cap`],
  ]);
  const fullest = Math.max(0, ...known.map((point) => Math.max(point.depth, point.wait ?? 0)));
  byId("fill-chart").setAttribute(
    "aria-label",
    `Fill over two minutes: at most ${percent(fullest)}, now ${percent(last?.depth)} of the queue` +
      ` and ${percent(last?.wait)} of the wait cap.`,
  );
  const top = drawAreas(byId("ends-chart"), points, now, ENDS);
  setText(byId("ends-top"), `${top}`);
  const entries = ENDS.map((name) => [name, `${CLASSES[name][0]} ${perSecond(last?.[name] ?? null)}`]);
  drawLegend(byId("ends-legend"), entries);
  byId("ends-chart").setAttribute(
    "aria-label",
    `Requests a second, now: ${entries.map(([, text]) => text).join(", ")}.`,
  );
}
