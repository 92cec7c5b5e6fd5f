// The list of runs. The filters are part of the address. Only visible rows are drawn.

import { html, nothing } from '../vendor/lit-html/lit-html.js';
import { live } from '../vendor/lit-html/directives/live.js';
import { repeat } from '../vendor/lit-html/directives/repeat.js';
import { signal } from '../vendor/signals-core/signals-core.mjs';
import { STATES, ago, counted, duration, number, ownerName } from '../format.js';
import { link, place, refine } from '../router.js';
import { agents, gateway, loadRuns, moreRuns, now, runs } from '../state.js';
import { empty, failed, loading, stateBadge } from '../ui.js';
import { openDropped } from './run.js';

const ROW = 44;
/** The number of drawn rows above and below the visible ones. */
const MARGIN = 12;
const top = signal(0);
const height = signal(600);

function onScroll(event) {
  const list = event.currentTarget;
  top.value = Math.floor(list.scrollTop / ROW) * ROW;
  height.value = list.clientHeight;
  const { rows } = runs.peek();
  if (list.scrollTop + 3 * list.clientHeight > rows.length * ROW) moreRuns();
}

// A change of the address reloads the list (state.js).
const filter = (name, value) => refine({ [name]: value });

/** Loads the list again, with the new runs. */
function showNew() {
  loadRuns(place.peek().query);
  top.value = 0;
  document.querySelector('.scroller')?.scrollTo(0, 0);
}

const field = (name, label, values) => html`
  <label>${label}
    <select .value=${live(place.value.query.get(name) ?? '')} @change=${(event) => filter(name, event.target.value)}>
      <option value="">any</option>
      ${values.map((value) => html`<option value=${value} ?selected=${place.value.query.get(name) === value}>${value}</option>`)}
    </select>
  </label>`;

export function runsView() {
  const { rows, total, loading: busy, error, fresh } = runs.value;
  return html`
    <div class="head">
      <h1>Runs</h1><span class="total">${number(total)}</span>
      <span role="status">${fresh.size > 0 ? html`<button class="quiet fresh" @click=${showNew}>▲ ${number(fresh.size)} new</button>` : nothing}</span>
      <span class="space"></span>
      <label class="button">Open export<input type="file" accept="application/json,.json" class="out-of-sight"
        @change=${(event) => { const [file] = event.target.files; event.target.value = ''; if (file) openDropped(file); }}></label>
    </div>
    <form class="filters" role="search" @submit=${(event) => event.preventDefault()}>
      <label>Search
        <input type="search" .value=${live(place.value.query.get('text') ?? '')} placeholder="text, owner, session, id, error code"
          @input=${(event) => filter('text', event.target.value)}>
      </label>
      ${field('agent', 'Agent', (agents.value ?? []).map((agent) => agent.name))}
      ${field('protocol', 'Protocol', gateway.value?.protocols ?? [])}
      ${field('state', 'State', STATES)}
    </form>
    ${error ? failed(error, () => loadRuns(place.peek().query))
      : rows.length > 0 ? table(rows, total)
        : busy ? loading('runs')
          : place.value.query.size > 0
            ? empty('No run matches.', html`<a href="#/runs">Show all runs</a>`)
            : empty('No runs yet.', 'They appear here within a second of a client’s request.')}`;
}

function table(rows, total) {
  const first = Math.max(0, Math.floor(top.value / ROW) - MARGIN);
  const last = Math.min(rows.length, Math.ceil((top.value + height.value) / ROW) + MARGIN);
  const seen = rows.slice(first, last);
  return html`
    <div class="scroller" tabindex="-1" @scroll=${onScroll}>
      <div role="table" aria-label="Runs" aria-rowcount=${total + 1} class="grid" .style=${`height:${rows.length * ROW + 36}px`}>
        <div role="row" aria-rowindex="1" class="labels">
          ${['State', 'Agent', 'Protocol', 'Input', 'Owner', 'Changed', 'Time', 'Events'].map((name) =>
            html`<span role="columnheader">${name}</span>`)}
        </div>
        <div role="rowgroup" class="rows" .style=${`transform:translateY(${first * ROW}px)`}>
          ${repeat(seen, (row) => row.id, (row, index) => rowOf(row, first + index + 2))}
        </div>
      </div>
    </div>`;
}

const isOver = (run) => ['completed', 'incomplete', 'failed', 'rejected', 'canceled'].includes(run.state);

/** @param {import('../state.js').Summary} run  @param {number} index */
function rowOf(run, index) {
  const took = (isOver(run) ? run.changed_at : now.value) - run.created_at;
  const text = run.text || (run.text === null ? 'hidden' : '–');
  return html`
    <div role="row" aria-rowindex=${index} class="line">
      <span role="cell"><a class="row" href=${link('runs', run.id)} aria-label=${`${run.agent}: ${text}`}></a>${stateBadge(run)}</span>
      <span role="cell" class="name">${run.agent}</span>
      <span role="cell" class="dim">${run.protocol}</span>
      <span role="cell" class="text" dir="auto">${run.pending > 0 && run.asks ? html`<strong>${run.asks}</strong> ` : nothing}${
        run.code ? html`<code class="bad">${run.code}</code> ` : nothing}${text}</span>
      <span role="cell" class="dim owner" title=${run.owner}>${ownerName(run.owner)}</span>
      <span role="cell" class="dim number">${ago(run.changed_at, now.value)}</span>
      <span role="cell" class="number">${duration(took)}</span>
      <span role="cell" class="number dim" title=${counted(run.events, 'event')}>${number(run.events)}</span>
    </div>`;
}
