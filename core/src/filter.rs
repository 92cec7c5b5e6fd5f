//! Filters error texts of agents. Clients get a plain sentence without class names, stack traces, source paths, links
//! to a validator's documentation, keys, credentials and private addresses (docs/protocols/agent-api.md#error-text).
//! Log lines get the text without secrets.
//!
//! Only error texts are filtered, never an agent's answer. Not here: which faults contain text from an agent, and the
//! secrets in the configuration, which the gateway masks literally before this filter.

mod looks;
mod patterns;
mod places;
mod shapes;

use std::borrow::Cow;

use patterns::{
    ANGLE_BRACKETS, CLASS, CLASS_CALL, DROPPED_LINE, INTERPRETER_ERROR, RUNTIME_PREFIX, SOURCE_PATH, VALIDATION_TITLE,
};
use regex::Captures;
pub use shapes::{Redaction, redact};

/// Longest text for a client, in bytes.
const MAX_CLIENT_TEXT: usize = 1000;

/// Only this prefix of an error text is inspected, in bytes: an agent may send megabytes.
const MAX_INSPECTED: usize = 16 * 1024;

/// The client-visible text of an agent's error. Never empty, one line, at most 1000 bytes and an ellipsis.
///
/// `code` is the agent's error code; it selects the text if nothing of `text` can be shown.
///
/// ```
/// use interlingua_core::filter::client_text;
/// let text = client_text("AGENT_UNKNOWN_ERROR", "Unknown agent error: RuntimeError: the model exploded");
/// assert_eq!(text, "the model exploded");
/// ```
#[must_use]
pub fn client_text(code: &str, text: &str) -> String {
    let mut output = String::new();
    let mut mode = Mode::Sentences;

    for line in redact(truncated(text, MAX_INSPECTED), Redaction::SecretsAndLocations).lines() {
        mode = mode.filter_line(line, &mut output);
        if output.len() > MAX_CLIENT_TEXT {
            break;
        }
    }

    if output.chars().all(|letter| !letter.is_alphanumeric()) {
        return fallback(code).to_owned();
    }

    if output.len() > MAX_CLIENT_TEXT {
        output.truncate(truncated(&output, MAX_CLIENT_TEXT).len());
        output.truncate(output.trim_end().len());
        output.push('…');
    }

    output
}

/// The client-visible code of an agent's error: a single word, else `AGENT_ERROR`. Servers of version 0.1 put the
/// entire error text into the code.
#[must_use]
pub fn client_code(code: &str) -> &str {
    let word = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-' | '.');
    let is_word = (1..=64).contains(&code.len()) && code.chars().all(word) && !CLASS.is_match(code);
    if is_word && redact(code, Redaction::SecretsAndLocations) == code { code } else { "AGENT_ERROR" }
}

/// Longest text from an upstream in a log line, in bytes.
const MAX_LOGGED: usize = 512;

/// The text of an upstream for a log line: without secrets, at most 512 bytes and an ellipsis. Hosts, paths and class
/// names stay, because operators need them.
#[must_use]
pub fn log_text(text: &str) -> String {
    let mut logged = redact(truncated(text, MAX_INSPECTED), Redaction::Secrets);
    if logged.len() > MAX_LOGGED {
        logged.truncate(truncated(&logged, MAX_LOGGED).len());
        logged.push('…');
    }
    logged
}

/// The text to show if nothing of the agent's text can be shown.
fn fallback(code: &str) -> &'static str {
    match code {
        "MODEL_TIMEOUT" | "TIMEOUT" => "the agent took too long",
        "MODEL_QUOTA_EXCEEDED" | "RATE_LIMIT_EXCEEDED" => "the agent is rate limited",
        "TOOL_EXECUTION_FAILED" => "a tool of the agent failed",
        _ => "the agent failed",
    }
}

/// The kind of the lines that are being filtered.
enum Mode {
    /// Sentences for people.
    Sentences,
    /// Stack frames. The first line that is not a frame is the exception.
    Stack,
    /// A validator's list: a field on one line, and its indented error on the next.
    Validation { field: String },
}

impl Mode {
    fn filter_line(self, line: &str, output: &mut String) -> Self {
        let text = line.trim();
        if let Some(at) = text.find("Traceback (most recent call last)").or_else(|| text.find("stack backtrace:")) {
            append(output, " ", &sentence(&text[..at]));
            return Self::Stack;
        }
        if text.is_empty() || DROPPED_LINE.is_match(text) {
            return self;
        }
        if VALIDATION_TITLE.is_match(text) {
            return Self::Validation { field: String::new() };
        }

        let indented = line.starts_with([' ', '\t']);
        match self {
            Self::Stack if indented => Self::Stack,
            Self::Validation { field } if indented => {
                let wrong = sentence(text);
                let entry = if field.is_empty() { wrong } else { format!("{field}: {wrong}") };
                append(output, "; ", &entry);
                Self::Validation { field }
            }
            Self::Validation { .. } => Self::Validation { field: sentence(text) },
            Self::Sentences | Self::Stack => {
                append(output, " ", &sentence(text));
                Self::Sentences
            }
        }
    }
}

