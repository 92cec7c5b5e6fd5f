//! Redacts secrets and private locations in texts that were not written for outsiders. They are recognized by their
//! shape, and the words around them stay unchanged.
//!
//! A text is processed word by word. Not here: what a secret looks like ([`super::looks`]), what a private location
//! looks like ([`super::places`]), class names and stack traces ([`super`]).

use core::ops::Range;

use super::looks::{is_secret, is_small, looks_generated, secret_name};
use super::places::{find_path, is_private, is_single, private_ipv6};

/// Replaces whatever is redacted.
const REDACTED: &str = "…";

/// The kind of a redacted text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Redaction {
    /// Only secrets: for log lines.
    Secrets,
    /// Secrets, private hosts and addresses, and absolute file paths: for clients.
    SecretsAndLocations,
}

/// Redacts everything in a text that has the shape of a secret.
///
/// ```
/// use interlingua_core::filter::{Redaction, redact};
/// let text = "cannot connect to postgresql://ada:pw@10.0.0.5/db with password=hunter2";
/// assert_eq!(redact(text, Redaction::SecretsAndLocations), "cannot connect to postgresql://… with password=…");
/// assert_eq!(redact(text, Redaction::Secrets), "cannot connect to postgresql://…@10.0.0.5/db with password=…");
/// ```
#[must_use]
pub fn redact(text: &str, redaction: Redaction) -> String {
    let text = without_pem(text);
    let mut out = String::with_capacity(text.len());
    let mut state = ScanState::Plain;
    let mut rest = text.as_str();
    while !rest.is_empty() {
        let space = rest.find(|letter: char| !letter.is_whitespace()).unwrap_or(rest.len());
        if !matches!(state, ScanState::Quoted(_)) {
            out.push_str(&rest[..space]);
        }
        rest = &rest[space..];
        let end = piece_end(rest, rest.find(char::is_whitespace).unwrap_or(rest.len()));

        let (word, after) = rest.split_at(end);
        rest = after;
        if !word.is_empty() {
            state = state.word(word, after.trim_start(), redaction, &mut out);
        }
    }
    out
}

/// The end of a word, or of a part of it if the word is too long to process at once: processing a word is recursive.
fn piece_end(text: &str, end: usize) -> usize {
    const MAX_PIECE: usize = 2048;
    if end <= MAX_PIECE {
        return end;
    }
    let mut cut = MAX_PIECE;
    while !text.is_char_boundary(cut) {
        cut -= 1;
    }

    // Prefer to cut between two fields.
    text[..cut].rfind([',', ';', '&', '}']).map_or(cut, |at| at + 1)
}

/// Removes private keys and certificates in PEM format.
fn without_pem(text: &str) -> String {
    const BEGIN: &str = "-----BEGIN";
    const END: &str = "-----END";
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(begin) = rest.find(BEGIN) {
        out.push_str(&rest[..begin]);
        out.push_str(REDACTED);
        let inside = &rest[begin + BEGIN.len()..];
        // A truncated key hides everything after it.
        let Some(end) = inside.find(END) else { return out };
        let last = &inside[end + END.len()..];
        rest = last.find("-----").map_or("", |at| &last[at + 5..]);
    }
    out.push_str(rest);
    out
}

/// The implication of the previous words for the next one.
enum ScanState {
    Plain,
    /// The value of a name that is nearly always a secret.
    Value,
    /// The value of a name that is a secret if the value looks generated.
    PossibleValue,
    /// The credentials after `Bearer`.
    Bearer,
    /// The credentials after `Basic`.
    Basic,
    /// The rest of a secret in quotes.
    Quoted(char),
}

impl ScanState {
    fn word(self, word: &str, after: &str, redaction: Redaction, out: &mut String) -> Self {
        let bare = word.trim_matches(|letter: char| !letter.is_ascii_alphanumeric());

        let secret = match self {
            Self::Plain => false,
            Self::Quoted(quote) => {
                let Some(end) = word.find(quote) else { return Self::Quoted(quote) };
                return Self::Plain.word(&word[end..], after, redaction, out);
            }
            // `Authorization: Bearer …`.
            Self::Value | Self::PossibleValue if is_scheme(bare) => {
                out.push_str(word);
                return scheme(bare);
            }
            // `password: must have eight letters` is prose.
            Self::Value => {
                after.is_empty()
                    || word.starts_with(['"', '\'', '`'])
                    || !bare.chars().all(char::is_alphabetic)
                    || bare.is_empty()
            }
            Self::PossibleValue => looks_generated(bare),
            Self::Bearer => !is_prose(bare),
            Self::Basic => bare.len() >= 8 && (looks_generated(bare) || word.contains('=')),
        };

        if !secret || word == "=" || word == ":" {
            return plain(word, redaction, out);
        }

        let open = word.chars().next().filter(|letter| matches!(letter, '"' | '\'' | '`'));
        let inner = open.map_or(word, |quote| &word[quote.len_utf8()..]);
        out.extend(open);
        out.push_str(REDACTED);

        match open {
            Some(quote) => match inner.find(quote) {
                Some(end) => Self::Plain.word(&inner[end..], after, redaction, out),
                None => Self::Quoted(quote),
            },
            None => {
                let secret_end = word.trim_end_matches([',', ';', '.', ')', ']', '}', '\'', '"', '`']).len();
                out.push_str(&word[secret_end..]);
                Self::Plain
            }
        }
    }
}

