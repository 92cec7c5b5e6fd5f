// The cause of a failed turn, as in the log line: the agent's status, its answer and its own error text.

import { html, nothing } from '../vendor/lit-html/lit-html.js';
import { copy } from '../ui.js';

/** The cause as text, for a report. */
const textOf = ({ code, message, status, detail, agent_error: said }) =>
  [`${code}: ${message}`, status ? `status: ${status}` : '', detail, said].filter(Boolean).join('\n');

/** @param {import('../types.d.ts').TurnError} error */
export function causeOf(error) {
  const { status, detail, agent_error: said } = error;
  if (!status && !detail && !said) return nothing;
  return html`<div class="cause" aria-label="Cause">
    ${status ? html`<p>The agent answered with status <code class="bad">${status}</code>.</p>` : nothing}
    ${detail ? html`<pre dir="auto">${detail}</pre>` : nothing}
    ${said && !detail?.includes(said) ? html`<h3>Error text of the agent</h3><pre dir="auto">${said}</pre>` : nothing}
    <button class="quiet" @click=${() => copy(textOf(error), 'Cause')}>Copy cause</button></div>`;
}
