// Open items of all sessions and protocols, the oldest first.

import { html, nothing } from '../vendor/lit-html/lit-html.js';
import { repeat } from '../vendor/lit-html/directives/repeat.js';
import { effect, signal, untracked } from '../vendor/signals-core/signals-core.mjs';
import { get, session, whenSignedOut } from '../api.js';
import { place } from '../router.js';
import { missed, pendingCount } from '../state.js';
import { empty, failed, loading } from '../ui.js';
import { decided, itemCard, keyOf } from './item.js';

const items = signal(/** @type {any[] | null} */ (null));
const error = signal('');
whenSignedOut(() => { items.value = null; });

async function load() {
  try {
    const page = await get('/pending?limit=200');
    const listed = new Set(page.data.map(keyOf));
    // What was decided here stays for a moment, so that one sees what became of it.
    const kept = (items.peek() ?? []).filter((item) => decided.peek().has(keyOf(item)) && !listed.has(keyOf(item)));
    items.value = [...kept, ...page.data].sort((one, other) => one.asked_at - other.asked_at);
    error.value = '';
    if (kept.length > 0) setTimeout(forget, 4000, kept.map(keyOf));
  } catch (problem) {
    error.value = problem.message;
  }
}

function forget(ids) {
  items.value = (items.peek() ?? []).filter((item) => !ids.includes(keyOf(item)));
}

effect(() => {
  if (session.value && place.value.screen === 'pending') {
    pendingCount.value;
    missed.value;
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
        : all.length === 0 ? empty('Nothing waits for a decision.', 'Questions and approvals of every agent appear here, whatever protocol their client speaks.')
          : html`<div class="items">${repeat(all, keyOf, (item) => itemCard(item))}</div>`}`;
}