fn is_scheme(word: &str) -> bool {
    word.eq_ignore_ascii_case("bearer") || word.eq_ignore_ascii_case("basic")
}

fn scheme(word: &str) -> ScanState {
    if word.eq_ignore_ascii_case("bearer") { ScanState::Bearer } else { ScanState::Basic }
}

/// True for words that follow "bearer" in sentences.
fn is_prose(word: &str) -> bool {
    const WORDS: &[&str] = &[
        "token",
        "tokens",
        "auth",
        "authentication",
        "authorization",
        "credential",
        "credentials",
        "header",
        "scheme",
        "is",
        "was",
        "are",
        "must",
        "not",
        "missing",
        "required",
        "expired",
        "invalid",
        "or",
        "and",
        "of",
        "in",
    ];
    WORDS.iter().any(|known| word.eq_ignore_ascii_case(known))
}

/// Processes a word without a known meaning.
fn plain(word: &str, redaction: Redaction, out: &mut String) -> ScanState {
    if let Some(at) = word.find("://") {
        return address(word, at, redaction, out);
    }
    if let Some(assigned) = assignment(word) {
        return assigned.write(word, redaction, out);
    }

    let bare = word.trim_matches(|letter: char| !letter.is_ascii_alphanumeric());
    pieces(word, redaction, out);
    if is_scheme(bare) { scheme(bare) } else { ScanState::Plain }
}

/// `name=value`, `"name":"value"` or `name:`, where the name implies a secret.
struct Assignment {
    /// Start of the value.
    value: usize,
    sign: char,
    /// True if the name is nearly always that of a secret.
    sure: bool,
}

fn assignment(word: &str) -> Option<Assignment> {
    let signs = word.char_indices().filter(|(_, letter)| matches!(letter, '=' | ':'));
    signs.into_iter().find_map(|(at, sign)| {
        let before = word[..at].trim_end_matches(['"', '\'', '`', '\\', ']']);
        let from = before.rfind(|letter: char| !letter.is_ascii_alphanumeric() && !"_-".contains(letter));
        let name = &before[from.map_or(0, |from| from + before[from..].chars().next().map_or(1, char::len_utf8))..];
        let sure = secret_name(name)?;
        // Also accept `name := value` and `name => value`.

        let rest = &word[at + 1..];
        let value = at + 1 + (rest.len() - rest.trim_start_matches(['=', '>', '\\']).len());
        Some(Assignment { value, sign, sure })
    })
}

impl Assignment {
    fn write(self, word: &str, redaction: Redaction, out: &mut String) -> ScanState {
        let (head, value) = word.split_at(self.value);
        let quote = value.trim_start_matches('\\').chars().next().filter(|letter| matches!(letter, '"' | '\'' | '`'));
        let opening = quote.map_or(0, |quote| value.find(quote).unwrap_or(0) + quote.len_utf8());
        let (open, inner) = value.split_at(opening);

        let end = match quote {
            Some(quote) => inner.find(quote).unwrap_or(inner.len()),
            None => inner.find([',', ';', '&', ')', '}', ']', '"', '\'', '`', '<']).unwrap_or(inner.len()),
        };
        let (secret, rest) = inner.split_at(end);

        if secret.is_empty() {
            out.push_str(word);
            // `password= hunter2` and `"password": "hunter2"`, but not the end of a sentence about a password.
            return if !rest.is_empty() || (quote.is_some() && value.len() > opening) {
                ScanState::Plain
            } else if self.sure {
                ScanState::Value
            } else {
                ScanState::PossibleValue
            };
        }
        if is_scheme(secret) {
            out.push_str(word);
            return scheme(secret);
        }

        out.push_str(head);
        out.push_str(open);
        let secret_value = self.sure || self.sign == '=' && !is_small(secret) || looks_generated(secret);
        if !secret_value {
            pieces(secret, redaction, out);
            return plain_rest(rest, redaction, out);
        }
        out.push_str(REDACTED);
        match quote {
            // The secret continues in the next word.
            Some(quote) if rest.is_empty() => ScanState::Quoted(quote),
            _ => plain_rest(rest, redaction, out),
        }
    }
}

fn plain_rest(rest: &str, redaction: Redaction, out: &mut String) -> ScanState {
    if rest.is_empty() { ScanState::Plain } else { plain(rest, redaction, out) }
}

