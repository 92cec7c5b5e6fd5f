// Open items of all sessions and protocols, the oldest first.

import { html, nothing } from '../vendor/lit-html/lit-html.js';
import { repeat } from '../vendor/lit-html/directives/repeat.js';
import { effect, signal, untracked } from '../vendor/signals-core/signals-core.mjs';
import { session, whenSignedOut } from '../api.js';
import { place } from '../router.js';
import { missed, openItems, pendingCount } from '../state.js';
import { empty, failed, loading } from '../ui.js';
import { decided, itemGroup, keyOf, tooLate } from './item.js';

/** The number of items per page. */
const PAGE = 200;

const items = signal(/** @type {import('../state.js').OpenItem[] | null} */ (null));
const total = signal(0);
/** The number of shown pages. */
const pages = signal(1);
const error = signal('');
whenSignedOut(() => {
  items.value = null;
  pages.value = 1;
});

/** Loads the items of the shown pages. */
async function listedItems() {
  const found = new Map();
  let cursor = '';
  for (let page = 0; page < pages.peek(); page += 1) {
    const { data, next, total: all } = await openItems({ limit: String(PAGE), ...(cursor && { cursor }) });
    for (const item of data) found.set(keyOf(item), item);
    total.value = all;
    if (!next) break;
    cursor = next;
  }
  return [...found.values()];
}

async function load() {
  try {
    const data = await listedItems();
    const listed = new Set(data.map(keyOf));
    const gone = (items.peek() ?? []).filter((item) => !listed.has(keyOf(item)));
    tooLate(gone);
    // An item that was decided on this page stays for a moment, with its result.
    const kept = gone.filter((item) => decided.peek().has(keyOf(item)));
    items.value = [...kept, ...data].sort((one, other) => one.asked_at - other.asked_at);
    error.value = '';
  } catch (problem) {
    error.value = problem.message;
  }
}

/** Groups items by run: items of one run are decided together. */
function byRun(all) {
  const runs = new Map();
  for (const item of all) runs.set(item.run, [...(runs.get(item.run) ?? []), item]);
  return [...runs];
}

effect(() => {
  if (session.value && place.value.screen === 'pending') {
    pendingCount.value;
    missed.value;
    pages.value;
    decided.value;
    untracked(load);
  }
});

export function pendingView() {
  const all = items.value;
  return html`
    <div class="head"><h1>Pending</h1>${all ? html`<span class="total">${pendingCount.value}</span>` : nothing}</div>
    ${error.value && !all ? failed(error.value, load)
      : !all ? loading('open items')
        : all.length === 0 ? empty('Nothing waits for a decision.', 'Questions and approvals of all agents appear here, from clients of every protocol.')
          : html`<div class="items">${repeat(byRun(all), ([run]) => run, ([, group]) => itemGroup(group))}</div>
            ${total.value > all.length ? html`<p><button @click=${() => { pages.value += 1; }}>Show more</button>
              <span class="dim">${all.length} of ${total.value}</span></p>` : nothing}`}`;
}
