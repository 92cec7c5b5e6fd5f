// Requests to the gateway, and the sign-in. The bearer is in sessionStorage, not in a cookie. Other tabs receive it over a
// channel that is restricted to this origin. Not here: the stream of changes (feed.js).

import { batch, signal } from './vendor/signals-core/signals-core.mjs';

/** @typedef {{bearer: string, name: string, role: 'view' | 'act', until: number}} Session */

const KEY = 'interlingua.session';
const channel = new BroadcastChannel('interlingua-console');

/** @type {import('./vendor/signals-core/signals-core.mjs').Signal<Session | null>} */
export const session = signal(read());
/** The reason of the last sign-out, shown at the sign-in. */
export const notice = signal('');
/** The key of a link that was opened while a user is signed in, until the user decides. */
export const offeredKey = signal(/** @type {string | null} */ (null));

export const mayAct = () => session.value?.role === 'act';

function read() {
  try {
    return JSON.parse(sessionStorage.getItem(KEY) ?? 'null');
  } catch {
    return null;
  }
}

const forgetters = /** @type {(() => void)[]} */ ([]);

/** Registers a function that clears data at sign-out: the next user may have fewer rights. */
export const whenSignedOut = (forget) => { forgetters.push(forget); };

function keep(found) {
  if (found) {
    sessionStorage.setItem(KEY, JSON.stringify(found));
    session.value = found;
    return;
  }
  sessionStorage.removeItem(KEY);
  batch(() => {
    session.value = null;
    for (const forget of forgetters) forget();
  });
}

channel.onmessage = ({ data }) => {
  if (data?.ask && session.value) channel.postMessage({ session: session.value });
  else if (data?.session && !session.value) keep(data.session);
  else if (data?.out) keep(null);
};

/** An error response, with the message of the gateway. */
export class ApiError extends Error {
  constructor(status, code, detail, body) {
    super(detail);
    Object.assign(this, { status, code, body });
  }
}

/** Sends a request. Throws an error for a status of 400 or more. */
async function answer(method, path, body) {
  const headers = /** @type {Record<string, string>} */ ({});
  if (body !== undefined) headers['content-type'] = 'application/json';
  if (session.value) headers.authorization = `Bearer ${session.value.bearer}`;
  let response;
  try {
    response = await fetch(`api${path}`, { method, headers, body: body === undefined ? undefined : JSON.stringify(body) });
  } catch {
    throw new ApiError(0, 'OFFLINE', 'The gateway does not answer.', null);
  }
  if (response.ok) return response;
  const read = parse(await response.text());
  if (response.status === 401 && path !== '/session') expired();
  throw new ApiError(response.status, read?.code ?? '', read?.detail ?? `The gateway answered ${response.status}.`, read);
}

/**
 * @param {string} method
 * @param {string} path    below `/api`
 * @param {any} [body]
 */
export async function call(method, path, body) {
  const response = await answer(method, path, body);
  return parse(await response.text());
}

/** A file of the gateway, as a blob. */
export const file = async (path) => (await answer('GET', path)).blob();

export const get = (path) => call('GET', path);
export const post = (path, body = {}) => call('POST', path, body);

/**
 * Sends a request to a route like a client, and passes on each part of the response when it arrives.
 * @param {any} sample
 * @param {{signal: AbortSignal, head: (response: Response) => void, text: (piece: string) => void}} on
 */
export async function send({ method, path, headers, body }, on) {
  const own = { ...headers, authorization: `Bearer ${session.value?.bearer}` };
  const response = await fetch(`api/playground${path}`, {
    method, headers: own, body: JSON.stringify(body), signal: on.signal, cache: 'no-store',
  });
  if (response.status === 401) expired();
  on.head(response);
  const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader();
  for (;;) {
    const { done, value } = (await reader?.read()) ?? { done: true, value: '' };
    if (done) return;
    on.text(value);
  }
}

function parse(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

/** Ends the sign-in after the gateway has refused the bearer. */
export function expired() {
  if (!session.value) return;
  notice.value = 'You were signed out: the sign-in expired, or the gateway was restarted.';
  keep(null);
}

/** Exchanges a key for a bearer. */
export async function signIn(key) {
  keep(await call('POST', '/session', { key }));
  notice.value = '';
  channel.postMessage({ session: session.value });
}

export async function signOut() {
  const gone = call('DELETE', '/session').catch(() => null);
  keep(null);
  notice.value = '';
  channel.postMessage({ out: true });
  await gone;
}

/** Whether the gateway accepts the bearer. A refused bearer is deleted. */
async function isSignedIn() {
  if (!session.value) return false;
  try {
    await get('/session');
  } catch (error) {
    // Without an answer the bearer may still be valid.
    if (/** @type {any} */ (error).status === 401) keep(null);
  }
  return session.value !== null;
}

/** Signs in with the key of a link. */
export async function useKey(key) {
  offeredKey.value = null;
  try {
    await signIn(key);
  } catch (error) {
    notice.value = /** @type {Error} */ (error).message;
  }
}

/**
 * Signs in with the session of this tab, the session of another tab, or the key in the address. The key is removed from
 * the address at once. Any page can open a link with a key, so the user confirms before the key replaces a sign-in.
 */
export async function begin() {
  const match = /[#&]key=([^&]+)/.exec(location.hash);
  if (match) history.replaceState(null, '', '#/');
  if (!session.value) {
    channel.postMessage({ ask: true });
    await new Promise((resolve) => { setTimeout(resolve, 60); });
  }
  if (!match) return;
  let key = match[1];
  try {
    key = decodeURIComponent(key);
  } catch {
    // A malformed key: the gateway refuses it.
  }
  if (await isSignedIn()) offeredKey.value = key;
  else await useKey(key);
}

// A link with a key can be pasted into an open page.
addEventListener('hashchange', () => { if (/[#&]key=/.test(location.hash)) begin(); });
