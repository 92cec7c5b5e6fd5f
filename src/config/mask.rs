//! What of a configuration file must not be shown.
//!
//! Messages quote lines of the file, and a file with mistakes may well hold a secret in the wrong
//! place: that is one of the mistakes. So what is quoted is a copy with everything covered that
//! looks like a secret, byte for byte, so that places stay right.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Words in a key or header name that say: what stands here is secret.
const SECRET_WORDS: [&str; 10] = [
    "authorization",
    "token",
    "secret",
    "password",
    "passwd",
    "cookie",
    "credential",
    "api-key",
    "apikey",
    "signature",
];

/// Whether a key or header of this name holds a secret.
pub(super) fn is_secret_name(name: &str) -> bool {
    let name = name.to_lowercase().replace('_', "-");
    name == "key" || name.ends_with("-key") || SECRET_WORDS.iter().any(|word| name.contains(word))
}

/// Whether this could be the name of an environment variable, rather than its value.
pub(super) fn is_variable_name(name: &str) -> bool {
    let mut letters = name.bytes();
    letters.next().is_some_and(|first| first.is_ascii_alphabetic() || first == b'_')
        && letters.all(|letter| letter.is_ascii_alphanumeric() || letter == b'_')
}

/// The source with every secret covered.
pub(super) fn secrets(source: &str, tree: &Spanned<DeTable<'_>>) -> String {
    let mut covered = source.as_bytes().to_vec();
    for (key, value) in tree.get_ref() {
        cover(key.get_ref(), value, false, &mut covered);
    }
    String::from_utf8_lossy(&covered).into_owned()
}

/// The source with everything covered that might be a secret, where it cannot be parsed.
pub(super) fn suspects(source: &str) -> String {
    let mut covered = source.as_bytes().to_vec();
    let mut start = 0;
    for line in source.split_inclusive('\n') {
        let quote = line.find(['"', '\'']);
        let suspect = line.contains('@')
            || line.contains("headers")
            || line.split(|letter: char| !letter.is_alphanumeric() && !"-_".contains(letter)).any(is_secret_name);
        if let (Some(quote), true) = (quote, suspect) {
            hide(&mut covered, start + quote + 1..start + line.trim_end().len());
        }
        start += line.len();
    }
    String::from_utf8_lossy(&covered).into_owned()
}

fn cover(key: &str, value: &Spanned<DeValue<'_>>, secret: bool, covered: &mut [u8]) {
    let place = value.span();
    match value.get_ref() {
        DeValue::String(text) => {
            if secret || is_secret_name(key) || (key == "env" && !is_variable_name(text)) {
                hide(covered, inside_quotes(place, covered));
            } else {
                secrets_of_url(&place, covered).into_iter().for_each(|part| hide(covered, part));
            }
        }
        DeValue::Array(values) => {
            for value in values.iter() {
                cover(key, value, secret, covered);
            }
        }
        DeValue::Table(table) => {
            for (inner, value) in table {
                // A literal header may be anything; what names a secret is none.
                let literal = key == "headers" && value.get_ref().is_str();
                cover(inner.get_ref(), value, literal, covered);
            }
        }
        // A number can be a password too.
        _ if is_secret_name(key) => hide(covered, place),
        _ => {}
    }
}

/// What stands between the quotes of a string, whichever quotes those are.
fn inside_quotes(place: Range<usize>, source: &[u8]) -> Range<usize> {
    let text = source.get(place.clone()).unwrap_or_default();
    let quotes = text.iter().take_while(|byte| matches!(byte, b'"' | b'\'')).count();
    let quotes = if quotes >= 3 { 3 } else { quotes.min(1) };
    if place.len() >= 2 * quotes { place.start + quotes..place.end - quotes } else { place }
}

/// User and password, and the query, of a URL.
fn secrets_of_url(place: &Range<usize>, source: &[u8]) -> Vec<Range<usize>> {
    let text = source.get(place.clone()).and_then(|text| std::str::from_utf8(text).ok()).unwrap_or_default();
    let Some(start) = text.find("://").map(|at| at + 3) else { return Vec::new() };
    let rest = &text[start..];
    let end = rest.find(['/', '?', '#', '"', '\'']).unwrap_or(rest.len());
    let login = rest[..end].rfind('@').map(|at| start..start + at);
    let query = rest.find('?').map(|query| start + query + 1..text.trim_end_matches(['"', '\'']).len());
    login.into_iter().chain(query).map(|range| place.start + range.start..place.start + range.end).collect()
}

fn hide(covered: &mut [u8], place: Range<usize>) {
    for byte in covered.get_mut(place).unwrap_or_default() {
        // Lines stay lines, so that their numbers stay right.
        if *byte != b'\n' {
            *byte = b'*';
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(source: &str) -> String {
        secrets(source, &DeTable::parse(source).expect("TOML"))
    }

    #[test]
    fn secrets_are_covered_and_places_stay() {
        let source = "a = { authorization = \"Bearer ü\", url = \"http://me:pw@host/\" }\n";
        let masked = shown(source);
        assert_eq!(masked, "a = { authorization = \"*********\", url = \"http://*****@host/\" }\n");
        assert_eq!(masked.len(), source.len());
    }

    #[test]
    fn a_literal_header_is_covered_and_a_reference_is_not() {
        let masked = shown("headers = { x-team = \"blue\", authorization = { env = \"TOKEN\" } }");
        assert_eq!(masked, "headers = { x-team = \"****\", authorization = { env = \"TOKEN\" } }");
        let masked = shown("authorization = { env = \"sk-12\", file = \"a/b\" }");
        assert_eq!(masked, "authorization = { env = \"*****\", file = \"a/b\" }");
    }

    #[test]
    fn many_lines_and_queries_are_covered_too() {
        assert_eq!(shown("token = '''\nab\nc'''\n"), "token = '''\n**\n*'''\n");
        assert_eq!(shown("pin_password = 1234"), "pin_password = ****");
        assert_eq!(shown("url = \"https://h/?k=v\""), "url = \"https://h/?***\"");
        assert_eq!(shown("url = \"https://u:p@h/?k=v\""), "url = \"https://***@h/?***\"");
    }

    #[test]
    fn what_cannot_be_parsed_hides_every_suspect_line() {
        let masked = suspects("x = \"fine\n  api_key = \"sk-1\nlisten = 'a'");
        assert_eq!(masked, "x = \"fine\n  api_key = \"****\nlisten = 'a'");
    }
}
