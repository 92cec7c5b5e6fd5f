// The addresses of screens: `#/runs?agent=demo`, `#/runs/ID?tab=prism`. Pure except for `location`.

import { signal } from './vendor/signals-core/signals-core.mjs';

/** @typedef {{screen: string, id: string | null, query: URLSearchParams}} Place */

export const SCREENS = {
  overview: 'Overview', runs: 'Runs', pending: 'Pending', playground: 'Playground', metrics: 'Metrics', config: 'Config', audit: 'Audit',
};

/**
 * @param {string} hash
 * @returns {Place}
 */
export function parse(hash) {
  const [path, query = ''] = hash.replace(/^#\/?/, '').split('?', 2);
  const [screen, id] = path.split('/');
  const known = Object.hasOwn(SCREENS, screen) ? screen : 'overview';
  return { screen: known, id: id ? decode(id) : null, query: new URLSearchParams(query) };
}

function decode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/**
 * The link to a screen.
 * @param {string} screen
 * @param {string | null} id
 * @param {Record<string, any>} query
 */
export function link(screen, id = null, query = {}) {
  const path = screen === 'overview' ? '#/' : `#/${screen}${id ? `/${encodeURIComponent(id)}` : ''}`;
  const given = Object.entries(query).filter(([, value]) => value !== '' && value !== null && value !== undefined);
  return given.length ? `${path}?${new URLSearchParams(given)}` : path;
}

export const place = signal(parse(location.hash));
addEventListener('hashchange', () => {
  place.value = parse(location.hash);
  remember();
});

/** The link to the list of runs with its last filters. */
let list = '#/runs';
const remember = () => { if (place.value.screen === 'runs' && !place.value.id) list = location.hash; };
export const lastList = () => list;

export const go = (hash) => { location.hash = hash; };

/** Changes the query of the screen without an entry in the history, such as for a filter during typing. */
export function refine(changes) {
  const { screen, id, query } = place.value;
  const next = { ...Object.fromEntries(query), ...changes };
  history.replaceState(null, '', link(screen, id, next));
  place.value = parse(location.hash);
  remember();
}

remember();
