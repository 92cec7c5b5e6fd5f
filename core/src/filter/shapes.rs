//! What looks like a secret, or like a place inside somebody's network, in a text that nobody wrote for strangers:
//! found by its shape and hidden, with the words around it left as they are.
//!
//! A text is taken apart word by word. Not here: what a secret looks like ([`super::looks`]), what tells places
//! ([`super::places`]), class names and stacks ([`super`]).

use super::looks::{is_secret, is_small, looks_made, secret_name};
use super::places::{is_private, is_single, path, sixth_version};

/// What stands where something was hidden.
const HIDDEN: &str = "…";

/// How much is hidden.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hide {
    /// Secrets: what a log line may not hold either.
    Secrets,
    /// Places too: private hosts and addresses, absolute paths of files. For clients.
    SecretsAndPlaces,
}

/// A text with everything hidden that has the shape of a secret.
///
/// ```
/// use interlingua_core::filter::{Hide, hide};
/// let text = "cannot connect to postgresql://ada:pw@10.0.0.5/db with password=hunter2";
/// assert_eq!(hide(text, Hide::SecretsAndPlaces), "cannot connect to postgresql://… with password=…");
/// assert_eq!(hide(text, Hide::Secrets), "cannot connect to postgresql://…@10.0.0.5/db with password=…");
/// ```
#[must_use]
pub fn hide(text: &str, what: Hide) -> String {
    let text = without_pem(text);
    let mut out = String::with_capacity(text.len());
    let mut next = Next::Nothing;
    let mut rest = text.as_str();
    while !rest.is_empty() {
        let space = rest.find(|letter: char| !letter.is_whitespace()).unwrap_or(rest.len());
        if !matches!(next, Next::Quoted(_)) {
            out.push_str(&rest[..space]);
        }
        rest = &rest[space..];
        let end = piece_of(rest, rest.find(char::is_whitespace).unwrap_or(rest.len()));
        let (word, after) = rest.split_at(end);
        rest = after;
        if !word.is_empty() {
            next = next.word(word, after.trim_start(), what, &mut out);
        }
    }
    out
}

/// Where a word ends, or a part of one that is too long to be looked at in one piece: words are taken apart recursively.
fn piece_of(text: &str, end: usize) -> usize {
    const LONGEST: usize = 2048;
    if end <= LONGEST {
        return end;
    }
    let mut cut = LONGEST;
    while !text.is_char_boundary(cut) {
        cut -= 1;
    }
    // Between two fields rather than inside one.
    text[..cut].rfind([',', ';', '&', '}']).map_or(cut, |at| at + 1)
}

/// Private keys and certificates, from their first line to their last.
fn without_pem(text: &str) -> String {
    const BEGIN: &str = "-----BEGIN";
    const END: &str = "-----END";
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(begin) = rest.find(BEGIN) {
        out.push_str(&rest[..begin]);
        out.push_str(HIDDEN);
        let inside = &rest[begin + BEGIN.len()..];
        // One that was cut hides all that follows.
        let Some(end) = inside.find(END) else { return out };
        let last = &inside[end + END.len()..];
        rest = last.find("-----").map_or("", |at| &last[at + 5..]);
    }
    out.push_str(rest);
    out
}

/// What the words before say about the next one.
enum Next {
    Nothing,
    /// The value of a name that is nearly always secret.
    Value,
    /// The value of a name that is secret if the value looks so.
    Suspect,
    /// Credentials of a scheme that is called so.
    Bearer,
    Basic,
    /// More of a secret in quotes.
    Quoted(char),
}

