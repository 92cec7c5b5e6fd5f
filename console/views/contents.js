// The contents of a message: texts, pictures, files, and everything else as JSON. The beginning of a long text is shown with
// a button for the rest. Only visible parts are laid out.

import { html, nothing } from '../vendor/lit-html/lit-html.js';
import { signal } from '../vendor/signals-core/signals-core.mjs';
import { whenSignedOut } from '../api.js';
import { blocksOf } from '../blocks.js';
import { bytes, counted, pretty, safeLink } from '../format.js';
import { pictureOf } from '../media.js';

/** Above this length only the beginning of a text is shown. */
const CLIP = 20_000;

const whole = signal(/** @type {Set<string>} */ (new Set()));
whenSignedOut(() => { whole.value = new Set(); });

/** A text that the user's role may not read: the gateway sends an asterisk for each character. */
const hiddenText = (text) => html`<p class="hidden-text">${counted(text.length, 'character')}</p>`;

/**
 * @param {any[]} contents
 * @param {string} id       of their message, which keeps expanded texts expanded
 * @param {boolean} hidden  whether their texts are hidden
 */
export function contentsOf(contents, id, hidden) {
  return contents.filter(Boolean).map((content, index) => {
    const text = content.text ?? '';
    if (text) return long(text, `${id}-${index}`, hidden);
    if (hidden) return html`<p class="hidden-text">${content.type ?? 'content'}</p>`;
    const file = fileOf(content);
    if (file) return file;
    const value = content.value ?? content.data;
    return value ? long(pretty(value), `${id}-${index}`, hidden) : nothing;
  });
}

function fileOf(content) {
  const value = content.value ?? content;
  const url = value.image_url ?? value.file_url ?? value.audio_url ?? null;
  if (!url) return null;
  const name = value.filename ?? content.type;
  const picture = pictureOf(String(url));
  if (picture) return html`<img class="picture-of" src=${picture} alt=${name} loading="lazy">`;
  const safe = safeLink(url);
  return safe
    ? html`<p><a href=${safe} target="_blank" rel="noopener noreferrer">${name}</a> <span class="dim">${content.type}</span></p>`
    : html`<p>${name} <span class="dim">${content.type}, ${bytes(String(url).length)} within the event</span></p>`;
}

/** A text, or its beginning and a button for all of it. `key` names it. */
export function long(text, key, hidden = false) {
  if (hidden) return hiddenText(text);
  if (text.length <= CLIP) return html`<pre dir="auto">${text}</pre>`;
  if (whole.value.has(key)) return html`<pre dir="auto">${blocksOf(text).map((block) => html`<span class="block">${block}</span>`)}</pre>`;
  const all = () => { whole.value = new Set([...whole.value, key]); };
  return html`<pre dir="auto">${text.slice(0, CLIP)}…</pre>
    <button class="quiet" @click=${all}>Show all ${bytes(text.length)}</button>`;
}
