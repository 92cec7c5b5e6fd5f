// The conversation of the playground: each sent message, its protocol, the bytes of the response, and its run. The page
// shows the messages of the run, not of the response. Not here: the view (views/playground.js).

import { computed, effect, signal, untracked } from './vendor/signals-core/signals-core.mjs';
import { post, send, session, whenSignedOut } from './api.js';
import { place } from './router.js';
import { closeRun, detailOf, grown, lately, openRun, run } from './state.js';

/** Maximum number of stored characters of a response. The last ones are stored. */
const MOST = 2_000_000;

/**
 * @typedef {object} Wire
 * @property {number} status      0: no response yet
 * @property {string} type
 * @property {string} text        the last received characters
 * @property {number} size        number of received characters
 * @property {'sending' | 'done' | 'stopped' | 'broken'} end
 */

/**
 * @typedef {object} Turn
 * @property {string} key
 * @property {string | null} text   `null`: the agent continues after a decision
 * @property {boolean} isNew        the route cannot continue the previous conversation
 * @property {string} protocol
 * @property {string | null} run    the id of the run, once it is known
 * @property {any} open             the loaded data of the run, as `run` of state.js
 * @property {Wire | null} wire
 */

const fresh = () => ({
  agent: '', owner: '', turns: /** @type {Turn[]} */ ([]),
  snippets: /** @type {import('./types.d.ts').Snippets | null} */ (null), busy: false, error: '',
});

/** The conversation. Turns change in place, so each change replaces the outer object. */
export const chat = signal(fresh());
let abort = /** @type {AbortController | null} */ (null);

const changed = (changes = {}) => { chat.value = { ...chat.peek(), ...changes }; };
const last = () => chat.peek().turns.at(-1);

/** Begins a conversation with an agent. */
export function begin(agent) {
  abort?.abort();
  chat.value = { ...fresh(), agent };
}

whenSignedOut(() => {
  abort?.abort();
  chat.value = fresh();
});

/** Sends a message to the agent over a route. False: the message was not sent. */
export async function say(route, agent, text) {
  if (chat.peek().agent !== agent) begin(agent);
  const { turns } = chat.peek();
  const runs = turns.map((turn) => turn.run).filter(Boolean);
  changed({ busy: true, error: '' });
  /** @type {import('./types.d.ts').Sample} */
  let sample;
  try {
    sample = await post('/sample', { route: route.path, protocol: route.protocol, agent, text, runs });
  } catch (error) {
    changed({ busy: false, error: error.message });
    return false;
  }

  const wire = /** @type {Wire} */ ({ status: 0, type: '', text: '', size: 0, end: 'sending' });
  const isNew = runs.length > 0 && !sample.goes_on;
  const turn = { key: sample.id, text, isNew, protocol: route.protocol, run: null, open: null, wire };
  changed({ turns: [...turns, turn], owner: sample.owner, snippets: sample.snippets });
  abort = new AbortController();
  exchange(sample, turn, abort.signal);
  return true;
}

async function exchange(sample, turn, signal) {
  const { wire } = turn;
  try {
    await send(sample, {
      signal,
      head: (response) => {
        [wire.status, wire.type] = [response.status, response.headers.get('content-type') ?? ''];
        const id = response.headers.get('x-interlingua-run');
        if (id) follow(turn, id);
        changed();
      },
      text: (piece) => {
        wire.size += piece.length;
        wire.text = (wire.text + piece).slice(-MOST);
        changed();
      },
    });
    wire.end = 'done';
  } catch {
    wire.end = signal.aborted ? 'stopped' : 'broken';
  }
  if (chat.peek().turns.includes(turn)) changed({ busy: false });
}

/** Stops the current response. The run is canceled too, because in some protocols it continues without its client. */
export async function stop() {
  const turn = last();
  abort?.abort();
  if (turn?.run) await post(`/runs/${turn.run}/cancel`).catch(() => null);
}

function follow(turn, id) {
  turn.run = id;
  if (isShown.peek()) openRun(id, ['agent-api']);
}

/** Loads the open items of a run again after a decision. */
async function refresh(turn) {
  const detail = await detailOf(turn.run).catch(() => null);
  if (detail && turn.open) {
    turn.open = { ...turn.open, detail };
    changed();
  }
}

// Finds runs of the conversation without an id in the response: of protocols without streaming, and runs that continue
// after a decision.
effect(() => {
  const summaries = lately.value;
  untracked(() => {
    for (const summary of [...summaries].sort((one, other) => (one.id < other.id ? -1 : 1))) found(summary);
  });
});

function found(summary) {
  const { owner, agent, turns } = chat.peek();
  const turn = last();
  if (!turn || summary.agent !== agent || summary.owner.split('/')[0] !== owner) return;
  // Ids are ordered by time: earlier runs have smaller ids.
  if (turns.some((one) => one.run === summary.id) || summary.id < turn.key) return;
  if (!turn.run) {
    // The response can arrive before the summary.
    const hasBegun = turn.wire && turn.wire.end !== 'broken' && turn.wire.status < 400;
    if (hasBegun && summary.protocol === turn.protocol) follow(turn, summary.id);
    return;
  }
  if (summary.session !== turn.open?.summary?.session || summary.id < turn.run) return;
  const next = { key: summary.id, text: null, isNew: false, protocol: summary.protocol, run: null, open: null, wire: null };
  changed({ turns: [...turns, next] });
  refresh(turn);
  follow(next, summary.id);
}

// Follow the latest run while the playground is shown.
const isShown = computed(() => place.value.screen === 'playground' && session.value !== null);
effect(() => {
  if (!isShown.value) return;
  untracked(() => {
    const turn = last();
    if (turn?.run) openRun(turn.run, ['agent-api']);
    else closeRun();
  });
});

effect(() => {
  const open = run.value;
  grown.value;
  untracked(() => {
    const turn = open && chat.peek().turns.find((one) => one.run === open.id);
    // After a reconnect the run is read again: keep the shown data until as many events have arrived.
    if (!turn || open.frames.length < (turn.open?.frames.length ?? 0)) return;
    turn.open = open;
    changed();
  });
});
