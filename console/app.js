// The frame of the page, the choice of the screen, keyboard shortcuts, and drawing. Not here: the screens (views/).

import { html, nothing, render } from './vendor/lit-html/lit-html.js';
import { effect, signal } from './vendor/signals-core/signals-core.mjs';
import { begin, offeredKey, session, signOut, useKey } from './api.js';
import { connection } from './feed.js';
import { counted, duration } from './format.js';
import { SCREENS, go, lastList, link, place } from './router.js';
import { gateway, now, pendingCount, problem, routes, startFeed } from './state.js';
import { confirmation, dialogs, empty, icon } from './ui.js';
import { signInView } from './views/signin.js';
import { overviewView } from './views/overview.js';
import { runsView } from './views/runs.js';
import { openDropped, runView } from './views/run.js';
import { pendingView } from './views/pending.js';
import { playgroundView } from './views/playground.js';
import { metricsView } from './views/metrics.js';
import { configView } from './views/config.js';
import { auditView } from './views/audit.js';

const VIEWS = {
  overview: overviewView, runs: runsView, pending: pendingView, playground: playgroundView, metrics: metricsView, config: configView, audit: auditView,
};
const KEYS = { o: 'overview', r: 'runs', p: 'pending', y: 'playground', m: 'metrics', c: 'config', a: 'audit' };

const theme = signal(localStorage.getItem('interlingua.theme') ?? 'system');
const help = signal(false);

const dark = matchMedia('(prefers-color-scheme: dark)');
const isDark = () => (theme.value === 'system' ? dark.matches : theme.value === 'dark');

function toggleTheme() {
  theme.value = isDark() ? 'light' : 'dark';
  localStorage.setItem('interlingua.theme', theme.value);
}

function header() {
  const about = gateway.value;
  const { name, role } = session.value;
  return html`
    <a class="skip" href="#main" @click=${skip}>Skip to content</a>
    <header class="top">
      <a class="brand" href="#/" aria-label="Interlingua, overview">${icon('brand')}<span>Interlingua</span></a>
      <span class="facts">${about ? html`${about.version} · up ${duration(now.value - about.started_at)} · ${about.store.kind}${
        routes.value ? html` · ${counted(routes.value.length, 'route')}` : nothing}` : nothing}</span>
      <span class="space"></span>
      <span role="status" aria-label="Connection" class="connection ${connection.value}">${connection.value}</span>
      <button class="quiet" @click=${toggleTheme} aria-label=${isDark() ? 'Use light colours' : 'Use dark colours'}>${icon(isDark() ? 'sun' : 'moon')}</button>
      <span class="who" title=${role === 'act' ? 'may act' : 'may view'}>${name}</span>
      <button class="quiet" @click=${signOut}>Sign out</button>
    </header>
    <nav aria-label="Console">
      ${Object.entries(SCREENS).map(([screen, title]) => html`
        <a href=${link(screen)} aria-current=${place.value.screen === screen ? 'page' : nothing}>${title}${
          screen === 'pending' && pendingCount.value > 0
            ? html`<span class="count" aria-hidden="true">${pendingCount.value}</span>` : nothing}</a>`)}
    </nav>`;
}

function skip(event) {
  event.preventDefault();
  document.getElementById('main')?.focus();
}

function page() {
  if (!session.value) return signInView();
  const { screen, id } = place.value;
  const view = screen === 'runs' && id ? runView : VIEWS[screen];
  return html`
    ${header()}
    ${problem.value ? html`<div class="problem" role="alert">${problem.value}
      <button class="quiet" @click=${() => { problem.value = null; }}>Dismiss</button></div>` : nothing}
    <main id="main" tabindex="-1">${view()}</main>
    ${dialogs()}
    ${help.value ? helpDialog() : nothing}
    ${offeredKey.value !== null ? otherKeyDialog(offeredKey.value) : nothing}`;
}

/** @param {string} key */
function otherKeyDialog(key) {
  const title = 'Sign in with the key of the link';
  return confirmation({
    title,
    body: html`<p>This tab was opened by a link with a key. You are signed in as ${session.value?.name}. Continue only if you
      opened a link of your own gateway.</p>`,
    actions: html`<button class="danger" @click=${() => useKey(key)}>${title}</button>`,
    close: () => { offeredKey.value = null; },
  });
}

