// What a run says, as a conversation beside a time axis: one card for a message, a tool call with its output, a question.

import { html, nothing } from '../vendor/lit-html/lit-html.js';
import { repeat } from '../vendor/lit-html/directives/repeat.js';
import { signal } from '../vendor/signals-core/signals-core.mjs';
import { cards, dataOf, isCall, isOutput, textOf } from '../fold.js';
import { bytes, duration, offset, pretty } from '../format.js';
import { replayAt, replayControls } from '../replay.js';
import { empty } from '../ui.js';
import { contentsOf, long } from './contents.js';
import { itemGroup } from './item.js';

/** Cards that are drawn at most; earlier ones when asked for. */
const MOST = 120;

const earlier = signal(0);

export function timelineTab(open, detail) {
  const { folded } = replayAt(open);
  const began = folded.started || open.summary.created_at;
  const all = entries(folded, detail);
  const hidden = Math.max(0, all.length - MOST - earlier.value);
  const shown = all.slice(hidden);
  return html`
    ${replayControls(open)}
    ${detail?.texts === false ? html`<p class="note">Texts are hidden for your role: lengths are shown.</p>` : nothing}
    ${hidden > 0 ? html`<button class="quiet" @click=${() => { earlier.value += MOST; }}>Show ${Math.min(MOST, hidden)} earlier of ${hidden}</button>` : nothing}
    <div role="log" aria-label="Timeline" class="timeline">
      ${shown.length === 0 ? empty('Nothing yet.', 'The agent has not answered.') : nothing}
      ${repeat(shown, (entry) => entry.key, (entry) => html`
        <div class="moment">
          <span class="at">${offset(entry.at - began)}</span>
          <div class="card ${entry.kind}">${entry.body()}</div>
        </div>`)}
    </div>`;
}

/** Inputs of turns and messages of the agent, in the order in which they came. */
export function entries(folded, detail) {
  const found = [];
  for (const turn of detail?.turns ?? []) {
    (turn.input ?? []).forEach((message, index) => {
      if (message.role !== 'assistant' || turn.number > 0) {
        found.push({ key: `in-${turn.number}-${index}`, at: turn.started_at, kind: 'input', body: () => inputCard(message) });
      }
    });
  }
  // What is still open has a card with buttons instead.
  const open = new Set((detail?.pending ?? []).map((item) => item.id));
  for (const { message, output } of cards(folded.messages)) {
    if (message.type === 'heartbeat') continue;
    if (message.type === 'mcp_approval_request' && open.has(dataOf(message).id)) continue;
    found.push({ key: message.id, at: message.from, kind: kindOf(message), body: () => messageCard(message, output) });
  }
  found.sort((one, other) => one.at - other.at);
  const items = detail?.pending ?? [];
  if (items.length > 0) {
    found.push({ key: 'items', at: items[0].asked_at, kind: 'question', body: () => itemGroup(items, false) });
  }
  if (folded.error) found.push({ key: 'error', at: folded.last, kind: 'error', body: () => errorCard(folded.error, detail) });
  return found;
}

const kindOf = (message) =>
  (isCall(message) ? 'call' : isOutput(message) ? 'call'
    : message.type === 'mcp_approval_request' ? 'question'
      : message.type === 'error' ? 'error' : message.type);

function inputCard(message) {
  return html`<header><b>${message.role ?? 'user'}</b></header>${contentsOf(message.content ?? [], `in-${message.id}`)}`;
}

function messageCard(message, output) {
  const took = message.to - message.from;
  if (message.type === 'reasoning') {
    return html`<details><summary>Reasoning <span class="dim">${bytes(textOf(message).length)} · ${duration(took)}</span></summary>
      ${contentsOf(message.contents, message.id)}</details>`;
  }
  if (isCall(message) || isOutput(message)) return callCard(message, output, took);
  if (message.type === 'mcp_approval_request') return approvalCard(message);
  if (message.type === 'error') return errorCard({ code: message.code, message: message.error ?? textOf(message) });
  return html`<header><b>${message.role}</b>${message.type === 'message' ? nothing : html` <code>${message.type}</code>`}
    <span class="dim">${message.status === 'in_progress' ? 'writing…' : duration(took)}</span></header>
    ${contentsOf(message.contents, message.id)}`;
}

function callCard(message, output, took) {
  const call = dataOf(message);
  const result = output ? dataOf(output).output : undefined;
  const waited = output ? output.to - message.from : took;
  return html`<header><b>${call.name ?? 'tool'}</b> <code>${message.type}</code>
      <span class="dim">${output ? duration(waited) : 'no output'}</span></header>
    ${call.arguments === undefined ? nothing : html`<h3>Arguments</h3>${long(pretty(call.arguments), `${message.id}-a`)}`}
    ${output ? html`<h3>Output</h3>${long(pretty(result ?? textOf(output)), `${message.id}-o`)}` : nothing}`;
}

function approvalCard(message) {
  const item = dataOf(message);
  return html`<header><b>${item.name ?? 'approval'}</b> <span class="dim">asks for a decision</span></header>
    ${item.interrupt?.message ? html`<p>${item.interrupt.message}</p>` : nothing}
    ${item.arguments ? long(pretty(item.arguments), `${message.id}-q`) : nothing}`;
}

const errorCard = (error, detail) => html`<header><b>Failed</b> ${error.code ? html`<code class="bad">${error.code}</code>` : nothing}</header>
  <p>${error.message}</p>
  ${detail?.advice ? html`<p class="hint">${detail.advice}</p>` : nothing}`;
