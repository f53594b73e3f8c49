// Asks Prometheus what a panel asks, and makes of the answer the frames that Grafana's data source
// makes: steps, ranges of rates, names of series and columns of tables as there.
import { FieldType, rangeUtil } from '@grafana/data';

const TIME = 'Time';

/** The step of a panel's queries, and the range of its rates, in milliseconds. */
export function pace({ interval, maxDataPoints }, order, width) {
  const least = interval ? rangeUtil.intervalToMs(interval) : order.scrapeMs;
  const points = maxDataPoints ?? Math.floor(width);
  const stepMs = Math.max(
    least,
    rangeUtil.calculateInterval(order.range, points, `${least}ms`).intervalMs
  );
  return { stepMs, rateMs: Math.max(stepMs + order.scrapeMs, 4 * order.scrapeMs) };
}

/** An expression with every variable's value in its place. */
export function filled(expr, order, rateMs) {
  const values = {
    job: order.job,
    instance: '.+',
    __rate_interval: `${rateMs}ms`,
    __range: `${Math.round((order.to - order.from) / 1000)}s`,
  };
  return expr.replace(/\$(\w+)/g, (_, name) => {
    if (!(name in values)) {
      throw new Error(`nobody gives a value to $${name}`);
    }
    return values[name];
  });
}

async function get(path, asked) {
  const answer = await fetch(`/api/v1/${path}?${new URLSearchParams(asked)}`);
  const body = await answer.json();
  if (body.status !== 'success') {
    throw new Error(`${path}: ${body.error}`);
  }
  return body.data;
}

/**
 * Every series of an expression over the time shown: its labels, moments and values.
 *
 * Where a series has no value there is a null, as Grafana's own panels put it.
 */
export async function series(order, expr, stepMs, instant = false) {
  // Aligned to the step, as Grafana does it: a redraw shows the same samples.
  const align = (ms) => Math.floor(ms / stepMs) * stepMs;
  const every = [];
  for (let at = align(order.from); at <= order.to; at += stepMs) {
    every.push(at);
  }
  const data = instant
    ? await get('query', { query: expr, time: order.to / 1000 })
    : await get('query_range', {
        query: expr,
        start: align(order.from) / 1000,
        end: align(order.to) / 1000,
        step: stepMs / 1000,
      });
  return data.result.map(({ metric, value, values }) => {
    const found = new Map((values ?? [value]).map(([at, text]) => [at * 1000, Number(text)]));
    const times = instant ? [...found.keys()] : every;
    return { labels: metric, times, values: times.map((at) => found.get(at) ?? null) };
  });
}

function named(legend, labels) {
  const { __name__: name, ...rest } = labels;
  if (legend) {
    return legend.replace(/\{\{\s*(\w+)\s*\}\}/g, (_, label) => labels[label] ?? '');
  }
  const inside = Object.entries(rest).map(([label, value]) => `${label}="${value}"`);
  return `${name ?? ''}{${inside.join(', ')}}`;
}

function lines(target, found, stepMs) {
  return found.map(({ labels, times, values }) => ({
    refId: target.refId,
    length: times.length,
    fields: [
      { name: TIME, type: FieldType.time, config: { interval: stepMs }, values: times },
      {
        name: 'Value',
        type: FieldType.number,
        labels,
        config: { displayNameFromDS: named(target.legendFormat, labels) },
        values,
      },
    ],
  }));
}

function table(target, found) {
  const columns = [...new Set(found.flatMap(({ labels }) => Object.keys(labels)))];
  const column = (name, type, values) => ({ name, type, config: {}, values });
  return {
    refId: target.refId,
    length: found.length,
    fields: [
      column(TIME, FieldType.time, found.map(({ times }) => times[0])),
      ...columns.map((name) =>
        column(name, FieldType.string, found.map(({ labels }) => labels[name] ?? ''))
      ),
      column(`Value #${target.refId}`, FieldType.number, found.map(({ values }) => values[0])),
    ],
  };
}

/** The frames of all of a panel's targets. */
export async function frames(panel, order, width) {
  const { stepMs, rateMs } = pace(panel, order, width);
  const asked = panel.targets.map(async (target) => {
    const found = await series(order, filled(target.expr, order, rateMs), stepMs, target.instant);
    return target.format === 'table' ? [table(target, found)] : lines(target, found, stepMs);
  });
  return (await Promise.all(asked)).flat();
}

/** The moments of the dashboard's marks, each with its colour. */
export async function marks(order) {
  // Grafana asks for marks once a minute, which is four scrapes of 15 seconds.
  const stepMs = 4 * order.scrapeMs;
  const all = order.board.annotations.list.map(async (mark) => {
    const expr = filled(mark.target.expr, order, stepMs + order.scrapeMs);
    const found = await series(order, expr, stepMs);
    return found.flatMap(({ times, values }) => {
      const there = times.filter((_, at) => values[at] !== null);
      const moments = mark.useValueForTime
        ? new Set(values.filter((one) => one !== null))
        : begins(there, stepMs);
      return [...moments].map((moment) => ({ moment, color: mark.iconColor }));
    });
  });
  const inside = ({ moment }) => order.from <= moment && moment <= order.to;
  return (await Promise.all(all)).flat().filter(inside);
}

function begins(times, stepMs) {
  return times.filter((moment, at) => at === 0 || moment - times[at - 1] > stepMs);
}

/** The traces behind a panel's numbers: moment and value of each, the slowest of each stretch. */
export async function exemplars(panel, order) {
  const asked = panel.targets.filter((target) => target.exemplar);
  const found = await Promise.all(
    asked.map((target) =>
      get('query_exemplars', {
        query: filled(target.expr, order, 4 * order.scrapeMs),
        start: order.from / 1000,
        end: order.to / 1000,
      })
    )
  );
  const slowest = new Map();
  const stretchMs = (order.to - order.from) / 60;
  const all = found.flat().flatMap((many) => many.exemplars);
  for (const one of all) {
    const place = Math.floor((one.timestamp * 1000) / stretchMs);
    const value = Number(one.value);
    if (value > (slowest.get(place)?.value ?? 0)) {
      slowest.set(place, { moment: one.timestamp * 1000, value });
    }
  }
  return [...slowest.values()];
}
