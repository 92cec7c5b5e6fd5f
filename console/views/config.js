// The active configuration without secrets, and a form that checks another one. This screen applies nothing.

import { html, nothing } from '../vendor/lit-html/lit-html.js';
import { effect, signal, untracked } from '../vendor/signals-core/signals-core.mjs';
import { get, post, session, whenSignedOut } from '../api.js';
import { diff, nearChanges } from '../diff.js';
import { pretty, stamp } from '../format.js';
import { place } from '../router.js';
import { fail } from '../state.js';
import { loading } from '../ui.js';

const config = signal(/** @type {any} */ (null));
const text = signal('');
const result = signal(/** @type {any} */ (null));
const busy = signal(false);

whenSignedOut(() => {
  config.value = result.value = null;
  text.value = '';
});

effect(() => {
  if (session.value && place.value.screen === 'config') {
    untracked(() => get('/config').then((found) => {
      config.value = found;
      if (text.peek() === '') text.value = found.source ?? '';
    }).catch(fail));
  }
});

async function check() {
  busy.value = true;
  try {
    result.value = await post('/config/check', { text: text.value });
  } catch (error) {
    fail(error);
  } finally {
    busy.value = false;
  }
}

export function configView() {
  if (!config.value) return html`<h1>Config</h1>${loading('the configuration')}`;
  return html`
    <h1>Config</h1>
    <div class="columns two">
      <section class="panel">
        <h2>Check a file</h2>
        <label for="configuration">Configuration</label>
        <textarea id="configuration" class="code" rows="22" spellcheck="false" wrap="off" .value=${text.value}
          @input=${(event) => { text.value = event.target.value; result.value = null; }}></textarea>
        <div class="buttons"><button class="primary" ?disabled=${busy.value} @click=${check}>Check</button>
          <span class="dim">Nothing is applied.</span></div>
        ${result.value ? html`${findings(result.value)}${difference()}` : nothing}
      </section>
      <section class="panel">
        <h2>Active configuration</h2>
        <p class="dim">Since ${stamp(config.value.since)}</p>
        <pre class="tall" tabindex="0">${pretty(config.value.in_force)}</pre>
      </section>
    </div>`;
}

function findings({ errors, warnings, routes }) {
  return html`
    ${errors.length > 0
      ? html`<h3>${errors.length === 1 ? '1 error' : `${errors.length} errors`}</h3>`
      : html`<p class="calm" role="status">No errors. It would serve ${routes.length === 1 ? '1 route' : `${routes.length} routes`}.</p>`}
    <ul aria-label="Errors" class="findings" ?hidden=${errors.length === 0}>${errors.map((error) => html`<li>${error.line ? html`<code>${error.line}:${error.column}</code> ` : nothing}${error.message}</li>`)}</ul>
    ${warnings.length > 0 ? html`<h3>Warnings</h3><ul class="findings">${warnings.map((warning) => html`<li>${warning.message}</li>`)}</ul>` : nothing}
    ${errors.length === 0 ? html`<ul class="findings">${routes.map((route) => html`<li>${route.protocol} <code>${route.path}</code></li>`)}</ul>` : nothing}`;
}

/** The lines of the text that differ from the active file. */
function difference() {
  const before = config.value.source;
  if (typeof before !== 'string') return nothing;
  const lines = diff(before, text.value);
  if (lines.every(({ mark }) => mark === ' ')) return html`<p class="dim">The text is the same as the active file.</p>`;
  return html`<h3>Difference from the active file</h3>
    <pre class="tall diff" tabindex="0" role="region" aria-label="Difference">${nearChanges(lines, 2).map((line) =>
      (line === null ? html`<span class="dim">…</span>\n` : html`<span class=${line.mark === '+' ? 'added' : line.mark === '-' ? 'removed' : ''}>${line.mark} ${line.text}</span>\n`))}</pre>`;
}
