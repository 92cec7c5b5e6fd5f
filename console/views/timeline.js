// The messages of a run beside a time axis: one card for a message, for a tool call with its output, and for a question.

import { html, nothing } from '../vendor/lit-html/lit-html.js';
import { repeat } from '../vendor/lit-html/directives/repeat.js';
import { signal } from '../vendor/signals-core/signals-core.mjs';
import { cards, dataOf, isCall, isOutput, textOf } from '../fold.js';
import { bytes, duration, offset, pretty } from '../format.js';
import { replayAt, replayControls } from '../replay.js';
import { link } from '../router.js';
import { empty } from '../ui.js';
import { causeOf } from './cause.js';
import { contentsOf, long } from './contents.js';
import { itemGroup } from './item.js';

/** The number of drawn cards. A button shows earlier ones. */
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

/** Inputs of turns and messages of the agent, in order of arrival. */
export function entries(folded, detail) {
  const found = [];
  const hidden = detail?.texts === false;
  const answers = new Map((detail?.answers ?? []).map((answer) => [answer.id, answer]));
  for (const turn of detail?.turns ?? []) {
    (turn.input ?? []).forEach((message, index) => {
      if (message.role === 'assistant' && turn.number === 0) return;
      // The card of the question shows its answer.
      if (message.type === 'mcp_approval_response' && answers.has(answerOf(message).id)) return;
      found.push({ key: `in-${turn.number}-${index}`, at: turn.started_at, kind: 'input', body: () => inputCard(message, hidden) });
    });
  }
  // Open items have cards with buttons instead.
  const open = new Set((detail?.pending ?? []).map((item) => item.id));
  for (const { message, output } of cards(folded.messages)) {
    if (message.type === 'heartbeat') continue;
    const asked = message.type === 'mcp_approval_request' ? dataOf(message).id : null;
    if (asked && open.has(asked)) continue;
    const body = () => (asked ? questionCard(message, answers.get(asked), detail) : messageCard(message, output, hidden));
    found.push({ key: message.id, at: message.from, kind: kindOf(message), body });
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

const DECIDED = { accept: 'Accepted', edit: 'Edited', respond: 'Answered', reject: 'Rejected', cancel: 'Canceled' };

/** The answer in a message of a client. */
function answerOf(message) {
  const data = (message.content ?? []).find((content) => content.data)?.data ?? {};
  const { interrupt = {} } = data;
  const decision = interrupt.decision ?? (data.approve === true ? 'accept' : data.approve === false ? 'reject' : null);
  return { id: data.approval_request_id ?? data.id, decision, arguments: interrupt.arguments, text: interrupt.text ?? data.reason };
}

function inputCard(message, hidden) {
  if (message.type === 'mcp_approval_response') {
    const answer = answerOf(message);
    return html`<header><b>${DECIDED[answer.decision] ?? 'Answered'}</b> <span class="dim">an earlier question</span></header>${answerText(answer, message.id, hidden)}`;
  }
  return html`<header><b>${message.role ?? 'user'}</b></header>${contentsOf(message.content ?? [], `in-${message.id}`, hidden)}`;
}

/** The text of a decision, such as its reason. */
const answerText = (answer, id, hidden) => html`
  ${answer.arguments ? html`<h3>New arguments</h3>${long(pretty(answer.arguments), `${id}-e`, hidden)}` : nothing}
  ${answer.text ? long(answer.text, `${id}-t`, hidden) : nothing}`;

function messageCard(message, output, hidden) {
  const took = message.to - message.from;
  if (message.type === 'reasoning') {
    return html`<details><summary>Reasoning <span class="dim">${bytes(textOf(message).length)} · ${duration(took)}</span></summary>
      ${contentsOf(message.contents, message.id, hidden)}</details>`;
  }
  if (message.type === 'protocol_event') {
    const size = message.contents.filter(Boolean).reduce((sum, content) => sum + JSON.stringify(content.value ?? content.text ?? '').length, 0);
    return html`<details><summary>Event of the agent's protocol <span class="dim">${bytes(size)}</span></summary>
      ${contentsOf(message.contents, message.id, hidden)}</details>`;
  }
  if (isCall(message) || isOutput(message)) return callCard(message, output, took, hidden);
  if (message.type === 'error') return errorCard({ code: message.code, message: message.error ?? textOf(message) });
  return html`<header><b>${message.role}</b>${message.type === 'message' ? nothing : html` <code>${message.type}</code>`}
    <span class="dim">${message.status === 'in_progress' ? 'writing…' : duration(took)}</span></header>
    ${contentsOf(message.contents, message.id, hidden)}`;
}

function callCard(message, output, took, hidden) {
  const call = dataOf(message);
  const result = output ? dataOf(output).output : undefined;
  const waited = output ? output.to - message.from : took;
  return html`<header><b>${call.name ?? 'tool'}</b> <code>${message.type}</code>
      <span class="dim">${output ? duration(waited) : 'no output'}</span></header>
    ${call.arguments === undefined ? nothing : html`<h3>Arguments</h3>${long(pretty(call.arguments), `${message.id}-a`, hidden)}`}
    ${output ? html`<h3>Output</h3>${long(pretty(result ?? textOf(output)), `${message.id}-o`, hidden)}` : nothing}`;
}

/** The question of the agent and its answer. */
function questionCard(message, answer, detail) {
  const item = dataOf(message);
  const hidden = detail?.texts === false;
  const prompt = item.interrupt?.message;
  return html`<header><b>${item.name ?? 'approval'}</b> <span class="dim">asked for a decision</span></header>
    ${prompt && !hidden ? html`<p dir="auto">${prompt}</p>` : nothing}
    ${item.arguments ? long(pretty(item.arguments), `${message.id}-q`, hidden) : nothing}
    ${answer ? html`<div class="answer">
      <header><b>${DECIDED[answer.decision] ?? 'Answered'}</b>${answer.by ? html` <span class="dim">by ${answer.by}</span>` : nothing}
        ${answer.run !== detail.run.id ? html`<a href=${link('runs', answer.run)}>in the run that continued</a>` : nothing}</header>
      ${answerText(answer, message.id, hidden)}</div>` : nothing}`;
}

/** The name of the party that has to act. */
const BLAME = { client: 'the client', upstream: 'the agent or the network', gateway: 'this gateway' };

/** @param {any} error  @param {import('../state.js').Detail | null} [detail] */
function errorCard(error, detail) {
  const failure = detail?.turns.findLast((turn) => turn.error)?.error;
  const known = failure && failure.code === error.code ? failure : null;
  return html`<header><b>Failed</b> ${error.code ? html`<code class="bad">${error.code}</code>` : nothing}
      ${known ? html`<span class="dim">caused by ${BLAME[known.blame]}</span>` : nothing}</header>
    <p dir="auto">${error.message}</p>
    ${known ? causeOf(known) : nothing}
    ${detail?.advice ? html`<p class="hint">${detail.advice}</p>` : nothing}`;
}
