// Splits a long text into blocks, so that the browser lays out only visible ones. Pure.

/** The approximate length of a block, in UTF-16 units. */
const BLOCK = 8_000;

/** Splits a text into blocks, if possible at the end of a line or a word. */
export function blocksOf(text) {
  const blocks = [];
  for (let start = 0; start < text.length;) {
    let end = Math.min(text.length, start + BLOCK);
    if (end < text.length) {
      const line = text.lastIndexOf('\n', end);
      const word = text.lastIndexOf(' ', end);
      end = line > start ? line + 1 : word > start ? word + 1 : end;
      // Do not split a surrogate pair.
      if (/[\uD800-\uDBFF]/.test(text[end - 1])) end += 1;
    }
    blocks.push(text.slice(start, end));
    start = end;
  }
  return blocks;
}
