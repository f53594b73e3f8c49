// Try the model: one input, many as a list, or more than the server can do.
//
// An input is a text, or JSON where the task's example is more than a text, or a file where the
// task takes bytes.
//
// A browser opens six connections to one server and lets everything else wait unsent. So a crowd
// comes as lists, on five connections; the sixth is left for the figures and for the person.

import { inWords, isRefusal, kindOf, post, showResult } from "./answers.js";
import { byId, codeLink, duration, make, setText } from "./dom.js";

const MANY = 50;
const PATIENCE_MS = 30000; // the list of many names this deadline, so that it is let in
const CLIENTS = 5;
const CLIENTS_AT_LIMIT = 3; // so many lists are as much as may wait; the others are too much
const FIRST_LIST = 8; // before any batch has shown how fast the model is
const OVERLOAD_S = 15;
const OFTEN_MS = 250;
const IMPATIENCE_MS = [200, 400]; // before a refused list is sent again, whatever it was told

export class Playground {
  #keyring;
  #watch;
  #say;
  #most = { items: MANY, chars: Infinity, bytes: Infinity, deadlineMs: PATIENCE_MS };
  #allowance = FIRST_LIST; // inputs of one list of the crowd
  #fits = MANY; // shorter while the server says that a list would take too long
  #overload = null;
  #json = false; // whether the input is written as JSON
  #file = null; // and its bytes as a data: URL, for lists

