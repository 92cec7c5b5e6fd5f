// What else is known of a run: its ids in every protocol, session, request, turns, usage.

import { html, nothing } from '../vendor/lit-html/lit-html.js';
import { duration, number, pretty, stamp } from '../format.js';
import { link } from '../router.js';
import { copy, loading, stateBadge } from '../ui.js';

const pair = (name, value) => (value === null || value === undefined || value === '' ? nothing : html`<dt>${name}</dt><dd>${value}</dd>`);

export function detailsTab(open, detail) {
  if (!detail) return loading('details');
  const { run } = detail;
  return html`
    <div class="columns">
      <section class="panel"><h2>Run</h2><dl class="facts-list">
        ${pair('State', stateBadge(run))}
        ${pair('Agent', run.agent)}
        ${pair('Client protocol', run.protocol)}
        ${pair('Owner', run.owner)}
        ${pair('Accepted', stamp(run.created_at))}
        ${pair('Last change', stamp(run.changed_at))}
        ${pair('Events', number(run.events))}
        ${pair('Size', detail.size === undefined ? null : `${number(detail.size)} bytes`)}
      </dl></section>
      <section class="panel"><h2>Ids</h2><dl class="facts-list">
        ${Object.entries(detail.ids).map(([name, id]) => pair(name, html`<code>${id}</code>
          <button class="quiet" aria-label=${`Copy ${name}`} @click=${() => copy(id, 'Id')}>Copy</button>`))}
      </dl></section>
      <section class="panel"><h2>Session</h2>
        <p><code>${detail.session.id}</code></p>
        <ul class="plain">${detail.session.runs.map((other) => html`<li>${other.id === run.id ? html`${stateBadge(other)} this run`
          : html`<a href=${link('runs', other.id)}>${stateBadge(other)} ${other.text || other.id}</a>`}</li>`)}</ul>
      </section>
      <section class="panel wide"><h2>Turns</h2>
        <div class="scroll"><table>
          <thead><tr><th scope="col">Turn</th><th scope="col">End</th><th scope="col">Began</th><th scope="col">Took</th><th scope="col">Usage</th></tr></thead>
          <tbody>${detail.turns.map((turn) => html`<tr><td>${turn.number + 1}</td>
            <td>${turn.end ?? 'running'}${turn.error ? html` <code class="bad">${turn.error.code}</code> ${turn.error.message}` : nothing}</td>
            <td>${stamp(turn.started_at)}</td>
            <td>${turn.ended_at ? duration(turn.ended_at - turn.started_at) : '…'}</td>
            <td>${turn.usage ? html`<code>${JSON.stringify(turn.usage)}</code>` : '–'}</td></tr>`)}</tbody>
        </table></div>
      </section>
      ${detail.request ? html`<section class="panel wide"><h2>Request</h2><pre>${pretty(detail.request)}</pre></section>` : nothing}
    </div>`;
}
