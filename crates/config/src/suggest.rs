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

/// The label for an unknown protocol. Recognizes names of vendors too, such as `openai`. `known`: the names that are
/// valid here; `of_product`: the protocols that servers of a vendor or product speak.
pub(super) fn protocol<'a>(
    wrong: &str,
    known: impl Iterator<Item = &'a str>,
    of_product: impl FnOnce(&str) -> Vec<&'a str>,
    fallback: &str,
) -> String {
    let known: Vec<&str> = known.collect();
    let spoken = of_product(&wrong.to_lowercase().replace('-', "_"));
    let spoken: Vec<String> =
        spoken.into_iter().filter(|name| known.contains(name)).map(|name| format!("{name:?}")).collect();
    if spoken.is_empty() { label(wrong, known, fallback) } else { format!("did you mean {}?", spoken.join(" or ")) }
}

/// Keys of other programs, a key that the same table must have, and a suggestion.
const KEYS: [(&[&str], &str, &str); 4] = [
    (
        &["api_key", "apikey", "token", "bearer", "bearer_token", "auth", "authorization"],
        "headers",
        "write headers = { authorization = { env = \"NAME\", prefix = \"Bearer \" } }",
    ),
    (&["base_url", "api_base", "endpoint", "uri", "address", "host"], "url", "did you mean \"url\"?"),
    (&["model", "model_name"], "options", "write options = { model = \"…\" }"),
    (&["port", "host", "bind", "address"], "listen", "write listen = \"127.0.0.1:8080\""),
];

/// The label for an unknown key. Recognizes keys of other programs too, such as `api_key`.
pub(super) fn key(wrong: &str, known: &[&str], fallback: &str) -> String {
    if let Some(name) = nearest(wrong, known.iter().copied()) {
        return format!("did you mean {name:?}?");
    }
    let wanted = wrong.to_lowercase().replace('-', "_");
    let instead = KEYS.iter().find(|(names, own, _)| names.contains(&wanted.as_str()) && known.contains(own));
    instead.map_or(fallback, |(.., instead)| instead).to_owned()
}

pub(super) fn list<'a>(known: impl IntoIterator<Item = &'a str>) -> String {
    known.into_iter().collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::{key, nearest, protocol};

    #[test]
    fn names_of_vendors_and_keys_of_other_programs_are_understood() {
        let of_product = |product: &str| match product {
            "openai" => vec!["words", "answers"],
            "claude" => vec!["letters"],
            _ => Vec::new(),
        };
        let suggested = |wrong| protocol(wrong, ["words", "answers"].into_iter(), of_product, "?");
        assert_eq!(suggested("OpenAI"), "did you mean \"words\" or \"answers\"?");
        assert_eq!(suggested("claude"), "?", "only protocols that are valid here");
        assert_eq!(suggested("answres"), "did you mean \"answers\"?");

        let known = ["url", "headers", "options"];
        assert!(key("api_key", &known, "?").contains("authorization"));
        assert_eq!(key("base-url", &known, "?"), "did you mean \"url\"?");
        assert_eq!(
            (key("header", &known, "?"), key("api_key", &["keys"], "?")),
            ("did you mean \"headers\"?".into(), "?".into())
        );
    }

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
