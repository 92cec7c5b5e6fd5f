//! Recognizes secrets by their name, by a vendor's prefix, or by their mix of characters.
//!
//! Not here: splitting texts into words ([`super::shapes`]), and the names and prefixes ([`super::patterns`]).

use super::patterns::{ID, JWT, KEY_KINDS, KeyKind, OWN_KEY, POSSIBLE_SECRET_NAME, SECRET_NAME, SHORT_SECRET_NAME};
use super::places::find_path;

/// Classifies the name of a value: `Some(true)` if it surely names a secret, `Some(false)` if it may, `None` otherwise.
pub(super) fn secret_name(name: &str) -> Option<bool> {
    let joined = name.replace(['_', '-'], "");
    if SHORT_SECRET_NAME.is_match(name) || SECRET_NAME.is_match(&joined) {
        return Some(true);
    }
    POSSIBLE_SECRET_NAME.is_match(&joined).then_some(false)
}

/// True if the word looks generated: long, or with mixed letters, digits or cases.
pub(super) fn looks_generated(word: &str) -> bool {
    let has = |of: fn(&u8) -> bool| word.bytes().any(|letter| of(&letter));
    let mixed = word.bytes().skip(1).any(|letter| letter.is_ascii_uppercase()) && has(u8::is_ascii_lowercase);
    word.len() >= 8 && (has(u8::is_ascii_digit) && has(u8::is_ascii_alphabetic) || mixed || word.len() >= 20)
}

/// True for a number or a short word, as in `key=3` and `session=none`.
pub(super) fn is_small(value: &str) -> bool {
    value.len() < 6 || value.bytes().all(|letter| letter.is_ascii_digit())
}

/// True for a key, a token or a digest.
pub(super) fn is_secret(piece: &str) -> bool {
    // The kind of key with the shortest ones.
    const MIN_LEN: usize = 10;
    if piece.len() < MIN_LEN {
        return false;
    }
    piece.find("eyJ").is_some_and(|at| JWT.is_match(&piece[at..]))
        || KEY_KINDS.iter().any(|kind| kind.prefix.find_iter(piece).any(|prefix| kind.is_key(piece, prefix.range())))
        || OWN_KEY.is_match(piece)
        || is_random(piece)
}

impl KeyKind {
    /// True if the key with the prefix at this range is one.
    fn is_key(&self, piece: &str, prefix: core::ops::Range<usize>) -> bool {
        let (key, rest) = (&piece[prefix.start..], &piece[prefix.end..]);
        let digits = |text: &str| text.bytes().any(|letter| letter.is_ascii_digit());
        if piece[..prefix.start].ends_with(|before: char| before.is_ascii_alphanumeric()) {
            let Some(inside) = self.inside else { return false };
            let end = rest.find(|letter| !inside(letter)).unwrap_or(rest.len());
            return digits(&rest[..end]) && prefix.len() + end >= self.min_len.max(20);
        }

        let generated = digits(rest) || key.len() >= 16;
        // Words joined by dashes are not a key.
        let words = rest.split('-').filter(|part| part.len() > 2).count() > 2 && !digits(key);
        generated && !words && key.len() >= self.min_len
    }
}

/// The number of upper case letters, lower case letters and digits.
fn counts(text: &str) -> (usize, usize, usize) {
    let count = |of: fn(&u8) -> bool| text.bytes().filter(of).count();
    (count(u8::is_ascii_uppercase), count(u8::is_ascii_lowercase), count(u8::is_ascii_digit))
}

/// True for long mixed text that cannot be a name. UUIDs with dashes and ids with a known prefix do not count.
fn is_random(piece: &str) -> bool {
    if piece.len() < 32 || ID.is_match(piece) {
        return false;
    }
    let parts = || piece.split(|letter: char| !letter.is_ascii_alphanumeric());
    if parts().any(|part| is_random_hex(part) || is_random_in_one_case(part)) {
        return true;
    }

    // Host names, versions, paths and file names contain dots or start with a slash, and consist of words.
    let may_be_place = piece.contains('.') || piece.starts_with('/');
    if may_be_place && (find_path(piece).is_some() || consists_of_words(piece)) {
        return false;
    }

    // Names of models consist of short parts; in base64 punctuation is rare.
    let longest = parts().map(str::len).max().unwrap_or_default();
    let (upper, lower, digits) = counts(piece);
    longest >= if may_be_place { 16 } else { 12 }
        && upper >= 3
        && lower >= 3
        && digits >= 2
        && class_changes(piece) * 4 >= piece.len()
}

fn is_random_hex(part: &str) -> bool {
    let (upper, lower, digits) = counts(part);
    part.len() >= 32 && digits > 0 && upper + lower > 0 && part.bytes().all(|letter| letter.is_ascii_hexdigit())
}

/// True for long text of letters in one case and digits, such as base32 and base36.
fn is_random_in_one_case(part: &str) -> bool {
    let (upper, lower, digits) = counts(part);
    part.len() >= 32
        && (upper == 0 || lower == 0)
        && upper + lower >= 8
        && digits >= 3
        && class_changes(part) * 6 >= part.len()
        && !consists_of_words(part)
}

/// The number of changes between kinds of characters: upper case, lower case, digits, others.
fn class_changes(text: &str) -> usize {
    let class = |letter: u8| (letter.is_ascii_uppercase(), letter.is_ascii_lowercase(), letter.is_ascii_digit());
    text.as_bytes().windows(2).filter(|pair| class(pair[0]) != class(pair[1])).count()
}

/// True if two thirds of the letters are in words that can be pronounced: of five letters or more, with vowels, and
/// never four consonants in a row.
fn consists_of_words(text: &str) -> bool {
    let vowel = |letter: char| "aeiouyAEIOUY".contains(letter);
    let pronounceable = |word: &&str| {
        let vowels = word.chars().filter(|letter| vowel(*letter)).count();
        word.len() >= 5 && vowels * 5 >= word.len() && word.split(vowel).all(|consonants| consonants.len() < 4)
    };

    let words = text.split(|letter: char| !letter.is_ascii_alphabetic());
    let in_words: usize = words.filter(pronounceable).map(str::len).sum();
    in_words * 3 >= 2 * text.bytes().filter(u8::is_ascii_alphabetic).count()
}
