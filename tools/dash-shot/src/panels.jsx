// The kinds of panel that our dashboards have. Two of them are not in Grafana's libraries and are drawn by hand.
import { dateTime, getFieldDisplayValues } from '@grafana/data';
import { BigValue, TimeSeries } from '@grafana/ui';
import React from 'react';

const NAMES = 190;

function Lines({ page, frames, width, height }) {
  const range = { from: dateTime(page.from * 1000), to: dateTime(page.to * 1000), raw: { from: '', to: '' } };
  const legend = { displayMode: 'list', placement: 'bottom', calcs: [], showLegend: true };
  return <TimeSeries frames={frames} width={width} height={height} timeRange={range} timeZone="utc" legend={legend} />;
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
  const row = Math.min(46, height / Math.max(1, frames.length));
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
    </svg>
  );
}

function Heat({ page, frames, width, height, theme }) {
  const edge = (frame) => (frame.fields[1].labels.le === '+Inf' ? Infinity : Number(frame.fields[1].labels.le));
  const sorted = [...frames].sort((a, b) => edge(a) - edge(b));
  const columns = (page.to - page.from) / page.step + 1;
  const [cell, row] = [(width - 60) / columns, height / Math.max(1, sorted.length)];
  const counts = sorted.map((frame, r) => frame.fields[1].values.map((value, i) => Math.max(0, (value ?? 0) - (r ? sorted[r - 1].fields[1].values[i] ?? 0 : 0))));
  const most = Math.max(1e-9, ...counts.flat());
  return (
    <svg width={width} height={height} fontSize="10">
      {counts.map((line, r) => (
        <g key={r}>
          <text x={0} y={height - r * row - row / 3} fill={theme.colors.text.secondary}>{sorted[r].fields[1].labels.le}</text>
          {line.map((count, i) => count > 0 && <rect key={i} x={60 + i * cell} y={height - (r + 1) * row} width={cell} height={row - 1} fill={`rgba(255,140,40,${Math.sqrt(count / most)})`} />)}
        </g>
      ))}
    </svg>
  );
}

export const KINDS = { timeseries: Lines, stat: Tiles, table: Rows, 'state-timeline': States, heatmap: Heat };