impl Next {
    fn word(self, word: &str, after: &str, what: Hide, out: &mut String) -> Self {
        let bare = word.trim_matches(|letter: char| !letter.is_ascii_alphanumeric());
        let secret = match self {
            Self::Nothing => false,
            Self::Quoted(quote) => {
                let Some(end) = word.find(quote) else { return Self::Quoted(quote) };
                return Self::Nothing.word(&word[end..], after, what, out);
            }
            // `Authorization: Bearer …`
            Self::Value | Self::Suspect if is_scheme(bare) => {
                out.push_str(word);
                return scheme(bare);
            }
            // `password: must have eight letters` is a sentence.
            Self::Value => {
                after.is_empty()
                    || word.starts_with(['"', '\'', '`'])
                    || !bare.chars().all(char::is_alphabetic)
                    || bare.is_empty()
            }
            Self::Suspect => looks_made(bare),
            Self::Bearer => !is_prose(bare),
            Self::Basic => bare.len() >= 8 && (looks_made(bare) || word.contains('=')),
        };
        if !secret || word == "=" || word == ":" {
            return plain(word, what, out);
        }
        let open = word.chars().next().filter(|letter| matches!(letter, '"' | '\'' | '`'));
        let inner = open.map_or(word, |quote| &word[quote.len_utf8()..]);
        out.extend(open);
        out.push_str(HIDDEN);
        match open {
            Some(quote) => match inner.find(quote) {
                Some(end) => Self::Nothing.word(&inner[end..], after, what, out),
                None => Self::Quoted(quote),
            },
            None => {
                let kept = word.trim_end_matches([',', ';', '.', ')', ']', '}', '\'', '"', '`']).len();
                out.push_str(&word[kept..]);
                Self::Nothing
            }
        }
    }
}

fn is_scheme(word: &str) -> bool {
    word.eq_ignore_ascii_case("bearer") || word.eq_ignore_ascii_case("basic")
}

fn scheme(word: &str) -> Next {
    if word.eq_ignore_ascii_case("bearer") { Next::Bearer } else { Next::Basic }
}

/// What follows the word "bearer" in sentences.
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

/// A word that nothing is known of.
fn plain(word: &str, what: Hide, out: &mut String) -> Next {
    if let Some(at) = word.find("://") {
        return address(word, at, what, out);
    }
    if let Some(assigned) = assignment(word) {
        return assigned.write(word, what, out);
    }
    let bare = word.trim_matches(|letter: char| !letter.is_ascii_alphanumeric());
    pieces(word, what, out);
    if is_scheme(bare) { scheme(bare) } else { Next::Nothing }
}

/// `name=value`, `"name":"value"`, `name:` with a name that says: what follows is secret.
struct Assignment {
    /// Where the value begins.
    value: usize,
    sign: char,
    /// The name is nearly always that of a secret.
    sure: bool,
}

fn assignment(word: &str) -> Option<Assignment> {
    let signs = word.char_indices().filter(|(_, letter)| matches!(letter, '=' | ':'));
    signs.into_iter().find_map(|(at, sign)| {
        let before = word[..at].trim_end_matches(['"', '\'', '`', '\\', ']']);
        let from = before.rfind(|letter: char| !letter.is_ascii_alphanumeric() && !"_-".contains(letter));
        let name = &before[from.map_or(0, |from| from + before[from..].chars().next().map_or(1, char::len_utf8))..];
        let sure = secret_name(name)?;
        // Some write `name := value` or `name => value`.
        let rest = &word[at + 1..];
        let value = at + 1 + (rest.len() - rest.trim_start_matches(['=', '>', '\\']).len());
        Some(Assignment { value, sign, sure })
    })
}

impl Assignment {
    fn write(self, word: &str, what: Hide, out: &mut String) -> Next {
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
            // `password= hunter2` and `"password": "hunter2"`, but not the end of a sentence about one.
            return if !rest.is_empty() || (quote.is_some() && value.len() > opening) {
                Next::Nothing
            } else if self.sure {
                Next::Value
            } else {
                Next::Suspect
            };
        }
        if is_scheme(secret) {
            out.push_str(word);
            return scheme(secret);
        }
        out.push_str(head);
        out.push_str(open);
        let hidden = self.sure || self.sign == '=' && !is_small(secret) || looks_made(secret);
        if !hidden {
            pieces(secret, what, out);
            return plain_rest(rest, what, out);
        }
        out.push_str(HIDDEN);
        match quote {
            // The secret goes on in the next word.
            Some(quote) if rest.is_empty() => Next::Quoted(quote),
            _ => plain_rest(rest, what, out),
        }
    }
}

