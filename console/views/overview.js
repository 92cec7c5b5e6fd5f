// The gateway at a glance: which protocols come in, which agents are behind it, what needs attention.

import { html, nothing } from '../vendor/lit-html/lit-html.js';
import { counted } from '../format.js';
import { link } from '../router.js';
import { agents, gateway, pendingCount, routes } from '../state.js';
import { loading } from '../ui.js';

export function overviewView() {
  const about = gateway.value;
  if (!about || !agents.value || !routes.value) return html`<h1>Overview</h1>${loading('the gateway')}`;
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
    <thead><tr><th scope="col">Agent</th><th scope="col">State</th><th scope="col">Protocol</th><th scope="col">Live</th><th scope="col">Waiting</th></tr></thead>
    <tbody>${agents.value.map((agent) => html`<tr>
      <th scope="row"><a href=${link('runs', null, { agent: agent.name })}>${agent.name}</a><div class="dim">${agent.host}</div></th>
      <td><span class="dot ${agent.state}">${agent.state}</span>${agent.reason ? html`<div class="dim">${agent.reason}</div>` : nothing}</td>
      <td>${agent.protocol}</td>
      <td class="number">${agent.live}</td>
      <td class="number">${agent.queued}</td></tr>`)}</tbody>
  </table></div></section>`;
}

function routeTable() {
  return html`<section><h2 id="routes">Routes</h2><div class="scroll"><table aria-label="Routes">
    <thead><tr><th scope="col">Protocol</th><th scope="col">URL</th><th scope="col">Authentication</th><th scope="col">Agents</th></tr></thead>
    <tbody>${routes.value.map((route) => html`<tr><td>${route.protocol}</td><td><code>${route.url}</code></td>
      <td>${route.auth === 'none' ? html`<span class="warn">none</span>` : route.auth}</td><td>${route.agents.join(', ')}</td></tr>`)}</tbody>
  </table></div></section>`;
}
