// A chat with an agent over any of its protocols, the bytes of the response, and the snippet for the last message.

import { Directive, directive } from '../vendor/lit-html/directive.js';
import { html, noChange, nothing } from '../vendor/lit-html/lit-html.js';
import { repeat } from '../vendor/lit-html/directives/repeat.js';
import { signal } from '../vendor/signals-core/signals-core.mjs';
import { mayAct, whenSignedOut } from '../api.js';
import { bytes } from '../format.js';
import { begin, chat, say, stop } from '../playground.js';
import { link, place, refine } from '../router.js';
import { routes } from '../state.js';
import { copy, empty, loading } from '../ui.js';
import { entries } from './timeline.js';

/** Maximum number of shown characters of the response. The last ones are shown. */
const SHOWN = 60_000;
const LANGUAGES = { curl: 'curl', python: 'Python', typescript: 'TypeScript' };

const message = signal('');
const language = signal('curl');
whenSignedOut(() => { message.value = ''; });

/** The agent and the protocol in the address, or the first ones. */
function chosen() {
  const all = routes.value.filter((route) => route.sample);
  const agents = [...new Set(all.flatMap((route) => route.agents))].sort();
  const { query } = place.value;
  const agent = agents.includes(query.get('agent')) ? query.get('agent') : agents[0];
  const open = all.filter((route) => route.agents.includes(agent));
  const wanted = query.get('protocol');
  return { agents, agent, open, route: open.find((route) => nameOf(route, open) === wanted) ?? open[0] };
}

/** The name of a route: its protocol, and also its path if the agent has several routes of the protocol. */
const nameOf = (route, all) =>
  (all.filter((one) => one.protocol === route.protocol).length > 1 ? `${route.protocol} ${route.path}` : route.protocol);

export function playgroundView() {
  if (!routes.value) return html`<h1>Playground</h1>${loading('the routes')}`;
  const { agents, agent, open, route } = chosen();
  if (agents.length === 0) {
    return html`<h1>Playground</h1>${empty('No agent can be tried.', 'No route of this gateway has a protocol with a sample request.')}`;
  }
  const { turns, busy } = chat.value;
  const clear = () => begin(agent);
  return html`
    <div class="head"><h1>Playground</h1><span class="space"></span>
      ${turns.length > 0 ? html`<button ?disabled=${busy} @click=${clear}>New conversation</button>` : nothing}</div>
    <div class="columns playground">
      <section class="panel talk" aria-label="Chat">
        <div class="filters">
          <div class="field"><label for="agent">Agent</label><select id="agent" .value=${agent} ?disabled=${busy} @change=${(event) => refine({ agent: event.target.value, protocol: '' })}>
            ${agents.map((name) => html`<option .value=${name} ?selected=${name === agent}>${name}</option>`)}</select></div>
          <div class="field"><label for="protocol">Protocol</label><select id="protocol" .value=${nameOf(route, open)} ?disabled=${busy} @change=${(event) => refine({ protocol: event.target.value })}>
            ${open.map((one) => html`<option .value=${nameOf(one, open)} ?selected=${one === route}>${nameOf(one, open)}</option>`)}</select></div>
        </div>
        ${conversation(agent)}
        ${mayAct() ? composer(route, agent) : html`<p class="note">Your role may view, but not send.</p>`}
      </section>
      <div class="stack">${wire()}${snippet()}</div>
    </div>`;
}

function composer(route, agent) {
  const { busy, error } = chat.value;
  const submit = async (event) => {
    event?.preventDefault();
    const text = message.value.trim();
    if (!text || chat.value.busy) return;
    message.value = '';
    if (!(await say(route, agent, text)) && !message.value) message.value = text;
  };
  const onKey = (event) => {
    if (event.key === 'Enter' && !event.shiftKey && !event.isComposing) submit(event);
  };
  return html`<form class="composer" @submit=${submit}>
    <label>Message <textarea rows="2" .value=${message.value} @keydown=${onKey}
      @input=${(event) => { message.value = event.target.value; }}></textarea></label>
    ${error ? html`<p class="wrong" role="alert">${error}</p>` : nothing}
    <div class="buttons">
      <button class="primary" ?disabled=${busy || message.value.trim() === ''}>Send</button>
      <button type="button" ?disabled=${!busy} @click=${stop}>Stop</button>
      <span class="dim">Enter sends, Shift + Enter starts a line.</span>
    </div></form>`;
}

function conversation(agent) {
  const { turns, busy, agent: of } = chat.value;
  const shown = of === agent ? turns : [];
  return html`<div role="log" aria-label="Conversation" tabindex="0" aria-busy=${busy ? 'true' : 'false'} ${pinned(shown.at(-1)?.key)}>
    ${shown.length === 0 ? empty('Say something.', html`The conversation continues if you choose another protocol.`) : nothing}
    ${repeat(shown, (turn) => turn.key, (turn, index) => turnOf(turn, shown[index - 1]))}
  </div>`;
}

