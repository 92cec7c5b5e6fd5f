// The data of the page: signals for the views, updated by the stream of changes.
// Not here: requests (api.js), the stream (feed.js), the screens (views/).

import { batch, effect, signal, untracked } from './vendor/signals-core/signals-core.mjs';
import { get, session, whenSignedOut } from './api.js';
import { Feed } from './feed.js';
import { empty, fold } from './fold.js';
import { forgetPictures } from './media.js';
import { place } from './router.js';
import { jsonOf } from './sse.js';
import { stateOf } from './format.js';

export const now = signal(Date.now());
setInterval(() => { if (!document.hidden) now.value = Date.now(); }, 1000);

/**
 * Answers of the gateway (types.d.ts).
 * @typedef {import('./types.d.ts').Summary} Summary
 * @typedef {import('./types.d.ts').PendingItem} PendingItem
 * @typedef {Omit<PendingItem, 'item'> & PendingItem['item']} OpenItem  a question with its run and agent
 * @typedef {Omit<import('./types.d.ts').Detail, 'pending'> & {pending: OpenItem[]}} Detail
 */

/** The gateway, its agents and its routes. `null`: not loaded yet. */
export const gateway = signal(/** @type {import('./types.d.ts').Gateway | null} */ (null));
export const agents = signal(/** @type {import('./types.d.ts').Agent[] | null} */ (null));
export const routes = signal(/** @type {import('./types.d.ts').Route[] | null} */ (null));
export const pendingCount = signal(0);

/** The last error, as text for the user. `null`: no error. */
export const problem = signal(/** @type {string | null} */ (null));

export const fail = (error) => { problem.value = error instanceof Error ? error.message : String(error); };

/**
 * The list of runs that match the filters, the newest change first. `size`: the number of loaded rows. `newest`: the
 * latest change at the time of loading; runs that were created later are new. `fresh`: the ids of new runs.
 */
const NO_RUNS = {
  key: '', rows: /** @type {Summary[]} */ ([]), total: 0, next: /** @type {string | null} */ (null), size: 0, newest: 0,
  loading: false, error: /** @type {string | null} */ (null), fresh: /** @type {Set<string>} */ (new Set()),
};
export const runs = signal(NO_RUNS);

export const FILTERS = ['text', 'agent', 'protocol', 'state'];
const PAGE = 200;
/** Delay in ms from the last typed character to the search. */
const TYPING = 200;
/** Delay in ms that combines requests for the number of runs. A reload after missed changes waits half of it. */
const RECOUNT = 2000;

const filterOf = (query) => Object.fromEntries(FILTERS.map((name) => [name, query.get(name) ?? '']).filter(([, value]) => value));
const pageOf = (key, more) => get(`/runs?${new URLSearchParams({ ...JSON.parse(key || '{}'), ...more })}`);

/** Loads the first page for the filters of the address. */
export async function loadRuns(query) {
  const key = JSON.stringify(filterOf(query));
  const before = runs.peek();
  runs.value = { ...before, key, loading: true, error: null, rows: before.key === key ? before.rows : [] };
  try {
    const page = await pageOf(key, { limit: String(PAGE) });
    if (runs.peek().key !== key) return;
    runs.value = {
      ...NO_RUNS, key, rows: page.data, total: page.total, next: page.next, size: page.data.length,
      newest: page.data[0]?.changed_at ?? 0, fresh: new Set(),
    };
  } catch (error) {
    if (runs.peek().key === key) runs.value = { ...runs.peek(), loading: false, error: error.message };
  }
}

/** Loads the next page after the loaded rows. */
export async function moreRuns() {
  const { key, next, loading, error } = runs.peek();
  if (!next || loading || error) return;
  runs.value = { ...runs.peek(), loading: true };
  try {
    const page = await pageOf(key, { limit: String(PAGE), cursor: next });
    const state = runs.peek();
    if (state.key !== key) return;
    const known = new Set(state.rows.map((row) => row.id));
    const rows = [...state.rows, ...page.data.filter((row) => !known.has(row.id))];
    runs.value = { ...state, rows, next: page.next, total: page.total, size: rows.length, loading: false };
  } catch (error) {
    if (runs.peek().key === key) runs.value = { ...runs.peek(), loading: false, error: error.message };
  }
}

let recounting = 0;

