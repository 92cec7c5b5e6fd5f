// Open items of a run: the question and its decisions. Used by Pending and by the timeline of a run. All items of a turn
// are decided together, because the agent receives all answers in one request.

import { html, nothing } from '../vendor/lit-html/lit-html.js';
import { repeat } from '../vendor/lit-html/directives/repeat.js';
import { signal } from '../vendor/signals-core/signals-core.mjs';
import { mayAct, post, whenSignedOut } from '../api.js';
import { ago, ahead, bytes, ownerName, pretty } from '../format.js';
import { link } from '../router.js';
import { now, openItems } from '../state.js';
import { fieldsOf, missingOf, schemaForm } from './schema.js';

/** @typedef {{decision: string, text: string, error: string, busy: boolean}} Choice */
/** @typedef {import('../state.js').OpenItem} OpenItem */

/** The chosen decisions that were not sent yet, with the texts of their fields. */
const choices = signal(/** @type {Map<string, Choice>} */ (new Map()));
/** The results of decided items. They are shown for a moment after the gateway has removed the items. */
export const decided = signal(/** @type {Map<string, string>} */ (new Map()));
/** Time in ms for which a result is shown. If the item is still listed then, its agent did not accept the answer. */
const SHOWN_FOR = 6000;

/** The key of an item. Its id alone is not unique, because agents choose ids, and some count from one in every session. */
export const keyOf = (item) => `${item.run}/${item.id}/${item.asked_at}`;

whenSignedOut(() => {
  choices.value = new Map();
  decided.value = new Map();
});

function choose(key, choice) {
  const next = new Map(choices.value);
  if (choice) next.set(key, choice);
  else next.delete(key);
  choices.value = next;
}

function mark(key, words) {
  choose(key, null);
  decided.value = new Map([...decided.value, [key, words]]);
  setTimeout(() => {
    const next = new Map(decided.value);
    next.delete(key);
    decided.value = next;
  }, SHOWN_FOR);
}

/** Shows a message for items that are no longer open but have a decision in progress on this page. */
export function tooLate(items) {
  for (const item of items) {
    if (choices.peek().has(keyOf(item)) && !choices.peek().get(keyOf(item)).busy) {
      mark(keyOf(item), 'This item was decided or withdrawn meanwhile.');
    }
  }
}

const NAMES = { accept: 'Accept', edit: 'Edit', respond: 'Respond', reject: 'Reject' };

/** The fields of a decision, if it has a form: the answer to a question, or the edited arguments of an approval. */
const fieldsFor = (item, decision) =>
  (decision === (item.kind === 'input' ? 'respond' : 'edit') ? fieldsOf(item) : null);

/** The answer to an item as the gateway expects it. */
function answerOf(item, { decision, text }) {
  if (decision === 'edit') return { id: item.id, decision, arguments: JSON.stringify(JSON.parse(text)) };
  if (fieldsFor(item, decision)) return { id: item.id, decision, payload: JSON.parse(text) };
  return text ? { id: item.id, decision, text } : { id: item.id, decision };
}

/** Sends the chosen decisions for these items of one run in one request. */
async function send(items) {
  const chosen = items.map((item) => choices.value.get(keyOf(item)));
  items.forEach((item, index) => choose(keyOf(item), { ...chosen[index], error: '', busy: true }));
  const fail = (item, message) => choose(keyOf(item), { ...choices.value.get(keyOf(item)), error: message, busy: false });
  try {
    await post(`/runs/${items[0].run}/decide`, { items: items.map((item, index) => answerOf(item, chosen[index])) });
    items.forEach((item, index) => mark(keyOf(item), `${chosen[index].decision} sent`));
  } catch (error) {
    const open = error.status === 409 || error.status === 404 ? await stillOpen(items[0].run) : null;
    for (const item of items) {
      if (open && !open.has(keyOf(item))) mark(keyOf(item), error.message);
      else fail(item, error.message);
    }
  }
}

/** The keys of the open items of a run, to find out whether another user has decided an item. `null`: unknown. */
async function stillOpen(run) {
  try {
    const { data } = await openItems({ run });
    return new Set(data.map(keyOf));
  } catch {
    return null;
  }
}

function press(item, decision, alone) {
  const key = keyOf(item);
  if (!alone && choices.value.get(key)?.decision === decision) return choose(key, null);
  const text = decision === 'edit' ? pretty(item.arguments) : fieldsFor(item, decision) ? '{}' : '';
  choose(key, { decision, text, error: '', busy: false });
  if (alone && !hasField(item, { decision })) send([item]);
}

/** The error in the text of a field. Empty: none. */
function problemOf(item, { decision, text }) {
  const fields = fieldsFor(item, decision);
  if (fields) return missingOf(fields, text);
  if (decision !== 'edit') return '';
  try {
    JSON.parse(text);
    return '';
  } catch (error) {
    return `This is not JSON: ${error.message}`;
  }
}

const hasField = (item, { decision }) =>
  decision === 'edit' || decision === 'respond' || (decision === 'reject' && item.kind !== 'input');

