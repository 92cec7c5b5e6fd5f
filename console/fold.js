// Folds the frames of the Agent API into messages with their contents, and into the state of the run.
// Pure, so that tests can compare the result with the gateway's. Not here: the view of a message (views/timeline.js).

/**
 * @typedef {object} Content
 * @property {string} type
 * @property {string} text       a text or a refusal
 * @property {any} value         the data of a content other than text, such as a call. `null` for texts and refusals
 * @property {boolean} done
 */

/**
 * @typedef {object} Message
 * @property {string} id
 * @property {string} type
 * @property {string} role
 * @property {Content[]} contents
 * @property {string} status
 * @property {string | null} code
 * @property {string | null} error
 * @property {any} metadata
 * @property {number} from       time of its first event, in milliseconds since 1970
 * @property {number} to         time of its last event
 */

/**
 * @typedef {object} Folded
 * @property {Message[]} messages
 * @property {Map<string, Message>} byId
 * @property {string} status
 * @property {any} error
 * @property {any} usage
 * @property {number} events     the number of folded frames
 * @property {number} started
 * @property {number} last
 */

/** @returns {Folded} */
export const empty = () => ({
  messages: [], byId: new Map(), status: 'created', error: null, usage: null, events: 0, started: 0, last: 0,
});

/**
 * Adds one frame. Changes `run` in place, because a run may have ten thousand frames.
 * @param {Folded} run
 * @param {any} frame   the data of a frame, parsed
 * @param {number} at   time of the event, in milliseconds since 1970
 */
export function fold(run, frame, at) {
  if (run.started === 0) run.started = at;
  run.last = at;
  run.events += 1;
  if (frame.object === 'response') foldResponse(run, frame, at);
  else if (frame.object === 'message') foldMessage(run, frame, at);
  else if (frame.object === 'content') foldContent(run, frame, at);
}

function foldResponse(run, frame, at) {
  run.status = frame.status ?? run.status;
  run.error = frame.error ?? null;
  run.usage = frame.usage ?? run.usage;
  // A final response repeats all messages: add only unknown ones.
  for (const message of frame.output ?? []) {
    if (message.id && !run.byId.has(message.id)) foldMessage(run, message, at);
  }
}

function messageOf(run, id, at) {
  let message = run.byId.get(id);
  if (!message) {
    message = {
      id, type: 'message', role: 'assistant', contents: [], status: 'in_progress',
      code: null, error: null, metadata: null, from: at, to: at,
    };
    run.byId.set(id, message);
    run.messages.push(message);
  }
  message.to = at;
  return message;
}

function foldMessage(run, frame, at) {
  const message = messageOf(run, frame.id ?? '', at);
  message.type = frame.type ?? message.type;
  message.role = frame.role ?? message.role;
  message.status = frame.status ?? message.status;
  message.code = frame.code ?? message.code;
  message.error = frame.message ?? message.error;
  message.metadata = frame.metadata ?? message.metadata;
  if (Array.isArray(frame.content)) {
    frame.content.forEach((content, index) => {
      message.contents[content.index ?? index] = whole(content);
    });
  }
}

function foldContent(run, frame, at) {
  const message = messageOf(run, frame.msg_id ?? '', at);
  const index = frame.index ?? 0;
  const known = message.contents[index];
  if (frame.delta !== true || !known) {
    message.contents[index] = whole(frame);
    if (frame.delta === true) message.contents[index].done = false;
    return;
  }
  if (typeof frame.text === 'string') known.text += frame.text;
  else if (typeof frame.refusal === 'string') known.text += frame.refusal;
  else if (frame.data && typeof frame.data === 'object') mergeData(known, frame.data);
}

/** Merges a fragment of a call: appends to its arguments and its output, and replaces other fields. */
function mergeData(known, data) {
  const before = known.value && typeof known.value === 'object' ? known.value : {};
  const merged = { ...before, ...data };
  for (const name of ['arguments', 'output']) {
    if (typeof before[name] === 'string' && typeof data[name] === 'string') merged[name] = before[name] + data[name];
  }
  known.value = merged;
}

/** @returns {Content} */
function whole(frame) {
  const value = frame.data ?? frame;
  return {
    type: frame.type ?? 'text',
    text: frame.text ?? frame.refusal ?? '',
    value: frame.type === 'text' || frame.type === 'refusal' ? null : value,
    done: frame.status === 'completed' || frame.delta !== true,
  };
}

/** The text of a message: its texts and refusals, concatenated. */
export const textOf = (message) => message.contents.filter(Boolean).map((content) => content.text).join('');

const CALLS = new Set(['function_call', 'plugin_call', 'component_call', 'mcp_call']);
const OUTPUTS = new Set(['function_call_output', 'plugin_call_output', 'component_call_output', 'mcp_call_output']);

export const isCall = (message) => CALLS.has(message.type);
export const isOutput = (message) => OUTPUTS.has(message.type);

/** The data of the first content with data. An empty object without any. */
export const dataOf = (message) => message.contents.find((content) => content?.value)?.value ?? {};

/**
 * The cards of a timeline, in order. A call and its output share a card.
 * @param {Message[]} messages
 * @returns {{message: Message, output: Message | null}[]}
 */
export function cards(messages) {
  const cards = [];
  const calls = new Map();
  for (const message of messages) {
    if (isOutput(message)) {
      const card = calls.get(dataOf(message).call_id);
      if (card && !card.output) {
        card.output = message;
        continue;
      }
    }
    const card = { message, output: null };
    cards.push(card);
    if (isCall(message)) calls.set(dataOf(message).call_id, card);
  }
  return cards;
}
