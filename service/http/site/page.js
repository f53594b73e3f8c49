// The page's start: who watches, who shows, who asks.

import { byId, clock, setText } from "./dom.js";
import { showPast, showState, showStatus } from "./figures.js";
import { History } from "./history.js";
import { Playground } from "./playground.js";
import { Watch } from "./watch.js";

// The API key: in this page's memory and nowhere else.
const keyring = {
  key: "",
  get set() {
    return this.key !== "";
  },
  headers() {
    return this.key ? { authorization: `Bearer ${this.key}` } : {};
  },
};

const history = new History();
const seconds = () => performance.now() / 1000;

let mode = "";
let heardAt = null;

const say = (text) => setText(byId("say"), text);

const watch = new Watch(keyring, hear);
const playground = new Playground(keyring, watch, say);

byId("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  const key = byId("key").value.trim();
  const sendable = /^[\x21-\x7e]+$/.test(key);
  keyring.key = sendable ? key : "";
  byId("key").value = "";
  setText(byId("key-fault"), sendable ? "Trying it …" : "A key is letters, digits and signs.");
  watch.now();
});

function hear(news) {
  const moved = news.mode !== mode;
  mode = news.mode;
  document.body.classList.toggle("stale", mode === "lost");
  if (mode !== "lost") {
    document.body.classList.toggle("keyless", mode === "keyless");
    document.body.classList.toggle("elsewhere", mode === "elsewhere");
    byId("key-form").hidden = mode !== "keyless";
    byId("status-link").hidden = mode !== "live" || keyring.set;
    introduce(news);
  }
  HEARD[mode](news, moved);
  if (mode !== "keyless" && mode !== "elsewhere") showPast(history, seconds());
}

const HEARD = {
  live({ status }, moved) {
    heardAt = new Date();
    history.add(seconds(), status);
    showStatus(status, history);
    setText(byId("freshness"), `figures of ${clock(heardAt)}`);
    notice(status.rehearsal ? "Rehearsal: requests to this server may ask for faults." : "");
    if (moved) say(`The server answers: ${status.reason}.`);
  },

  keyless({ ready, tried }, moved) {
    showState(ready.ready ? "ready" : "not ready", ready.ready, ready.reason);
    notice("");
    if (tried && tried === keyring.key) {
      keyring.key = "";
      setText(byId("key-fault"), "This is none of the server's keys.");
    }
    if (moved) say("The server asks for an API key.");
  },

  elsewhere({ ready }) {
    showState(ready.ready ? "ready" : "not ready", ready.ready, ready.reason);
    notice(
      "The figures are not here: the setting metrics_bind has moved /status and /metrics to an " +
        "address of their own. The model can be tried here all the same.",
    );
  },

  lost(_news, moved) {
    history.miss(seconds());
    showState("no answer", false, "");
    const since = heardAt ? ` since ${clock(heardAt)}; the figures below are of then` : "";
    notice(`The server does not answer${since}. Asking again.`);
    if (moved) say("The server does not answer.");
  },
};

function introduce({ about, status }) {
  const facts = status?.model;
  const place = facts ? ` on ${facts.device}` : "";
  setText(byId("model"), `${about.model} · ${about.task}${place}`);
  setText(byId("version"), `${about.name} ${about.version}`);
  document.title = `${about.model} – Seawall`;
  playground.learn({ about, status, pace: history.pace() });
}

function notice(text) {
  byId("notice").hidden = !text;
  setText(byId("notice"), text);
}

watch.now();