/** The field of the chosen decision. */
function field(item, choice) {
  const { decision, text, error } = choice;
  const problem = problemOf(item, choice);
  const change = (value) => choose(keyOf(item), { ...choices.value.get(keyOf(item)), text: value, error: '' });
  const fields = fieldsFor(item, decision);
  const code = decision === 'edit';
  return html`
    ${fields ? schemaForm(fields, text, change) : html`
      <label>${code ? 'Arguments' : 'Text'}
        <textarea rows=${code ? 8 : 3} spellcheck=${!code} class=${code ? 'code' : ''}
          aria-invalid=${problem ? 'true' : 'false'} .value=${text} @input=${(event) => change(event.target.value)}></textarea>
      </label>`}
    ${problem && !error ? html`<p class="wrong" role="status">${problem}</p>` : nothing}
    ${decision === 'reject' ? html`<span class="dim">A reason is optional.</span>` : nothing}`;
}

const isExpired = (item) => item.expires_at !== null && item.expires_at <= now.value;

/**
 * The form for the field of one item, or for the decisions about all items of a turn. Calls of the client's own tools need
 * no answer.
 */
function form(items, body) {
  const chosen = items.filter((item) => choices.value.has(keyOf(item)));
  const choiceOf = (item) => choices.value.get(keyOf(item));
  const busy = chosen.some((item) => choiceOf(item).busy);
  const ready = chosen.length > 0 && chosen.every((item) => !problemOf(item, choiceOf(item)))
    && items.every((item) => item.kind === 'tool' || choiceOf(item));
  const cancel = () => items.forEach((item) => choose(keyOf(item), null));
  const submit = (event) => {
    event.preventDefault();
    if (ready && !busy) send(chosen);
  };
  return html`
    <form class="editor" @submit=${submit}>${body}
      <div class="buttons">
        <button class="primary" ?disabled=${busy || !ready}>Send decision</button>
        ${chosen.length > 0 ? html`<button type="button" class="quiet" ?disabled=${busy} @click=${cancel}>Cancel</button>` : nothing}
      </div>
    </form>`;
}

/**
 * The open items of one run: a card for each item, and one button for all decisions if there are several items.
 * @param {OpenItem[]} items   of one run
 * @param {boolean} listed  false in the timeline of their run
 */
export function itemGroup(items, listed = true) {
  const open = items.filter((item) => !decided.value.has(keyOf(item)));
  if (open.length < 2) return html`${repeat(items, keyOf, (item) => itemCard(item, listed, true))}`;
  const active = open.filter((item) => !isExpired(item));
  const count = active.filter((item) => choices.value.has(keyOf(item))).length;
  return html`
    <section class="together" aria-label=${`${open.length} items of one turn`}>
      ${repeat(items, keyOf, (item) => itemCard(item, listed, false))}
      ${mayAct() && active.length > 0 ? form(active, html`<p class="dim" role="status">
        The agent asked these questions together and needs all answers together: ${count} of ${active.length} decided.</p>`) : nothing}
    </section>`;
}

/** @param {OpenItem} item  @param {boolean} listed  @param {boolean} alone  whether it is the only one of its turn */
function itemCard(item, listed, alone) {
  const key = keyOf(item);
  const done = decided.value.get(key);
  const choice = choices.value.get(key);
  const expired = isExpired(item);
  const editing = choice && hasField(item, choice) && !done;
  return html`
    <article tabindex=${listed ? 0 : nothing} aria-label=${item.name} class="item">
      <header>
        <b>${item.name}</b> <span class="kind">${item.kind}</span>
        <span class="dim">${item.agent} · asked over ${item.protocol} by ${ownerName(item.owner)}, ${ago(item.asked_at, now.value)}${
          item.expires_at ? html` · <span class=${expired ? 'bad' : ''}>expires ${ahead(item.expires_at, now.value)}</span>` : nothing}</span>
        <span class="space"></span>
        ${listed ? html`<a href=${link('runs', item.run)}>Open run</a>` : nothing}
      </header>
      ${item.message ? html`<p class="prompt" dir="auto">${item.message}</p>` : nothing}
      ${item.arguments ? argumentList(item.arguments) : item.arguments === null && item.arguments_bytes
        ? html`<p class="dim">Arguments of ${bytes(item.arguments_bytes)} are hidden for your role.</p>` : nothing}
      ${choice?.error && !done ? html`<p class="wrong" role="alert">${choice.error}</p>` : nothing}
      ${done ? html`<p class="done" role="status">${done}</p>`
        : editing && alone ? form([item], field(item, choice))
          : html`
        <div class="buttons">
          ${mayAct() && !expired ? item.decisions.map((decision) => html`
            <button type="button" class=${decision === 'accept' ? 'primary' : decision === 'reject' ? 'danger' : ''} ?disabled=${choice?.busy}
              aria-pressed=${alone ? nothing : choice?.decision === decision ? 'true' : 'false'}
              @click=${() => press(item, decision, alone)}>${NAMES[decision]}</button>`) : nothing}
          ${mayAct() ? nothing : html`<span class="dim">Your role may view only.</span>`}
          <span class="dim learns">${item.learns}</span>
        </div>
        ${editing ? html`<div class="editor">${field(item, choice)}</div>` : nothing}`}
    </article>`;
}

/** Arguments as a list of names and values. Other values and large objects are shown as text. */
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
