// The gateway at a glance: which protocols come in, which agents are behind it, what needs attention.

import { html, nothing } from '../vendor/lit-html/lit-html.js';
import { post, mayAct } from '../api.js';
import { counted } from '../format.js';
import { link } from '../router.js';
import { agents, fail, gateway, loadGateway, pendingCount, routes, unknown } from '../state.js';
import { ask, failed, loading } from '../ui.js';

export function overviewView() {
  const about = gateway.value;
  if (!about || !agents.value || !routes.value) {
    return html`<h1>Overview</h1>${unknown.value ? failed(unknown.value, loadGateway) : loading('the gateway')}`;
  }
  return html`
    <h1>Overview</h1>
    ${attention(about)}
    <div class="picture">${clients()}<div class="hub" aria-hidden="true"><span>Agent API</span></div>${agentTable()}</div>
    ${routeTable()}`;
}

function attention(about) {
  const open = routes.value.filter((route) => route.auth === 'none').length;
  const failing = agents.value.filter((agent) => agent.state === 'failing');
  const notes = [
    ...(pendingCount.value > 0 ? [html`<a href="#/pending">${counted(pendingCount.value, 'open item')}</a>`] : []),
    ...failing.map((agent) => html`<a href=${link('runs', null, { agent: agent.name, state: 'failed' })}>${agent.name} is failing</a>`),
    ...agents.value.filter((agent) => agent.state === 'draining').map((agent) => html`${agent.name} takes no new runs`),
    ...about.reasons.map((reason) => html`not ready: ${reason.what} ${reason.detail ?? ''}`),
    ...(open > 0 ? [html`${counted(open, 'route')} without authentication`] : []),
    ...about.warnings.map((warning) => html`${warning}`),
  ];
  return notes.length === 0 ? html`<p class="calm">Nothing needs attention.</p>`
    : html`<section class="attention" aria-label="Needs attention"><h2>Needs attention</h2><ul>${notes.map((note) => html`<li>${note}</li>`)}</ul></section>`;
}

function clients() {
  const most = Math.max(1, ...gateway.value.traffic.map((one) => one.live));
  return html`<section class="clients" aria-label="Clients"><h2>Clients</h2><ul class="plain">
    ${gateway.value.traffic.map((one) => html`<li><a href=${link('runs', null, { protocol: one.protocol })}>${one.protocol}</a>
      <span class="number">${one.live}</span><span class="wire" aria-hidden="true" .style=${`height:${1 + Math.round((6 * one.live) / most)}px`}></span></li>`)}
  </ul></section>`;
}

function agentTable() {
  return html`<section class="agents"><h2 id="agents">Agents</h2><div class="scroll"><table aria-label="Agents">
    <thead><tr><th scope="col">Agent</th><th scope="col">State</th><th scope="col">Protocol</th><th scope="col">Live</th><th scope="col">Waiting</th>${mayAct() ? html`<th scope="col">Actions</th>` : nothing}</tr></thead>
    <tbody>${agents.value.map((agent) => html`<tr>
      <th scope="row"><a href=${link('runs', null, { agent: agent.name })}>${agent.name}</a><div class="dim">${agent.host}</div></th>
      <td><span class="dot ${agent.state}">${agent.state}</span>${agent.reason ? html`<div class="dim">${agent.reason}</div>` : nothing}</td>
      <td>${agent.protocol}</td>
      <td class="number">${agent.live}</td>
      <td class="number">${agent.queued}</td>
      ${mayAct() ? html`<td>${drainButton(agent)}</td>` : nothing}</tr>`)}</tbody>
  </table></div></section>`;
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
    <thead><tr><th scope="col">Protocol</th><th scope="col">URL</th><th scope="col">Authentication</th><th scope="col">Agents</th></tr></thead>
    <tbody>${routes.value.map((route) => html`<tr><td>${route.protocol}</td><td><code>${route.url}</code></td>
      <td>${route.auth === 'none' ? html`<span class="warn">none</span>` : route.auth}</td><td>${route.agents.join(', ')}</td></tr>`)}</tbody>
  </table></div></section>`;
}
