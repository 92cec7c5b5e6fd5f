// The last 15 minutes by second and the last 24 hours by minute, as charts and as tables. The chart library is loaded when
// this screen is opened for the first time. Not here: the counting (the gateway).

import { Directive, directive } from '../vendor/lit-html/directive.js';
import { html, noChange, nothing } from '../vendor/lit-html/lit-html.js';
import { live } from '../vendor/lit-html/directives/live.js';
import { effect, signal, untracked } from '../vendor/signals-core/signals-core.mjs';
import { get, session, whenSignedOut } from '../api.js';
import { bytes, duration, number } from '../format.js';
import { place, refine } from '../router.js';
import { empty, failed, loading } from '../ui.js';

const WINDOWS = { '15m': '15 min', '24h': '24 h' };
const EVERY = { '15m': 2000, '24h': 15_000 };
const ms = (value) => (value === null ? '–' : duration(value));
const size = (value) => (value === null ? '–' : bytes(value));
const OUTCOMES = ['completed', 'incomplete', 'failed', 'canceled', 'rejected'];

/** The charts. Each line has the name of a series in the response, its label, and a colour of app.css. */
const CHARTS = [
  { title: 'Live runs', write: number, lines: [['live', 'live', '--live']] },
  { title: 'Runs ended', write: number, lines: [['completed', 'completed', '--good'], ['incomplete', 'incomplete', '--warn'],
    ['failed', 'failed', '--bad'], ['canceled', 'canceled', '--dim'], ['rejected', 'rejected', '--ask']] },
  { title: 'Failed runs by blame', write: number, lines: [['failed_client', 'client', '--warn'], ['failed_upstream', 'agent', '--bad'], ['failed_gateway', 'gateway', '--ask']] },
  { title: 'Time to first event', write: ms, lines: [['first_p50', 'p50', '--good'], ['first_p95', 'p95', '--warn'], ['first_p99', 'p99', '--bad']] },
  { title: 'Time to the end', write: ms, lines: [['total_p50', 'p50', '--good'], ['total_p95', 'p95', '--warn'], ['total_p99', 'p99', '--bad']] },
  { title: 'Memory', write: size, lines: [['memory', 'resident', '--live']] },
  { title: 'Store: runs to write', write: number, lines: [['store_owed', 'to write', '--live']] },
];
/** Series of the whole gateway, independent of the filter. */
const OF_ALL = new Set(['live', 'memory', 'store_owed']);

const found = signal(/** @type {any} */ (null));
const error = signal('');
/** The chart library. `null`: not loaded yet. */
const library = signal(/** @type {any} */ (null));
whenSignedOut(() => { found.value = null; });

/** The chosen agent or protocol. `null`: all runs. */
const filter = () => {
  const { query } = place.value;
  const name = ['agent', 'protocol'].find((one) => query.get(one));
  return name ? { name, value: String(query.get(name)) } : null;
};
const keyOf = () => JSON.stringify([chosen(), filter()]);
const chosen = () => (Object.hasOwn(WINDOWS, place.value.query.get('window') ?? '') ? String(place.value.query.get('window')) : '15m');

async function load() {
  const [key, of] = [keyOf(), filter()];
  try {
    const read = await get(`/metrics?${new URLSearchParams({ window: chosen(), ...(of ? { [of.name]: of.value } : {}) })}`);
    if (key !== keyOf()) return;
    found.value = { ...read, key };
    error.value = '';
  } catch (problem) {
    error.value = problem.message;
  }
}

async function loadLibrary() {
  if (!document.querySelector('link[href="vendor/uplot/uPlot.min.css"]')) {
    const style = Object.assign(document.createElement('link'), { rel: 'stylesheet', href: 'vendor/uplot/uPlot.min.css' });
    document.head.append(style);
  }
  try {
    library.value = (await import('../vendor/uplot/uPlot.esm.js')).default;
  } catch {
    error.value = 'The charts could not be loaded. The tables are complete.';
  }
}

let timer = 0;
effect(() => {
  clearInterval(timer);
  if (!session.value || place.value.screen !== 'metrics') return;
  const window = chosen();
  keyOf();
  untracked(() => {
    load();
    if (!library.value) loadLibrary();
  });
  timer = setInterval(() => { if (!document.hidden) load(); }, EVERY[window]);
});

/** A label for the time axis, in UTC. `seconds`: since 1970. */
const clock = (seconds) => {
  const at = new Date(seconds * 1000);
  const two = (value) => String(value).padStart(2, '0');
  return `${two(at.getUTCHours())}:${two(at.getUTCMinutes())}${at.getUTCSeconds() ? `:${two(at.getUTCSeconds())}` : ''}`;
};

/** A chart in its element. New numbers update it. Another window, filter, width or theme draws it again. */
class Chart extends Directive {
  chart = /** @type {any} */ (null);
  key = '';

  render(_read, _chart, _Library) { return noChange; }

