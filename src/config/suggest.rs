//! "Did you mean …?": finds the valid name that is closest to an invalid one.

/// The known name closest to `wrong`, if one is close enough.
pub(super) fn nearest<'a>(wrong: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // Names are short: longer input is not a typing error and not worth comparing.
    if wrong.len() > 64 {
        return None;
    }

    let normalized = |name: &str| name.to_lowercase().replace('-', "_");
    let wanted = normalized(wrong);
    known
        .into_iter()
        .map(|name| {
            let normalized_name = normalized(name);
            let distance = strsim::damerau_levenshtein(&wanted, &normalized_name);
            // A common prefix allows for a larger distance, such as `retry` for `retries`.
            let tolerance = if wanted.chars().take(3).eq(normalized_name.chars().take(3)) { 3 } else { 2 };
            (distance, tolerance.min(name.len() / 2), name)
        })
        .filter(|(distance, tolerance, _)| distance <= tolerance)
        .min_by_key(|(distance, ..)| *distance)
        .map(|(.., name)| name)
}

/// The label for an unknown name: `did you mean "x"?`, or `fallback`.
pub(super) fn label<'a>(wrong: &str, known: impl IntoIterator<Item = &'a str>, fallback: &str) -> String {
    match nearest(wrong, known) {
        Some(name) => format!("did you mean {name:?}?"),
        None => fallback.to_owned(),
    }
}

/// The names, separated by commas.
pub(super) fn list<'a>(known: impl IntoIterator<Item = &'a str>) -> String {
    known.into_iter().collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn similar_names_are_suggested_and_other_names_are_not() {
        let known = ["listen", "public_url", "retries", "drain"];
        assert_eq!(nearest("listne", known), Some("listen"));
        assert_eq!(nearest("public-url", known), Some("public_url"));
        assert_eq!(nearest("retry", known), Some("retries"));
        assert_eq!(nearest("colour", known), None);
        assert_eq!(nearest(&"x".repeat(100_000), known), None);
    }
}
