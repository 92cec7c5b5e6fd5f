// Components that several screens share: dialogs, icons, copying, states of a list.

import { Directive, directive } from './vendor/lit-html/directive.js';
import { html, noChange, nothing, svg } from './vendor/lit-html/lit-html.js';
import { signal } from './vendor/signals-core/signals-core.mjs';
import { STATES, stateOf } from './format.js';
import { fail } from './state.js';

const PATHS = {
  brand: 'M4 8h12m-4-4 4 4-4 4M20 16H8m4-4-4 4 4 4',
  sun: 'M12 7a5 5 0 1 0 0 10 5 5 0 0 0 0-10ZM12 1v2m0 18v2M1 12h2m18 0h2M4.2 4.2l1.4 1.4m12.8 12.8 1.4 1.4M4.2 19.8l1.4-1.4M18.4 5.6l1.4-1.4',
  moon: 'M20 14.5A8.5 8.5 0 0 1 9.5 4 8.5 8.5 0 1 0 20 14.5Z',
  running: 'M12 3a9 9 0 1 1-9 9',
  queued: 'M12 7v5l3 2M12 3a9 9 0 1 0 0 18 9 9 0 0 0 0-18Z',
  pending: 'M12 3a9 9 0 1 0 0 18 9 9 0 0 0 0-18Zm-2 6v6m4-6v6',
  completed: 'm5 12.5 4.5 4.5L19 7.5',
  incomplete: 'M5 12h14M5 12h7',
  failed: 'm6 6 12 12M18 6 6 18',
  rejected: 'M12 3a9 9 0 1 0 0 18 9 9 0 0 0 0-18ZM5.6 5.6l12.8 12.8',
  canceled: 'M6 6h12v12H6z',
};

export const icon = (name) => html`<svg class="icon" viewBox="0 0 24 24" aria-hidden="true">${svg`<path d=${PATHS[name] ?? ''}></path>`}</svg>`;

/** The state of a run, as an icon and a word, not only as a colour. */
export function stateBadge(run) {
  const state = stateOf(run);
  return html`<span class="state ${STATES.includes(state) ? state : ''}">${icon(state)}${state}</span>`;
}

/** The placeholder of an empty list. */
export const empty = (title, text) => html`<div class="empty"><p class="big">${title}</p><p>${text}</p></div>`;
export const loading = (what) => html`<p class="loading" role="status">Loading ${what}…</p>`;
export const failed = (message, again) => html`<div class="empty" role="alert"><p class="big">${message}</p>
  <button @click=${again}>Try again</button></div>`;

/** The message after copying, for example "Cause copied". Empty: none is shown. */
export const copied = signal('');
let clearing = 0;

export async function copy(text, what) {
  try {
    await navigator.clipboard.writeText(text);
    copied.value = `${what} copied`;
  } catch {
    fail('The browser denies access to the clipboard.');
  }
  clearTimeout(clearing);
  clearing = setTimeout(() => { copied.value = ''; }, 2500);
}

/** The open confirmation. `null`: none is open. */
const asked = signal(/** @type {any} */ (null));

/**
 * Asks for a confirmation before an action that cannot be undone.
 * @param {string} title  also the label of the button
 * @param {string} text
 * @param {() => Promise<any>} action
 */
export function ask(title, text, action) {
  asked.value = { title, text, action, busy: false };
}

export function dialogs() {
  const question = asked.value;
  const close = () => {
    asked.value = null;
    restoreFocus();
  };
  const run = async () => {
    asked.value = { ...question, busy: true };
    try {
      await question.action();
    } catch (error) {
      fail(error);
    }
    close();
  };
  return html`
    <div class="toast" role="status" aria-live="polite">${copied.value}</div>
    ${question ? confirmation({
      title: question.title, body: html`<p>${question.text}</p>`, close,
      actions: html`<button class="danger" ?disabled=${question.busy} @click=${run}>${question.title}</button>`,
    }) : nothing}`;
}

/**
 * A modal dialog. Escape closes it and returns the focus.
 * @param {{title: string, body: any, close: () => void, actions?: any}} dialog
 */
export function confirmation({ title, body, close, actions = nothing }) {
  const shut = () => {
    close();
    restoreFocus();
  };
  return html`<dialog aria-labelledby="dialog-title" @cancel=${(event) => { event.preventDefault(); shut(); }} ${opened()}>
    <h2 id="dialog-title">${title}</h2>${body}
    <div class="buttons">${actions}<button class="quiet" autofocus @click=${shut}>Close</button></div></dialog>`;
}

/** The element with the focus before the dialog opened. */
let opener = /** @type {HTMLElement | null} */ (null);

/** Returns the focus after the dialog is removed: to its opener, or to the screen if the opener is removed too. */
function restoreFocus() {
  requestAnimationFrame(() => requestAnimationFrame(() => {
    if (document.activeElement !== document.body) return;
    const next = opener?.isConnected ? opener : document.getElementById('main');
    next?.focus({ preventScroll: true });
  }));
}

/** Opens its dialog once the dialog is in the page. */
class Opened extends Directive {
  isOpen = false;

  render() { return noChange; }

  /** @param {any} part */
  update({ element }) {
    if (!this.isOpen) {
      this.isOpen = true;
      opener = /** @type {HTMLElement | null} */ (document.activeElement);
      queueMicrotask(() => { if (element.isConnected && !element.open) element.showModal(); });
    }
    return noChange;
  }
}
const opened = directive(Opened);
