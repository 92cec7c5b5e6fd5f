// Replays a finished run at its original speed or faster: selects the events up to the shown moment.

import { html, nothing } from './vendor/lit-html/lit-html.js';
import { signal } from './vendor/signals-core/signals-core.mjs';
import { offset } from './format.js';
import { empty, fold } from './fold.js';
import { jsonOf } from './sse.js';
import { run } from './state.js';

const SPEEDS = [1, 2, 5, 10, 50];
/** The position of the replay. `null`: the whole run is shown. */
const playing = signal(/** @type {null | {id: string, speed: number, at: number, count: number}} */ (null));
let folded = empty();
let since = 0;

function tick(open) {
  const state = playing.peek();
  if (!state || state.id !== open.id) return;
  // Stop if the page shows another run now.
  if (run.peek()?.id !== open.id) {
    playing.value = null;
    return;
  }
  const at = state.at + (performance.now() - since) * state.speed;
  since = performance.now();
  const began = open.frames[0]?.at ?? 0;
  let { count } = state;
  while (count < open.frames.length && open.frames[count].at - began <= at) {
    const event = open.frames[count];
    for (const frame of jsonOf(event.frames['agent-api'] ?? '')) fold(folded, frame, event.at);
    count += 1;
  }
  playing.value = count < open.frames.length ? { ...state, at, count } : null;
  if (playing.peek()) requestAnimationFrame(() => tick(open));
}

function start(open, speed) {
  folded = empty();
  since = performance.now();
  playing.value = { id: open.id, speed, at: 0, count: 0 };
  requestAnimationFrame(() => tick(open));
}

/** The visible part of the run: during a replay the events up to its position, else all. */
export function replayAt(open) {
  const state = playing.value;
  return state?.id === open.id ? { folded, count: state.count } : { folded: open.folded, count: open.frames.length };
}

export function replayControls(open) {
  const state = playing.value;
  if (open.frames.length === 0 || !open.summary || ['queued', 'running'].includes(open.summary.state)) return nothing;
  if (state?.id === open.id) {
    return html`<div class="controls">
      <button @click=${() => { playing.value = null; }}>Stop replay</button>
      <label>Speed <select .value=${String(state.speed)} @change=${(event) => { playing.value = { ...playing.value, speed: Number(event.target.value) }; }}>
        ${SPEEDS.map((speed) => html`<option value=${speed} ?selected=${speed === state.speed}>×${speed}</option>`)}</select></label>
      <span class="dim">${offset(state.at)} · ${state.count} of ${open.frames.length} events</span></div>`;
  }
  return html`<div class="controls"><button @click=${() => start(open, 1)}>Replay</button></div>`;
}
