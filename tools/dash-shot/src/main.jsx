// One dashboard as Grafana lays it out. Parameters: dash, prom, from, to, at (for instant queries), w, theme.
import { ThemeContext, createTheme } from '@grafana/data';
import { GlobalStyles, PanelChrome } from '@grafana/ui';
import React from 'react';
import { createRoot } from 'react-dom/client';

import { BY_HAND, KINDS } from './panels.jsx';
import { frames } from './query.js';

const asked = new URLSearchParams(location.search);
const page = {
  prometheus: asked.get('prom') || 'http://127.0.0.1:9090',
  from: Number(asked.get('from')), to: Number(asked.get('to')), at: Number(asked.get('at') || asked.get('to')),
  step: Number(asked.get('step') || 15), width: Number(asked.get('w') || 1600),
};
const ROW = 38;
const theme = createTheme({ colors: { mode: asked.get('theme') || 'dark' } });
const variables = { job: '.+', instance: '.+', __rate_interval: `${page.step * 4}s`, __range: `${page.at - page.from}s` };

function Panel({ panel, answer }) {
  const { x, y, w, h } = panel.gridPos;
  const column = page.width / 24;
  const [width, height] = [w * column - 8, h * ROW - 8];
  const place = { position: 'absolute', left: x * column + 4, top: y * ROW + 4, width, height };
  if (panel.type === 'row') return <div style={{ ...place, color: theme.colors.text.primary, fontSize: 16, fontWeight: 500 }}>▾ {panel.title}</div>;
  const Kind = KINDS[panel.type];
  const mark = BY_HAND.includes(panel.type) && <span style={{ color: theme.colors.text.disabled, fontSize: 11 }}>not drawn by Grafana's libraries</span>;
  return (
    <div style={place}>
      <PanelChrome title={panel.title} description={panel.description} width={width} height={height} actions={mark || undefined}>
        {(innerWidth, innerHeight) => {
          if (answer.error) return <div style={{ color: 'red' }}>{String(answer.error)}</div>;
          if (!answer.frames.length && panel.type !== 'table') return <div style={{ padding: 20, color: theme.colors.text.secondary }}>No data</div>;
          return <Kind page={page} panel={panel} frames={answer.frames} width={innerWidth} height={innerHeight} theme={theme} />;
        }}
      </PanelChrome>
    </div>
  );
}

// A panel that cannot be answered says so in the picture.
async function answered(panel) {
  if (panel.type === 'row') return {};
  try {
    return { frames: await frames(page, panel, { ...variables, ...panel.scoped }, theme) };
  } catch (error) {
    console.error('FAILED', panel.title, error.stack);
    return { error };
  }
}

class Fence extends React.Component {
  state = {};
  static getDerivedStateFromError(error) { return { error }; }
  componentDidCatch(error) { console.error('FAILED', this.props.title, error.stack); }
  render() { return this.state.error ? <pre style={{ color: 'red' }}>{String(this.state.error)}</pre> : this.props.children; }
}

// A panel that repeats stands once for each instance, side by side.
async function repeated(panels) {
  const answer = await (await fetch(`${page.prometheus}/api/v1/query?query=${encodeURIComponent('group by (instance) (radiosonde_build_info)')}&time=${page.at}`)).json();
  const instances = answer.data.result.map((one) => one.metric.instance).sort();
  return panels.flatMap((panel) => panel.repeat
    ? instances.slice(0, panel.maxPerRow).map((instance, i, { length }) => ({ ...panel, id: `${panel.id}-${i}`, scoped: { instance },
      title: panel.title.replace('$instance', instance), gridPos: { ...panel.gridPos, w: 24 / length, x: (24 * i) / length } }))
    : [panel]);
}

const board = await (await fetch(`./${asked.get('dash')}.json`)).json();
const panels = await repeated(board.panels);
const height = Math.max(...panels.map((panel) => panel.gridPos.y + panel.gridPos.h)) * ROW + 50;
// All at once: a panel that is mounted late is not measured before the photograph, and stays empty.
const answers = await Promise.all(panels.map(answered));
const time = (seconds) => new Date(seconds * 1000).toISOString().slice(0, 19).replace('T', ' ');
createRoot(document.getElementById('root')).render(
  <ThemeContext.Provider value={theme}>
    <GlobalStyles />
    <div style={{ background: theme.colors.background.canvas, width: page.width, height, position: 'relative', fontFamily: theme.typography.fontFamily }}>
      <div style={{ color: theme.colors.text.primary, padding: '8px 12px', fontSize: 18 }}>
        {board.title} <span style={{ fontSize: 12, opacity: 0.7 }}>{time(page.from)} to {time(page.to)} UTC</span>
      </div>
      <div style={{ position: 'absolute', top: 40, left: 0 }}>
        {panels.map((panel, i) => <Fence key={panel.id} title={panel.title}><Panel panel={panel} answer={answers[i]} /></Fence>)}
      </div>
    </div>
  </ThemeContext.Provider>,
);
