//! Pages of lists, with opaque cursors that stay valid while entries are added and removed.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Map, Value};

use crate::envelope::RpcError;

/// The number of entries on a page.
const PAGE: usize = 100;

/// Longest cursor that is read, in bytes.
const MAX_CURSOR: usize = 1024;

/// A page of a list: the object with the member `list`, and `nextCursor` unless the page is the last one. `entries`:
/// sorted by their keys, which are unique. `list` also distinguishes the cursors of different lists.
///
/// # Errors
/// The cursor was not made by this function for this list.
pub(crate) fn page<'e>(
    list: &str,
    entries: impl Iterator<Item = (String, &'e Value)>,
    cursor: Option<&str>,
) -> Result<Value, RpcError> {
    let after = cursor.map(|cursor| read(list, cursor).ok_or_else(unknown)).transpose()?;
    let is_later = |key: &str| after.as_deref().is_none_or(|after| key > after);
    let mut rest = entries.filter(|(key, _)| is_later(key));

    let mut values = Vec::new();
    let mut last = String::new();
    for (key, value) in rest.by_ref().take(PAGE) {
        values.push(value.clone());
        last = key;
    }
    let mut page = Map::new();
    page.insert(list.to_owned(), Value::Array(values));
    if rest.next().is_some() {
        page.insert("nextCursor".to_owned(), Value::String(write(list, &last)));
    }
    Ok(Value::Object(page))
}

fn write(list: &str, key: &str) -> String {
    URL_SAFE_NO_PAD.encode(format!("{list}:{key}"))
}

fn read(list: &str, cursor: &str) -> Option<String> {
    if cursor.len() > MAX_CURSOR {
        return None;
    }
    let text = String::from_utf8(URL_SAFE_NO_PAD.decode(cursor).ok()?).ok()?;
    text.strip_prefix(list)?.strip_prefix(':').map(str::to_owned)
}

fn unknown() -> RpcError {
    RpcError::params("unknown cursor")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn numbers(count: usize, cursor: Option<&str>) -> Result<Value, RpcError> {
        let values: Vec<Value> = (0..count).map(|number| json!(number)).collect();
        page("things", values.iter().enumerate().map(|(number, value)| (format!("{number:04}"), value)), cursor)
    }

    #[test]
    fn pages_have_a_hundred_entries_and_follow_one_another() {
        let mut all: Vec<Value> = Vec::new();
        let mut sizes = Vec::new();
        let mut cursor: Option<String> = None;
        loop {
            let page = numbers(250, cursor.as_deref()).expect("a page");
            let things = page["things"].as_array().expect("a list");
            sizes.push(things.len());
            all.extend(things.iter().cloned());
            cursor = page["nextCursor"].as_str().map(str::to_owned);
            if cursor.is_none() {
                break;
            }
        }
        assert_eq!(sizes, [100, 100, 50]);
        assert_eq!(all, (0..250).map(|number| json!(number)).collect::<Vec<_>>());
        assert_eq!(numbers(100, None).expect("a page").get("nextCursor"), None);
        assert_eq!(numbers(0, None), Ok(json!({ "things": [] })));
    }

    #[test]
    fn a_cursor_survives_that_its_entry_is_removed() {
        let cursor = numbers(101, None).expect("a page")["nextCursor"].as_str().map(str::to_owned);
        assert_eq!(numbers(99, cursor.as_deref()), Ok(json!({ "things": [] })));
    }

    #[test]
    fn other_cursors_are_refused() {
        for cursor in ["", "garbage", "ä", &write("others", "0001"), &"A".repeat(2000)] {
            assert_eq!(numbers(250, Some(cursor)).map_err(|error| error.code), Err(-32602), "{cursor}");
        }
    }
}
