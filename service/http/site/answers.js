// Sends a prediction and shows what came of it: an answer, a problem, or nothing.

import { codeLink, duration, make } from "./dom.js";

const SHED = ["queue_full", "overloaded", "draining"];

// One request: inputs and parameters as JSON, or the bytes of a file. Without a code of the
// server's there was no answer, or none of the server's own.
export async function post({ inputs, parameters, file, many }, headers) {
  const began = performance.now();
  const seconds = () => (performance.now() - began) / 1000;
  let status = 0;
  try {
    const answer = await fetch("./", {
      method: "POST",
      headers: { "content-type": file ? kindOf(file) : "application/json", ...headers },
      body: file ?? JSON.stringify({ inputs, parameters }),
      cache: "no-store",
    });
    status = answer.status;
    const body = await answer.json();
    return {
      status,
      ok: answer.ok,
      many,
      code: answer.ok ? "ok" : body.code,
      body,
      seconds: seconds(),
      timing: answer.headers.get("server-timing") ?? "",
      againS: Number(answer.headers.get("retry-after")) || null,
    };
  } catch {
    return { status, ok: false, code: null, seconds: seconds() };
  }
}

export const kindOf = (file) => file.type || "application/octet-stream";

export const isRefusal = (result) => SHED.includes(result.code);

export function showResult(box, result) {
  stopCountdown(box);
  box.className = `answer ${result.ok ? "" : isRefusal(result) ? "refused" : "failed"}`;
  const parts = result.ok ? answer(result) : result.code ? trouble(box, result) : none(result);
  box.replaceChildren(...parts);
}

// What is said of it in one sentence, for those who hear the page.
export function inWords(result) {
  if (result.ok) return `Answered after ${duration(result.seconds)}.`;
  if (!result.code) return silence(result);
  return `${result.status} ${result.code}: ${result.body.detail}`;
}

function answer(result) {
  const { body, many } = result;
  const one = many ? body[0] : body;
  const perMask = Array.isArray(one) && one.length > 0 && one.every(isScores);
  const lists = isScores(one) ? [one] : perMask ? one : [];
  const parts = lists.map(scoreList);
  if (many) {
    const words = `${body.length} answers${lists.length ? ", the first of them" : ""}:`;
    parts.unshift(make("p", null, words));
  }
  const raw = make("pre", { tabindex: "0", "aria-label": "the answer as JSON" });
  raw.append(JSON.stringify(body, null, 1));
  if (lists.length) {
    parts.push(make("details", null, make("summary", null, "As JSON"), raw));
  } else {
    parts.push(raw);
  }
  parts.push(make("p", { class: "why" }, timing(result)));
  return parts;
}

const isScores = (value) =>
  Array.isArray(value) && value.length > 0 && value.every((one) => typeof one?.score === "number");

function scoreList(scores) {
  const list = make("ul", { class: "scores" });
  for (const one of scores) {
    const bar = make("span", { class: "bar", "aria-hidden": "true" }, make("i"));
    bar.firstChild.style.width = `${100 * Math.min(1, Math.max(0, one.score))}%`;
    const name = String(one.token_str ?? one.label ?? one.answer ?? "");
    const share = make("span", null, `${(100 * one.score).toFixed(1)} %`);
    list.append(make("li", null, make("span", null, name), bar, share));
  }
  return list;
}

const STEPS = { queue: "waited", infer: "model", total: "in the server" };

function timing({ timing, seconds }) {
  const parts = [];
  for (const [, name, ms] of timing.matchAll(/(\w+);dur=([\d.]+)/g)) {
    parts.push(`${STEPS[name] ?? name} ${duration(Number(ms) / 1000)}`);
  }
  parts.push(`seen from here ${duration(seconds)}`);
  return parts.join(" · ");
}

function trouble(box, { status, code, body, againS, seconds }) {
  const head = make("p", null, make("strong", null, `${status} `), codeLink(code));
  head.append(` ${body.title}`);
  const parts = [head, make("p", null, String(body.detail))];
  if (Array.isArray(body.errors)) {
    const list = make("ul");
    for (const { pointer, message } of body.errors) {
      list.append(make("li", null, make("code", null, pointer), ` ${message}`));
    }
    parts.push(list);
  }
  if (againS) parts.push(countdown(box, againS));
  parts.push(make("p", { class: "why" }, `Told after ${duration(seconds)}.`));
  return parts;
}

const timers = new WeakMap();

function stopCountdown(box) {
  clearInterval(timers.get(box));
}

function countdown(box, seconds) {
  let left = seconds;
  const line = make("p", null, `Come back in ${left} s.`);
  const tick = () => {
    left -= 1;
    line.textContent = left > 0 ? `Come back in ${left} s.` : "Now is the time to come back.";
    if (left <= 0) stopCountdown(box);
  };
  timers.set(box, setInterval(tick, 1000));
  return line;
}

const none = (result) => [make("p", null, silence(result))];

function silence({ status }) {
  if (!status) return "No answer: the server cannot be reached.";
  return `${status}, and not in the server's words: something on the way has answered.`;
}
