// Draws a dashboard's JSON in Grafana's own components, over what a Prometheus answers.
//
// window.draw(order) resolves to {title: 'data' or 'empty'} once everything stands there.
import { createTheme, dateTime, dateTimeFormat } from '@grafana/data';
import { GlobalStyles, Icon, PanelChrome, ThemeContext } from '@grafana/ui';
import { createRoot } from 'react-dom/client';
import { exemplars, frames, marks } from './asking.js';
import { configured, unknown } from './fields.js';
import { KINDS } from './kinds.jsx';

// Of Grafana's grid, in pixels.
const CELL = 30;
const GAP = 8;
const COLUMNS = 24;
const EDGE = 16;

function place({ x, y, w, h }, order) {
  const column = (order.width - 2 * EDGE - (COLUMNS - 1) * GAP) / COLUMNS;
  return {
    left: EDGE + x * (column + GAP),
    top: y * (CELL + GAP),
    width: w * column + (w - 1) * GAP,
    height: h * CELL + (h - 1) * GAP,
  };
}

function Panel({ panel, shown, order, theme }) {
  const { width, height, ...corner } = place(panel.gridPos, order);
  const Kind = KINDS[panel.type];
  const links = <Icon key="link" name="external-link-alt" size="sm" style={{ margin: '0 4px' }} />;
  const table = panel.type === 'table';
  return (
    <div style={{ position: 'absolute', width, height, ...corner }}>
      <PanelChrome
        title={panel.title}
        description={panel.description}
        titleItems={panel.links.length ? links : undefined}
        width={width}
        height={height}
        padding={table ? 'none' : 'md'}
      >
        {(wide, high) =>
          shown.frames.length ? (
            <Kind panel={panel} order={order} theme={theme} width={wide} height={high} {...shown} />
          ) : (
            <div style={{ ...EMPTY, height: high, color: theme.colors.text.secondary }}>
              {panel.fieldConfig.defaults.noValue}
            </div>
          )
        }
      </PanelChrome>
    </div>
  );
}

const EMPTY = { display: 'flex', alignItems: 'center', justifyContent: 'center' };
const HEADING = { position: 'absolute', display: 'flex', alignItems: 'center', gap: 6 };

function Heading({ row, order, theme }) {
  return (
    <div style={{ ...HEADING, ...place(row.gridPos, order), color: theme.colors.text.primary }}>
      <Icon name="angle-down" />
      <span style={{ fontSize: 16, fontWeight: 500 }}>{row.title}</span>
    </div>
  );
}

function Top({ order, theme }) {
  const chosen = { default: 'default', job: order.job, instance: 'All' };
  const box = {
    border: `1px solid ${theme.colors.border.medium}`,
    background: theme.colors.background.primary,
    borderRadius: 2,
    padding: '4px 8px',
  };
  const when = (ms) => dateTimeFormat(ms, { format: 'HH:mm:ss' });
  const named = order.board.templating.list.filter((one) => one.hide !== 2);
  return (
    <div style={{ display: 'flex', alignItems: 'center', gap: 8, padding: EDGE, fontSize: 13 }}>
      <span style={{ fontSize: 18, fontWeight: 500, marginRight: 16 }}>{order.board.title}</span>
      {named.map((one) => (
        <span key={one.name} style={box}>
          <span style={{ color: theme.colors.text.secondary, marginRight: 8 }}>{one.label}</span>
          {chosen[one.name] ?? one.current.text}
        </span>
      ))}
      <span style={{ flex: 1 }} />
      <span style={{ ...box, display: 'flex', gap: 6, alignItems: 'center' }}>
        <Icon name="clock-nine" />
        {when(order.from)} to {when(order.to)}
      </span>
    </div>
  );
}

function Board({ order, panels, theme }) {
  const rows = order.board.panels.filter((one) => one.type === 'row');
  const units = Math.max(...order.board.panels.map(({ gridPos }) => gridPos.y + gridPos.h));
  return (
    <ThemeContext.Provider value={theme}>
      <GlobalStyles />
      <div id="board" style={{ width: order.width, background: theme.colors.background.canvas }}>
        <Top order={order} theme={theme} />
        <div style={{ position: 'relative', height: units * (CELL + GAP) }}>
          {rows.map((row) => (
            <Heading key={row.id} row={row} order={order} theme={theme} />
          ))}
          {panels.map(({ panel, shown }) => (
            <Panel key={panel.id} panel={panel} shown={shown} order={order} theme={theme} />
          ))}
        </div>
        <div style={{ padding: EDGE, fontSize: 12, color: theme.colors.text.secondary }}>
          {order.note}
        </div>
      </div>
    </ThemeContext.Provider>
  );
}

async function load(panel, order, theme, marked) {
  const strange = unknown(panel);
  if (strange.length || !KINDS[panel.type]) {
    throw new Error(`${panel.title}: nothing here draws ${strange.join(', ') || panel.type}`);
  }
  const found = await frames(panel, order, place(panel.gridPos, order).width);
  const [shown, traces] = await Promise.all([
    configured(panel, found, theme),
    exemplars(panel, order),
  ]);
  return { panel, shown: { frames: shown, marks: marked, exemplars: traces } };
}

window.draw = async (order) => {
  const theme = createTheme({ colors: { mode: order.mode } });
  const [from, to] = [dateTime(order.from), dateTime(order.to)];
  order.range = { from, to, raw: { from, to } };
  const marked = await marks(order);
  const wanted = order.board.panels.filter((one) => one.type !== 'row');
  const panels = await Promise.all(wanted.map((panel) => load(panel, order, theme, marked)));
  createRoot(document.getElementById('root')).render(
    <Board order={order} panels={panels} theme={theme} />
  );
  await document.fonts.ready;
  const state = ({ frames: all }) => (all.some((one) => one.length) ? 'data' : 'empty');
  return Object.fromEntries(panels.map(({ panel, shown }) => [panel.title, state(shown)]));
};