fn append(output: &mut String, separator: &str, text: &str) {
    if text.is_empty() {
        return;
    }
    if !output.is_empty() {
        output.push_str(separator);
    }
    output.push_str(text);
}

/// One line, without internals.
fn sentence(line: &str) -> String {
    let line = RUNTIME_PREFIX.replace(line, "");
    if INTERPRETER_ERROR.is_match(&line) {
        return String::new();
    }
    // Validators end their messages with [type=…, input_value=…, input_type=…].
    let line = line.find("[type=").map_or(&*line, |at| &line[..at]);
    let line = ANGLE_BRACKETS.replace_all(line, |found: &Captures<'_>| {
        found.get(1).map_or_else(|| Cow::Owned(found[0].to_owned()), |_| Cow::Borrowed("an object"))
    });

    let mut words: Vec<&str> = Vec::new();
    let mut opened = 0_usize;
    for word in line.split_whitespace() {
        let (word, calls) = without_class(word);
        opened += calls;
        if is_source_path(word) {
            words.push("…");
        } else if !word.is_empty() {
            words.push(word);
        }
    }

    let mut text = words.join(" ");
    // `ValueError('text')`: remove the bracket that closes the removed class name.
    while opened > 0 && text.ends_with(')') {
        text.pop();
        opened -= 1;
        let quoted = text.len() >= 2 && text.ends_with(['\'', '"']);
        if quoted {
            text.pop();
        }
    }
    text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect::<String>().trim().to_owned()
}

/// Removes an exception class from the start of a word. Returns the rest and the number of opened brackets. A class
/// alone becomes "an error", a class with a colon nothing.
fn without_class(word: &str) -> (&str, usize) {
    if let Some(call) = CLASS_CALL.find(word) {
        return (&word[call.end()..], 1);
    }
    let bare = word.trim_matches(['\'', '"', '`', ',', '.', ';', '(', ')', '[', ']']);
    match bare.strip_suffix(':') {
        Some(class) if CLASS.is_match(class) => ("", 0),
        None if CLASS.is_match(bare) => ("an error", 0),
        _ => (word, 0),
    }
}

/// True for an absolute path and for any path to a source file. URLs are not paths.
fn is_source_path(word: &str) -> bool {
    let word = word.trim_matches(['\'', '"', '`', ',', ';', '(', ')', '[', ']', ':']);
    word.contains(['/', '\\']) && !word.contains("://") && SOURCE_PATH.is_match(word)
}

