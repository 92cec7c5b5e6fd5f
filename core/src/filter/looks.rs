//! Recognizes secrets by their name, by a vendor's prefix, or by their mix of characters.
//!
//! Not here: splitting texts into words ([`super::shapes`]).

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
    ];
    const POSSIBLE: &[&str] = &["token", "signature", "auth", "sig", "jwt", "session", "key"];

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

/// True if the text contains a key with a prefix that its vendor chose to make keys recognizable.
fn has_known_prefix(piece: &str) -> bool {
    const PREFIXES: &[(&str, usize)] = &[
        ("sk-", 12),
        ("pk-", 12),
        ("rk-", 12),
        ("sk_", 16),
        ("pk_", 16),
        ("rk_", 16),
        ("whsec_", 12),
        ("ghp_", 12),
        ("gho_", 12),
        ("ghu_", 12),
        ("ghs_", 12),
        ("ghr_", 12),
        ("github_pat_", 16),
        ("glpat-", 12),
        ("xoxa-", 10),
        ("xoxb-", 10),
        ("xoxp-", 10),
        ("xoxr-", 10),
        ("xoxs-", 10),
        ("xapp-", 10),
        ("AKIA", 16),
        ("ASIA", 16),
        ("AIza", 20),
        ("ya29.", 16),
        ("hf_", 16),
        ("npm_", 16),
        ("pypi-", 16),
        ("dop_v1_", 16),
        ("SG.", 20),
        ("AGE-SECRET-KEY-", 20),
        ("tvly-", 12),
        ("gsk_", 16),
        ("nvapi-", 12),
        ("LTAI", 16),
    ];
    PREFIXES.iter().any(|(prefix, min_length)| {
        piece.match_indices(prefix).any(|(at, _)| {
            let at_word_start = !piece[..at].ends_with(|before: char| before.is_ascii_alphanumeric());
            let key = &piece[at..];
            let generated = key[prefix.len()..].bytes().any(|letter| letter.is_ascii_digit()) || key.len() >= 16;
            // Words joined by dashes are not a key.
            let words = key[prefix.len()..].split('-').filter(|part| part.len() > 2).count() > 2
                && !key.bytes().any(|letter| letter.is_ascii_digit());
            at_word_start && generated && !words && key.len() >= *min_length
        })
    })
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

    // Host names, versions, paths and file names contain dots or start with a slash.
    if piece.len() < 32 || piece.contains('.') || piece.starts_with('/') {
        return false;
    }

    let count = |of: fn(&u8) -> bool| piece.bytes().filter(of).count();
    let (upper, lower, digits) =
        (count(u8::is_ascii_uppercase), count(u8::is_ascii_lowercase), count(u8::is_ascii_digit));

    let class = |letter: u8| (letter.is_ascii_uppercase(), letter.is_ascii_lowercase(), letter.is_ascii_digit());
    let changes = piece.as_bytes().windows(2).filter(|pair| class(pair[0]) != class(pair[1])).count();

    upper >= 3 && lower >= 3 && digits >= 2 && changes * 4 >= piece.len()
}
