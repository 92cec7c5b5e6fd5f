// The stream of changes: one for each visible tab. It reconnects after a growing pause and resumes after its last event.
// Not here: the use of the changes (state.js).

import { signal } from './vendor/signals-core/signals-core.mjs';
import { expired, session } from './api.js';
import { EventStreamParser } from './sse.js';

/** `live`, `reconnecting` or `offline`. */
export const connection = signal('reconnecting');

/** The server sends a comment at least every 5 s. After this time without one the connection is closed. */
const SILENCE = 15_000;
/** A stream repeats the changes of the last two seconds before it began. */
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
   * @param {(missed: boolean) => void} on.open  a stream begins; true if changes may have been missed before
   * @param {(run: string) => void} on.gone      there is no such run any more
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

  /** @param {Wanted} wanted  @param {number} after  the last event of the run that is known, or -1 */
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
