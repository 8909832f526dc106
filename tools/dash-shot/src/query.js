// Asks Prometheus what a panel asks, and turns the answer into Grafana's frames.
import { FieldType, applyFieldOverrides, toDataFrame, standardFieldConfigEditorRegistry } from '@grafana/data';
import * as data from '@grafana/data';

const property = (id, process) => ({
  id, path: id, name: id, editor: () => null, override: () => null, process,
  shouldApply: () => true, settings: {}, category: [''],
});

// Without these, units, colours and mappings are dropped silently.
standardFieldConfigEditorRegistry.setInit(() => [
  property('unit', data.unitOverrideProcessor),
  property('min', data.numberOverrideProcessor),
  property('max', data.numberOverrideProcessor),
  property('decimals', data.numberOverrideProcessor),
  property('displayName', data.displayNameOverrideProcessor),
  property('noValue', data.identityOverrideProcessor),
  property('thresholds', data.thresholdsOverrideProcessor),
  property('mappings', data.valueMappingsOverrideProcessor),
  property('color', data.identityOverrideProcessor),
  property('links', data.dataLinksOverrideProcessor),
]);

function filled(expression, variables) {
  return expression.replace(/\$\{(\w+)(?::\w+)?\}|\$(\w+)/g, (all, braced, bare) => variables[braced || bare] ?? all);
}

function named(legend, labels) {
  if (!legend || legend === '__auto') return JSON.stringify(labels);
  return legend.replace(/\{\{\s*(\w+)\s*\}\}/g, (_, label) => labels[label] ?? '');
}

async function series(page, query, variables) {
  const expression = encodeURIComponent(filled(query.expr, variables));
  const { prometheus, from, to, step } = page;
  const path = query.instant
    ? `query?query=${expression}&time=${page.at}`
    : `query_range?query=${expression}&start=${from}&end=${to}&step=${step}`;
  const answer = await (await fetch(`${prometheus}/api/v1/${path}`)).json();
  if (answer.status !== 'success') throw new Error(`${query.expr}: ${answer.error}`);
  return answer.data.result.map((one) => ({ ...one, query }));
}

// A gap is drawn as a gap: Prometheus leaves samples out, Grafana wants nulls.
function frame(page, one) {
  const name = named(one.query.legendFormat, one.metric);
  const samples = new Map((one.values || [one.value]).map(([time, value]) => [+time, +value]));
  const times = [];
  if (one.values) for (let time = page.from; time <= page.to; time += page.step) times.push(time);
  else times.push(...samples.keys());
  return toDataFrame({
    name,
    refId: one.query.refId,
    fields: [
      { name: 'Time', type: FieldType.time, values: times.map((time) => time * 1000) },
      { name: 'Value', type: FieldType.number, values: times.map((time) => (Number.isNaN(samples.get(time) ?? NaN) ? null : samples.get(time))),
        labels: one.metric, config: { displayNameFromDS: name } },
    ],
  });
}

// What an override sets, and the limit lines are made of: not in the registry above.
function overridden(config, rules) {
  for (const { id, value } of rules.flatMap((rule) => rule.properties)) {
    if (id.startsWith('custom.')) config.custom[id.slice('custom.'.length)] = value;
    else config[id] = value;
  }
}

// The frames of a panel, with the panel's units, colours and limits applied.
export async function frames(page, panel, variables, theme) {
  const answers = await Promise.all((panel.targets || []).map((query) => series(page, query, variables)));
  const all = answers.flat().map((one) => frame(page, one));
  const { defaults = {}, overrides = [] } = panel.fieldConfig || {};
  const byName = overrides.filter((one) => one.matcher.id === 'byRegexp');
  const applied = applyFieldOverrides({
    data: all, fieldConfig: { defaults, overrides: [] },
    replaceVariables: (text) => text, theme, timeZone: 'utc', fieldConfigRegistry: standardFieldConfigEditorRegistry,
  });
  applied.forEach((one, seriesIndex) => {
    for (const field of one.fields) {
      field.config.custom = { ...(defaults.custom || {}) };
      field.state = { ...field.state, seriesIndex };
      overridden(field.config, byName.filter((rule) => data.stringToJsRegex(rule.matcher.options).test(one.name)));
    }
  });
  return applied;
}