/** Loads the number of runs after changes that do not determine it. */
function recount() {
  recounting ||= setTimeout(async () => {
    const { key } = runs.peek();
    const page = isListed() ? await pageOf(key, { limit: '1' }).catch(() => null) : null;
    recounting = 0;
    if (page && runs.peek().key === key) runs.value = { ...runs.peek(), total: page.total };
  }, RECOUNT);
}

let reloading = 0;

/** Loads the list again after the stream skipped changes. */
function reload() {
  reloading ||= setTimeout(() => {
    reloading = 0;
    if (isListed()) loadRuns(place.peek().query);
    missed.value += 1;
  }, RECOUNT / 2);
}

const matches = (run, filter) =>
  (!filter.agent || run.agent === filter.agent) &&
  (!filter.protocol || run.protocol === filter.protocol) &&
  (!filter.state || stateOf(run) === filter.state || run.state === filter.state) &&
  (!filter.text || `${run.text}\n${run.session}\n${run.owner}\n${run.id}\n${run.code ?? ''}`.toLowerCase().includes(filter.text.toLowerCase()));

/** The summaries in the latest message of the stream, without filters. */
export const lately = signal(/** @type {Summary[]} */ ([]));

const isListed = () => place.peek().screen === 'runs' && !place.peek().id;

/**
 * The list after changes. Changed runs move to the front. The list does not grow beyond the loaded number of rows, or the
 * size of a page, because a page can be open for days.
 * @param {typeof NO_RUNS} state
 * @param {Summary[]} changed
 * @param {string[]} removed
 */
export function merged(state, changed, removed) {
  const filter = JSON.parse(state.key || '{}');
  const gone = new Set([...removed, ...changed.map((run) => run.id)]);
  const known = new Set(state.rows.map((row) => row.id));
  const front = changed.filter((run) => matches(run, filter));
  const added = front.filter((run) => !known.has(run.id) && !state.fresh.has(run.id) && run.created_at > state.newest);
  const lost = state.rows.filter((row) => gone.has(row.id)).length - front.filter((run) => known.has(run.id)).length;
  const rows = [...front, ...state.rows.filter((row) => !gone.has(row.id))];
  rows.sort((one, other) => other.changed_at - one.changed_at || (other.id > one.id ? 1 : -1));
  const most = Math.max(PAGE, state.size);
  let { next } = state;
  if (rows.length > most) {
    rows.length = most;
    next = `${rows[most - 1].changed_at}_${rows[most - 1].id}`;
  }
  const fresh = added.length > 0 ? new Set([...state.fresh, ...added.map((run) => run.id)]) : state.fresh;
  return { ...state, rows, next, fresh, total: state.total + added.length - lost };
}

/** Handles changed summaries. */
function onSummaries(changed, removed) {
  lately.value = changed;
  if (isListed()) {
    const state = runs.peek();
    runs.value = merged(state, changed, removed);
    // A run outside the loaded rows may start or stop to match, so the number of runs is unknown.
    const known = new Set(state.rows.map((row) => row.id));
    const isUnknown = (run) => !known.has(run.id) && run.created_at <= state.newest;
    if (JSON.parse(state.key || '{}').state && changed.some(isUnknown)) recount();
    if (removed.some((id) => !known.has(id))) recount();
  }

  const open = run.peek();
  const same = open && changed.find((one) => one.id === open.id);
  if (same) {
    const before = open.summary;
    run.value = { ...open, summary: same };
    const isOther = !before || before.state !== same.state || before.pending !== same.pending;
    const isAnswered = open.detail && open.detail.pending.length !== same.pending;
    if (isOther || isAnswered) loadDetailSoon(before ? Infinity : same.events - 1);
  }
  if (open && removed.includes(open.id)) run.value = { ...open, removed: true };
}

/**
 * The open run: its detail, and its events with their frames in the shown protocols.
 * @type {import('./vendor/signals-core/signals-core.mjs').Signal<any>}
 */
export const run = signal(null);
/** Increments with every folded event, because `run` changes in place. */
export const grown = signal(0);

/** Opens a run with frames in these protocols. Does nothing if it is open with the same protocols. */
export function openRun(id, protocols) {
  const open = run.peek();
  const key = protocols.join();
  if (open?.id === id && (open.removed || open.protocols.join() === key)) return;
  if (open?.id !== id) forgetPictures();
  const keeps = open?.id === id ? { detail: open.detail, summary: open.summary } : { detail: null, summary: null };
  run.value = { id, protocols, folded: empty(), frames: [], error: null, removed: false, ...keeps };
  if (!keeps.detail) {
    required = -1;
    loadDetail(id);
  }
}

