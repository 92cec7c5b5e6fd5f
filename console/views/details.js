// Details of a run: its ids in every protocol, session, request, turns, usage.

import { html, nothing } from '../vendor/lit-html/lit-html.js';
import { counted, duration, number, pretty, stamp } from '../format.js';
import { link } from '../router.js';
import { copy, loading, stateBadge } from '../ui.js';
import { causeOf } from './cause.js';

const pair = (name, value) => (value === null || value === undefined || value === '' ? nothing : html`<dt>${name}</dt><dd>${value}</dd>`);

/** The time from the acceptance of the run to the agent's first event. `null`: there is none. */
function firstEvent({ run, turns }) {
  const at = turns[0]?.first_event_at;
  return at ? duration(at - run.created_at) : null;
}

/** The ids, the gateway's own first. */
const idsOf = ({ ids }) => Object.entries(ids).sort(([one], [other]) => Number(other === 'id') - Number(one === 'id') || (one < other ? -1 : 1));

/** The label of an id: the protocol, or `Id` for the gateway's own. */
const idName = (name) => (name === 'id' ? 'Id' : name);

/** @param {any} open  @param {import('../state.js').Detail | null} detail */
export function detailsTab(open, detail) {
  if (!detail) return loading('details');
  const { run } = detail;
  return html`
    <div class="columns two">
      <section class="panel"><h2>Run</h2><dl class="facts-list">
        ${pair('State', stateBadge(run))}
        ${pair('Agent', run.agent)}
        ${pair('Client protocol', run.protocol)}
        ${pair('Owner', html`<code>${run.owner}</code>`)}
        ${pair('Accepted', stamp(run.created_at))}
        ${pair('Last change', stamp(run.changed_at))}
        ${pair('Events', number(run.events))}
        ${pair('First event after', firstEvent(detail))}
      </dl></section>
      <section class="panel"><h2>Session</h2>
        <p><code>${detail.session.id}</code></p>
        <ul class="plain">${detail.session.runs.map((other) => html`<li>${other.id === run.id ? html`${stateBadge(other)} this run`
          : html`<a href=${link('runs', other.id)}>${stateBadge(other)} ${other.text || other.id}</a>`}</li>`)}</ul>
      </section>
      <section class="panel wide"><h2>Ids</h2><dl class="facts-list">
        ${idsOf(detail).map(([name, id]) => pair(idName(name), html`<code>${id}</code>
          <button class="quiet" aria-label=${`Copy ${idName(name)}`} @click=${() => copy(id, 'Id')}>Copy</button>`))}
      </dl></section>
      <section class="panel wide"><h2>Turns</h2>
        <div class="scroll"><table class="rows-of-cards" aria-label="Turns">
          <thead><tr><th scope="col">Turn</th><th scope="col">End</th><th scope="col">Began</th><th scope="col">First event</th><th scope="col">Took</th><th scope="col">Usage</th></tr></thead>
          <tbody>${detail.turns.map((turn) => html`<tr><th scope="row">${turn.number + 1}</th>
            <td data-label="End">${turn.end ?? 'running'}${turn.error ? html` <code class="bad">${turn.error.code}</code> ${turn.error.message}${causeOf(turn.error)}` : nothing}${
              turn.answered_by ? html` <a href=${link('runs', turn.answered_by)}>answered by another run</a>` : nothing}</td>
            <td data-label="Began">${stamp(turn.started_at)}</td>
            <td data-label="First event">${turn.first_event_at ? duration(turn.first_event_at - turn.started_at) : '–'}</td>
            <td data-label="Took">${turn.ended_at ? duration(turn.ended_at - turn.started_at) : '…'}</td>
            <td data-label="Usage">${turn.usage ? html`<code>${JSON.stringify(turn.usage)}</code>` : '–'}</td></tr>`)}</tbody>
        </table></div>
      </section>
      ${detail.deliveries.length > 0 ? html`<section class="panel wide"><h2>Deliveries</h2>
        <p class="dim">Notifications from this gateway to the receivers of the client.</p>
        <ul class="plain">${detail.deliveries.map(({ delivered }) => html`<li>${number(delivered)} of ${counted(run.events, 'event')} sent</li>`)}</ul></section>` : nothing}
      ${detail.request ? html`<section class="panel wide"><h2>Request</h2><pre>${pretty(detail.request)}</pre></section>` : nothing}
    </div>`;
}
