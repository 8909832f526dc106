// The kinds of panel that our dashboards have. Three of them are not in Grafana's libraries and are drawn by hand.
import { dateTime, getFieldDisplayValues, getValueFormat } from '@grafana/data';
import { BigValue, TimeSeries } from '@grafana/ui';
import React from 'react';

const NAMES = 190;
const EDGES = 60;
const AXIS = 22;

function Lines({ page, panel, frames, width, height }) {
  const range = { from: dateTime(page.from * 1000), to: dateTime(page.to * 1000), raw: { from: '', to: '' } };
  return <TimeSeries frames={frames} width={width} height={height} timeRange={range} timeZone="utc" legend={panel.options.legend} />;
}

// The times below a drawing that begins at `left`: every five minutes, or ten where there is little room.
function Times({ page, left, width, height, theme }) {
  const pixels = (width - left) / (page.to - page.from);
  const every = 300 * pixels > 50 ? 300 : 600;
  const times = [];
  for (let time = Math.ceil((page.from + 20 / pixels) / every) * every; time < page.to; time += every) times.push(time);
  return times.map((time) => (
    <text key={time} x={left + (time - page.from) * pixels} y={height - 6} fontSize="12" textAnchor="middle" fill={theme.colors.text.primary}>
      {new Date(time * 1000).toISOString().slice(11, 16)}
    </text>
  ));
}

function Tiles({ panel, frames, width, height, theme }) {
  const values = getFieldDisplayValues({
    fieldConfig: { ...panel.fieldConfig, overrides: [] }, reduceOptions: panel.options.reduceOptions,
    replaceVariables: (text) => text, theme, data: frames, timeZone: 'utc',
  });
  const each = width / Math.max(1, values.length) - 4;
  return (
    <div style={{ display: 'flex', gap: 4 }}>
      {values.map((value, i) => (
        <BigValue key={i} width={each} height={height} theme={theme} value={value.display} colorMode="background"
          graphMode="none" textMode="value_and_name" />
      ))}
    </div>
  );
}

function Rows({ panel, frames, theme }) {
  const { excludeByName, indexByName } = panel.transformations[0].options;
  const labels = frames.map((frame) => ({ ...frame.fields[1].labels, Value: frame.fields[1].values[0] }));
  const columns = Object.keys(indexByName).filter((name) => !excludeByName[name]);
  const cell = { padding: '3px 8px', textAlign: 'left', borderBottom: `1px solid ${theme.colors.border.weak}` };
  if (!labels.length) return <div style={{ padding: 20, color: theme.colors.text.secondary }}>{panel.fieldConfig.defaults.noValue}</div>;
  return (
    <table style={{ width: '100%', fontSize: 13, color: theme.colors.text.primary, borderCollapse: 'collapse' }}>
      <thead><tr>{columns.map((name) => <th key={name} style={cell}>{panel.transformations[0].options.renameByName[name] || name}</th>)}</tr></thead>
      <tbody>{labels.map((row, i) => <tr key={i}>{columns.map((name) => <td key={name} style={cell}>{typeof row[name] === 'number' ? Math.round(row[name] * 10) / 10 : row[name]}</td>)}</tr>)}</tbody>
    </table>
  );
}

function States({ page, frames, width, height, theme }) {
  const row = (height - AXIS) / Math.max(1, frames.length);
  const x = (time) => NAMES + ((time / 1000 - page.from) / (page.to - page.from)) * (width - NAMES);
  return (
    <svg width={width} height={height} fontSize="12" fontFamily={theme.typography.fontFamily}>
      {frames.map((frame, r) => {
        const [times, value] = frame.fields;
        const runs = [];
        times.values.forEach((time, i) => {
          const shown = value.values[i];
          if (shown === null || Number.isNaN(shown)) return;
          const display = value.display(shown);
          const last = runs.at(-1);
          if (last && last.text === display.text && last.end === time) last.end = time + page.step * 1000;
          else runs.push({ text: display.text, suffix: display.suffix, color: display.color, begin: time, end: time + page.step * 1000 });
        });
        return (
          <g key={r}>
            <text x={4} y={r * row + row / 2 + 4} fill={theme.colors.text.secondary}>{frame.name}</text>
            {runs.map((run, i) => {
              const [left, right] = [x(run.begin), Math.min(width, x(run.end))];
              return (
                <g key={i}>
                  <rect x={left} width={right - left} y={r * row + 2} height={row - 4} fill={run.color} opacity={0.8} />
                  {right - left > 60 && <text x={left + 6} y={r * row + row / 2 + 4} fill="#fff">{run.text}{run.suffix || ''}</text>}
                </g>
              );
            })}
          </g>
        );
      })}
      <Times page={page} left={NAMES} width={width} height={height} theme={theme} />
    </svg>
  );
}

function Heat({ page, panel, frames, width, height, theme }) {
  const edge = (frame) => (frame.fields[1].labels.le === '+Inf' ? Infinity : Number(frame.fields[1].labels.le));
  const named = (frame) => {
    if (edge(frame) === Infinity) return '+Inf';
    const { text, suffix = '' } = getValueFormat(panel.options.yAxis.unit)(edge(frame));
    return text + suffix;
  };
  const sorted = [...frames].sort((a, b) => edge(a) - edge(b));
  const columns = (page.to - page.from) / page.step + 1;
  const [cell, bottom] = [(width - EDGES) / columns, height - AXIS];
  const row = bottom / Math.max(1, sorted.length);
  const counts = sorted.map((frame, r) => frame.fields[1].values.map((value, i) => Math.max(0, (value ?? 0) - (r ? sorted[r - 1].fields[1].values[i] ?? 0 : 0))));
  const most = Math.max(1e-9, ...counts.flat());
  return (
    <svg width={width} height={height} fontSize="10">
      {counts.map((line, r) => (
        <g key={r}>
          <text x={EDGES - 6} y={bottom - r * row - row / 3} textAnchor="end" fill={theme.colors.text.secondary}>{named(sorted[r])}</text>
          {line.map((count, i) => count > 0 && <rect key={i} x={EDGES + i * cell} y={bottom - (r + 1) * row} width={cell} height={row - 1} fill={`rgba(255,140,40,${Math.sqrt(count / most)})`} />)}
        </g>
      ))}
      <Times page={page} left={EDGES} width={width} height={height} theme={theme} />
    </svg>
  );
}

export const KINDS = { timeseries: Lines, stat: Tiles, table: Rows, 'state-timeline': States, heatmap: Heat };
export const BY_HAND = ['table', 'state-timeline', 'heatmap'];
