// The latest entries of the audit log of this gateway: sign-ins, refusals and changes.

import { html, nothing } from '../vendor/lit-html/lit-html.js';
import { effect, signal, untracked } from '../vendor/signals-core/signals-core.mjs';
import { get, session, whenSignedOut } from '../api.js';
import { place } from '../router.js';
import { empty, failed, loading } from '../ui.js';

const entries = signal(/** @type {any[] | null} */ (null));
const error = signal('');
whenSignedOut(() => { entries.value = null; });
let timer = 0;

const load = () => get('/audit?limit=200').then((found) => {
  entries.value = found.data;
  error.value = '';
}).catch((problem) => { error.value = problem.message; });

effect(() => {
  clearInterval(timer);
  if (session.value && place.value.screen === 'audit') {
    untracked(load);
    timer = setInterval(() => { if (!document.hidden) load(); }, 5000);
  }
});

export function auditView() {
  const all = entries.value;
  return html`
    <h1>Audit</h1>
    ${error.value && !all ? failed(error.value, load) : !all ? loading('entries')
      : all.length === 0 ? empty('No entries yet.', 'Sign-ins, refusals and changes appear here.')
        : html`<div class="scroll" tabindex="0" role="region" aria-label="Audit, table"><table aria-label="Audit">
          <thead><tr><th scope="col">Time</th><th scope="col">What</th><th scope="col">Who</th><th scope="col">From</th><th scope="col">Target</th><th scope="col">Detail</th></tr></thead>
          <tbody>${all.map((entry) => html`<tr><td class="number">${entry.time}</td><td><b>${entry.what}</b>${entry.count ? html` ×${entry.count}` : nothing}</td>
            <td>${entry.who ?? ''}</td><td>${entry.from ?? ''}</td><td><code>${entry.target ?? ''}</code></td><td>${entry.detail ?? ''}</td></tr>`)}</tbody>
        </table></div>`}`;
}
