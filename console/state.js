// What the page knows: signals that the views read, and how changes of the gateway reach them.
// Not here: requests (api.js), the stream (feed.js), what it looks like (views/).

import { effect, signal, untracked } from './vendor/signals-core/signals-core.mjs';
import { get, session, whenSignedOut } from './api.js';
import { Feed } from './feed.js';
import { empty, fold } from './fold.js';
import { place } from './router.js';
import { jsonOf } from './sse.js';
import { stateOf } from './format.js';

export const now = signal(Date.now());
setInterval(() => { if (!document.hidden) now.value = Date.now(); }, 1000);

/** The gateway itself, its agents and routes. `null`: not known yet. */
export const gateway = signal(/** @type {any} */ (null));
export const agents = signal(/** @type {any[] | null} */ (null));
export const routes = signal(/** @type {any[] | null} */ (null));
export const pendingCount = signal(0);

/** What failed last, for the reader; `null` if nothing did. */
export const problem = signal(/** @type {string | null} */ (null));

export const fail = (error) => { problem.value = error instanceof Error ? error.message : String(error); };

/** The list of runs that match the filters: newest change first. */
export const runs = signal({
  key: '', rows: /** @type {any[]} */ ([]), total: 0, next: null, loading: false, error: null, fresh: 0,
});

export const FILTERS = ['text', 'agent', 'protocol', 'state'];
const PAGE = 200;

const filterOf = (query) => Object.fromEntries(FILTERS.map((name) => [name, query.get(name) ?? '']).filter(([, value]) => value));

/** Loads the first page for the filters of the address. */
export async function loadRuns(query) {
  const filter = filterOf(query);
  const key = JSON.stringify(filter);
  const before = runs.peek();
  runs.value = { ...before, key, loading: true, error: null, rows: before.key === key ? before.rows : [] };
  try {
    const page = await get(`/runs?${new URLSearchParams({ ...filter, limit: String(PAGE) })}`);
    if (runs.peek().key !== key) return;
    runs.value = { key, rows: page.data, total: page.total, next: page.next, loading: false, error: null, fresh: 0 };
  } catch (error) {
    if (runs.peek().key === key) runs.value = { ...runs.peek(), loading: false, error: error.message };
  }
}

/** Loads the next page behind the rows that are there. */
export async function moreRuns() {
  const { key, next, loading, error } = runs.peek();
  if (!next || loading || error) return;
  runs.value = { ...runs.peek(), loading: true };
  try {
    const page = await get(`/runs?${new URLSearchParams({ ...JSON.parse(key || '{}'), limit: String(PAGE), cursor: next })}`);
    const state = runs.peek();
    if (state.key !== key) return;
    const known = new Set(state.rows.map((row) => row.id));
    const rows = [...state.rows, ...page.data.filter((row) => !known.has(row.id))];
    runs.value = { ...state, rows, next: page.next, total: page.total, loading: false };
  } catch (error) {
    if (runs.peek().key === key) runs.value = { ...runs.peek(), loading: false, error: error.message };
  }
}

const matches = (run, filter) =>
  (!filter.agent || run.agent === filter.agent) &&
  (!filter.protocol || run.protocol === filter.protocol) &&
  (!filter.state || stateOf(run) === filter.state || run.state === filter.state) &&
  (!filter.text || `${run.text}\n${run.session}\n${run.owner}\n${run.id}`.toLowerCase().includes(filter.text.toLowerCase()));

/** The summaries that have changed last, whatever the filters are. */
export const lately = signal(/** @type {any[]} */ ([]));

/** Summaries that have changed: they move to the front. */
function onSummaries(changed, removed) {
  lately.value = changed;
  const state = runs.peek();
  const filter = JSON.parse(state.key || '{}');
  const gone = new Set([...removed, ...changed.map((run) => run.id)]);
  const known = new Set(state.rows.map((row) => row.id));
  const front = changed.filter((run) => matches(run, filter));
  const added = front.filter((run) => !known.has(run.id)).length;
  const lost = state.rows.filter((row) => gone.has(row.id)).length - (front.length - added);
  const rows = [...front, ...state.rows.filter((row) => !gone.has(row.id))];
  rows.sort((one, other) => other.changed_at - one.changed_at);
  runs.value = { ...state, rows, total: state.total + added - Math.max(0, lost), fresh: state.fresh + added };

  const open = run.peek();
  const same = open && changed.find((one) => one.id === open.id);
  if (same) {
    const before = open.summary;
    run.value = { ...open, summary: same };
    if (!before || (before.state !== same.state || before.pending !== same.pending)) loadDetail(same.id);
  }
  if (open && removed.includes(open.id)) run.value = { ...open, removed: true };
}

