// The contents of a message: texts, pictures, files, and other contents as JSON. For a long text, the page shows the start
// and a button for the rest.

import { html, nothing } from '../vendor/lit-html/lit-html.js';
import { signal } from '../vendor/signals-core/signals-core.mjs';
import { whenSignedOut } from '../api.js';
import { blocksOf } from '../blocks.js';
import { bytes, counted, pretty, safeLink } from '../format.js';
import { pictureOf } from '../media.js';

/** The number of shown characters of a longer text. */
const CLIP = 20_000;

const whole = signal(/** @type {Set<string>} */ (new Set()));
whenSignedOut(() => { whole.value = new Set(); });

/** A placeholder for a hidden text. The gateway sends an asterisk for each of its characters. */
const hiddenText = (text) => html`<p class="hidden-text">${counted(text.length, 'character')}</p>`;

/**
 * @param {any[]} contents
 * @param {string} id       the id of their message: expanded texts are remembered by it
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

/** A text, or its start and a button for the whole text. `key`: identifies the text. */
export function long(text, key, hidden = false) {
  if (hidden) return hiddenText(text);
  if (text.length <= CLIP) return html`<pre dir="auto">${text}</pre>`;
  if (whole.value.has(key)) return html`<pre dir="auto">${blocksOf(text).map((block) => html`<span class="block">${block}</span>`)}</pre>`;
  const all = () => { whole.value = new Set([...whole.value, key]); };
  return html`<pre dir="auto">${text.slice(0, CLIP)}…</pre>
    <button class="quiet" @click=${all}>Show all ${bytes(text.length)}</button>`;
}