export const closeRun = () => { run.value = null; };

/** The id in the address for a run from an exported file. */
export const FILE = 'file';

const areTexts = (frames) => frames !== null && typeof frames === 'object' && !Array.isArray(frames)
  && Object.values(frames).every((frame) => typeof frame === 'string');

const isListOf = (list, isOne) => Array.isArray(list) && list.every(isOne);
const isObject = (value) => value !== null && typeof value === 'object' && !Array.isArray(value);

/** Whether a file has the fields that the screens of a run require. */
function isRun(detail) {
  const { run, session: all, turns, protocols, answers, deliveries, ids } = detail ?? {};
  const texts = [run?.id, run?.agent, run?.protocol, run?.owner, run?.session, run?.state];
  return texts.every((text) => typeof text === 'string') && [run.created_at, run.changed_at, run.events].every(Number.isFinite)
    && isListOf(turns, (turn) => isObject(turn) && Number.isFinite(turn.started_at) && Array.isArray(turn.input))
    && isListOf(protocols, (name) => typeof name === 'string')
    && isObject(all) && isListOf(all.runs, (one) => typeof one?.id === 'string' && typeof one.state === 'string')
    && isListOf(answers, isObject) && isListOf(deliveries, isObject) && isObject(ids);
}

/**
 * Shows a run from an exported file, without requests.
 * @param {string} text  the file
 */
export function openFile(text) {
  let read = /** @type {any} */ (null);
  try {
    read = JSON.parse(text);
  } catch {
    // `read` stays `null`, which causes the error below.
  }
  const isEvent = (event) => Number.isFinite(event?.at) && typeof event.kind === 'string' && areTexts(event.frames);
  if (!read?.interlingua || !isRun(read.detail) || !Array.isArray(read.events) || !read.events.every(isEvent)) {
    throw new Error('The file is not an exported run.');
  }
  forgetPictures();
  const folded = empty();
  for (const event of read.events) {
    for (const frame of jsonOf(event.frames['agent-api'] ?? '')) fold(folded, frame, event.at);
  }
  // Items of the file cannot be answered: this gateway may not have the run.
  const detail = { ...read.detail, pending: [] };
  const summary = { ...detail.run, pending: 0 };
  run.value = {
    id: FILE, isFile: true, protocols: detail.protocols, folded, frames: read.events,
    detail, summary, error: null, removed: false,
  };
}

/** @param {PendingItem} entry  @returns {OpenItem} */
const openItem = ({ item, ...rest }) => ({ ...rest, ...item });

/**
 * Loads the detail of a run, without its messages.
 * @param {string} id
 * @returns {Promise<Detail>}
 */
export async function detailOf(id) {
  const detail = await get(`/runs/${id}`);
  return { ...detail, pending: detail.pending.map(openItem) };
}

/**
 * A page of open items.
 * @param {Record<string, string>} query
 * @returns {Promise<{data: OpenItem[], total: number, next: string | null}>}
 */
export async function openItems(query) {
  const page = await get(`/pending?${new URLSearchParams(query)}`);
  return { ...page, data: page.data.map(openItem) };
}

/** Numbers of requests: an older response that arrives late is dropped. */
let asked = 0;
let shown = 0;

/** Number of requests for a detail that are not answered. */
let underWay = 0;

export async function loadDetail(id) {
  asked += 1;
  underWay += 1;
  const number = asked;
  const change = (changes) => {
    const open = run.peek();
    if (open?.id !== id || number < shown) return;
    shown = number;
    run.value = { ...open, ...changes };
  };
  try {
    const detail = await detailOf(id);
    change({ detail, summary: detail.run });
  } catch (error) {
    change({ error: error.message, removed: error.status === 404 });
  } finally {
    underWay -= 1;
    loadOutdated();
  }
}

let loadingDetail = 0;
/** The number of the latest event that the detail has to contain. */
let required = -1;

/**
 * Loads the detail after a delay, so that several events cause one request.
 * @param {number} event  the number of an event; a detail that contains it is not loaded again
 */
function loadDetailSoon(event) {
  required = Math.max(required, event);
  loadingDetail ||= setTimeout(() => {
    loadingDetail = 0;
    loadOutdated();
  }, 150);
}

