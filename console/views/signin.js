// The sign-in with a key.

import { html, nothing } from '../vendor/lit-html/lit-html.js';
import { signal } from '../vendor/signals-core/signals-core.mjs';
import { notice, signIn } from '../api.js';
import { icon } from '../ui.js';

const wrong = signal('');
const busy = signal(false);

async function submit(event) {
  event.preventDefault();
  const form = /** @type {HTMLFormElement} */ (event.target);
  const field = /** @type {HTMLInputElement} */ (form.elements.namedItem('key'));
  if (busy.value || field.value.trim() === '') return;
  busy.value = true;
  wrong.value = '';
  try {
    await signIn(field.value.trim());
    field.value = '';
  } catch (error) {
    wrong.value = error.message;
    field.select();
  } finally {
    busy.value = false;
  }
}

export const signInView = () => html`
  <main id="main" class="signin" tabindex="-1">
    <form class="panel" @submit=${submit}>
      <p class="brand">${icon('brand')}<span>Interlingua</span></p>
      <h1>Sign in</h1>
      ${notice.value ? html`<p class="note" role="status">${notice.value}</p>` : nothing}
      <label for="key">Access key</label>
      <input id="key" name="key" type="password" autocomplete="current-password" spellcheck="false" autofocus
        aria-invalid=${wrong.value ? 'true' : 'false'} aria-describedby=${wrong.value ? 'wrong' : nothing}>
      ${wrong.value ? html`<p class="wrong" id="wrong" role="alert">${wrong.value}</p>` : nothing}
      <button class="primary" ?disabled=${busy.value}>Sign in</button>
      <p class="hint">A gateway on this machine prints a link with a key when it starts. Otherwise use the admin key, or
        the key of a caller with <code>console</code> in its table.</p>
    </form>
  </main>`;