/** The page after an error while drawing a screen, such as damaged data in a file. */
function brokenPage(error) {
  return html`${header()}<main id="main" tabindex="-1">${empty('This cannot be shown.', html`${String(error?.message ?? error)}
    <a href="#/runs">All runs</a>`)}</main>`;
}

/** @param {HTMLElement} root */
function drawPage(root) {
  try {
    render(page(), root);
  } catch (error) {
    render(brokenPage(error), root);
  }
}

function helpDialog() {
  return confirmation({
    title: 'Keys',
    body: html`<dl class="keys">
      ${Object.entries(KEYS).map(([key, screen]) => html`<dt><kbd>g</kbd> <kbd>${key}</kbd></dt><dd>${SCREENS[screen]}</dd>`)}
      <dt><kbd>/</kbd></dt><dd>Search</dd>
      <dt><kbd>j</kbd> <kbd>k</kbd></dt><dd>Next and previous row</dd>
      <dt><kbd>Enter</kbd></dt><dd>Open the row</dd>
      <dt><kbd>Esc</kbd></dt><dd>Back, or close a dialog</dd>
      <dt><kbd>?</kbd></dt><dd>These keys</dd></dl>`,
    close: () => { help.value = false; },
  });
}

let leader = 0;

function onKey(event) {
  const target = /** @type {HTMLElement} */ (event.target);
  const typing = target.matches('input:not([type=range], [type=checkbox]), textarea, select, [contenteditable]');
  // An open dialog blocks the page and its keys.
  if (document.querySelector('dialog[open]')) return;
  if (event.key === 'Escape') {
    if (typing) target.blur();
    else if (place.value.screen === 'runs' && place.value.id) go(lastList());
    return;
  }
  if (typing || event.ctrlKey || event.metaKey || event.altKey || !session.value) return;
  if (Date.now() - leader < 1500 && KEYS[event.key]) {
    leader = 0;
    go(link(KEYS[event.key]));
    event.preventDefault();
  } else if (event.key === 'g') leader = Date.now();
  else if (event.key === '?') help.value = true;
  else if (event.key === '/') focus('input[type=search]', event);
  else if (event.key === 'j' || event.key === 'k') step(event.key === 'j' ? 1 : -1, event);
}

function focus(selector, event) {
  const found = /** @type {HTMLElement | null} */ (document.querySelector(selector));
  if (!found) return;
  event.preventDefault();
  found.focus();
}

/** Moves the focus by a number of rows in the shown list. */
function step(by, event) {
  const rows = [...document.querySelectorAll('main a.row, main article[tabindex]')];
  if (rows.length === 0) return;
  const index = rows.indexOf(/** @type {Element} */ (document.activeElement));
  const next = /** @type {HTMLElement} */ (rows[Math.max(0, Math.min(rows.length - 1, index + by))]);
  event.preventDefault();
  next.focus();
}

/** Draws the page at most once per frame. */
function drawing(root) {
  let stop = () => {};
  let waiting = false;
  const draw = () => {
    waiting = false;
    stop();
    let first = true;
    stop = effect(() => {
      if (first) {
        first = false;
        drawPage(root);
      } else if (!waiting) {
        waiting = true;
        requestAnimationFrame(draw);
      }
    });
  };
  draw();
}

effect(() => {
  const count = session.value ? pendingCount.value : 0;
  const { screen, id } = place.value;
  const title = screen === 'runs' && id ? 'Run' : SCREENS[screen];
  document.title = `${count > 0 ? `(${count}) ` : ''}${session.value ? title : 'Sign in'} · Interlingua`;
});
effect(() => { document.documentElement.dataset.theme = isDark() ? 'dark' : 'light'; });
dark.addEventListener('change', () => { theme.value = theme.peek(); document.documentElement.dataset.theme = isDark() ? 'dark' : 'light'; });
addEventListener('keydown', onKey);
addEventListener('dragover', (event) => { if (session.value) event.preventDefault(); });
addEventListener('drop', (event) => {
  // By default, the browser would open a dropped file.
  event.preventDefault();
  const file = event.dataTransfer?.files[0];
  if (session.value && file) openDropped(file);
});
addEventListener('hashchange', () => {
  // Move the focus to the new screen, so that screen readers read it.
  requestAnimationFrame(() => requestAnimationFrame(() => {
    if (!document.querySelector('main :focus')) document.getElementById('main')?.focus({ preventScroll: true });
  }));
});

await begin();
startFeed();
drawing(/** @type {HTMLElement} */ (document.getElementById('app')));