  constructor(keyring, watch, say) {
    this.#keyring = keyring;
    this.#watch = watch;
    this.#say = say;
    byId("ask").addEventListener("submit", (event) => {
      event.preventDefault();
      void this.#ask(this.#one());
    });
    for (const name of ["text", "parameters"]) {
      byId(name).addEventListener("input", () => this.#describe());
    }
    byId("file").addEventListener("change", () => void this.#choose(byId("file").files[0]));
    byId("many").addEventListener("click", () => void this.#sendMany());
    byId("alone").addEventListener("change", () => this.#allow());
    byId("overload").addEventListener("click", () => this.#toggleOverload());
    this.#describe();
  }

  // What the server tells of itself.
  learn({ about, status, pace }) {
    if (about?.example && !byId("text").dataset.filled) this.#fill(about);
    if (status) {
      byId("fault-row").hidden = !status.rehearsal;
      this.#most = {
        items: Math.min(MANY, status.settings.max_items, status.queue.limit),
        chars: status.limits?.chars_per_request ?? Infinity,
        bytes: status.settings.max_body_bytes,
        deadlineMs: Math.min(PATIENCE_MS, status.settings.max_deadline_ms),
      };
      const ready = status.workers.filter(({ state }) => state === "ready").length;
      if (pace && status.limits) {
        this.#allowance = (status.limits.wait_cap_s * pace * ready) / CLIENTS_AT_LIMIT;
      }
    }
    this.#describe();
  }

  // The example, once; whatever somebody has written stays.
  #fill({ example, media, parameters }) {
    const text = byId("text");
    text.dataset.filled = "yes";
    this.#json = typeof example !== "string";
    setText(byId("text-name"), this.#json ? "Input, as JSON" : media === "text" ? "Text" : "Data");
    text.value ||= this.#json ? JSON.stringify(example, null, 1) : example;
    if (Object.keys(parameters).length) {
      byId("parameters").value ||= JSON.stringify(parameters);
    }
    byId("file-row").hidden = media === "text";
    byId("file").accept = `${media}/*`;
  }

  async #choose(file) {
    this.#file = file ? { file, url: await asUrl(file) } : null;
    byId("text").required = !file;
    byId("text").setCustomValidity("");
    this.#describe();
  }

  get #input() {
    if (this.#file) return this.#file.url;
    return this.#json ? parsed(byId("text")) : byId("text").value;
  }

  get #parameters() {
    const field = byId("parameters");
    field.setCustomValidity("");
    return field.value.trim() ? parsed(field) : undefined;
  }

  // The longest list that may be sent.
  get #many() {
    const input = this.#input ?? "";
    const length = (this.#json ? JSON.stringify(input) : input).length;
    const most = this.#file ? this.#most.bytes : this.#most.chars;
    const byChars = Math.floor(most / Math.max(1, length));
    return Math.max(1, Math.min(this.#most.items, byChars));
  }

  #one() {
    const parameters = this.#parameters;
    const file = parameters ? undefined : this.#file?.file; // a bare file has no parameters
    return { inputs: this.#input, parameters, file, many: false };
  }

  #list(size) {
    return { inputs: Array(size).fill(this.#input), parameters: this.#parameters, many: true };
  }

  get #headers() {
    const fault = byId("fault-row").hidden ? "" : byId("fault").value;
    return { ...this.#keyring.headers(), ...(fault && { "x-rehearse-fault": fault }) };
  }

  #describe() {
    setText(byId("many"), `Send ${this.#many} at once`);
    const { inputs, parameters, file } = this.#one();
    const asText = !this.#json && !parameters;
    const body = asText ? inputs : JSON.stringify({ inputs, parameters });
    const kind = file ? kindOf(file) : asText ? "" : "application/json";
    const how = body.startsWith("@") ? "--data-raw" : "-d";
    const data = file ? `--data-binary ${quoted(`@${file.name}`)}` : `${how} ${quoted(body)}`;
    const type = kind && ` -H "Content-Type: ${kind}"`;
    const key = this.#keyring.set ? ' -H "Authorization: Bearer $KEY"' : "";
    const address = new URL("./", location.href).href;
    setText(byId("curl"), `curl -X POST${key}${type} ${data} ${address}`);
  }

  async #ask(asked, more) {
    const result = await post(asked, { ...this.#headers, ...more });
    showResult(byId("answer"), result);
    this.#say(inWords(result));
    this.#watch.now();
  }

  async #sendMany() {
    if (!byId("ask").reportValidity()) return;
    this.#watch.hurry(OFTEN_MS);
    const patience = { "x-request-timeout-ms": String(this.#most.deadlineMs) };
    await this.#ask(this.#list(this.#many), patience);
    if (!this.#overload) this.#watch.hurry();
  }

  // ------------------------------------------------------------ more than can be done

  #allow() {
    byId("overload").disabled = !byId("alone").checked && !this.#overload;
  }

  #toggleOverload() {
    if (this.#overload) this.#overload.abort();
    else if (byId("ask").reportValidity()) void this.#runOverload();
  }

  async #runOverload() {
    const stop = new AbortController();
    const timer = setTimeout(() => stop.abort(), 1000 * OVERLOAD_S);
    const button = byId("overload");
    const name = button.textContent;
    this.#overload = stop;
    setText(button, "Stop");
    this.#watch.hurry(OFTEN_MS);
    const tally = new Tally(byId("tally"));
    await Promise.all(Array.from({ length: CLIENTS }, () => this.#client(stop.signal, tally)));
    clearTimeout(timer);
    this.#overload = null;
    setText(button, name);
    this.#allow();
    this.#watch.hurry();
    this.#say(`Overload is over. ${byId("tally").textContent}`);
  }

  async #client(signal, tally) {
    while (!signal.aborted) {
      // What was sent is not taken back at the end: its answer counts.
      const size = Math.max(1, Math.round(Math.min(this.#many, this.#allowance, this.#fits)));
      const result = await post(this.#list(size), this.#headers);
      tally.add(result, size);
      if (result.code === "payload_too_large") this.#fits = Math.max(1, Math.floor(size / 2));
      if (result.ok) this.#fits = Math.min(MANY, 2 * this.#fits);
      if (!result.ok) await pause(signal);
    }
  }
}

// What became of the lists.
class Tally {
  #box;
  #answered = [];
  #refused = [];
  #codes = new Map();
  #again = 0;
  #items = 0;

  constructor(box) {
    this.#box = box;
    box.className = "answer";
    box.replaceChildren(make("p", null, "Sending …"));
  }

  add(result, items) {
    this.#items = Math.max(this.#items, items);
    if (result.ok) this.#answered.push(result.seconds);
    else if (isRefusal(result)) this.#refused.push(result.seconds);
    if (!result.ok) this.#codes.set(result.code, (this.#codes.get(result.code) ?? 0) + 1);
    this.#again = Math.max(this.#again, result.againS ?? 0);
    this.#show();
  }

  #show() {
    const lines = [`Lists of up to ${this.#items}: ${this.#answered.length} answered`];
    if (this.#answered.length) lines[0] += `, typically in ${duration(median(this.#answered))}`;
    lines[0] += ".";
    if (this.#refused.length) {
      lines.push(
        `${this.#refused.length} refused, typically after ${duration(median(this.#refused))}, and` +
          ` told to come back in up to ${this.#again} s.`,
      );
    } else {
      lines.push("None refused: the server keeps up.");
    }
    const parts = lines.map((line) => make("p", null, line));
    if (this.#codes.size) {
      const codes = make("p", null, "Why: ");
      for (const [code, count] of this.#codes) {
        codes.append(code ? codeLink(code) : "no answer", ` × ${count} `);
      }
      parts.push(codes);
    }
    if (this.#box.contains(document.activeElement)) return; // somebody is on a link in it
    this.#box.replaceChildren(...parts);
  }
}

const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;

// What a field holds as JSON; one that cannot be read says so, and nothing is sent.
function parsed(field) {
  field.setCustomValidity("");
  try {
    return JSON.parse(field.value);
  } catch {
    field.setCustomValidity("This is no valid JSON.");
    return null;
  }
}

function asUrl(file) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.addEventListener("load", () => resolve(reader.result));
    reader.addEventListener("error", reject);
    reader.readAsDataURL(file);
  });
}

function median(values) {
  return [...values].sort((a, b) => a - b)[Math.floor(values.length / 2)];
}

function pause(signal) {
  const [least, more] = IMPATIENCE_MS;
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, least + more * Math.random());
    signal.addEventListener("abort", () => resolve(clearTimeout(timer)), { once: true });
  });
}
