//! Redacts secrets and private locations in texts that were not written for outsiders. They are recognized by their
//! shape, and the words around them stay unchanged.
//!
//! A text is processed word by word. Not here: what a secret looks like ([`super::looks`]), what a private location
//! looks like ([`super::places`]), the patterns of both ([`super::patterns`]), and class names and stack traces
//! ([`super`]).

use regex::Captures;

use super::looks::{is_secret, is_small, looks_generated, secret_name};
use super::patterns::{ASSIGNMENT, BEARER_PROSE, PEM, PIECE, URL};
use super::places::{find_path, is_private, is_single, private_ipv6};

/// Replaces whatever is redacted.
const REDACTED: &str = "…";

const QUOTES: [char; 3] = ['"', '\'', '`'];

/// Punctuation that may follow a URL.
const URL_END: [char; 7] = [')', ']', '}', ',', ';', '.', ':'];

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
    let text = PEM.replace_all(text, REDACTED);
    let locations = redaction == Redaction::SecretsAndLocations;
    let mut scan = Scan { locations, out: String::with_capacity(text.len()) };
    let mut state = ScanState::Plain;
    let mut rest = text.as_ref();
    while !rest.is_empty() {
        let trimmed = rest.trim_start();
        if !matches!(state, ScanState::Quoted(_)) {
            scan.out.push_str(&rest[..rest.len() - trimmed.len()]);
        }

        let end = piece_end(trimmed, trimmed.find(char::is_whitespace).unwrap_or(trimmed.len()));
        let (word, after) = trimmed.split_at(end);
        rest = after;
        if !word.is_empty() {
            state = scan.word(state, word, after.trim_start().is_empty());
        }
    }
    scan.out
}

/// The end of a word, or of a part of it if the word is too long to process at once: processing a word is recursive.
fn piece_end(text: &str, end: usize) -> usize {
    const MAX_PIECE: usize = 2048;
    if end <= MAX_PIECE {
        return end;
    }
    // Prefer to cut between two fields.
    let piece = super::truncated(text, MAX_PIECE);
    piece.rfind([',', ';', '&', '}']).map_or(piece.len(), |at| at + 1)
}

/// The implication of the previous words for the next one.
#[derive(Clone, Copy)]
enum ScanState {
    Plain,
    /// The value of a name.
    Value {
        /// True if the name is nearly always that of a secret. Otherwise, the value is one if it looks generated.
        sure: bool,
    },
    /// The credentials after `Bearer`.
    Bearer,
    /// The credentials after `Basic`.
    Basic,
    /// The rest of a secret in quotes.
    Quoted(char),
}

/// The state behind the name of a scheme of authentication.
fn after_scheme(word: &str) -> Option<ScanState> {
    let is = |scheme: &str| word.eq_ignore_ascii_case(scheme);
    if is("bearer") { Some(ScanState::Bearer) } else { is("basic").then_some(ScanState::Basic) }
}

/// A word without punctuation around it.
fn bare(word: &str) -> &str {
    word.trim_matches(|letter: char| !letter.is_ascii_alphanumeric())
}

/// `name=value`, `"name":"value"` or `name:`, where the name implies a secret.
struct Assignment {
    /// Start of the value.
    value: usize,
    /// True for `=`.
    is_equation: bool,
    /// True if the name is nearly always that of a secret.
    sure: bool,
}

impl Assignment {
    fn find(word: &str) -> Option<Self> {
        ASSIGNMENT.captures_iter(word).find_map(|found| {
            let sure = secret_name(&found["name"])?;
            let (head, rest) = word.split_at(found.get(0)?.end());
            // Also accept `name := value` and `name => value`.
            let value = word.len() - rest.trim_start_matches(['=', '>', '\\']).len();
            Some(Self { value, is_equation: head.ends_with('='), sure })
        })
    }
}

/// The output of a text that is being redacted. Each method appends a part of a word.
struct Scan {
    /// True if private hosts, addresses and paths are redacted, too.
    locations: bool,
    out: String,
}

impl Scan {
    /// Processes a word. Returns its implication for the next one.
    fn word(&mut self, state: ScanState, word: &str, is_last: bool) -> ScanState {
        let value = bare(word);
        let is_secret = match state {
            ScanState::Plain => false,
            ScanState::Quoted(quote) => return word.find(quote).map_or(state, |end| self.plain(&word[end..])),
            ScanState::Value { sure } => {
                // `Authorization: Bearer …`.
                if let Some(next) = after_scheme(value) {
                    self.out.push_str(word);
                    return next;
                }
                // `password: must have eight letters` is prose.
                let is_prose = || !value.is_empty() && value.chars().all(char::is_alphabetic);
                if sure { is_last || word.starts_with(QUOTES) || !is_prose() } else { looks_generated(value) }
            }
            ScanState::Bearer => !BEARER_PROSE.is_match(value),
            ScanState::Basic => value.len() >= 8 && (looks_generated(value) || word.contains('=')),
        };
        if !is_secret || word == "=" || word == ":" {
            return self.plain(word);
        }

        let quote = word.chars().next().filter(|letter| QUOTES.contains(letter));
        self.out.extend(quote);
        self.out.push_str(REDACTED);
        match quote {
            Some(quote) => match word[1..].find(quote) {
                Some(end) => self.plain(&word[1 + end..]),
                None => ScanState::Quoted(quote),
            },
            None => {
                let secret = word.trim_end_matches([',', ';', '.', ')', ']', '}', '\'', '"', '`']);
                self.out.push_str(&word[secret.len()..]);
                ScanState::Plain
            }
        }
    }

