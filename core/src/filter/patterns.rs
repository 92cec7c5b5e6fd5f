//! The patterns of the filter: one row for each kind of text, with an example that the filter changes and one that it
//! keeps. The tests run both through [`super::client_text`].
//!
//! Not here: the order in which patterns apply ([`super`], [`super::shapes`]), and kinds of text that no pattern
//! describes: random text ([`super::looks`]) and IP addresses ([`super::places`]).

use std::sync::LazyLock;

use regex::Regex;

/// Defines a regular expression as the alternation of its rows.
macro_rules! patterns {
    ($(
        $(#[$doc:meta])*
        $name:ident { $($pattern:literal: $changed:literal => $result:literal, keeps $kept:literal;)+ }
    )+) => {
        $(
            $(#[$doc])*
            pub(super) static $name: LazyLock<Regex> = LazyLock::new(|| compile(&[$($pattern),+].join("|")));
        )+

        /// The examples: a text, its result, and a text that is kept.
        #[cfg(test)]
        const EXAMPLES: &[(&str, &str, &str)] = &[$($(($changed, $result, $kept)),+),+];
    };
}

fn compile(pattern: &str) -> Regex {
    Regex::new(pattern).expect("the tests compile every pattern")
}

patterns! {
    /// A trimmed line that is dropped.
    DROPPED_LINE {
        r#"^File ""#: "no\nFile \"a.py\", line 3, in act" => "no", keeps "File a is missing";
        r"^[\^~ ]+$": "no\n  ~~~^^" => "no", keeps "a ^ b";
        r"^at .*[:(].*[)0-9]$": "no\nat act (agent.js:3:7)" => "no", keeps "at 3 o'clock (or later): no";
        r"^\.\.\. (?:.* )?more$": "no\n... 3 more" => "no", keeps "... and 3 more items";
        "For further information visit": "no\nFor further information visit https://a.example" => "no",
            keeps "visit https://a.example";
        "^During handling of the above|^The above exception was":
            "no\nDuring handling of the above exception, another one occurred:" => "no", keeps "During the day: no";
    }

    /// The title of a validator's list.
    VALIDATION_TITLE {
        "^[0-9]+ validation error": "2 validation errors for Request\nname\n  is missing" => "name: is missing",
            keeps "no validation error";
    }

    /// A type or name error of an interpreter, which means nothing to a client.
    INTERPRETER_ERROR {
        "' object (?:is not|has no attribute|does not support) ": "'int' object is not iterable" => "the agent failed",
            keeps "the object is not known";
        " positional argument|unexpected keyword argument": "act() takes 1 positional argument" => "the agent failed",
            keeps "unexpected argument";
        "unsupported operand type": "unsupported operand type(s) for +" => "the agent failed", keeps "unsupported type";
        "is not a function|Cannot read properties of ": "x.map is not a function" => "the agent failed",
            keeps "it is not a tool";
        "NoneType": "expected str, got NoneType" => "the agent failed", keeps "expected a text, got None";
    }

    /// The prefix of the runtime with the class that follows it, which may not look like one.
    RUNTIME_PREFIX {
        r"^Unknown agent error:\s*(?:[A-Za-z_][A-Za-z0-9_.$]*(?::|$))?":
            "Unknown agent error: Timeout: too slow" => "too slow", keeps "Unknown error: Timeout: too slow";
    }

    /// An exception class alone, such as a code.
    CLASS {
        r"^(?:[A-Za-z_][A-Za-z0-9_.$]*[.$])?[A-Z][A-Za-z0-9_]*(?:Error|Exception|Interrupt|Exit|Warning)$":
            "ValueError" => "an error", keeps "Error";
    }

    /// A word that starts with the constructor of an exception.
    CLASS_CALL {
        r#"^(?:[A-Za-z_][A-Za-z0-9_.$]*[.$])?[A-Z][A-Za-z0-9_]*(?:Error|Exception|Interrupt|Exit|Warning)\(['"]*"#:
            "ValueError('no such city')" => "no such city", keeps "get_error('city')";
    }

    /// A representation of an object, as group 1, or any other text in angle brackets.
    ANGLE_BRACKETS {
        "(<(?:class |[^>]* object|[^>]* at 0x)[^>]*>)|<[^>]*>":
            "cannot call <agent.Tool object at 0x7f3a>" => "cannot call an object",
            keeps "cannot read <b> or <a object";
    }

    /// A trimmed word with a slash that is the path of a source file, or an absolute path.
    SOURCE_PATH {
        r"^[[:ascii:]]:.*\\|^\\:": "failed in x:a\\b" => "failed in …", keeps "failed in a:b";
        r"^[^:]*\.(?:py|js|ts|java|kt|rs|go|rb|so)(?::|$)": "failed in src/agent.py:12" => "failed in …",
            keeps "failed in agent.py and src/agent.txt";
        "^/(?:home|root|usr|opt|srv|app|var|tmp|Users)/": "failed in /app/" => "failed in …",
            keeps "failed in /apps/";
    }

    /// Private keys and certificates. A truncated one hides everything after it.
    PEM {
        "(?s)-----BEGIN(?:.*?-----END.*?-----|.*)":
            "no -----BEGIN KEY-----\nMI\n-----END KEY----- here" => "no … here", keeps "-----END of it";
    }

    /// The end of a name without `_` and `-` that is nearly always that of a secret.
    SECRET_NAME {
        "(?i-u:password|passwd|pwd|passphrase|passcode|connectionstring|cookie)$":
            "user_password: x1" => "user_password: …", keeps "passwords: x1";
        "(?i-u:secret|(?:api|access|secret|private|signing|account)key)$": "Api-Key=x" => "Api-Key=…", keeps "keys=x";
        "(?i-u:authorization|credentials?|(?:access|refresh|auth)token)$": "authToken=x" => "authToken=…",
            keeps "author=x";
    }

    /// Names of secrets that are too short for the end of any word: Kansas is no signature.
    SHORT_SECRET_NAME {
        "(?:^|[_-])(?i-u:sas|dsn|otp)$": "db_dsn=x" => "db_dsn=…", keeps "Kansas=x";
        "[a-z](?:S(?i-u:as)|D(?i-u:sn)|O(?i-u:tp))$": "userOtp=x" => "userOtp=…", keeps "userotp=x";
    }

    /// The end of a name without `_` and `-` that may be that of a secret.
    POSSIBLE_SECRET_NAME {
        "(?i-u:token|signature|auth|sig|jwt|session|key)$": "session=abcdefg" => "session=…", keeps "session=none";
    }

    /// A name and the sign after it. The name may be in quotes or brackets.
    ASSIGNMENT {
        r#"(?P<name>[A-Za-z0-9_-]+)["'`\\\]]*[=:]"#: "a[\"password\"]=x" => "a[\"password\"]=…", keeps "password x";
    }

    /// A word that follows "bearer" in sentences.
    BEARER_PROSE {
        "^(?i-u:tokens?|auth|authentication|authorization|credentials?|header|scheme)$": "Bearer abc" => "Bearer …",
            keeps "the bearer token";
        "^(?i-u:is|was|are|must|not|missing|required|expired|invalid|or|and|of|in)$": "bearer: abc" => "bearer: …",
            keeps "a bearer is needed";
    }

    /// A URL up to a character that ends it.
    URL {
        r#"(?P<scheme>[A-Za-z0-9+.-]*)://(?P<rest>[^"'`<>|\\]*)"#:
            "GET https://ada:pw@a.example/x?y" => "GET https://…@a.example/x?…", keeps "GET https://a.example/x";
    }

    /// A part of a word between punctuation, with an escape that would hide its beginning, and base64 padding.
    PIECE {
        r"(?P<escape>%[0-9A-Fa-f]{2}|\\u[0-9A-Fa-f]{4}|\\x[0-9A-Fa-f]{2}|\\[nrt])?(?P<piece>[A-Za-z0-9_.+/~-]+)=*":
            r"\nsk-abcdefghijklmnop1234==" => r"\n…", keeps r"\next\xabc%20a==";
    }

    /// A JWT at the beginning of a text, even a truncated one.
    JWT {
        "^eyJ[A-Za-z0-9_.+/-]{17,}$": "no eyJhbGciOiJIUzI1NiJ9.eyJz" => "no …", keeps "no eyJhbGciOiJIUzI1";
    }

    /// The beginning of a key of the gateway: its id, and as much of its secret as no one could guess the rest of.
    OWN_KEY {
        "il_[a-z0-9]{12}_[0-9A-Fa-f]{8}": "no il_k3x9q0b7m2aa_01234567" => "no …", keeps "no il_k3x9q0b7m2aa_0123456";
    }

    /// The prefix of an id that is no secret.
    ID {
        "^(?:resp|response|msg|message|run|call|task|conv|req|request|item|fc|rs|appr|session|thread|trace)_|^chatcmpl-":
            "no key_0123456789abcdef0123456789abcdef" => "no …", keeps "no run_0123456789abcdef0123456789abcdef";
    }

    /// An absolute file path. It starts at group 1, or at 0 without that group. URLs and routes do not count.
    PATH {
        r"^\\\\": r"no \\host\share" => "no …", keeps r"no a\\b";
        r"(?x: (?:^|[^\p{Alphabetic}\p{N}/._~-])
            (?P<path> ~/ | [A-Za-z]:\\ | [A-Za-z]:/[A-Za-z0-9]{2} | /(?:home|root|usr|opt|srv|app|var|tmp|Users|etc|mnt
                |data|private|Library|proc|run|lib|sys|dev|media|workspaces?|code|nix|Applications|Volumes|s?bin
                |secrets)/(?s:.)))":
            "no path='/etc/agent',C:/Users or ~/a" => "no path='…',C:/Users or …",
            keeps "no /api/v1, a:/b or c/etc/d";
    }

    /// The name of a host in a private network.
    PRIVATE_HOST {
        r"^(?i-u:localhost)$": "no localhost:80" => "no …:80", keeps "no localhosts";
        r"(?s:.)\.(?i-u:internal|local|localdomain|localhost|lan|corp|intranet|private|home\.arpa|svc|consul)$":
            "no db.svc" => "no …", keeps "no svc or db.svc.example";
    }
}

/// A kind of key with a prefix that a vendor chose to make keys recognizable.
pub(super) struct KeyKind {
    /// The prefix.
    pub(super) prefix: Regex,
    /// Minimum length of the whole key, in bytes.
    pub(super) min_len: usize,
    /// The characters behind a prefix that counts within a word, too: it is rare enough, and these characters are
    /// fixed.
    pub(super) inside: Option<fn(char) -> bool>,
}

type KeyRow = (&'static str, usize, Option<fn(char) -> bool>, &'static str, &'static str);

/// Prefix, `min_len`, `inside`, a text with a key, and one without.
const KEYS: &[KeyRow] = &[
    ("xoxe[-.]|xapp-", 10, None, "no xapp-1-A0B", "no xapp-1"),
    ("xox[abprs]-", 10, Some(is_base64), "no xoxb-12345", "no xoxb-1"),
    ("[spr]k-|whsec_|tvly-|nvapi-", 12, None, "no sk-abcdefgh1", "no sk-learn, ask-abcdefgh1"),
    ("gh[pousr]_|glpat-", 12, Some(is_base64), "no ghp_abcdefg1", "no ghp_abc"),
    (
        r"[spr]k_|gsk_|ya29\.|hf_|npm_|pypi-|dop_v1_|LTAI|lsv2_|shpat_|dckr_pat_|sntrys_",
        16,
        None,
        "no hf_abcdefghijklm",
        "no hf_abc",
    ),
    ("github_pat_", 16, Some(is_base64), "no github_pat_11ABC", "no github_pat_1"),
    // Access key ids are in base32.
    ("AKIA|ASIA", 16, Some(is_base32), "no AKIAIOSFODNN7EXAMPLE", "no AKIA, EURASIA2024"),
    ("AIza", 20, Some(is_base64), "no AIzaSyA1234567890abcdefghijk", "no AIza1"),
    (r"SG\.|AGE-SECRET-KEY-|ATATT3", 20, None, "no ATATT3xFfGF0123456789", "no ATATT3x"),
    (r"r8_|hvs\.", 24, None, "no hvs.CAESIJ0123456789abcdefg", "no r8_1"),
    ("dapi", 36, None, "no dapi0123456789abcdef0123456789abcdef", "no dapi0123456789"),
    // Names of models begin so, too, and are shorter.
    ("xai-|pplx-", 40, None, "no pplx-0123456789abcdefghij0123456789abcdef", "no pplx-70b-chat"),
];

pub(super) static KEY_KINDS: LazyLock<Vec<KeyKind>> = LazyLock::new(|| {
    let kinds = KEYS.iter();
    kinds.map(|&(prefix, min_len, inside, ..)| KeyKind { prefix: compile(prefix), min_len, inside }).collect()
});

fn is_base32(letter: char) -> bool {
    letter.is_ascii_uppercase() || letter.is_ascii_digit()
}

fn is_base64(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-')
}

#[cfg(test)]
mod tests {
    use super::super::client_text;
    use super::{EXAMPLES, KEYS};

    #[test]
    fn every_pattern_changes_its_example_and_keeps_the_other() {
        let keys = KEYS.iter().map(|&(.., key, kept)| (key, "no …", kept));
        for (changed, result, kept) in EXAMPLES.iter().copied().chain(keys) {
            assert_eq!(client_text("", changed), result, "{changed}");
            assert_eq!(client_text("", kept), kept, "{kept}");
        }
    }
}