/// Processes a URL: removes credentials and the query.
fn address(word: &str, at: usize, redaction: Redaction, out: &mut String) -> ScanState {
    let scheme = word[..at].rfind(|letter: char| !letter.is_ascii_alphanumeric() && !"+-.".contains(letter));
    let scheme = scheme.map_or(0, |from| from + word[from..].chars().next().map_or(1, char::len_utf8));
    let end = word[at + 3..].find(['"', '\'', '`', '<', '>', '|', '\\']).map_or(word.len(), |end| at + 3 + end);

    if scheme > 0 {
        // `url=https://…`, or a name that itself implies a secret.
        if let Some(assigned) = assignment(&word[..scheme]).filter(|assigned| assigned.sure) {
            out.push_str(&word[..assigned.value]);
            out.push_str(REDACTED);
            return plain_rest(&word[end..], redaction, out);
        }
        pieces(&word[..scheme], redaction, out);
    }
    let url = &word[at + 3..end];
    out.push_str(&word[scheme..at + 3]);

    let authority = url.find(['/', '?', '#']).unwrap_or(url.len());
    // Passwords may contain `/`, `?` or `#`, so the last `@` before the query counts.
    let login = url[..authority].rfind('@').or_else(|| url.find('?').map_or(url, |query| &url[..query]).rfind('@'));
    let host = login.map_or(0, |login| login + 1);
    let authority = host + url[host..].find(['/', '?', '#']).unwrap_or(url.len() - host);
    let name = url[host..authority].trim_end_matches([')', ']', '}', ',', ';', '.', ':']);

    let is_file = word[scheme..at].eq_ignore_ascii_case("file");
    if redaction == Redaction::SecretsAndLocations && (is_file || is_private(name) || is_single(name)) {
        out.push_str(REDACTED);
        let url_end = url.trim_end_matches([')', ']', '}', ',', ';', '.', ':']).len();
        out.push_str(&url[url_end..]);
        return plain_rest(&word[end..], redaction, out);
    }

    if login.is_some() {
        out.push_str(REDACTED);
        out.push('@');
    }

    let rest = &url[host..];
    match rest.find('?') {
        Some(query) if query + 1 < rest.len() => {
            out.push_str(&rest[..=query]);
            out.push_str(REDACTED);
        }
        _ => out.push_str(rest),
    }
    plain_rest(&word[end..], redaction, out)
}

/// The length of the rest of an escape, such as `%3D`, `\n` or `\u000a`, that begins before a part of a word and would
/// hide how that part begins.
fn escape_len(before: &str, part: &str) -> usize {
    let hex =
        |range: Range<usize>| part.as_bytes().get(range).is_some_and(|text| text.iter().all(u8::is_ascii_hexdigit));
    match (before.bytes().next_back(), part.bytes().next()) {
        (Some(b'%'), _) if hex(0..2) => 2,
        (Some(b'\\'), Some(b'u')) if hex(1..5) => 5,
        (Some(b'\\'), Some(b'x')) if hex(1..3) => 3,
        (Some(b'\\'), Some(b'n' | b'r' | b't')) => 1,
        _ => 0,
    }
}

/// Processes the parts of a word between punctuation separately.
fn pieces(word: &str, redaction: Redaction, out: &mut String) {
    if redaction == Redaction::SecretsAndLocations
        && let Some(from) = find_path(word)
    {
        pieces(&word[..from], Redaction::Secrets, out);
        out.push_str(REDACTED);
        let end = word[from..].find(['"', '\'', '`', ',', ';', ')', ']', '}', '>']).unwrap_or(word.len() - from);
        out.push_str(&word[from + end..]);
        return;
    }

    if redaction == Redaction::SecretsAndLocations
        && let Some(range) = private_ipv6(word)
    {
        pieces(&word[..range.start], redaction, out);
        out.push_str(REDACTED);
        return pieces(&word[range.end..], redaction, out);
    }

    let mut rest = word;
    while !rest.is_empty() {
        let is_part = |letter: char| letter.is_ascii_alphanumeric() || "_-.+/~".contains(letter);
        let from = rest.find(is_part).unwrap_or(rest.len());
        let from = from + escape_len(&rest[..from], &rest[from..]);
        out.push_str(&rest[..from]);
        rest = &rest[from..];
        let end = rest.find(|letter| !is_part(letter)).unwrap_or(rest.len());
        let (piece, after) = rest.split_at(end);
        rest = after;
        let known = piece.trim_end_matches('.');
        if !known.is_empty() && (is_secret(known) || (redaction == Redaction::SecretsAndLocations && is_private(known)))
        {
            out.push_str(REDACTED);
            out.push_str(&piece[known.len()..]);
            // Base64 padding belongs to the secret.
            rest = rest.trim_start_matches('=');
        } else {
            out.push_str(piece);
        }
    }
}
