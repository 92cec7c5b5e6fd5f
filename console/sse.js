// Parses an event stream (HTML Standard, section 9.2) incrementally. Pure: no network, no clock.
// Not here: opening streams and resuming them (feed.js).

/** @typedef {{event: string, id: string, data: string}} ServerEvent */

/** A parser for one stream. It buffers an incomplete line. */
export class EventStreamParser {
  /** The parts of the incomplete line, joined only at its end, because a line may have megabytes. */
  #rest = /** @type {string[]} */ ([]);
  #lines = /** @type {string[]} */ ([]);

  /**
   * Parses the next text of the stream.
   * @param {string} text
   * @returns {ServerEvent[]} the events that the text completes
   */
  push(text) {
    const events = [];
    this.#rest.push(text);
    if (!text.includes('\n')) return events;
    const lines = this.#rest.join('').split('\n');
    this.#rest = [lines.pop() ?? ''];

    for (const raw of lines) {
      const line = raw.endsWith('\r') ? raw.slice(0, -1) : raw;
      if (line !== '') {
        this.#lines.push(line);
        continue;
      }
      const event = parseLines(this.#lines);
      this.#lines = [];
      if (event) events.push(event);
    }
    return events;
  }
}

/**
 * @param {string[]} lines
 * @returns {ServerEvent | null} `null` if the lines have no data
 */
function parseLines(lines) {
  const event = { event: 'message', id: '', data: '' };
  const data = [];
  for (const line of lines) {
    const colon = line.indexOf(':');
    // A line that begins with a colon is a comment.
    if (colon === 0) continue;
    const name = colon < 0 ? line : line.slice(0, colon);
    let value = colon < 0 ? '' : line.slice(colon + 1);
    if (value.startsWith(' ')) value = value.slice(1);
    if (name === 'data') data.push(value);
    else if (name === 'event') event.event = value;
    else if (name === 'id') event.id = value;
  }
  if (data.length === 0) return null;
  event.data = data.join('\n');
  return event;
}

/**
 * The JSON data of all frames in a text. Frames with other data are skipped.
 * @param {string} frames
 * @returns {any[]}
 */
export function jsonOf(frames) {
  const found = [];
  for (const event of new EventStreamParser().push(frames.endsWith('\n\n') ? frames : `${frames}\n\n`)) {
    try {
      found.push(JSON.parse(event.data));
    } catch {
      // Other data, such as `[DONE]`.
    }
  }
  return found;
}
