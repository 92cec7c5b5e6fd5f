// The overview of the gateway: client protocols, agents, routes, and problems that need attention.

import { html, nothing } from '../vendor/lit-html/lit-html.js';
import { post, mayAct } from '../api.js';
import { ago, counted, duration, number } from '../format.js';
import { link } from '../router.js';
import { agents, fail, gateway, loadGateway, now, pendingCount, routes, unknown } from '../state.js';
import { ask, copy, failed, loading } from '../ui.js';
import { bars, hub } from './picture.js';

/** The minimum share of failed runs with which an agent needs attention. */
const MUCH = 0.02;
const failedPart = ({ lately }) => (lately.ended > 0 ? lately.failed / lately.ended : 0);
const percent = (part) => (part === 0 ? '0 %' : part < 0.01 ? '< 1 %' : `${Math.round(100 * part)} %`);
/** The traffic of an agent or a protocol: active runs, and runs that ended in the last 15 minutes. */
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

/** Groups of problems, the worst first. */
const SEVERITIES = [['broken', 'Broken'], ['degraded', 'Degraded'], ['waiting', 'Waits for a person'], ['setup', 'Configuration']];

/** The problems, each with its severity, a description and, if known, its cause. */
function findings(about) {
  const failedRuns = (agent) => link('runs', null, { agent: agent.name, state: 'failed' });
  const all = agents.value;
  const open = routes.value.filter((route) => route.auth === 'none').length;
  const degraded = all.filter((agent) => agent.state !== 'failing' && failedPart(agent) >= MUCH);
  degraded.sort((one, other) => failedPart(other) - failedPart(one));
  return [
    ...about.reasons.map((reason) => ['broken', html`Not ready: ${reason.what} ${reason.agent ?? ''}`, reason.detail ?? nothing]),
    ...all.filter((agent) => agent.state === 'failing').map((agent) =>
      ['broken', html`<a href=${failedRuns(agent)}>${agent.name}</a> has been failing for ${duration(now.value - agent.since)}`, agent.reason ?? lastFault(agent)]),
    ...degraded.map((agent) =>
      ['degraded', html`<a href=${failedRuns(agent)}>${agent.name}</a> fails ${percent(failedPart(agent))} of its runs in the last 15 minutes`, lastFault(agent)]),
    ...all.filter((agent) => agent.state === 'draining').map((agent) => ['degraded', html`${agent.name} accepts no new runs: it is draining`, nothing]),
    ...(pendingCount.value > 0 ? [['waiting', html`<a href="#/pending">${counted(pendingCount.value, 'open item')}</a>`, nothing]] : []),
    ...(open > 0 ? [['setup', html`${counted(open, 'route')} without authentication`, nothing]] : []),
    ...about.warnings.map((warning) => ['setup', warning, nothing]),
  ];
}

function attention(about) {
  const found = findings(about);
  if (found.length === 0) return html`<p class="calm">Nothing needs attention.</p>`;
  return html`<section class="attention" aria-label="Needs attention"><h2>Needs attention</h2>
    ${SEVERITIES.map(([severity, title]) => {
      const group = found.filter(([of]) => of === severity);
      return group.length === 0 ? nothing : html`<h3 class=${severity}>${title}</h3>
        <ul>${group.map(([, what, cause]) => html`<li>${what}${cause === nothing ? nothing : html`<div class="dim">${cause}</div>`}</li>`)}</ul>`;
    })}</section>`;
}

function clients() {
  return html`<section class="clients" aria-label="Clients"><h2>Clients</h2><ul class="plain">
    ${gateway.value.traffic.map((one) => html`<li><a href=${link('runs', null, { protocol: one.protocol })}>${one.protocol}</a>
      ${bars(one.lately.per_minute)}<span class="number" title="live runs">${number(one.live)}</span></li>`)}
  </ul></section>`;
}

/** The failure of the agent's latest failed run. */
const lastFault = ({ last_fault: fault }) => (fault ? html`<div class="dim fault"><code>${fault.code}</code> ${ago(fault.at, now.value)}${
  fault.message ? html`: ${fault.message}` : nothing}</div>` : nothing);

function agentTable() {
  return html`<section class="agents"><h2 id="agents">Agents</h2><div class="scroll"><table class="rows-of-cards" aria-label="Agents">
    <thead><tr><th scope="col">Agent</th><th scope="col">State</th><th scope="col">Protocol</th><th scope="col">Live</th><th scope="col">Waiting</th>
      <th scope="col">First event</th><th scope="col">Failed</th>${mayAct() ? html`<th scope="col">Actions</th>` : nothing}</tr></thead>
    <tbody>${agents.value.map((agent) => html`<tr>
      <th scope="row"><a href=${link('runs', null, { agent: agent.name })}>${agent.name}</a><div class="dim">${agent.host}</div></th>
      <td class="standing"><span class="dot ${agent.state}">${agent.state}</span>${
        agent.state === 'ready' ? nothing : html` <span class="dim">for ${duration(now.value - agent.since)}</span>`}${agent.reason ? html`<div class="dim">${agent.reason}</div>` : nothing}${lastFault(agent)}</td>
      <td data-label="Protocol">${agent.protocol}</td>
      <td class="number" data-label="Live">${number(agent.live)}</td>
      <td class="number" data-label="Waiting">${number(agent.queued)}</td>
      <td class="number" data-label="First event">${agent.lately.first_event_p50 === null ? '–' : duration(agent.lately.first_event_p50)}</td>
      <td class="number" data-label="Failed">${agent.lately.ended === 0 ? '–' : html`<span class=${failedPart(agent) >= MUCH ? 'bad' : ''}>${percent(failedPart(agent))}</span>`}</td>
      ${mayAct() ? html`<td>${drainButton(agent)}</td>` : nothing}</tr>`)}</tbody>
  </table></div><p class="hint">First event (median) and failed: this gateway, last 15 minutes.</p></section>`;
}

/** The buttons that drain an agent or end the drain. */
function drainButton(agent) {
  const change = async (what, state) => {
    await post(`/agents/${encodeURIComponent(agent.name)}/${what}`);
    // The stream of changes reports the new state, too, but later.
    agents.value = agents.value.map((one) => (one.name === agent.name ? { ...one, state } : one));
  };
  if (agent.state === 'draining') {
    return html`<button @click=${() => change('resume', 'ready').catch(fail)}>Resume</button>`;
  }
  const text = `${agent.name} accepts no new runs at this gateway: clients receive 503 in their own protocol. Active runs and runs that wait for an answer continue. A restart ends the drain.`;
  return html`<button @click=${() => ask('Drain', text, () => change('drain', 'draining'))}>Drain</button>`;
}

function routeTable() {
  return html`<section><h2 id="routes">Routes</h2><div class="scroll"><table class="rows-of-cards" aria-label="Routes">
    <thead><tr><th scope="col">Protocol</th><th scope="col">URL</th><th scope="col">Authentication</th><th scope="col">Agents</th><th scope="col">Try it</th></tr></thead>
    <tbody>${routes.value.map((route) => html`<tr><th scope="row">${route.protocol}</th><td data-label="URL"><code>${route.url}</code></td>
      <td data-label="Authentication">${route.auth === 'none' ? html`<span class="warn">none</span>` : route.auth}</td><td data-label="Agents">${route.agents.join(', ')}</td>
      <td>${route.snippets ? html`<button class="quiet" aria-label=${`Copy curl of ${route.protocol}`} @click=${() => copy(route.snippets.curl, 'curl')}>Copy curl</button>` : nothing}</td></tr>`)}</tbody>
  </table></div></section>`;
}