fn plain_rest(rest: &str, what: Hide, out: &mut String) -> Next {
    if rest.is_empty() { Next::Nothing } else { plain(rest, what, out) }
}

/// An address: without who logs in there and what is asked.
fn address(word: &str, at: usize, what: Hide, out: &mut String) -> Next {
    let scheme = word[..at].rfind(|letter: char| !letter.is_ascii_alphanumeric() && !"+-.".contains(letter));
    let scheme = scheme.map_or(0, |from| from + word[from..].chars().next().map_or(1, char::len_utf8));
    let end = word[at + 3..].find(['"', '\'', '`', '<', '>', '|', '\\']).map_or(word.len(), |end| at + 3 + end);
    if scheme > 0 {
        // `url=https://…`, or a name that is itself secret.
        if let Some(assigned) = assignment(&word[..scheme]).filter(|assigned| assigned.sure) {
            out.push_str(&word[..assigned.value]);
            out.push_str(HIDDEN);
            return plain_rest(&word[end..], what, out);
        }
        pieces(&word[..scheme], what, out);
    }
    let url = &word[at + 3..end];
    out.push_str(&word[scheme..at + 3]);
    let authority = url.find(['/', '?', '#']).unwrap_or(url.len());
    // A password may hold what ends an authority; the last `@` before the path's own is what counts.
    let login = url[..authority].rfind('@').or_else(|| url.find('?').map_or(url, |query| &url[..query]).rfind('@'));
    let host = login.map_or(0, |login| login + 1);
    let authority = host + url[host..].find(['/', '?', '#']).unwrap_or(url.len() - host);
    let name = url[host..authority].trim_end_matches([')', ']', '}', ',', ';', '.', ':']);
    let is_file = word[scheme..at].eq_ignore_ascii_case("file");
    if what == Hide::SecretsAndPlaces && (is_file || is_private(name) || is_single(name)) {
        out.push_str(HIDDEN);
        let kept = url.trim_end_matches([')', ']', '}', ',', ';', '.', ':']).len();
        out.push_str(&url[kept..]);
        return plain_rest(&word[end..], what, out);
    }
    if login.is_some() {
        out.push_str(HIDDEN);
        out.push('@');
    }
    let rest = &url[host..];
    match rest.find('?') {
        Some(query) if query + 1 < rest.len() => {
            out.push_str(&rest[..=query]);
            out.push_str(HIDDEN);
        }
        _ => out.push_str(rest),
    }
    plain_rest(&word[end..], what, out)
}

/// The parts of a word between punctuation, each by its own shape.
fn pieces(word: &str, what: Hide, out: &mut String) {
    if what == Hide::SecretsAndPlaces
        && let Some(from) = path(word)
    {
        pieces(&word[..from], Hide::Secrets, out);
        out.push_str(HIDDEN);
        let end = word[from..].find(['"', '\'', '`', ',', ';', ')', ']', '}', '>']).unwrap_or(word.len() - from);
        out.push_str(&word[from + end..]);
        return;
    }
    if what == Hide::SecretsAndPlaces
        && let Some(place) = sixth_version(word)
    {
        pieces(&word[..place.start], what, out);
        out.push_str(HIDDEN);
        return pieces(&word[place.end..], what, out);
    }
    let mut rest = word;
    while !rest.is_empty() {
        let is_part = |letter: char| letter.is_ascii_alphanumeric() || "_-.+/~".contains(letter);
        let from = rest.find(is_part).unwrap_or(rest.len());
        out.push_str(&rest[..from]);
        rest = &rest[from..];
        let end = rest.find(|letter| !is_part(letter)).unwrap_or(rest.len());
        let (piece, after) = rest.split_at(end);
        rest = after;
        let known = piece.trim_end_matches('.');
        if !known.is_empty() && (is_secret(known) || (what == Hide::SecretsAndPlaces && is_private(known))) {
            out.push_str(HIDDEN);
            out.push_str(&piece[known.len()..]);
            // Padding belongs to it.
            rest = rest.trim_start_matches('=');
        } else {
            out.push_str(piece);
        }
    }
}