    /// Processes a word without a known meaning.
    fn plain(&mut self, word: &str) -> ScanState {
        if let Some(found) = URL.captures(word) {
            return self.url(word, &found);
        }
        if let Some(assigned) = Assignment::find(word) {
            return self.assigned(word, &assigned);
        }
        self.pieces(word, self.locations);
        after_scheme(bare(word)).unwrap_or(ScanState::Plain)
    }

    fn assigned(&mut self, word: &str, assigned: &Assignment) -> ScanState {
        let (head, value) = word.split_at(assigned.value);
        let quoted = value.trim_start_matches('\\');
        let quote = quoted.chars().next().filter(|letter| QUOTES.contains(letter));
        let (open, inner) = value.split_at(quote.map_or(0, |_| value.len() - quoted.len() + 1));

        let end = match quote {
            Some(quote) => inner.find(quote),
            None => inner.find([',', ';', '&', ')', '}', ']', '"', '\'', '`', '<']),
        };
        let (secret, rest) = inner.split_at(end.unwrap_or(inner.len()));

        if secret.is_empty() {
            self.out.push_str(word);
            // `password= hunter2` and `"password": "hunter2"`, but not the end of a sentence about a password.
            return if rest.is_empty() { ScanState::Value { sure: assigned.sure } } else { ScanState::Plain };
        }
        if let Some(next) = after_scheme(secret) {
            self.out.push_str(word);
            return next;
        }

        self.out.push_str(head);
        self.out.push_str(open);
        if !(assigned.sure || assigned.is_equation && !is_small(secret) || looks_generated(secret)) {
            self.pieces(secret, self.locations);
            return self.plain(rest);
        }
        self.out.push_str(REDACTED);
        match quote {
            // The secret continues in the next word.
            Some(quote) if rest.is_empty() => ScanState::Quoted(quote),
            _ => self.plain(rest),
        }
    }

    /// Processes a word with a URL: removes credentials and the query.
    fn url(&mut self, word: &str, found: &Captures<'_>) -> ScanState {
        const SEPARATORS: [char; 3] = ['/', '?', '#'];
        let (scheme, url) = (&found["scheme"], &found["rest"]);
        let (before, after) = found.get(0).map_or((word, ""), |all| (&word[..all.start()], &word[all.end()..]));

        // `url=https://…`, or a name that itself implies a secret.
        if let Some(assigned) = Assignment::find(before).filter(|assigned| assigned.sure) {
            self.out.push_str(&word[..assigned.value]);
            self.out.push_str(REDACTED);
            return self.plain(after);
        }
        self.pieces(before, self.locations);
        self.out.push_str(scheme);
        self.out.push_str("://");

        let authority = url.find(SEPARATORS).unwrap_or(url.len());
        // Passwords may contain `/`, `?` or `#`, so the last `@` before the query counts.
        let login = url[..authority].rfind('@').or_else(|| url[..url.find('?').unwrap_or(url.len())].rfind('@'));
        let rest = &url[login.map_or(0, |login| login + 1)..];
        let host = rest[..rest.find(SEPARATORS).unwrap_or(rest.len())].trim_end_matches(URL_END);

        if self.locations && (scheme.eq_ignore_ascii_case("file") || is_private(host) || is_single(host)) {
            self.out.push_str(REDACTED);
            self.out.push_str(&url[url.trim_end_matches(URL_END).len()..]);
            return self.plain(after);
        }

        if login.is_some() {
            self.out.extend([REDACTED, "@"]);
        }
        match rest.split_once('?') {
            Some((path, query)) if !query.is_empty() => self.out.extend([path, "?", REDACTED]),
            _ => self.out.push_str(rest),
        }
        self.plain(after)
    }

    /// Processes the parts of a word between punctuation separately.
    fn pieces(&mut self, word: &str, locations: bool) {
        if locations && let Some(from) = find_path(word) {
            self.pieces(&word[..from], false);
            self.out.push_str(REDACTED);
            let path = &word[from..];
            let end = path.find(['"', '\'', '`', ',', ';', ')', ']', '}', '>']).unwrap_or(path.len());
            return self.out.push_str(&path[end..]);
        }
        if locations && let Some(range) = private_ipv6(word) {
            self.pieces(&word[..range.start], locations);
            self.out.push_str(REDACTED);
            return self.pieces(&word[range.end..], locations);
        }

        let redacted = PIECE.replace_all(word, |found: &Captures<'_>| {
            let piece = &found["piece"];
            let known = piece.trim_end_matches('.');
            if known.is_empty() || !(is_secret(known) || locations && is_private(known)) {
                return found[0].to_owned();
            }
            let escape = found.name("escape").map_or("", |escape| escape.as_str());
            format!("{escape}{REDACTED}{}", &piece[known.len()..])
        });
        self.out.push_str(&redacted);
    }
}
