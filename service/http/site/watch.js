// Asks the server how it is, while somebody looks.
//
//   mode        what is known                                 asks again after
//   live        /status answers                               everyMs
//   keyless     /status wants a key, or another one           2 s
//   elsewhere   no link to /status: metrics_bind is set       2 s
//   lost        no answer, or one that nobody understands     1, 2, 4, 8, 15 s
//
// A page that is not seen does not ask; one that is seen again asks at once.

const EVERY_MS = 1000;
const SELDOM_MS = 2000;
const BACK_OFF_MS = [1000, 2000, 4000, 8000, 15000];
const PATIENCE_MS = 5000;

export class Watch {
  everyMs = EVERY_MS;
  #keyring;
  #tell;
  #about = null;
  #failures = 0;
  #timer = 0;
  #asking = false;
  #again = false;

  // keyring.key goes with what may need one; tell(news) hears each answer.
  constructor(keyring, tell) {
    this.#keyring = keyring;
    this.#tell = tell;
    document.addEventListener("visibilitychange", () => this.now());
  }

  now() {
    clearTimeout(this.#timer);
    this.#again = this.#asking;
    if (!document.hidden && !this.#asking) void this.#look();
  }

  // Looks often for a while: a burst is over in a second.
  hurry(everyMs) {
    this.everyMs = everyMs ?? EVERY_MS;
    this.now();
  }

  async #look() {
    this.#asking = true;
    let news;
    try {
      news = await this.#ask();
      this.#failures = 0;
    } catch {
      this.#failures += 1;
      this.#about = null; // whoever comes back may be another server
      news = { mode: "lost" };
    }
    this.#asking = false;
    this.#tell(news);
    const pause = this.#again ? 0 : this.#pause(news.mode);
    if (!document.hidden) this.#timer = setTimeout(() => this.now(), pause);
  }

  async #ask() {
    // The example is there once the model is: until then it is asked for again.
    if (!this.#about?.example) this.#about = await json("./");
    const about = this.#about;
    if (!about.links.status) return { mode: "elsewhere", about, ready: await json("readyz") };
    const tried = this.#keyring.key;
    const answer = await get("status", this.#keyring.headers());
    if (answer.status === 401) return { mode: "keyless", about, tried, ready: await json("readyz") };
    if (!answer.ok) throw new Error(`status ${answer.status}`);
    return { mode: "live", about, status: await answer.json() };
  }

  #pause(mode) {
    if (mode === "live") return this.everyMs;
    if (mode !== "lost") return SELDOM_MS;
    return BACK_OFF_MS[Math.min(this.#failures, BACK_OFF_MS.length) - 1];
  }
}

function get(address, headers) {
  return fetch(address, {
    headers: { accept: "application/json", ...headers },
    cache: "no-store",
    signal: AbortSignal.timeout(PATIENCE_MS),
  });
}

async function json(address) {
  return (await get(address)).json();
}
