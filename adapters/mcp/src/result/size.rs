//! The limit of a result: clients fail calls whose answer is larger (docs/protocols/mcp.md#results).

use interlingua_core::RunId;
use serde_json::{Value, json};

use crate::result::blocks::Block;
use crate::result::uris::{part_uri, run_uri};

/// Maximum length of all blocks of a result as JSON, in bytes.
pub(super) const MAX_RESULT: usize = 900_000;

/// The room that a link or a note needs at most.
const MAX_NOTE: usize = 512;

/// Makes blocks at most `max` bytes long together: first the largest media become links, then texts are cut. `links`:
/// clients can read resources. True if something of the answer is in no block and behind no link.
pub(super) fn shrink(blocks: &mut Vec<Block>, max: usize, run: RunId, links: bool) -> bool {
    // With the commas between blocks.
    let mut sizes: Vec<usize> = blocks.iter().map(|block| block.size() + 1).collect();
    let mut total: usize = sizes.iter().sum();
    if total <= max {
        return false;
    }

    let mut media: Vec<usize> = (0..blocks.len()).filter(|place| blocks[*place].part.is_some()).collect();
    media.sort_by_key(|place| std::cmp::Reverse(sizes[*place]));
    let mut is_lossy = false;
    for place in media {
        if total <= max {
            return is_lossy;
        }
        let Some(number) = blocks[place].part else { continue };
        let smaller = without_bytes(&blocks[place].value, run, number, links);
        let size = smaller.size() + 1;
        if size < sizes[place] {
            is_lossy |= !links;
            total = total - sizes[place] + size;
            sizes[place] = size;
            blocks[place] = smaller;
        }
    }
    if total > max {
        cut(blocks, &sizes, max.saturating_sub(MAX_NOTE), run, links);
        is_lossy |= !links;
    }
    is_lossy
}

/// A link to the content of a block, or a text that says what is missing.
fn without_bytes(block: &Value, run: RunId, number: usize, links: bool) -> Block {
    let inner = block.get("resource").unwrap_or(block);
    let media_type = inner.get("mimeType").and_then(Value::as_str);
    let kind = block.get("type").and_then(Value::as_str).filter(|kind| *kind != "resource").unwrap_or("file");
    let name = inner.get("_meta").and_then(|meta| meta.get("interlingua/name")).and_then(Value::as_str);
    if links {
        return Block::link(&part_uri(run, number), name.unwrap_or(kind), media_type);
    }
    let length = ["data", "blob"].iter().find_map(|field| inner.get(*field)?.as_str()).map(|data| data.len() / 4 * 3);
    let length = length.or_else(|| inner.get("text")?.as_str().map(str::len)).unwrap_or(0);
    Block::text(format!(
        "[{}: {}, {length} bytes, too large]",
        name.unwrap_or(kind),
        media_type.unwrap_or("unknown type")
    ))
}

/// Keeps the first `max` bytes of the blocks. A text that does not fit is cut, and everything after it is left out.
fn cut(blocks: &mut Vec<Block>, sizes: &[usize], max: usize, run: RunId, links: bool) {
    let mut room = max;
    let mut kept = 0;
    for (block, size) in blocks.iter_mut().zip(sizes) {
        if *size <= room {
            room -= size;
            kept += 1;
            continue;
        }
        if let Some(Value::String(text)) = block.value.get_mut("text") {
            const FRAME: usize = r#"{"text":"","type":"text"},"#.len();
            let end = cut_json_text(text, room.saturating_sub(FRAME));
            if end > 0 {
                text.truncate(end);
                kept += 1;
            }
        }
        break;
    }
    blocks.truncate(kept);
    blocks.push(if links {
        Block::link(&run_uri(run), "the whole answer", Some("application/json"))
    } else {
        Block::text("[the answer is too large: the rest was cut off]")
    });
}

/// The largest length of a beginning of `text` that is at most `max` bytes long as JSON, without the quotation marks.
pub(super) fn cut_json_text(text: &str, max: usize) -> usize {
    let mut size = 0;
    for (place, character) in text.char_indices() {
        size += match character {
            '"' | '\\' | '\n' | '\r' | '\t' | '\u{8}' | '\u{c}' => 2,
            control if u32::from(control) < 0x20 => 6,
            other => other.len_utf8(),
        };
        if size > max {
            return place;
        }
    }
    text.len()
}

/// A link as text, for clients without links.
pub(super) fn as_text(block: Block) -> Block {
    if block.value["type"] != json!("resource_link") {
        return block;
    }
    let field = |name: &str| block.value[name].as_str().unwrap_or_default();
    Block::text(format!("[{}]({})", field("name"), field("uri")))
}
