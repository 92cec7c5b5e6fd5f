//! "Did you mean …?": the nearest of the names that would have been right.

/// The known name that `wrong` was most likely meant to be, if any is near enough.
pub(super) fn nearest<'a>(wrong: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // Names are short; whatever is longer is no typing mistake and not worth comparing.
    if wrong.len() > 64 {
        return None;
    }
    let plain = |name: &str| name.to_lowercase().replace('-', "_");
    let meant = plain(wrong);
    known
        .into_iter()
        .map(|name| {
            let name_plain = plain(name);
            let distance = strsim::damerau_levenshtein(&meant, &name_plain);
            // `timeout` for `timeouts.idle` is two letters off, `retry` for `retries` three: what
            // begins alike is forgiven more.
            let forgiven = if meant.chars().take(3).eq(name_plain.chars().take(3)) { 3 } else { 2 };
            (distance, forgiven.min(name.len() / 2), name)
        })
        .filter(|(distance, forgiven, _)| distance <= forgiven)
        .min_by_key(|(distance, ..)| *distance)
        .map(|(.., name)| name)
}

/// The label for an unknown name: `did you mean "x"?`, or `otherwise`.
pub(super) fn label<'a>(wrong: &str, known: impl IntoIterator<Item = &'a str>, otherwise: &str) -> String {
    match nearest(wrong, known) {
        Some(name) => format!("did you mean {name:?}?"),
        None => otherwise.to_owned(),
    }
}

/// A list of names for a sentence of help.
pub(super) fn list<'a>(known: impl IntoIterator<Item = &'a str>) -> String {
    known.into_iter().collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn a_typing_mistake_finds_its_name_and_a_stranger_finds_none() {
        let known = ["listen", "public_url", "retries", "drain"];
        assert_eq!(nearest("listne", known), Some("listen"));
        assert_eq!(nearest("public-url", known), Some("public_url"));
        assert_eq!(nearest("retry", known), Some("retries"));
        assert_eq!(nearest("colour", known), None);
        assert_eq!(nearest(&"x".repeat(100_000), known), None);
    }
}
