// The gateway at a glance: which protocols come in, which agents are behind it, what needs attention.

import { html, nothing } from '../vendor/lit-html/lit-html.js';
import { post, mayAct } from '../api.js';
import { ago, counted, duration, number } from '../format.js';
import { link } from '../router.js';
import { agents, fail, gateway, loadGateway, now, pendingCount, routes, unknown } from '../state.js';
import { ask, copy, failed, loading } from '../ui.js';
import { bars, hub } from './picture.js';

/** From which part of its runs on the failures of an agent need attention. */
const MUCH = 0.02;
const failedPart = ({ lately }) => (lately.ended > 0 ? lately.failed / lately.ended : 0);
const percent = (part) => (part === 0 ? '0 %' : part < 0.01 ? '< 1 %' : `${Math.round(100 * part)} %`);
/** What an agent or a protocol does: what is under way now, and what ended in the last minutes. */
const traffic = ({ live, lately }) => live + lately.ended;

export function overviewView() {
  const about = gateway.value;
  if (!about || !agents.value || !routes.value) {
    return html`<h1>Overview</h1>${unknown.value ? failed(unknown.value, loadGateway) : loading('the gateway')}`;
  }
  return html`
    <h1>Overview</h1>
    ${attention(about)}
    <div class="picture">${clients()}${hub(about.traffic.map(traffic), agents.value.map(traffic))}${agentTable()}</div>
    ${routeTable()}`;
}

function attention(about) {
  const open = routes.value.filter((route) => route.auth === 'none').length;
  const failing = agents.value.filter((agent) => agent.state === 'failing');
  const notes = [
    ...(pendingCount.value > 0 ? [html`<a href="#/pending">${counted(pendingCount.value, 'open item')}</a>`] : []),
    ...failing.map((agent) => html`<a href=${link('runs', null, { agent: agent.name, state: 'failed' })}>${agent.name} is failing</a>`),
    ...agents.value.filter((agent) => agent.state !== 'failing' && failedPart(agent) >= MUCH).map((agent) =>
      html`<a href=${link('runs', null, { agent: agent.name, state: 'failed' })}>${agent.name} fails ${percent(failedPart(agent))}</a> of its runs in the last 15 minutes`),
    ...agents.value.filter((agent) => agent.state === 'draining').map((agent) => html`${agent.name} takes no new runs`),
    ...about.reasons.map((reason) => html`not ready: ${reason.what} ${reason.detail ?? ''}`),
    ...(open > 0 ? [html`${counted(open, 'route')} without authentication`] : []),
    ...about.warnings.map((warning) => html`${warning}`),
  ];
  return notes.length === 0 ? html`<p class="calm">Nothing needs attention.</p>`
    : html`<section class="attention" aria-label="Needs attention"><h2>Needs attention</h2><ul>${notes.map((note) => html`<li>${note}</li>`)}</ul></section>`;
}

function clients() {
  return html`<section class="clients" aria-label="Clients"><h2>Clients</h2><ul class="plain">
    ${gateway.value.traffic.map((one) => html`<li><a href=${link('runs', null, { protocol: one.protocol })}>${one.protocol}</a>
      ${bars(one.lately.per_minute)}<span class="number" title="live runs">${number(one.live)}</span></li>`)}
  </ul></section>`;
}

/** Why the agent's latest failed run failed. */
const lastFault = ({ last_fault: fault }) => (fault ? html`<div class="dim fault"><code>${fault.code}</code> ${ago(fault.at, now.value)}${
  fault.message ? html`: ${fault.message}` : nothing}</div>` : nothing);

function agentTable() {
  return html`<section class="agents"><h2 id="agents">Agents</h2><div class="scroll"><table aria-label="Agents">
    <thead><tr><th scope="col">Agent</th><th scope="col">State</th><th scope="col">Protocol</th><th scope="col">Live</th><th scope="col">Waiting</th>
      <th scope="col">First event</th><th scope="col">Failed</th>${mayAct() ? html`<th scope="col">Actions</th>` : nothing}</tr></thead>
    <tbody>${agents.value.map((agent) => html`<tr>
      <th scope="row"><a href=${link('runs', null, { agent: agent.name })}>${agent.name}</a><div class="dim">${agent.host}</div></th>
      <td><span class="dot ${agent.state}">${agent.state}</span>${
        agent.state === 'ready' ? nothing : html` <span class="dim">for ${duration(now.value - agent.since)}</span>`}${agent.reason ? html`<div class="dim">${agent.reason}</div>` : nothing}${lastFault(agent)}</td>
      <td>${agent.protocol}</td>
      <td class="number">${number(agent.live)}</td>
      <td class="number">${number(agent.queued)}</td>
      <td class="number">${agent.lately.first_event_p50 === null ? '–' : duration(agent.lately.first_event_p50)}</td>
      <td class="number">${agent.lately.ended === 0 ? '–' : html`<span class=${failedPart(agent) >= MUCH ? 'bad' : ''}>${percent(failedPart(agent))}</span>`}</td>
      ${mayAct() ? html`<td>${drainButton(agent)}</td>` : nothing}</tr>`)}</tbody>
  </table></div><p class="hint">First event (half of the turns are as fast) and failed: of this gateway in the last 15 minutes.</p></section>`;
}

/** Lets an agent take no new runs, or take them again. */
function drainButton(agent) {
  const change = async (what, state) => {
    await post(`/agents/${encodeURIComponent(agent.name)}/${what}`);
    // The stream of changes says so too, a little later; and with it whether the agent fails.
    agents.value = agents.value.map((one) => (one.name === agent.name ? { ...one, state } : one));
  };
  if (agent.state === 'draining') {
    return html`<button @click=${() => change('resume', 'ready').catch(fail)}>Resume</button>`;
  }
  const text = `${agent.name} takes no new runs at this gateway: they get 503 in their own protocol. Runs under way go on, and so do those that wait for an answer. A restart forgets it.`;
  return html`<button @click=${() => ask('Drain', text, () => change('drain', 'draining'))}>Drain</button>`;
}

function routeTable() {
  return html`<section><h2 id="routes">Routes</h2><div class="scroll"><table aria-label="Routes">
    <thead><tr><th scope="col">Protocol</th><th scope="col">URL</th><th scope="col">Authentication</th><th scope="col">Agents</th><th scope="col">Try it</th></tr></thead>
    <tbody>${routes.value.map((route) => html`<tr><td>${route.protocol}</td><td><code>${route.url}</code></td>
      <td>${route.auth === 'none' ? html`<span class="warn">none</span>` : route.auth}</td><td>${route.agents.join(', ')}</td>
      <td>${route.snippets ? html`<button class="quiet" aria-label=${`Copy curl of ${route.protocol}`} @click=${() => copy(route.snippets.curl, 'curl')}>Copy curl</button>` : nothing}</td></tr>`)}</tbody>
  </table></div></section>`;
}