function loadOutdated() {
  // The response to a request under way may contain the event.
  if (loadingDetail || underWay || required < 0) return;
  // Another run may be open by now.
  const open = run.peek();
  const isOutdated = open && (open.detail?.run.events ?? 0) <= required;
  required = -1;
  if (isOutdated) loadDetail(open.id);
}

function onRunEvent(number, event) {
  const open = run.peek();
  if (!open || number < open.frames.length) return;
  open.frames.push(event);
  for (const frame of jsonOf(event.frames['agent-api'] ?? '')) fold(open.folded, frame, event.at);
  if (event.kind === 'turn_started' || event.kind === 'run_finished') loadDetailSoon(number);
  grown.value += 1;
}

/** Adds frames that protocols write when a run waits or has ended. They belong to the latest event. */
function onMoreFrames(frames) {
  const last = run.peek()?.frames.at(-1);
  if (!last) return;
  last.before ??= { ...last.frames };
  for (const [name, text] of Object.entries(frames)) last.frames[name] = (last.frames[name] ?? '') + text;
  grown.value += 1;
}

/** Increments when changes may have been missed. Screens then reload their data. */
export const missed = signal(0);

function onOpen(wasAway) {
  // The new stream repeats the frames of a waiting run.
  const last = run.peek()?.frames.at(-1);
  if (last?.before) last.frames = { ...last.before };
  if (!wasAway) return;
  missed.value += 1;
  if (isListed()) loadRuns(place.peek().query);
  const open = run.peek();
  if (open && !open.isFile) loadDetail(open.id);
}

function onGone(id) {
  const open = run.peek();
  if (open?.id === id) run.value = { ...open, removed: true };
}

whenSignedOut(() => {
  run.value = null;
  runs.value = NO_RUNS;
  gateway.value = agents.value = routes.value = problem.value = null;
  pendingCount.value = 0;
});

/** Stores the state of the gateway. Loads the routes again after a reload of the configuration. */
function onGateway(about) {
  const before = gateway.peek();
  gateway.value = about;
  if (JSON.stringify(before?.reload) !== JSON.stringify(about.reload)) {
    get('/routes').then((found) => { routes.value = found.data; }).catch(fail);
  }
}

/** The error of the last attempt to load the gateway's data. Empty: no error. */
export const unknown = signal('');

/** Loads the data that every screen shows. */
export async function loadGateway() {
  unknown.value = '';
  try {
    const [about, some, paths, open] = await Promise.all(['/gateway', '/agents', '/routes', '/pending?limit=1'].map(get));
    batch(() => {
      gateway.value = about;
      agents.value = some.data;
      routes.value = paths.data;
      pendingCount.value = open.total;
    });
  } catch (error) {
    unknown.value = error.message;
  }
}

const onEvent = (event) => {
  const data = JSON.parse(event.data);
  if (event.event === 'event') onRunEvent(Number(event.id), data);
  else if (event.event === 'more') onMoreFrames(data.frames);
  else if (event.event === 'runs') onSummaries(data.changed, data.removed);
  else if (event.event === 'pending') pendingCount.value = data.count;
  else if (event.event === 'agents') agents.value = data.data;
  else if (event.event === 'gateway') onGateway(data);
  else if (event.event === 'missed') reload();
};
const feed = new Feed({ event: onEvent, open: onOpen, gone: onGone });

/** Loads and follows the data of the open screen, again after each sign-in. */
export function startFeed() {
  effect(() => {
    if (!session.value) {
      feed.stop();
      return;
    }
    const open = run.value;
    const wanted = { runs: true, run: open && !open.removed && !open.isFile ? open.id : null, protocols: open?.protocols ?? [] };
    untracked(() => feed.follow(wanted, (open?.frames.length ?? 0) - 1));
  });

  effect(() => {
    if (!session.value) return;
    missed.value;
    untracked(loadGateway);
  });

  let typing = 0;
  effect(() => {
    const { screen, id, query } = place.value;
    clearTimeout(typing);
    if (!session.value || screen !== 'runs' || id) return;
    untracked(() => {
      const { key } = runs.peek();
      const isTyped = key !== '' && (JSON.parse(key).text ?? '') !== (query.get('text') ?? '');
      if (isTyped) typing = setTimeout(() => loadRuns(query), TYPING);
      else loadRuns(query);
    });
  });
}