const sessionOf = (turn) => turn?.open?.summary?.session;

function turnOf(turn, before) {
  const { open, wire } = turn;
  const moves = !turn.isNew && sessionOf(before) && sessionOf(turn) && sessionOf(before) !== sessionOf(turn);
  const cards = open ? entries(open.folded, open.detail && { ...open.detail, turns: [] }) : [];
  return html`<div class="turn">
    <p class="over"><span class="tag">${turn.protocol}</span>
      ${turn.text === null ? html`<span class="dim">continues after the decision</span>` : nothing}
      ${turn.isNew ? html`<span class="dim">a new conversation: this route has its own sessions</span>` : nothing}
      ${moves ? html`<span class="dim">in a session of its own, with the previous messages</span>` : nothing}
      <span class="space"></span>${turn.run ? html`<a href=${link('runs', turn.run)}>Open run</a>` : nothing}</p>
    ${turn.text === null ? nothing : html`<div class="card input"><header><b>user</b></header><pre dir="auto">${turn.text}</pre></div>`}
    ${open?.detail?.texts === false ? html`<p class="note">Texts are hidden for your role: see the wire.</p>` : nothing}
    ${repeat(cards, (card) => card.key, (card) => html`<div class="card ${card.kind}">${card.body()}</div>`)}
    ${outcome(turn, wire, cards.length)}
  </div>`;
}

/** The state of a turn beside the agent's messages: waiting, stopped or refused. */
function outcome({ run }, wire, count) {
  if (!wire) return nothing;
  if (wire.status >= 400) {
    return html`<div class="card error" role="alert"><header><b>Refused</b> <code class="bad">HTTP ${wire.status}</code></header>
      <pre dir="auto">${wire.text.slice(0, 2000)}</pre></div>`;
  }
  if (wire.end === 'broken') return html`<p class="wrong" role="alert">The connection was lost.</p>`;
  if (wire.end === 'stopped') return html`<p class="dim">Stopped.</p>`;
  if (count === 0 && wire.end === 'sending') return html`<p class="dim waiting" role="status">Waiting for the agent…</p>`;
  if (count === 0 && !run) return html`<p class="dim">No run started. The wire shows the response.</p>`;
  return nothing;
}

function wire() {
  const turn = chat.value.turns.findLast((one) => one.wire);
  const came = turn?.wire;
  const type = came?.type.split(';')[0];
  return html`<section class="panel" aria-label="Wire">
    <div class="head"><h2>Wire</h2><span class="space"></span>
      ${came?.text ? html`<button class="quiet" @click=${() => copy(came.text, 'Wire')}>Copy wire</button>` : nothing}</div>
    ${came?.status ? html`<p class="came">${turn.protocol} · HTTP ${came.status}${type ? ` · ${type}` : ''} · ${bytes(came.size)}</p>` : nothing}
    ${came?.text ? html`
      ${came.size > SHOWN ? html`<p class="dim">The last ${bytes(SHOWN)} are shown.</p>` : nothing}
      <pre class="wire" tabindex="0" ${pinned(turn.key)}>${came.text.slice(-SHOWN)}</pre>`
    : html`<p class="dim">${came ? 'No response yet.' : 'The exact response that a client of the protocol receives.'}</p>`}
  </section>`;
}

function snippet() {
  const { snippets } = chat.value;
  const shown = snippets?.[language.value];
  return html`<section class="panel" aria-label="Snippet">
    <div class="head"><h2>Snippet</h2><span class="space"></span>
      <div role="group" aria-label="Language" class="languages">${Object.entries(LANGUAGES).map(([name, title]) => html`
        <button class="quiet" aria-pressed=${name === language.value ? 'true' : 'false'} @click=${() => { language.value = name; }}>${title}</button>`)}</div>
      ${shown ? html`<button class="quiet" @click=${() => copy(shown, 'Snippet')}>Copy snippet</button>` : nothing}</div>
    ${shown ? html`<pre class="snippet" tabindex="0">${shown}</pre>
      <p class="hint">The snippet starts a new conversation: clients cannot continue a conversation of the console.</p>`
    : html`<p class="dim">The request of a client with your last message.</p>`}
  </section>`;
}

/** Keeps the end of an element visible unless the user has scrolled up. Always scrolls to a new turn. */
class Pinned extends Directive {
  key = /** @type {any} */ (null);

  /** @param {any} _key */
  render(_key) { return noChange; }

  /** @param {any} part  @param {[any]} arguments_ */
  update({ element }, [key]) {
    const isNear = element.scrollHeight - element.scrollTop - element.clientHeight < 60;
    if (isNear || this.key !== key) queueMicrotask(() => { element.scrollTop = element.scrollHeight; });
    this.key = key;
    return noChange;
  }
}
const pinned = directive(Pinned);
