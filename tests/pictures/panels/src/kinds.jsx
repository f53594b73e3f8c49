// What is inside a panel, by its type. All but the state timeline is Grafana's own.
import {
  FieldType,
  formattedValueToString,
  getDisplayValueAlignmentFactors,
  getFieldDisplayName,
  getFieldDisplayValues,
  dateTimeFormat,
} from '@grafana/data';
import { BigValue, TimeSeries, VizRepeater } from '@grafana/ui';
import { TableNG } from '@grafana/ui/unstable';
import { useLayoutEffect } from 'react';

// ------------------------------------------------------------------ tiles

function Tiles({ panel, frames, theme, width, height }) {
  const { options, fieldConfig } = panel;
  const values = () =>
    getFieldDisplayValues({
      fieldConfig,
      reduceOptions: options.reduceOptions,
      replaceVariables: (text) => text,
      theme,
      data: frames,
      timeZone: 'browser',
    });
  return (
    <VizRepeater
      getValues={values}
      getAlignmentFactors={(all) => getDisplayValueAlignmentFactors(all)}
      itemSpacing={3}
      autoGrid
      source={frames}
      renderCounter={0}
      orientation={options.orientation}
      width={width}
      height={height}
      renderValue={({ value, alignmentFactors, count, ...place }) => (
        <BigValue
          value={value.display}
          count={count}
          alignmentFactors={alignmentFactors}
          colorMode={options.colorMode}
          graphMode={options.graphMode}
          justifyMode={options.justifyMode}
          textMode={options.textMode}
          disableWideLayout={!options.wideLayout}
          theme={theme}
          {...place}
        />
      )}
    />
  );
}

// ------------------------------------------------------------------ lines

// Grafana draws marks and exemplars by parts that are not in its library.
function Marks({ builder, marks, exemplars, theme }) {
  useLayoutEffect(() => {
    builder.addHook('draw', (plot) => {
      const { ctx, bbox } = plot;
      const size = 4 * devicePixelRatio;
      ctx.save();
      for (const { moment, color } of marks) {
        const x = plot.valToPos(moment, 'x', true);
        ctx.strokeStyle = ctx.fillStyle = theme.visualization.getColorByName(color);
        ctx.lineWidth = devicePixelRatio;
        ctx.setLineDash([5 * devicePixelRatio, 5 * devicePixelRatio]);
        ctx.beginPath();
        ctx.moveTo(x, bbox.top);
        ctx.lineTo(x, bbox.top + bbox.height);
        ctx.stroke();
        const foot = bbox.top + bbox.height;
        shape(ctx, [[x - size, foot + size], [x + size, foot + size], [x, foot]]);
      }
      const scale = builder.scaleKeys?.[1];
      for (const { moment, value } of exemplars) {
        const [x, y] = [plot.valToPos(moment, 'x', true), plot.valToPos(value, scale, true)];
        ctx.fillStyle = theme.visualization.getColorByName('blue');
        shape(ctx, [[x - size, y], [x, y - size], [x + size, y], [x, y + size]]);
      }
      ctx.restore();
    });
  }, [builder]);
  return null;
}

function shape(ctx, corners) {
  ctx.beginPath();
  corners.forEach(([x, y], at) => (at ? ctx.lineTo(x, y) : ctx.moveTo(x, y)));
  ctx.closePath();
  ctx.fill();
}

function Lines({ panel, frames, order, marks, exemplars, theme, width, height }) {
  return (
    <TimeSeries
      frames={frames}
      structureRev={1}
      width={width}
      height={height}
      timeRange={order.range}
      timeZone="browser"
      legend={panel.options.legend}
      options={panel.options}
    >
      {(builder) => <Marks builder={builder} marks={marks} exemplars={exemplars} theme={theme} />}
    </TimeSeries>
  );
}

// ------------------------------------------------------------------ states, drawn here

const AXIS = 24;
const NAMES = 90;
const MINUTE = 60_000;
const STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 360, 720, 1440, 10_080];

/** Round moments between two others, seven at most. */
function round(from, to) {
  const minutes = STEPS.find((one) => (to - from) / (one * MINUTE) < 7) ?? STEPS.at(-1);
  const step = minutes * MINUTE;
  const found = [];
  for (let at = Math.ceil(from / step) * step; at <= to; at += step) {
    found.push(at);
  }
  return found;
}

/** Stretches of one value, from a moment to another; where there is none there is a gap. */
function stretches(times, values, stepMs) {
  const found = [];
  times.forEach((moment, at) => {
    if (values[at] === null) {
      return;
    }
    const last = found.at(-1);
    const joined = last && moment - last.to <= 1.5 * stepMs;
    if (joined) {
      last.to = moment;
    }
    if (!joined || last.value !== values[at]) {
      found.push({ from: moment, to: moment, value: values[at] });
    }
  });
  return found;
}

function Stretch({ left, width, high, shown, options, opacity, theme }) {
  const text = formattedValueToString(shown);
  const fits = width > 8 * text.length;
  const color = theme.visualization.getColorByName(shown.color);
  return (
    <>
      <div
        style={{
          position: 'absolute',
          left,
          width,
          top: (high * (1 - options.rowHeight)) / 2,
          height: high * options.rowHeight,
          background: color,
          opacity,
        }}
      />
      {fits && (
        <div style={{ position: 'absolute', left: left + 5, top: high / 2 - 9 }}>{text}</div>
      )}
    </>
  );
}

// Words and colours of values are by Grafana's own rules.
function States({ panel, frames, order, theme, width, height }) {
  const inner = width - NAMES;
  const place = (ms) =>
    NAMES + (Math.max(0, ms - order.from) / (order.to - order.from)) * inner;
  const high = (height - AXIS) / frames.length;
  const opacity = panel.fieldConfig.defaults.custom.fillOpacity / 100;
  const line = { position: 'absolute', width };
  return (
    <div style={{ position: 'relative', width, height, fontSize: 12 }}>
      {frames.map((frame, row) => {
        const time = frame.fields.find((one) => one.type === FieldType.time);
        const value = frame.fields.find((one) => one.type === FieldType.number);
        const name = getFieldDisplayName(value, frame, frames);
        return (
          <div key={name} style={{ ...line, top: row * high, height: high }}>
            <div style={{ position: 'absolute', top: high / 2 - 9 }}>{name}</div>
            {stretches(time.values, value.values, time.config.interval).map((one) => (
              <Stretch
                key={one.from}
                left={place(one.from)}
                width={Math.max(2, place(one.to) - place(one.from))}
                high={high}
                shown={value.display(one.value)}
                options={panel.options}
                opacity={opacity}
                theme={theme}
              />
            ))}
          </div>
        );
      })}
      {round(order.from, order.to).map((ms) => (
        <div
          key={ms}
          style={{ ...line, left: place(ms) - 30, width: 60, bottom: 0, textAlign: 'center' }}
        >
          {dateTimeFormat(ms, { format: 'HH:mm' })}
        </div>
      ))}
    </div>
  );
}

// ------------------------------------------------------------------ tables

function Rows({ panel, frames, width, height }) {
  const [frame] = frames;
  return (
    <TableNG
      data={frame}
      width={width}
      height={height}
      noHeader={!panel.options.showHeader}
      cellHeight={panel.options.cellHeight}
      noValue={panel.fieldConfig.defaults.noValue}
      fieldConfig={panel.fieldConfig}
      structureRev={1}
      enableVirtualization={false}
    />
  );
}

export const KINDS = { stat: Tiles, timeseries: Lines, 'state-timeline': States, table: Rows };
