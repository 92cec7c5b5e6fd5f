// An open item: what is asked, and the decisions that are offered. Used by Pending and by the timeline of a run.

import { html, nothing } from '../vendor/lit-html/lit-html.js';
import { signal } from '../vendor/signals-core/signals-core.mjs';
import { mayAct, post, whenSignedOut } from '../api.js';
import { ago, ahead, pretty } from '../format.js';
import { link } from '../router.js';
import { now } from '../state.js';
import { fieldsOf, schemaForm } from './schema.js';

/** The item that is being edited or answered, and what its field has. */
const open = signal(/** @type {null | {id: string, decision: string, text: string, error: string, busy: boolean}} */ (null));
/** Items that were decided here, until the gateway no longer lists them. */
export const decided = signal(/** @type {Map<string, string>} */ (new Map()));

const mark = (id, words) => { decided.value = new Map([...decided.value, [id, words]]); };

/** Agents name their items, and some count from one in every session. */
export const keyOf = (item) => `${item.run}/${item.id}`;

whenSignedOut(() => {
  open.value = null;
  decided.value = new Map();
});

const NAMES = { accept: 'Accept', edit: 'Edit', respond: 'Respond', reject: 'Reject' };

async function decide(item, answer) {
  open.value = { ...(open.value ?? { decision: answer.decision, text: '' }), id: keyOf(item), error: '', busy: true };
  try {
    await post(`/runs/${item.run}/decide`, { items: [{ id: item.id, ...answer }] });
    mark(keyOf(item), `${answer.decision} sent`);
    open.value = null;
  } catch (error) {
    if (error.status === 409) {
      mark(keyOf(item), error.message);
      open.value = null;
    } else {
      open.value = { ...open.value, id: keyOf(item), error: error.message, busy: false };
    }
  }
}

/** Sends what the field has, if it can be read. */
function send(item, event) {
  event.preventDefault();
  const { decision, text } = open.value;
  if (decision === 'edit') {
    try {
      const value = fieldsOf(item) ? text : JSON.stringify(JSON.parse(text));
      decide(item, { decision, arguments: value });
    } catch (error) {
      open.value = { ...open.value, error: `This is not JSON: ${error.message}` };
    }
    return;
  }
  decide(item, { decision, text });
}

function begin(item, decision) {
  const text = decision === 'edit' ? pretty(item.arguments) : '';
  open.value = { id: keyOf(item), decision, text, error: '', busy: false };
}

function press(item, decision) {
  const needsText = decision === 'edit' || decision === 'respond' || (decision === 'reject' && item.kind !== 'input');
  if (needsText) begin(item, decision);
  else decide(item, { decision });
}

const problemOf = ({ decision, text }) => {
  if (decision !== 'edit') return '';
  try {
    JSON.parse(text);
    return '';
  } catch (error) {
    return error.message;
  }
};

function editor(item) {
  const { decision, text, error, busy } = open.value;
  const problem = problemOf(open.value);
  const label = decision === 'edit' ? 'Arguments' : 'Text';
  const change = (value) => { open.value = { ...open.value, text: value, error: '' }; };
  const fields = decision === 'edit' ? fieldsOf(item) : null;
  return html`
    <form class="editor" @submit=${(event) => send(item, event)}>
      ${fields ? schemaForm(fields, text, change) : html`
        <label>${label}
          <textarea rows=${decision === 'edit' ? 8 : 3} spellcheck=${decision !== 'edit'} class=${decision === 'edit' ? 'code' : ''}
            aria-invalid=${problem ? 'true' : 'false'} .value=${text} @input=${(event) => change(event.target.value)}></textarea>
        </label>`}
      ${problem || error ? html`<p class="wrong" role=${error ? 'alert' : 'status'}>${error || problem}</p>` : nothing}
      <div class="buttons">
        <button class="primary" ?disabled=${busy || Boolean(problem)}>Send decision</button>
        <button type="button" class="quiet" @click=${() => { open.value = null; }}>Cancel</button>
        ${decision === 'reject' ? html`<span class="dim">A reason is optional.</span>` : nothing}
      </div>
    </form>`;
}

/**
 * @param {any} item
 * @param {boolean} alone  false within the timeline of its run
 */
export function itemCard(item, alone = true) {
  const done = decided.value.get(keyOf(item));
  const editing = open.value?.id === keyOf(item) ? open.value : null;
  const expired = item.expires_at !== null && item.expires_at <= now.value;
  return html`
    <article tabindex=${alone ? 0 : nothing} aria-label=${item.name} class="item">
      <header>
        <b>${item.name}</b> <span class="kind">${item.kind}</span>
        <span class="dim">${item.agent} · asked over ${item.protocol} by ${item.owner}, ${ago(item.asked_at, now.value)}${
          item.expires_at ? html` · <span class=${expired ? 'bad' : ''}>expires ${ahead(item.expires_at, now.value)}</span>` : nothing}</span>
        <span class="space"></span>
        ${alone ? html`<a href=${link('runs', item.run)}>Open run</a>` : nothing}
      </header>
      ${item.message ? html`<p class="prompt" dir="auto">${item.message}</p>` : nothing}
      ${item.arguments ? argumentList(item.arguments) : nothing}
      ${done ? html`<p class="done" role="status">${done}</p>` : editing && editing.decision in NAMES && !(editing.busy && !editing.text) ? editor(item) : html`
        <div class="buttons">
          ${mayAct() && !expired ? item.decisions.map((decision) => html`
            <button class=${decision === 'accept' ? 'primary' : decision === 'reject' ? 'danger' : ''} ?disabled=${editing?.busy}
              @click=${() => press(item, decision)}>${NAMES[decision]}</button>`) : nothing}
          ${mayAct() ? nothing : html`<span class="dim">Your role may view only.</span>`}
          <span class="dim learns">${item.learns}</span>
        </div>`}
    </article>`;
}

/** Arguments as a list of names and values if they are an object, else as they are. */
function argumentList(text) {
  let value;
  try {
    value = JSON.parse(text);
  } catch {
    return html`<pre dir="auto">${text.slice(0, 20_000)}</pre>`;
  }
  if (!value || typeof value !== 'object' || Array.isArray(value) || Object.keys(value).length > 30) {
    return html`<pre dir="auto">${pretty(value).slice(0, 20_000)}</pre>`;
  }
  return html`<dl class="arguments">${Object.entries(value).map(([name, one]) => html`
    <dt>${name}</dt><dd dir="auto">${typeof one === 'string' ? one.slice(0, 20_000) : html`<code>${JSON.stringify(one).slice(0, 20_000)}</code>`}</dd>`)}</dl>`;
}
