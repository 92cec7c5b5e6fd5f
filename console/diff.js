// The shortest line-by-line difference between two texts. Pure. Not here: its view (views/config.js).

/** If one of the different parts has more lines, the parts are shown as completely replaced. */
const MOST = 2000;

/**
 * @param {string} before
 * @param {string} after
 * @returns {{mark: ' ' | '-' | '+', text: string}[]} every line of both, in order
 */
export function diff(before, after) {
  const [old, now] = [before.split('\n'), after.split('\n')];
  let start = 0;
  while (start < old.length && start < now.length && old[start] === now[start]) start += 1;
  let end = 0;
  while (end < old.length - start && end < now.length - start && old[old.length - 1 - end] === now[now.length - 1 - end]) end += 1;
  const same = (lines) => lines.map((text) => ({ mark: /** @type {' '} */ (' '), text }));
  return [
    ...same(old.slice(0, start)),
    ...changed(old.slice(start, old.length - end), now.slice(start, now.length - end)),
    ...same(old.slice(old.length - end)),
  ];
}

/** @returns {{mark: ' ' | '-' | '+', text: string}[]} */
function changed(old, now) {
  const removed = (text) => ({ mark: /** @type {'-'} */ ('-'), text });
  const added = (text) => ({ mark: /** @type {'+'} */ ('+'), text });
  if (old.length > MOST || now.length > MOST) return [...old.map(removed), ...now.map(added)];
  // The length of the longest common subsequence from each pair of lines on.
  const width = now.length + 1;
  const longest = new Uint16Array((old.length + 1) * width);
  for (let i = old.length - 1; i >= 0; i -= 1) {
    for (let j = now.length - 1; j >= 0; j -= 1) {
      longest[i * width + j] = old[i] === now[j]
        ? longest[(i + 1) * width + j + 1] + 1
        : Math.max(longest[(i + 1) * width + j], longest[i * width + j + 1]);
    }
  }
  const found = [];
  let [i, j] = [0, 0];
  while (i < old.length || j < now.length) {
    if (i < old.length && j < now.length && old[i] === now[j]) {
      found.push({ mark: /** @type {' '} */ (' '), text: old[i] });
      [i, j] = [i + 1, j + 1];
    } else if (j === now.length || (i < old.length && longest[(i + 1) * width + j] >= longest[i * width + j + 1])) {
      found.push(removed(old[i]));
      i += 1;
    } else {
      found.push(added(now[j]));
      j += 1;
    }
  }
  return found;
}

/**
 * The changed lines with their context.
 * @param {{mark: string, text: string}[]} lines
 * @param {number} around  number of lines of context
 * @returns {({mark: string, text: string} | null)[]} `null` stands for omitted lines
 */
export function nearChanges(lines, around) {
  const near = new Set();
  lines.forEach(({ mark }, index) => {
    if (mark !== ' ') for (let at = index - around; at <= index + around; at += 1) near.add(at);
  });
  return lines.flatMap((line, index) => (near.has(index) ? [line] : index === 0 || near.has(index - 1) ? [null] : []));
}
