// The prism: the frames of a run in every protocol, aligned by event. Each pane shows the frames of the selected event, or
// a note that the protocol has none. The footer counts the events with frames.

import { Directive, directive } from '../vendor/lit-html/directive.js';
import { html, noChange, nothing } from '../vendor/lit-html/lit-html.js';
import { repeat } from '../vendor/lit-html/directives/repeat.js';
import { signal } from '../vendor/signals-core/signals-core.mjs';
import { bytes, offset } from '../format.js';
import { replayAt, replayControls } from '../replay.js';
import { copy, empty, loading } from '../ui.js';

/** The number of frames that a pane draws before and after the selected event. */
const AROUND = 14;
/** The number of characters of a frame that is not selected. */
const CLIP = 400;
const LONG = 20_000;

/** The selected event. `null`: the latest one. */
const selected = signal(/** @type {number | null} */ (null));
let of = '';

/**
 * The events with frames and their bytes, for each pane. Each event is counted once, except the latest: it gets more frames
 * when the run waits or ends.
 */
const counted = new WeakMap();

function index(open, protocols) {
  let known = counted.get(open.frames);
  if (!known) {
    known = { upto: 0, panes: Object.fromEntries(protocols.map((name) => [name, { events: [], bytes: 0, last: 0 }])) };
    counted.set(open.frames, known);
  }
  recount(known, open, protocols);
  for (; known.upto < open.frames.length; known.upto += 1) {
    const { frames } = open.frames[known.upto];
    for (const name of protocols) {
      known.panes[name].last = frames[name]?.length ?? 0;
      if (!frames[name]) continue;
      known.panes[name].events.push(known.upto);
      known.panes[name].bytes += frames[name].length;
    }
  }
  return known.panes;
}

/** Counts the latest event again. */
function recount(known, open, protocols) {
  if (known.upto === 0) return;
  const { frames } = open.frames[known.upto - 1];
  for (const name of protocols) {
    const pane = known.panes[name];
    const now = frames[name]?.length ?? 0;
    if (pane.last === 0 && now > 0) pane.events.push(known.upto - 1);
    if (pane.last > 0 && now === 0) pane.events.pop();
    pane.bytes += now - pane.last;
    pane.last = now;
  }
}

/** The number of entries in a sorted list that are smaller than a number. */
function before(sorted, number) {
  let [low, high] = [0, sorted.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle] < number) low = middle + 1;
    else high = middle;
  }
  return low;
}

export function prismTab(open, detail) {
  if (!detail) return loading('the run');
  if (detail.texts === false) return empty('Texts are hidden for your role.', 'Frames contain texts.');
  const { protocols } = detail;
  if (open.protocols.join() !== protocols.join()) return loading('frames');
  if (of !== open.id) [of, selected.value] = [open.id, null];
  const { count } = replayAt(open);
  const last = Math.max(0, count - 1);
  const now = Math.min(selected.value ?? last, last);
  const event = open.frames[now];
  const panes = index(open, protocols);
  if (!event) return loading('frames');
  return html`
    <div class="controls prism-controls">
      <button aria-label="Previous event" @click=${() => { selected.value = Math.max(0, now - 1); }}>◀</button>
      <input type="range" aria-label="Event" min="0" max=${last} .value=${String(now)}
        aria-valuetext=${`event ${now}, ${event.kind}`}
        @input=${(change) => { selected.value = Number(change.target.value); }}>
      <button aria-label="Next event" @click=${() => { selected.value = now + 1 >= last ? null : now + 1; }}>▶</button>
      <span class="event-name"><b>event ${now}</b> · ${offset(event.at - open.frames[0].at)} · <code>${event.kind}</code></span>
      ${replayControls(open)}
    </div>
    <div class="panes">
      ${repeat(protocols, (name) => name, (name) => pane(name, open, panes[name], now, detail))}
    </div>`;
}

function pane(name, open, { events, bytes: size }, now, detail) {
  const place = before(events, now);
  const has = events[place] === now;
  const shown = events.slice(Math.max(0, place - AROUND), place + AROUND + (has ? 1 : 0));
  const all = () => events.map((event) => open.frames[event].frames[name]).join('');
  const rows = shown.map((event) => ({ event, text: open.frames[event].frames[name] }));
  if (!has) rows.splice(Math.min(place, AROUND), 0, { event: now, text: '' });
  return html`
    <section class="pane" aria-label=${name}>
      <header><h2>${name}</h2><span class="dim">${bytes(size)}</span></header>
      <div class="frames" tabindex="0" ${scrolled(now)}>
        ${repeat(rows, (row) => row.event, ({ event, text }) => html`
          <pre class=${text ? '' : 'none'} aria-current=${event === now ? 'true' : nothing} data-event=${event}
            @click=${() => { selected.value = event; }}>${text ? clip(text, event === now ? LONG : CLIP) : 'no frame for this event'}</pre>`)}
      </div>
      <footer>
        <button class="quiet" @click=${() => copy(all(), `Frames of ${name}`)}>Copy frames</button>
        ${detail.curl?.[name] ? html`<button class="quiet" @click=${() => copy(detail.curl[name], 'curl')}>Copy curl</button>` : nothing}
        <span class="dim">${events.length} of ${open.frames.length} events</span>
      </footer>
    </section>`;
}

/** Scrolls to the selected event after each selection. */
class Scrolled extends Directive {
  shown = -1;

  render() { return noChange; }

  /** @param {any} part  @param {[number]} selection */
  update({ element }, [event]) {
    if (this.shown !== event) {
      this.shown = event;
      queueMicrotask(() => {
        const row = element.querySelector('[aria-current]');
        if (row) element.scrollTop = row.offsetTop - element.clientHeight / 3;
      });
    }
    return noChange;
  }
}
const scrolled = directive(Scrolled);

const clip = (text, most) => {
  const frame = text.trimEnd();
  return frame.length > most ? `${frame.slice(0, most)}… (${bytes(frame.length)})` : frame;
};