/**
 * The run that is open: what is known of it, and its events with their frames in the protocols that are shown.
 * @type {import('./vendor/signals-core/signals-core.mjs').Signal<any>}
 */
export const run = signal(null);
/** Grows with every event that was folded: what is in `run` changes in place. */
export const grown = signal(0);

/** Opens a run, or another choice of protocols for it. */
export function openRun(id, protocols) {
  const open = run.peek();
  const key = protocols.join();
  if (open?.id === id && (open.removed || open.protocols.join() === key)) return;
  const keeps = open?.id === id ? { detail: open.detail, summary: open.summary } : { detail: null, summary: null };
  run.value = { id, protocols, folded: empty(), frames: [], error: null, removed: false, ...keeps };
  if (!keeps.detail) loadDetail(id);
}

export const closeRun = () => { run.value = null; };

export async function loadDetail(id) {
  try {
    const detail = await get(`/runs/${id}`);
    const open = run.peek();
    if (open?.id === id) run.value = { ...open, detail, summary: detail.run };
  } catch (error) {
    const open = run.peek();
    if (open?.id === id) run.value = { ...open, error: error.message, removed: error.status === 404 };
  }
}

function onRunEvent(number, event) {
  const open = run.peek();
  if (!open || number < open.frames.length) return;
  open.frames.push(event);
  for (const frame of jsonOf(event.frames['agent-api'] ?? '')) fold(open.folded, frame, event.at);
  if (event.kind === 'turn_started' || event.kind === 'run_finished') loadDetail(open.id);
  grown.value += 1;
}

/** Frames that a protocol writes once a run waits or is over: they belong to the latest event. */
function onMoreFrames(frames) {
  const last = run.peek()?.frames.at(-1);
  if (!last) return;
  last.before ??= { ...last.frames };
  for (const [name, text] of Object.entries(frames)) last.frames[name] = (last.frames[name] ?? '') + text;
  grown.value += 1;
}

/** Grows when changes may have been missed: what was loaded is loaded again. */
export const missed = signal(0);

function onOpen(wasAway) {
  // The new stream writes again what a protocol writes while a run waits.
  const last = run.peek()?.frames.at(-1);
  if (last?.before) last.frames = { ...last.before };
  if (!wasAway) return;
  missed.value += 1;
  const { screen, query } = place.peek();
  if (screen === 'runs') loadRuns(query);
  const open = run.peek();
  if (open) loadDetail(open.id);
}

function onGone(id) {
  const open = run.peek();
  if (open?.id === id) run.value = { ...open, removed: true };
}

whenSignedOut(() => {
  run.value = null;
  runs.value = { key: '', rows: [], total: 0, next: null, loading: false, error: null, fresh: 0 };
  gateway.value = agents.value = routes.value = problem.value = null;
  pendingCount.value = 0;
});

const onEvent = (event) => {
  const data = JSON.parse(event.data);
  if (event.event === 'event') onRunEvent(Number(event.id), data);
  else if (event.event === 'more') onMoreFrames(data.frames);
  else if (event.event === 'runs') onSummaries(data.changed, data.removed);
  else if (event.event === 'pending') pendingCount.value = data.count;
  else if (event.event === 'agents') agents.value = data.data;
};
const feed = new Feed({ event: onEvent, open: onOpen, gone: onGone });

/** Follows what the open screen shows, and begins again when someone signs in. */
export function startFeed() {
  effect(() => {
    if (!session.value) {
      feed.stop();
      return;
    }
    const open = run.value;
    const wanted = { runs: true, run: open && !open.removed ? open.id : null, protocols: open?.protocols ?? [] };
    untracked(() => feed.follow(wanted, (open?.frames.length ?? 0) - 1));
  });

  effect(() => {
    if (!session.value) return;
    Promise.all([get('/gateway'), get('/agents'), get('/routes'), get('/pending?limit=1')]).then(([about, some, paths, open]) => {
      gateway.value = about;
      agents.value = some.data;
      routes.value = paths.data;
      pendingCount.value = open.total;
    }).catch(fail);
  });

  effect(() => {
    const { screen, query } = place.value;
    if (session.value && screen === 'runs') untracked(() => loadRuns(query));
  });
}
