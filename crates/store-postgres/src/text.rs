//! Texts as the database keeps them: PostgreSQL has no U+0000. The order of texts and their prefixes stay the same, so
//! that keys can be compared and listed as they are kept. And how long those are that are in an index. Not here: texts
//! in JSON, which are bytes for the database.

use std::borrow::Cow;

use interlingua_core::Record;
use interlingua_core::call::RunInfo;

use interlingua_store::StoreError;

/// The greatest length in bytes of texts that are in one index together. PostgreSQL has room for 2,704, with other
/// columns.
const MAX_LENGTH: usize = 2400;

/// Both U+0000 and U+0001 are kept as two characters, of which this is the first.
const ESCAPE: char = '\u{1}';
/// After [`ESCAPE`]: U+0000.
const NUL: char = '\u{1}';
/// After [`ESCAPE`]: U+0001.
const SELF: char = '\u{2}';

/// A text as it is kept. Different texts are kept differently.
pub(super) fn kept(text: &str) -> Cow<'_, str> {
    if text.bytes().all(|byte| byte > 1) {
        return Cow::Borrowed(text);
    }
    let mut kept = String::with_capacity(text.len() + 1);
    for character in text.chars() {
        match character {
            '\0' => kept.extend([ESCAPE, NUL]),
            ESCAPE => kept.extend([ESCAPE, SELF]),
            other => kept.push(other),
        }
    }
    Cow::Owned(kept)
}

/// The text that is kept as this.
pub(super) fn original(kept: &str) -> Cow<'_, str> {
    if !kept.contains(ESCAPE) {
        return Cow::Borrowed(kept);
    }
    let mut text = String::with_capacity(kept.len());
    let mut characters = kept.chars();
    while let Some(character) = characters.next() {
        match (character, characters.clone().next()) {
            (ESCAPE, Some(NUL)) => text.push('\0'),
            (ESCAPE, Some(SELF)) => text.push(ESCAPE),
            (other, _) => {
                text.push(other);
                continue;
            }
        }
        characters.next();
    }
    Cow::Owned(text)
}

/// Refuses texts, as they are kept, that are too long for an index together.
pub(super) fn check(what: &'static str, texts: &[&str]) -> Result<(), StoreError> {
    let length: usize = texts.iter().map(|text| text.len()).sum();
    if length > MAX_LENGTH { Err(StoreError::TooLong { what, max: MAX_LENGTH }) } else { Ok(()) }
}

/// Refuses a new run whose names are too long.
pub(super) fn check_run(record: &Record, info: &RunInfo) -> Result<(), StoreError> {
    let owner = kept(&info.owner);
    check("session with its owner", &[&owner, &kept(&record.run().session_id)])?;
    let route = info.retention.as_ref().map_or("", |retention| &retention.route);
    check("route with the owner of a run", &[&owner, &kept(route)])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn texts() -> impl Strategy<Value = String> {
        // Those that matter come often.
        prop::collection::vec(prop_oneof![Just('\0'), Just('\u{1}'), Just('\u{2}'), any::<char>()], 0..8)
            .prop_map(String::from_iter)
    }

    proptest! {
        #[test]
        fn every_text_comes_back(text in texts()) {
            let kept = kept(&text);
            prop_assert_eq!(original(&kept), text.as_str());
            prop_assert!(!kept.contains('\0'));
        }

        #[test]
        fn texts_keep_their_order_and_their_prefixes(one in texts(), other in texts()) {
            prop_assert_eq!(kept(&one).cmp(&kept(&other)), one.cmp(&other));
            prop_assert_eq!(kept(&one).starts_with(&*kept(&other)), one.starts_with(&other));
        }
    }

    #[test]
    fn ordinary_texts_are_not_copied() {
        assert!(matches!(kept("session"), Cow::Borrowed("session")));
        assert!(matches!(original("session"), Cow::Borrowed("session")));
    }
}
