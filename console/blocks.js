// A long text in parts, of which the browser lays out only those that are seen. Pure.

/** About how long a part is, in UTF-16 units. */
const BLOCK = 8_000;

/** Parts of a text, which end where a line or a word does if one does soon enough. */
export function blocksOf(text) {
  const blocks = [];
  for (let start = 0; start < text.length;) {
    let end = Math.min(text.length, start + BLOCK);
    if (end < text.length) {
      const line = text.lastIndexOf('\n', end);
      const word = text.lastIndexOf(' ', end);
      end = line > start ? line + 1 : word > start ? word + 1 : end;
      // Half of a character that takes two units stays with the other half.
      if (/[\uD800-\uDBFF]/.test(text[end - 1])) end += 1;
    }
    blocks.push(text.slice(start, end));
    start = end;
  }
  return blocks;
}
