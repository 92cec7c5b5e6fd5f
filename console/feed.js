// The stream of changes: one for each visible tab. Reconnects after growing pauses, and resumes after the last received
// event. Not here: the handling of changes (state.js).

import { signal } from './vendor/signals-core/signals-core.mjs';
import { expired, session } from './api.js';
import { EventStreamParser } from './sse.js';

/** `live`, `reconnecting` or `offline`. */
export const connection = signal('reconnecting');

/** Time in ms without data after which the connection counts as lost. The server sends a comment at least every 5 s. */
const SILENCE = 15_000;
/** Interruptions up to this time in ms miss no changes: a stream repeats the changes of the two seconds before its start. */
const OVERLAP = 1500;
const PAUSES = [250, 500, 1000, 2000, 5000];

/**
 * @typedef {object} Wanted
 * @property {boolean} runs          summaries of runs that change
 * @property {string | null} run     every event of this run
 * @property {string[]} protocols    in which its frames are encoded
 */

export class Feed {
  /**
   * @param {object} on
   * @param {(event: import('./sse.js').ServerEvent) => void} on.event
   * @param {(missed: boolean) => void} on.open  a stream starts; true if changes may have been missed before
   * @param {(run: string) => void} on.gone      the run no longer exists
   */
  constructor(on) {
    this.on = on;
    this.lastRead = 0;
    this.wanted = /** @type {Wanted} */ ({ runs: true, run: null, protocols: [] });
    this.after = -1;
    this.failures = 0;
    this.abort = /** @type {AbortController | null} */ (null);
    this.timer = 0;
    document.addEventListener('visibilitychange', () => (document.hidden ? this.stop() : this.start()));
    addEventListener('online', () => this.start());
    addEventListener('offline', () => { connection.value = 'offline'; });
  }

  /** @param {Wanted} wanted  @param {number} after  the last known event of the run, or -1 */
  follow(wanted, after = -1) {
    const same = JSON.stringify(wanted) === JSON.stringify(this.wanted);
    if (same && this.abort) return;
    if (wanted.run !== this.wanted.run || wanted.protocols.join() !== this.wanted.protocols.join()) this.after = after;
    this.wanted = wanted;
    this.start();
  }

  stop() {
    clearTimeout(this.timer);
    if (this.abort && connection.peek() === 'live') this.lastRead = Date.now();
    this.abort?.abort();
    this.abort = null;
  }

  start() {
    this.stop();
    if (document.hidden || !session.value) return;
    const abort = new AbortController();
    this.abort = abort;
    this.#read(abort).catch(() => {}).finally(() => {
      if (this.abort === abort) this.#again();
    });
  }

  #again() {
    this.abort = null;
    if (!session.value) return;
    connection.value = navigator.onLine === false || this.failures > 4 ? 'offline' : 'reconnecting';
    const pause = PAUSES[Math.min(this.failures, PAUSES.length - 1)];
    this.failures += 1;
    this.timer = setTimeout(() => this.start(), pause);
  }

  #address() {
    const { runs, run, protocols } = this.wanted;
    const query = new URLSearchParams();
    if (runs) query.set('runs', '1');
    if (run) query.set('run', run);
    if (run && protocols.length) query.set('protocols', protocols.join(','));
    if (run && this.after >= 0) query.set('after', String(this.after));
    return `api/feed?${query}`;
  }

  /** @param {AbortController} abort */
  async #read(abort) {
    let watch = setTimeout(() => abort.abort(), SILENCE);
    const headers = { authorization: `Bearer ${session.value?.bearer}`, accept: 'text/event-stream' };
    const response = await fetch(this.#address(), { headers, signal: abort.signal, cache: 'no-store' });
    if (abort.signal.aborted) return;
    if (response.status === 401) return expired();
    if (response.status === 404 && this.wanted.run) this.on.gone(this.wanted.run);
    if (!response.ok || !response.body) throw new Error(`status ${response.status}`);

    this.failures = 0;
    connection.value = 'live';
    this.on.open(this.lastRead > 0 && Date.now() - this.lastRead > OVERLAP);
    this.lastRead = Date.now();
    const parser = new EventStreamParser();
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    for (;;) {
      const { done, value } = await reader.read();
      if (done || abort.signal.aborted) break;
      clearTimeout(watch);
      watch = setTimeout(() => abort.abort(), SILENCE);
      this.lastRead = Date.now();
      for (const event of parser.push(value)) {
        if (event.id !== '') this.after = Number(event.id);
        this.on.event(event);
      }
    }
    clearTimeout(watch);
  }
}
