// The last two minutes: rates from differences of counters, and points for the charts.

export const WINDOW_S = 120;
export const ENDS = ["ok", "shed", "late", "server", "client"];

const RATE_S = 3; // of a figure: long enough to be read
const STEP_S = 0.95; // of a point: about one look at the usual pace

// Requests that ended in one way; a client that left is a client's doing.
export function ended(status, name) {
  const { outcomes } = status;
  const classes = name === "client" ? [outcomes.client, outcomes.gone] : [outcomes[name]];
  return classes.flatMap((codes) => Object.values(codes)).reduce((sum, count) => sum + count, 0);
}

const endedAll = (status) => ENDS.reduce((sum, name) => sum + ended(status, name), 0);

export class History {
  points = [];
  #samples = [];

  add(at, status) {
    const last = this.#samples.at(-1);
    if (last && (endedAll(status) < endedAll(last) || status.clock_s < last.clock_s)) {
      this.#samples = []; // another process: its counters began anew
    }
    this.#samples.push(status);
    const oldest = status.clock_s - WINDOW_S;
    this.#samples = this.#samples.filter((sample) => sample.clock_s >= oldest);
    const { queue, limits } = status;
    const point = {
      at,
      depth: queue.depth / queue.limit,
      wait: limits ? queue.predicted_wait_s / limits.wait_cap_s : null,
    };
    for (const name of ENDS) point[name] = this.rate((sample) => ended(sample, name), STEP_S);
    this.#keep(point);
  }

  // Nothing is known of this moment: a gap, not a zero.
  miss(at) {
    this.#keep({ at, gap: true });
  }

  #keep(point) {
    this.points.push(point);
    this.points = this.points.filter((one) => one.at >= point.at - WINDOW_S - 5);
  }

  // How fast a counter rises, per second of the server's clock; null if nobody can tell yet.
  rate(count, overS = RATE_S) {
    const [rise, time] = this.#rise(count, overS);
    return time > 0 ? rise / time : null;
  }

  // One counter's rise by another's, as in "seconds a batch"; null if the other stood still.
  ratio(count, by) {
    const [under] = this.#rise(by, RATE_S);
    return under > 0 ? this.#rise(count, RATE_S)[0] / under : null;
  }

  all = endedAll;

  // Inputs that the model gets through in a second of work; null before the first batch.
  pace() {
    const recent = this.ratio(
      ({ batches }) => batches.items,
      ({ batches }) => batches.seconds,
    );
    const { items, seconds } = this.#samples.at(-1)?.batches ?? { seconds: 0 };
    return recent ?? (seconds > 0 ? items / seconds : null);
  }

  #rise(count, overS) {
    const newest = this.#samples.at(-1);
    if (!newest) return [0, 0];
    const before = (sample) => newest.clock_s - sample.clock_s;
    const base = this.#samples.findLast((one) => before(one) >= overS) ?? this.#samples[0];
    return [count(newest) - count(base), before(base)];
  }
}
