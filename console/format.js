// Formats times, sizes and names. Pure: the current time is an argument.

/** A duration in milliseconds: `41 ms`, `1.2 s`, `3 min`, `2 h`, `4 d`. */
export function duration(ms) {
  if (ms < 0) return '0 ms';
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 10_000) return `${(ms / 1000).toFixed(1)} s`;
  if (ms < 60_000) return `${Math.round(ms / 1000)} s`;
  if (ms < 3_600_000) return `${Math.floor(ms / 60_000)} min`;
  if (ms < 86_400_000) return `${Math.floor(ms / 3_600_000)} h`;
  return `${Math.floor(ms / 86_400_000)} d`;
}

/** The age of a time. */
export const ago = (at, now) => (now - at < 1500 ? 'now' : `${duration(now - at)} ago`);

/** The time until a moment, or `expired` for a moment in the past. */
export const ahead = (at, now) => (at <= now ? 'expired' : `in ${duration(at - now)}`);

/** An offset within a run: `+1.204 s`. */
export const offset = (ms) => `+${(Math.max(0, ms) / 1000).toFixed(3)} s`;

/** A size in bytes: `612 B`, `15.7 kB`, `4.2 MB`. */
export function bytes(count) {
  if (count < 1000) return `${count} B`;
  if (count < 1_000_000) return `${(count / 1000).toFixed(1)} kB`;
  return `${(count / 1_000_000).toFixed(1)} MB`;
}

/** A number with a thousands separator. `counted` adds a noun in singular or plural. */
export const number = (count) => count.toLocaleString('en-US');
export const counted = (count, one, many = `${one}s`) => `${number(count)} ${count === 1 ? one : many}`;

/** A time with milliseconds, in UTC. */
export const stamp = (at) => new Date(at).toISOString().replace('T', ' ').replace('Z', ' UTC');

/**
 * The owner of a run: the caller's name, the issuer or kind of its credentials (two issuers can use one name), and the
 * tenant, if any. The format of an owner is `kind:issuer:name`, then `/` and the tenant. Special characters are escaped as
 * U+001E and a hexadecimal code.
 * @param {string} owner
 */
export function ownerName(owner) {
  const [principal, ...rest] = owner.split('/');
  const plain = (text) => text.split('\u001e').map((part, index) =>
    (index === 0 ? part : String.fromCharCode(Number.parseInt(part.slice(0, 2), 16)) + part.slice(2))).join('');
  const [kind, issuer, ...name] = principal.split(':');
  const isCaller = name.length > 0;
  const who = plain(isCaller ? name.join(':') : principal);
  const partition = rest.join('/');
  const tenant = partition.startsWith('route:') ? (partition.split('\u001d')[1] ?? '') : partition;
  const shown = isCaller ? `${who} (${plain(plain(issuer)) || kind})` : who === 'anonymous' ? '–' : who;
  return tenant ? `${shown} · ${plain(tenant)}` : shown;
}

/** JSON with line breaks, or the unchanged text if it is not JSON. */
export function pretty(text) {
  try {
    return JSON.stringify(typeof text === 'string' ? JSON.parse(text) : text, null, 2);
  } catch {
    return String(text);
  }
}

/** The URL if it is safe as a link (`http` or `https`), else `null`. */
export function safeLink(url) {
  try {
    const read = new URL(url);
    return read.protocol === 'http:' || read.protocol === 'https:' ? read.href : null;
  } catch {
    return null;
  }
}

export const STATES = ['queued', 'running', 'pending', 'completed', 'incomplete', 'failed', 'rejected', 'canceled'];

/** The shown state of a run. A run with open items is pending, in every state. */
export const stateOf = (run) => (run.pending > 0 ? 'pending' : run.state.startsWith('waiting') ? 'pending' : run.state);