  /** @param {any} part */
  update({ element }, [read, { lines, write }, Library]) {
    if (!Library) return noChange;
    const data = [read.times.map((at) => at / 1000), ...lines.map(([name]) => read.series[name])];
    // Wait until the element is in the page: only then it has a width and the colours of the theme.
    requestAnimationFrame(() => {
      if (!element.isConnected) return;
      const colours = getComputedStyle(element);
      const colour = (name) => colours.getPropertyValue(name).trim();
      const width = element.clientWidth;
      const key = `${read.key} ${width} ${colour('--dim')}`;
      if (this.chart && this.key === key) {
        this.chart.setData(data);
        return;
      }
      this.chart?.destroy();
      this.key = key;
      const axis = { stroke: colour('--dim'), grid: { stroke: colour('--line'), width: 1 }, ticks: { stroke: colour('--line'), width: 1 } };
      this.chart = new Library({
        width, height: 190, padding: [10, 28, 0, 0], legend: { show: false }, cursor: { show: false },
        tzDate: (seconds) => Library.tzDate(new Date(seconds * 1000), 'Etc/UTC'),
        scales: { y: { range: (_chart, _low, high) => [0, Math.max(1, high ?? 1) * 1.1] } },
        axes: [{ ...axis, values: (_chart, marks) => marks.map(clock) }, { ...axis, size: 64, values: (_chart, marks) => marks.map((mark) => (Number.isInteger(mark) || write !== number ? write(mark) : '')) }],
        series: [{}, ...lines.map(([, label, name]) => ({ label, stroke: colour(name), width: 1.8, points: { size: 5 } }))],
      }, data, element);
    });
    return noChange;
  }
}
const drawn = directive(Chart);

/** The latest measured value of a series. */
const latest = (values) => values.findLast((value) => value !== null) ?? null;
const sum = (values) => values.reduce((one, other) => one + other, 0);

function chartView(read, chart) {
  const note = filter() && OF_ALL.has(chart.lines[0][0]) ? html` <span class="dim">of all runs</span>` : nothing;
  return html`<section class="panel"><h2>${chart.title}${note}</h2>
    <p class="legend">${chart.lines.map(([, label, name]) => html`<span class="line-of ${name.slice(2)}">${label}</span>`)}</p>
    <div class="chart" aria-hidden="true" ${drawn(read, chart, library.value)}></div></section>`;
}

function countTable(label, first, rows) {
  return html`<section><h2>${label}</h2><div class="scroll" tabindex="0" role="region" aria-label="${label}, table"><table aria-label=${label}>
    <thead><tr><th scope="col">${first}</th><th scope="col">Live</th><th scope="col">Ended</th><th scope="col">Failed</th></tr></thead>
    <tbody>${rows.map((row) => html`<tr><th scope="row">${row.name}</th><td class="number">${number(row.live)}</td>
      <td class="number">${number(row.ended)}</td><td class="number">${number(row.failed)}</td></tr>`)}</tbody></table></div></section>`;
}

function latestTable({ series }) {
  const rows = [
    ['Live runs', number(latest(series.live) ?? 0)],
    ...OUTCOMES.map((name) => [`Runs ${name}, in all`, number(sum(series[name]))]),
    ...['first', 'total'].flatMap((what) => ['p50', 'p95', 'p99'].map((part) =>
      [`${what === 'first' ? 'Time to first event' : 'Time to the end'}, ${part}`, ms(latest(series[`${what}_${part}`]))])),
    ...[['failed_client', 'client'], ['failed_upstream', 'agent'], ['failed_gateway', 'gateway']].map(([name, whose]) =>
      [`Failed, to blame: ${whose}`, number(sum(series[name]))]),
    ['Memory', size(latest(series.memory))],
    ['Store: runs to write', number(latest(series.store_owed) ?? 0)],
    ['Store: size', series.store_bytes.at(-1) ? bytes(series.store_bytes.at(-1)) : '–'],
  ];
  return html`<section><h2>Latest values</h2><div class="scroll" tabindex="0" role="region" aria-label="Latest values, table"><table aria-label="Latest values">
    <thead><tr><th scope="col">What</th><th scope="col">Value</th></tr></thead>
    <tbody>${rows.map(([name, value]) => html`<tr><th scope="row">${name}</th><td class="number">${value}</td></tr>`)}</tbody></table></div></section>`;
}

function body(read) {
  return html`
    ${read.times.length === 0 ? empty('No numbers yet.', 'They appear within a second.')
      : html`<div class="columns two">${CHARTS.map((chart) => chartView(read, chart))}</div>`}
    <div class="columns two">
      <div>${countTable('By agent', 'Agent', read.by_agent)}${countTable('By protocol', 'Protocol', read.by_protocol)}</div>
      ${latestTable(read)}</div>`;
}

/** The choice of all runs, or the runs of an agent or a protocol. */
function choice(read) {
  const of = filter();
  const value = of ? `${of.name}:${of.value}` : '';
  const option = (name, label) => html`<option value=${`${name}:${label}`} ?selected=${value === `${name}:${label}`}>${label}</option>`;
  const group = (name, label, rows) => html`<optgroup label=${label}>${rows.map((row) => option(name, row.name))}</optgroup>`;
  const choose = (event) => {
    const [name, ...rest] = event.target.value.split(':');
    refine({ agent: '', protocol: '', ...(name ? { [name]: rest.join(':') } : {}) });
  };
  return html`<label class="inline">Runs
    <select .value=${live(value)} @change=${choose}>
      <option value="" ?selected=${!of}>all</option>
      ${group('agent', 'Agent', read?.by_agent ?? [])}${group('protocol', 'Protocol', read?.by_protocol ?? [])}
    </select></label>`;
}

export function metricsView() {
  const window = chosen();
  const read = found.value?.key === keyOf() ? found.value : null;
  return html`
    <div class="head"><h1>Metrics</h1><div class="controls" role="group" aria-label="Window">
      ${Object.entries(WINDOWS).map(([name, title]) => html`<button aria-pressed=${name === window ? 'true' : 'false'}
        class=${name === window ? 'primary' : ''} @click=${() => refine({ window: name })}>${title}</button>`)}</div>
      ${choice(read ?? found.value)}</div>
    <p class="hint">This gateway only, since its start. Times are in UTC.</p>
    ${error.value && read ? html`<p class="note" role="status">${error.value}</p>` : nothing}
    ${read ? body(read) : error.value ? failed(error.value, load) : loading('the numbers')}`;
}
