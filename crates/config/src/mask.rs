//! Masking of secrets in the source of a configuration file.
//!
//! Diagnostics quote lines of the file, and a file with errors may contain a literal secret: that is one of the errors.
//! So diagnostics quote a copy in which everything that looks like a secret is masked. The copy has the same length, so
//! that spans stay valid.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Words in a key or header name that mark its value as secret.
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

/// True if a key or header of this name holds a secret.
pub(super) fn is_secret_name(name: &str) -> bool {
    let name = name.to_lowercase().replace('_', "-");
    name == "key" || name.ends_with("-key") || SECRET_WORDS.iter().any(|word| name.contains(word))
}

/// True if this can be the name of an environment variable. Otherwise it may be the secret itself.
pub(super) fn is_variable_name(name: &str) -> bool {
    let mut bytes = name.bytes();
    bytes.next().is_some_and(|first| first.is_ascii_alphabetic() || first == b'_')
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// The source with every secret masked.
pub(super) fn secrets(source: &str, tree: &Spanned<DeTable<'_>>) -> String {
    let mut masked = source.as_bytes().to_vec();
    for (key, value) in tree.get_ref() {
        mask_value(key.get_ref(), value, EnclosingTable::Other, &mut masked);
    }
    String::from_utf8_lossy(&masked).into_owned()
}

/// The source with everything masked that could be a secret, for files that are not valid TOML.
pub(super) fn suspects(source: &str) -> String {
    let mut masked = source.as_bytes().to_vec();
    let mut start = 0;
    for line in source.split_inclusive('\n') {
        let quote = line.find(['"', '\'']);
        let is_suspicious = line.contains('@')
            || line.contains("headers")
            || line.split(|byte: char| !byte.is_alphanumeric() && !"-_".contains(byte)).any(is_secret_name);
        if let (Some(quote), true) = (quote, is_suspicious) {
            overwrite(&mut masked, start + quote + 1..start + line.trim_end().len());
        }
        start += line.len();
    }

    String::from_utf8_lossy(&masked).into_owned()
}

/// The properties of the enclosing table that masking depends on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum EnclosingTable {
    /// Literal values of headers may be secrets.
    Headers,
    /// `key` is the path of a file.
    Tls,
    Other,
}

/// Whether a text is the path of a file, and not the contents of one.
fn is_path(text: &str) -> bool {
    let is_ending =
        |ending: &str| (1..=5).contains(&ending.len()) && ending.bytes().all(|byte| byte.is_ascii_alphanumeric());
    text.len() <= 256
        && !text.contains(char::is_whitespace)
        && text.rsplit_once('.').is_some_and(|(_, end)| is_ending(end))
}

fn mask_value(key: &str, value: &Spanned<DeValue<'_>>, holder: EnclosingTable, masked: &mut [u8]) {
    let span = value.span();
    match value.get_ref() {
        DeValue::String(text) if holder == EnclosingTable::Tls && key == "key" && is_path(text) => {}
        DeValue::String(text) => {
            if holder == EnclosingTable::Headers || is_secret_name(key) || (key == "env" && !is_variable_name(text)) {
                overwrite(masked, inside_quotes(span, masked));
            } else {
                secrets_of_url(&span, masked).into_iter().for_each(|part| overwrite(masked, part));
            }
        }
        DeValue::Array(values) => {
            for value in values.iter() {
                mask_value(key, value, holder, masked);
            }
        }
        DeValue::Table(table) => {
            for (inner, value) in table {
                let holder = match key {
                    // A literal header may hold a secret; a table only refers to one.
                    "headers" if value.get_ref().is_str() => EnclosingTable::Headers,
                    "tls" => EnclosingTable::Tls,
                    _ => EnclosingTable::Other,
                };
                mask_value(inner.get_ref(), value, holder, masked);
            }
        }
        // A number can be a password too, but not a number of tokens.
        _ if is_secret_name(key) && !key.contains("tokens") => overwrite(masked, span),
        _ => {}
    }
}

