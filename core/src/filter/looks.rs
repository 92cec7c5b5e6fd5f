//! Recognizes secrets by their name, by a vendor's prefix, or by their mix of characters.
//!
//! Not here: splitting texts into words ([`super::shapes`]).

use super::places::find_path;

/// Classifies the name of a value: `Some(true)` if it surely names a secret, `Some(false)` if it may, `None` otherwise.
pub(super) fn secret_name(name: &str) -> Option<bool> {
    const CERTAIN: &[&str] = &[
        "password",
        "passwd",
        "pwd",
        "passphrase",
        "secret",
        "apikey",
        "accesskey",
        "secretkey",
        "privatekey",
        "signingkey",
        "authorization",
        "credential",
        "credentials",
        "accesstoken",
        "refreshtoken",
        "authtoken",
        "clientsecret",
        "cookie",
        "connectionstring",
        "accountkey",
        "passcode",
    ];
    // Too short for the end of any word: Kansas is no signature.
    const CERTAIN_WORDS: &[&str] = &["sas", "dsn", "otp"];
    const POSSIBLE: &[&str] = &["token", "signature", "auth", "sig", "jwt", "session", "key"];

    let last = name.rsplit(['_', '-']).next().unwrap_or(name);
    let hump = |word: &&str| {
        let (before, end) = last.split_at_checked(last.len().saturating_sub(word.len())).unwrap_or(("", last));
        let starts = end.starts_with(|letter: char| letter.is_ascii_uppercase());
        end.eq_ignore_ascii_case(word)
            && (before.is_empty() || starts && before.ends_with(|letter: char| letter.is_ascii_lowercase()))
    };
    if CERTAIN_WORDS.iter().any(hump) {
        return Some(true);
    }

    let name: String = name.chars().filter(|letter| !"_-".contains(*letter)).collect::<String>().to_ascii_lowercase();

    if CERTAIN.iter().any(|end| name.ends_with(end)) {
        return Some(true);
    }
    POSSIBLE.iter().any(|end| name.ends_with(end)).then_some(false)
}

/// True if the word looks generated: long, or with mixed letters, digits or cases.
pub(super) fn looks_generated(word: &str) -> bool {
    let digits = word.bytes().any(|letter| letter.is_ascii_digit());
    let letters = word.bytes().any(|letter| letter.is_ascii_alphabetic());
    let mixed = word.bytes().skip(1).any(|letter| letter.is_ascii_uppercase())
        && word.bytes().any(|letter| letter.is_ascii_lowercase());
    word.len() >= 8 && ((digits && letters) || mixed || word.len() >= 20)
}

/// True for a number or a short word, as in `key=3` and `session=none`.
pub(super) fn is_small(value: &str) -> bool {
    value.len() < 6 || value.bytes().all(|letter| letter.is_ascii_digit())
}

/// True for a key, a token or a digest.
pub(super) fn is_secret(piece: &str) -> bool {
    is_jwt(piece) || has_known_prefix(piece) || is_random(piece)
}

/// True if the text contains a JWT, `eyJ….….…`, even a truncated one.
fn is_jwt(piece: &str) -> bool {
    piece.find("eyJ").is_some_and(|at| {
        let token = &piece[at..];
        token.len() >= 20 && token.bytes().all(|letter| letter.is_ascii_alphanumeric() || b"_-.+/".contains(&letter))
    })
}

/// A prefix that a vendor chose to make keys recognizable.
struct Prefix {
    text: &'static str,
    /// Minimum length of the whole key, in bytes.
    min_len: usize,
    /// True if the prefix counts within a word, too: it is rare enough, and the rest of the key has a fixed alphabet.
    anywhere: bool,
}

const fn at_start(text: &'static str, min_len: usize) -> Prefix {
    Prefix { text, min_len, anywhere: false }
}

const fn anywhere(text: &'static str, min_len: usize) -> Prefix {
    Prefix { text, min_len, anywhere: true }
}

const PREFIXES: &[Prefix] = &[
    at_start("sk-", 12),
    at_start("pk-", 12),
    at_start("rk-", 12),
    at_start("sk_", 16),
    at_start("pk_", 16),
    at_start("rk_", 16),
    at_start("whsec_", 12),
    anywhere("ghp_", 12),
    anywhere("gho_", 12),
    anywhere("ghu_", 12),
    anywhere("ghs_", 12),
    anywhere("ghr_", 12),
    anywhere("github_pat_", 16),
    anywhere("glpat-", 12),
    anywhere("xoxa-", 10),
    anywhere("xoxb-", 10),
    anywhere("xoxp-", 10),
    anywhere("xoxr-", 10),
    anywhere("xoxs-", 10),
    at_start("xoxe-", 10),
    at_start("xoxe.", 10),
    at_start("xapp-", 10),
    anywhere("AKIA", 16),
    anywhere("ASIA", 16),
    anywhere("AIza", 20),
    at_start("ya29.", 16),
    at_start("hf_", 16),
    at_start("npm_", 16),
    at_start("pypi-", 16),
    at_start("dop_v1_", 16),
    at_start("SG.", 20),
    at_start("AGE-SECRET-KEY-", 20),
    at_start("tvly-", 12),
    at_start("gsk_", 16),
    at_start("nvapi-", 12),
    at_start("LTAI", 16),
    // Names of models begin so, too, and are shorter.
    at_start("xai-", 40),
    at_start("pplx-", 40),
    at_start("r8_", 24),
    at_start("lsv2_", 16),
    at_start("hvs.", 24),
    at_start("dapi", 36),
    at_start("ATATT3", 20),
    at_start("shpat_", 16),
    at_start("dckr_pat_", 16),
    at_start("sntrys_", 16),
];