/// A prefix of at most `length` bytes, cut between characters.
#[must_use]
pub fn truncated(text: &str, length: usize) -> &str {
    let mut end = length.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn text_for_people_is_unchanged() {
        for text in [
            "Model quota exceeded: qwen-max",
            "Task u1:S is already in RUNNING state.",
            "see https://example.com/limits for your limits",
            "the city Köln/Bonn is not known",
            "Tool get_weather not found",
        ] {
            assert_eq!(client_text("AGENT_ERROR", text), text);
        }
    }

    #[test]
    fn class_names_are_removed() {
        for (text, expected) in [
            ("Unknown agent error: RuntimeError: upstream model exploded", "upstream model exploded"),
            ("Unknown agent error: Timeout: too slow", "too slow"),
            ("Unknown agent error: KeyError", "the agent failed"),
            ("Unknown agent error: the disk is full: really", "the disk is full: really"),
            ("openai.BadRequestError: context too long", "context too long"),
            ("connection failed: httpx.ConnectError: no-one there", "connection failed: no-one there"),
            ("ValueError('no such city')", "no such city"),
            ("raised java.lang.IllegalStateException, twice", "raised an error twice"),
            ("could not call <weather.Tool object at 0x7f3a>", "could not call an object"),
        ] {
            assert_eq!(client_text("AGENT_UNKNOWN_ERROR", text), expected, "{text}");
        }
    }

    #[test]
    fn a_stack_trace_is_removed_except_for_its_exception() {
        let text = "Agent died\nTraceback (most recent call last):\n  File \"/srv/agent.py\", line 3, in act\n    \
                    model.ask()\n    ^^^^^\nRuntimeError: the model exploded\n";
        assert_eq!(client_text("", text), "Agent died the model exploded");
        let text = "java.io.IOException: broken pipe\n\tat com.example.Agent.act(Agent.java:31)\n\t... 3 more";
        assert_eq!(client_text("", text), "broken pipe");
        assert_eq!(client_text("", "failed in /home/me/agent.py:12 again"), "failed in … again");
    }

    #[test]
    fn a_validation_error_becomes_a_sentence() {
        let text = "1 validation error for AgentRequest\ninput.0.role\n  Input should be 'assistant', 'system', 'user' \
                    or 'tool' [type=literal_error, input_value='developer', input_type=str]\n    For further \
                    information visit https://errors.pydantic.dev/2.14/v/literal_error";
        assert_eq!(client_text("", text), "input.0.role: Input should be 'assistant', 'system', 'user' or 'tool'");
    }

    #[test]
    fn interpreter_errors_are_replaced_by_a_general_sentence() {
        assert_eq!(client_text("", "'NoneType' object is not iterable"), "the agent failed");
        assert_eq!(client_text("MODEL_TIMEOUT", ""), "the agent took too long");
    }

    #[test]
    fn keys_are_redacted() {
        let text = "Incorrect API key provided: sk-abcdefghijklmnop, header Bearer abc";
        assert_eq!(client_text("", text), "Incorrect API key provided: …, header Bearer …");
    }

    #[test]
    fn secrets_and_private_addresses_are_redacted_anywhere_in_a_text() {
        let hex = "0123456789abcdef".repeat(4);
        let hex = format!("no such key {hex}");
        for (text, expected) in [
            ("Incorrect: api_key=sk-abcdefghijklmnop1234 (see docs)", "Incorrect: api_key=… (see docs)"),
            ("header 'Bearer eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln' refused", "header 'Bearer …' refused"),
            ("could not connect to postgresql://u:p@10.0.0.5/db", "could not connect to postgresql://…"),
            ("GET https://ada:hunter2@example.com/x failed", "GET https://…@example.com/x failed"),
            ("GET https://example.com/x?key=abc&page=2 failed", "GET https://example.com/x?… failed"),
            ("login failed: password=hunter2", "login failed: password=…"),
            (
                "login failed: \"password\": \"correct horse battery\", user ada",
                "login failed: \"password\": \"…\", user ada",
            ),
            ("access denied for AKIAIOSFODNN7EXAMPLE", "access denied for …"),
            ("bad aws_secret_access_key=wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "bad aws_secret_access_key=…"),
            ("key AIzaSyA1234567890abcdefghijklmnopqrstu is not enabled", "key … is not enabled"),
            ("remote rejected token:ghp_0123456789abcdefABCDEF0123456789abcd", "remote rejected token:…"),
            ("slack said no to (xoxb-123456789012-abcdef)", "slack said no to (…)"),
            (hex.as_str(), "no such key …"),
            ("cannot load -----BEGIN PRIVATE KEY-----\nMIIE\n-----END PRIVATE KEY----- here", "cannot load … here"),
            ("no route to 192.168.3.4:5432, 10.1.2.3 or [fd00::1]:80", "no route to …:5432, … or […]:80"),
            ("db.internal:5432 refused, and http://redis:6379/0 too", "…:5432 refused, and http://… too"),
            ("cannot read /etc/agent/config.yaml", "cannot read …"),
            ("cannot read path='/srv/agent/key.pem'", "cannot read path='…'"),
            ("Authorization: Basic dXNlcjpwYXNzd29yZA==", "Authorization: Basic …"),
            ("set-cookie: sid=8f14e45fceea167a", "set-cookie: …"),
        ] {
            assert_eq!(client_text("", text), expected, "{text}");
        }
    }

    #[test]
    fn keys_are_redacted_behind_escapes_and_within_words() {
        let own = format!("il_k3x9q0b7m2aa_{}", "0123456789abcdef".repeat(4));
        let cut = &own[..30];
        for (text, expected) in [
            ("state%3Dghp_0123456789abcdefABCDEF0123456789abcd", "state%3D…"),
            (r#"said "it is:\nsk-abcdefghijklmnop1234""#, r#"said "it is:\n…""#),
            (r"it is:\r\nsk-abcdefghijklmnop1234\tnow", r"it is:\r\n…\tnow"),
            (r"it is:\u000ask-abcdefghijklmnop1234", r"it is:\u000a…"),
            ("keyAKIAIOSFODNN7EXAMPLE is denied", "… is denied"),
            ("urlAIzaSyA1234567890abcdefghijklmnopqrstu denied", "… denied"),
            ("mytokengithub_pat_11ABCDEFG0123456789 denied", "… denied"),
            ("xai-0123456789abcdefghij0123456789abcdefghij denied", "… denied"),
            ("pplx-0123456789abcdefghij0123456789abcdefghij denied", "… denied"),
            ("r8_0123456789abcdefghijABCDEFGHIJ012 denied", "… denied"),
            ("lsv2_pt_0123456789abcdef_0123 denied", "… denied"),
            ("hvs.CAESIJ0123456789abcdefghij denied", "… denied"),
            ("dapi0123456789abcdef0123456789abcdef-2 denied", "… denied"),
            ("ATATT3xFfGF0123456789abcdefghij denied", "… denied"),
            ("shpat_0123456789abcdef0123456789abcd denied", "… denied"),
            ("dckr_pat_0123456789-abcdefghijk denied", "… denied"),
            ("xoxe-1-My0xLjEtMTIz and xoxe.xoxp-1-Mi0yLTEyMw denied", "… and … denied"),
            ("sntrys_eyJpYXQiOjE2ODcz denied", "… denied"),
            (own.as_str(), "…"),
            (&format!("x-api-key was {cut}"), "x-api-key was …"),
        ] {
            assert_eq!(client_text("", text), if expected == "…" { "the agent failed" } else { expected }, "{text}");
            assert_eq!(log_text(text), expected, "{text}");
        }
    }

    #[test]
    fn random_text_of_any_alphabet_is_redacted() {
        for (text, expected) in [
            ("no such key k3x9q0b7m2w8r5t1z6c4v0n3j7h2g9f5d1s8", "no such key …"),
            ("no such key MZXW6YTBOI4DQ3T2KRUGS42QNB2W4YJB", "no such key …"),
            ("bot MTk4NjIyNDgzNDcxOTI1MjQ4.Cl2FMQ.ZnCjm1XVW7vRze4b7Cq4se7kKWs", "bot …"),
            ("no such key /kX9mQ2vLs8RtYz4WbN7pJc3HdF6gAq1", "no such key …"),
            ("no such key a8Fk2+Xq9/Lm4Rt7Yz1Wb6Np3Jc5Hd8", "no such key a8Fk2+Xq9/Lm4Rt7Yz1Wb6Np3Jc5Hd8"),
        ] {
            assert_eq!(client_text("", text), expected, "{text}");
            assert_eq!(log_text(text), expected, "{text}");
        }
    }

    #[test]
    fn private_places_are_redacted_however_they_are_written() {
        for (text, expected) in [
            ("no route to ::ffff:10.0.0.5 or [::ffff:192.168.3.4]:80", "no route to … or […]:80"),
            ("no route to ::ffff:a00:5 or ::10.1.2.3.", "no route to … or …."),
            ("GET http://[::ffff:10.0.0.5]:80/x failed", "GET http://… failed"),
            ("no route to fe80::1%eth0: no", "no route to …: no"),
            ("GET http://[fe80::1%25eth0]/x and [fe80::1%en-0]:80", "GET http://… and […]:80"),
            ("cannot read C:/Users/ada/agent.key now", "cannot read … now"),
            ("cannot read path='d:/data/agent.key'", "cannot read path='…'"),
        ] {
            assert_eq!(client_text("", text), expected, "{text}");
        }
    }

    #[test]
    fn values_of_further_names_are_redacted() {
        for (text, expected) in [
            ("sas=sv2022-sp3r", "sas=…"),
            ("SENTRY_DSN=https://3f2a@o1.ingest.example.com/4", "SENTRY_DSN=…"),
            ("wrong otp: 123456", "wrong otp: …"),
            ("userOtp=123456 is wrong", "userOtp=… is wrong"),
            ("the passcode=4711 is wrong", "the passcode=… is wrong"),
            ("AccountKey=abc;EndpointSuffix=example.com", "AccountKey=…;EndpointSuffix=example.com"),
        ] {
            assert_eq!(client_text("", text), expected, "{text}");
            assert_eq!(log_text(text), expected, "{text}");
        }
    }

    #[test]
    fn ordinary_sentences_are_unchanged() {
        for text in [
            "max_tokens must be at most 4096, not 8192",
            "unexpected token: }",
            "the password must have at least 8 characters",
            "input.password: Field required",
            "this model needs basic authentication",
            "the bearer token is missing",
            "no session 018f2f0e-7b1c-7aaa-bbbb-0123456789ab for this user",
            "resp_0123456789abcdef0123456789abcdef was not found",
            "POST /api/v1/users answered 404",
            "the city Köln/Bonn is not known, nor is and/or",
            "see https://example.com/docs/errors#quota for more",
            "version 1.2.3 of gpt-4o-mini-2024-07-18 is gone",
            "call get_weather(city='Paris', days=3) failed twice",
            "rate limit: 60 requests per minute; try again in 20s",
            "task-force risk-free desk-top sk-learn",
            "8.8.8.8 did not answer",
            "key=3 is out of range, session=none",
            "the agent said: no",
            "12:30:45 was too late, at 100% of 2024-11-22T12:30:45Z",
            "Überraschung: 你好世界 🎉",
            "model claude-sonnet-4-5-20250929 is overloaded",
            "model Meta-Llama-3.1-8B-Instruct-Q4_K_M.gguf or Qwen2-5-Coder-32B-Instruct-AWQ-Int4-V1 is gone",
            "xai-grok-4-fast-reasoning-0709 and pplx-70b-chat are overloaded",
            "model meta-llama-3-1-70b-instruct-2024-07-23-preview-0125 is gone",
            "commit 2802599 of run 018f2f0e-7b1c-7aaa-bbbb-0123456789ab",
            "TWFueSBoYW5kcyBtYWtlIGxpZ2h0IHd is no picture",
            "il_ is a word, and so are il_y_a_longtemps, il_k3x9q0b7m2aa_no and ril_k3x9q0b7m2aa_x",
            "Kansas: no; Texas: no; whether dsn: or sas: is not known",
            "EURASIATICSUMMITMEETING and EURASIA2024 are over",
            "org.springframework.web.servlet.handler.SimpleUrlHandlerMapping2Factory7 failed",
            "GET /v1/Organizations/Members2/Permissions3/Everyone answered 404",
            "eu-west-1.compute.amazonaws.com/v2/library/MyProject2024/Agents7 answered 404",
            "2001:db8::1 and ::ffff:8.8.8.8 did not answer",
            "use a:/b or c:/ as either",
            "100%25 of it, \\n or \\t is no line break",
            "the word donaudampfschifffahrtsgesellschaft1234567 is long",
        ] {
            assert_eq!(client_text("", text), text);
            assert_eq!(log_text(text), text);
        }
    }

    #[test]
    fn a_very_long_word_does_not_overflow_the_stack() {
        for part in ["password=x,", "a://b'", "\"token\":\"abcdefgh12\",", "::1]", "(", "'", "key=", "é"] {
            let text = part.repeat(4_000);
            for redaction in [Redaction::Secrets, Redaction::SecretsAndLocations] {
                assert!(redact(&text, redaction).len() <= 2 * text.len());
            }
        }
        let secrets = redact(&"password=hunter2,".repeat(1000), Redaction::Secrets);
        assert_eq!(secrets, "password=…,".repeat(1000));
    }

    #[test]
    fn a_log_line_has_the_start_of_the_text_and_no_secret() {
        let text = format!("File \"/srv/agent.py\" on 10.0.0.5: password=hunter2 {}", "é".repeat(1000));
        let logged = log_text(&text);
        assert!(logged.starts_with("File \"/srv/agent.py\" on 10.0.0.5: password=… é") && logged.ends_with('…'));
        assert!(logged.len() <= MAX_LOGGED + '…'.len_utf8());
    }

    #[test]
    fn a_code_is_a_single_word() {
        assert_eq!(client_code("MODEL_TIMEOUT"), "MODEL_TIMEOUT");
        assert_eq!(client_code("500"), "500");
        for text in ["", "the model exploded", "RuntimeError", "Ü", "sk-abcdefghijklmnop1234", "10.0.0.5"] {
            assert_eq!(client_code(text), "AGENT_ERROR");
        }
    }

    proptest! {
        #[test]
        fn redaction_ends_and_bounds_its_output(
            text in "(?s).{0,200}|([a-z]{0,9}[=:]|://|[@\"' /?]|Bearer |sk-[a-z0-9]{9,20}|-----BEGIN ){0,30}"
        ) {
            for redaction in [Redaction::Secrets, Redaction::SecretsAndLocations] {
                let redacted = redact(&text, redaction);
                prop_assert!(redacted.len() <= 4 * text.len());
            }
        }

        #[test]
        fn any_text_becomes_one_short_line(text in "(?s).{0,300}|(Error: |Traceback|<class |\\n | )*|.{4000}") {
            let output = client_text("X", &text);
            prop_assert!(!output.is_empty() && output.len() <= MAX_CLIENT_TEXT + '…'.len_utf8());
            prop_assert!(!output.contains(['\n', '\r']));
        }
    }
}