/// The span between the quotes of a string, for any kind of quotes.
fn inside_quotes(span: Range<usize>, source: &[u8]) -> Range<usize> {
    let text = source.get(span.clone()).unwrap_or_default();
    let quotes = text.iter().take_while(|byte| matches!(byte, b'"' | b'\'')).count();
    let quotes = if quotes >= 3 { 3 } else { quotes.min(1) };
    if span.len() >= 2 * quotes { span.start + quotes..span.end - quotes } else { span }
}

/// The spans of the user info and of the query of a URL.
fn secrets_of_url(span: &Range<usize>, source: &[u8]) -> Vec<Range<usize>> {
    let text = source.get(span.clone()).and_then(|text| std::str::from_utf8(text).ok()).unwrap_or_default();
    let Some(start) = text.find("://").map(|at| at + 3) else { return Vec::new() };
    let rest = &text[start..];
    let end = rest.find(['/', '?', '#', '"', '\'']).unwrap_or(rest.len());
    let login = rest[..end].rfind('@').map(|at| start..start + at);
    let query = rest.find('?').map(|query| start + query + 1..text.trim_end_matches(['"', '\'']).len());
    login.into_iter().chain(query).map(|range| span.start + range.start..span.start + range.end).collect()
}

fn overwrite(masked: &mut [u8], span: Range<usize>) {
    for byte in masked.get_mut(span).unwrap_or_default() {
        // Keep line breaks, so that line numbers stay valid.
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
    fn secrets_are_masked_and_spans_stay_valid() {
        let source = "a = { authorization = \"Bearer ü\", url = \"http://me:pw@host/\" }\n";
        let masked = shown(source);
        assert_eq!(masked, "a = { authorization = \"*********\", url = \"http://*****@host/\" }\n");
        assert_eq!(masked.len(), source.len());
    }

    #[test]
    fn literal_headers_are_masked_and_references_are_not() {
        let masked = shown("headers = { x-team = \"blue\", authorization = { env = \"TOKEN\" } }");
        assert_eq!(masked, "headers = { x-team = \"****\", authorization = { env = \"TOKEN\" } }");
        let masked = shown("authorization = { env = \"sk-12\", file = \"a/b\" }");
        assert_eq!(masked, "authorization = { env = \"*****\", file = \"a/b\" }");
    }

    #[test]
    fn paths_of_keys_and_numbers_of_tokens_are_shown() {
        let shows = |source: &str| assert_eq!(shown(source), source);
        shows("tls = { cert = \"tls/cert.pem\", key = \"tls/key.pem\" }");
        shows("limits = { tokens_per_day = 2000000 }\noptions = { max_tokens = 1024 }");
        assert_eq!(shown("tls = { key = \"MC4CAQAwBQ\" }"), "tls = { key = \"**********\" }");
        assert_eq!(shown("admin = { key = \"tls/key.pem\" }"), "admin = { key = \"***********\" }");
        assert_eq!(shown("token = 1234"), "token = ****");
    }

    #[test]
    fn multi_line_strings_and_queries_are_masked() {
        assert_eq!(shown("token = '''\nab\nc'''\n"), "token = '''\n**\n*'''\n");
        assert_eq!(shown("pin_password = 1234"), "pin_password = ****");
        assert_eq!(shown("url = \"https://h/?k=v\""), "url = \"https://h/?***\"");
        assert_eq!(shown("url = \"https://u:p@h/?k=v\""), "url = \"https://***@h/?***\"");
    }

    #[test]
    fn suspicious_lines_of_an_invalid_file_are_masked() {
        let masked = suspects("x = \"fine\n  api_key = \"sk-1\nlisten = 'a'");
        assert_eq!(masked, "x = \"fine\n  api_key = \"****\nlisten = 'a'");
    }
}