/// True if the text contains a key with a known prefix, or one of our own.
fn has_known_prefix(piece: &str) -> bool {
    let known = PREFIXES.iter().any(|prefix| piece.match_indices(prefix.text).any(|(at, _)| prefix.is_key(piece, at)));
    known || piece.match_indices("il_").any(|(at, _)| is_own_key(&piece[at..]))
}

impl Prefix {
    /// True if the key that begins at this position is one.
    fn is_key(&self, piece: &str, at: usize) -> bool {
        let key = &piece[at..];
        let rest = &key[self.text.len()..];
        let digits = |text: &str| text.bytes().any(|letter| letter.is_ascii_digit());
        if piece[..at].ends_with(|before: char| before.is_ascii_alphanumeric()) {
            let end = rest.find(|letter: char| !self.is_part(letter)).unwrap_or(rest.len());
            return self.anywhere && digits(&rest[..end]) && self.text.len() + end >= self.min_len.max(20);
        }

        let generated = digits(rest) || key.len() >= 16;
        // Words joined by dashes are not a key.
        let words = rest.split('-').filter(|part| part.len() > 2).count() > 2 && !digits(key);
        generated && !words && key.len() >= self.min_len
    }

    /// True for what stands behind the prefix in a key of a fixed alphabet.
    fn is_part(&self, letter: char) -> bool {
        // Access key ids are in base32.
        let upper_only = matches!(self.text, "AKIA" | "ASIA");
        letter.is_ascii_uppercase()
            || letter.is_ascii_digit()
            || !upper_only && (letter.is_ascii_lowercase() || letter == '_' || letter == '-')
    }
}

/// True for the beginning of a key of the gateway: `il_`, its id of 12 letters and digits, and as much of its secret as
/// no one could guess the rest of.
fn is_own_key(text: &str) -> bool {
    const ID_LEN: usize = 12;
    const MIN_SECRET_LEN: usize = 8;
    let mut parts = text.splitn(3, '_').skip(1);
    let id = parts.next().unwrap_or_default();
    let secret = parts.next().unwrap_or_default().bytes();
    id.len() == ID_LEN
        && id.bytes().all(|letter| letter.is_ascii_lowercase() || letter.is_ascii_digit())
        && secret.take_while(u8::is_ascii_hexdigit).count() >= MIN_SECRET_LEN
}

/// True for long mixed text that cannot be a name. UUIDs with dashes and ids with a known prefix do not count.
fn is_random(piece: &str) -> bool {
    const ID_PREFIXES: &[&str] = &[
        "resp_",
        "response_",
        "msg_",
        "message_",
        "run_",
        "call_",
        "task_",
        "conv_",
        "req_",
        "request_",
        "item_",
        "fc_",
        "rs_",
        "appr_",
        "session_",
        "thread_",
        "chatcmpl-",
        "trace_",
    ];
    if ID_PREFIXES.iter().any(|id| piece.starts_with(id)) {
        return false;
    }

    let is_hex = |part: &str| {
        part.len() >= 32
            && part.bytes().all(|letter| letter.is_ascii_hexdigit())
            && part.bytes().any(|letter| letter.is_ascii_digit())
            && part.bytes().any(|letter| letter.is_ascii_alphabetic())
    };
    if piece.split(|letter: char| !letter.is_ascii_alphanumeric()).any(is_hex) {
        return true;
    }

    if piece.len() < 32 {
        return false;
    }
    if piece.split(|letter: char| !letter.is_ascii_alphanumeric()).any(is_random_in_one_case) {
        return true;
    }

    // Host names, versions, paths and file names contain dots or start with a slash, and consist of words.
    let may_be_place = piece.contains('.') || piece.starts_with('/');
    if may_be_place && (find_path(piece).is_some() || consists_of_words(piece)) {
        return false;
    }

    // Names of models consist of short parts; in base64 punctuation is rare.
    let longest = piece.split(|letter: char| !letter.is_ascii_alphanumeric()).map(str::len).max();
    if longest.unwrap_or_default() < if may_be_place { 16 } else { 12 } {
        return false;
    }

    let count = |of: fn(&u8) -> bool| piece.bytes().filter(of).count();
    let (upper, lower, digits) =
        (count(u8::is_ascii_uppercase), count(u8::is_ascii_lowercase), count(u8::is_ascii_digit));

    upper >= 3 && lower >= 3 && digits >= 2 && class_changes(piece) * 4 >= piece.len()
}

/// True for long text of letters in one case and digits, such as base32 and base36.
fn is_random_in_one_case(part: &str) -> bool {
    let count = |of: fn(&u8) -> bool| part.bytes().filter(of).count();
    let (upper, lower, digits) =
        (count(u8::is_ascii_uppercase), count(u8::is_ascii_lowercase), count(u8::is_ascii_digit));
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
