//! What of an agent's complaint a client may read: the sentence, without class names, stack text, source paths, links
//! to a validator's handbook, keys, logins and private addresses (Agent API, section 9: "it leaks internals, do not pass
//! it on unfiltered"); and what of it may stand in a log line.
//!
//! What an agent answers is never filtered, only what it complains of. Not here: which faults have a text of an agent's at
//! all, and the secrets of the configuration, which the gateway knows word for word and masks before this.

mod looks;
mod places;
mod shapes;

pub use shapes::{Hide, hide};

/// The longest sentence a client gets, in bytes.
const LONGEST: usize = 1000;

/// Only so much of a complaint is looked at, in bytes: an agent may send megabytes.
const LOOKED_AT: usize = 16 * 1024;

/// The text of an agent's error as a client may read it. Never empty, one line, at most 1000 bytes and an ellipsis.
///
/// `code` is the agent's code; it chooses the sentence where nothing of the text can be shown.
///
/// ```
/// use interlingua_core::filter::client_text;
/// let text = client_text("AGENT_UNKNOWN_ERROR", "Unknown agent error: RuntimeError: the model exploded");
/// assert_eq!(text, "the model exploded");
/// ```
#[must_use]
pub fn client_text(code: &str, text: &str) -> String {
    let mut said = String::new();
    let mut reading = Reading::Sentences;
    for line in hide(truncated(text, LOOKED_AT), Hide::SecretsAndPlaces).lines() {
        reading = reading.line(line, &mut said);
        if said.len() > LONGEST {
            break;
        }
    }
    if said.chars().all(|letter| !letter.is_alphanumeric()) {
        return fallback(code).to_owned();
    }
    if said.len() > LONGEST {
        said.truncate(truncated(&said, LONGEST).len());
        said.truncate(said.trim_end().len());
        said.push('…');
    }
    said
}

/// The code of an agent's error as a client may read it: a single word, else `AGENT_ERROR`. Servers of the 0.1 line
/// put the whole text of the error there.
#[must_use]
pub fn client_code(code: &str) -> &str {
    let word = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-' | '.');
    let is_word = (1..=64).contains(&code.len()) && code.chars().all(word) && !is_class(code);
    if is_word && hide(code, Hide::SecretsAndPlaces) == code { code } else { "AGENT_ERROR" }
}

/// The longest text of an upstream's in a log line, in bytes.
const MAX_LOGGED: usize = 512;

/// A text of an upstream's as a log line may hold it: nothing that looks like a secret, at most 512 bytes and an ellipsis.
/// Hosts, paths and class names stay: they are what an operator looks for.
#[must_use]
pub fn log_text(text: &str) -> String {
    let mut logged = hide(truncated(text, LOOKED_AT), Hide::Secrets);
    if logged.len() > MAX_LOGGED {
        logged.truncate(truncated(&logged, MAX_LOGGED).len());
        logged.push('…');
    }
    logged
}

/// What is said where nothing of the text can be.
fn fallback(code: &str) -> &'static str {
    match code {
        "MODEL_TIMEOUT" | "TIMEOUT" => "the agent took too long",
        "MODEL_QUOTA_EXCEEDED" | "RATE_LIMIT_EXCEEDED" => "the agent is rate limited",
        "TOOL_EXECUTION_FAILED" => "a tool of the agent failed",
        _ => "the agent failed",
    }
}

/// What the lines of a complaint are at the moment.
enum Reading {
    /// Text meant to be read.
    Sentences,
    /// The frames of a stack; the line that is no frame any more is the exception.
    Stack,
    /// A validator's list: a field on one line, what is wrong with it, indented, on the next.
    Validation { field: String },
}

impl Reading {
    fn line(self, line: &str, said: &mut String) -> Self {
        let text = line.trim();
        if let Some(at) = text.find("Traceback (most recent call last)").or_else(|| text.find("stack backtrace:")) {
            add(said, " ", &sentence(&text[..at]));
            return Self::Stack;
        }
        if text.is_empty() || is_stack_frame(text) || text.contains("For further information visit") {
            return self;
        }
        if text.starts_with("During handling of the above") || text.starts_with("The above exception was") {
            return self;
        }
        if is_validation_title(text) {
            return Self::Validation { field: String::new() };
        }
        let indented = line.starts_with([' ', '\t']);
        match self {
            Self::Stack if indented => Self::Stack,
            Self::Validation { field } if indented => {
                let wrong = sentence(text);
                let entry = if field.is_empty() { wrong } else { format!("{field}: {wrong}") };
                add(said, "; ", &entry);
                Self::Validation { field }
            }
            Self::Validation { .. } => Self::Validation { field: sentence(text) },
            Self::Sentences | Self::Stack => {
                add(said, " ", &sentence(text));
                Self::Sentences
            }
        }
    }
}

fn add(said: &mut String, between: &str, text: &str) {
    if text.is_empty() {
        return;
    }
    if !said.is_empty() {
        said.push_str(between);
    }
    said.push_str(text);
}

/// One line without what is none of a client's business.
fn sentence(line: &str) -> String {
    // The runtime's prefix is followed by the class, whatever that is called.
    let line = match line.strip_prefix("Unknown agent error:") {
        Some(rest) => {
            let rest = rest.trim_start();
            match rest.split_once(':') {
                Some((class, text)) if is_identifier(class) => text,
                None if is_identifier(rest) => "",
                _ => rest,
            }
        }
        None => line,
    };
    if is_interpreter_talk(line) {
        return String::new();
    }
    // How a validator ends its sentences: [type=…, input_value=…, input_type=…].
    let line = line.find("[type=").map_or(line, |at| &line[..at]);
    let line = without_objects(line);
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
    // `ValueError('text')` was opened before the text and is closed behind it.
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

/// A word without the exception's class it may be or begin with, and how many brackets that opened.
fn without_class(word: &str) -> (&str, usize) {
    if let Some((class, rest)) = word.split_once('(')
        && is_class(class)
    {
        return (rest.trim_start_matches(['\'', '"']), 1);
    }
    let bare = word.trim_matches(['\'', '"', '`', ',', '.', ';', '(', ')', '[', ']']);
    if let Some(class) = bare.strip_suffix(':') {
        return (if is_class(class) { "" } else { word }, 0);
    }
    (if is_class(bare) { "an error" } else { word }, 0)
}

/// `RuntimeError`, `openai.BadRequestError`, `java.lang.IllegalStateException`.
fn is_class(word: &str) -> bool {
    const ENDS: &[&str] = &["Error", "Exception", "Interrupt", "Exit", "Warning"];
    let name = word.rsplit(['.', '$']).next().unwrap_or(word);
    is_identifier(word)
        && name.starts_with(|letter: char| letter.is_ascii_uppercase())
        && ENDS.iter().any(|end| name.len() > end.len() && name.ends_with(end))
}

fn is_identifier(word: &str) -> bool {
    !word.is_empty()
        && word.starts_with(|letter: char| letter.is_ascii_alphabetic() || letter == '_')
        && word.chars().all(|letter| letter.is_ascii_alphanumeric() || matches!(letter, '_' | '.' | '$'))
}

/// `  File "agent.py", line 3, in act`, `at com.example.Agent.act(Agent.java:3)`, `at act (/srv/agent.js:3:7)`.
fn is_stack_frame(text: &str) -> bool {
    text.starts_with("File \"")
        || (!text.is_empty() && text.chars().all(|letter| matches!(letter, '^' | '~' | ' ')))
        || (text.starts_with("at ")
            && text.contains([':', '('])
            && text.ends_with([')', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9']))
        || text.starts_with("... ") && text.ends_with(" more")
}

/// `2 validation errors for AgentRequest`
fn is_validation_title(text: &str) -> bool {
    let mut words = text.split(' ');
    words.next().is_some_and(|count| !count.is_empty() && count.bytes().all(|digit| digit.is_ascii_digit()))
        && words.next() == Some("validation")
        && words.next().is_some_and(|word| word.starts_with("error"))
}

/// What an interpreter says of types and names in its program; it means nothing to a client.
fn is_interpreter_talk(line: &str) -> bool {
    const SAYINGS: &[&str] = &[
        "' object is not ",
        "' object has no attribute ",
        "' object does not support ",
        " positional argument",
        "unexpected keyword argument",
        "unsupported operand type",
        "is not a function",
        "Cannot read properties of ",
        "NoneType",
    ];
    SAYINGS.iter().any(|saying| line.contains(saying))
}

/// Replaces `<agent.Model object at 0x7f…>` and `<class 'agent.Model'>`.
fn without_objects(line: &str) -> String {
    let mut text = String::with_capacity(line.len());
    let mut rest = line;
    while let Some(from) = rest.find('<') {
        let Some(length) = rest[from..].find('>') else { break };
        let span = &rest[from..=from + length];
        text.push_str(&rest[..from]);
        let object = span.starts_with("<class ") || span.contains(" object") || span.contains(" at 0x");
        text.push_str(if object { "an object" } else { span });
        rest = &rest[from + length + 1..];
    }
    text.push_str(rest);
    text
}

/// An absolute path, or any path to a source file. Links are no paths.
fn is_source_path(word: &str) -> bool {
    const FOLDERS: &[&str] = &["home", "root", "usr", "opt", "srv", "app", "var", "tmp", "Users"];
    const SOURCES: &[&str] = &[".py", ".js", ".ts", ".java", ".kt", ".rs", ".go", ".rb", ".so"];
    let word = word.trim_matches(['\'', '"', '`', ',', ';', '(', ')', '[', ']', ':']);
    if !word.contains(['/', '\\']) || word.contains("://") {
        return false;
    }
    let path = word.split(':').next().unwrap_or(word);
    let drive = word.as_bytes().get(1) == Some(&b':') && word.contains('\\');
    drive
        || SOURCES.iter().any(|end| path.ends_with(end))
        || path.strip_prefix('/').and_then(|path| path.split_once('/')).is_some_and(|(top, _)| FOLDERS.contains(&top))
}

/// The beginning of a text, cut between characters.
fn truncated(text: &str, length: usize) -> &str {
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
    fn what_is_meant_for_people_stays() {
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
    fn class_names_are_left_out() {
        for (text, left) in [
            ("Unknown agent error: RuntimeError: upstream model exploded", "upstream model exploded"),
            ("Unknown agent error: Timeout: too slow", "too slow"),
            ("Unknown agent error: KeyError", "the agent failed"),
            ("Unknown agent error: the disk is full: really", "the disk is full: really"),
            ("openai.BadRequestError: context too long", "context too long"),
            ("connection failed: httpx.ConnectError: nobody there", "connection failed: nobody there"),
            ("ValueError('no such city')", "no such city"),
            ("raised java.lang.IllegalStateException, twice", "raised an error twice"),
            ("could not call <weather.Tool object at 0x7f3a>", "could not call an object"),
        ] {
            assert_eq!(client_text("AGENT_UNKNOWN_ERROR", text), left, "{text}");
        }
    }

    #[test]
    fn a_stack_is_left_out_and_its_last_line_stays() {
        let text = "Agent died\nTraceback (most recent call last):\n  File \"/srv/agent.py\", line 3, in act\n    \
                    model.ask()\n    ^^^^^\nRuntimeError: the model exploded\n";
        assert_eq!(client_text("", text), "Agent died the model exploded");
        let text = "java.io.IOException: broken pipe\n\tat com.example.Agent.act(Agent.java:31)\n\t... 3 more";
        assert_eq!(client_text("", text), "broken pipe");
        assert_eq!(client_text("", "failed in /home/me/agent.py:12 again"), "failed in … again");
    }

    #[test]
    fn a_validators_list_becomes_a_sentence() {
        let text = "1 validation error for AgentRequest\ninput.0.role\n  Input should be 'assistant', 'system', 'user' \
                    or 'tool' [type=literal_error, input_value='developer', input_type=str]\n    For further \
                    information visit https://errors.pydantic.dev/2.14/v/literal_error";
        assert_eq!(client_text("", text), "input.0.role: Input should be 'assistant', 'system', 'user' or 'tool'");
    }

    #[test]
    fn what_an_interpreter_says_of_itself_is_no_sentence() {
        assert_eq!(client_text("", "'NoneType' object is not iterable"), "the agent failed");
        assert_eq!(client_text("MODEL_TIMEOUT", ""), "the agent took too long");
    }

    #[test]
    fn keys_are_hidden() {
        let text = "Incorrect API key provided: sk-abcdefghijklmnop, header Bearer abc";
        assert_eq!(client_text("", text), "Incorrect API key provided: …, header Bearer …");
    }

    #[test]
    fn what_a_stranger_must_not_read_is_hidden_wherever_it_stands() {
        let hex = "0123456789abcdef".repeat(4);
        let hex = format!("no such key {hex}");
        for (text, shown) in [
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
            assert_eq!(client_text("", text), shown, "{text}");
        }
    }

    #[test]
    fn ordinary_sentences_stay_as_they_are() {
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
        ] {
            assert_eq!(client_text("", text), text);
            assert_eq!(log_text(text), text);
        }
    }

    #[test]
    fn a_word_without_end_costs_no_depth() {
        for part in ["password=x,", "a://b'", "\"token\":\"abcdefgh12\",", "::1]", "(", "'", "key=", "é"] {
            let text = part.repeat(4_000);
            for what in [Hide::Secrets, Hide::SecretsAndPlaces] {
                assert!(hide(&text, what).len() <= 2 * text.len());
            }
        }
        let secrets = hide(&"password=hunter2,".repeat(1000), Hide::Secrets);
        assert_eq!(secrets, "password=…,".repeat(1000));
    }

    #[test]
    fn a_log_line_holds_the_beginning_and_no_secret() {
        let text = format!("File \"/srv/agent.py\" on 10.0.0.5: password=hunter2 {}", "é".repeat(1000));
        let logged = log_text(&text);
        assert!(logged.starts_with("File \"/srv/agent.py\" on 10.0.0.5: password=… é") && logged.ends_with('…'));
        assert!(logged.len() <= MAX_LOGGED + '…'.len_utf8());
    }

    #[test]
    fn a_code_is_a_word() {
        assert_eq!(client_code("MODEL_TIMEOUT"), "MODEL_TIMEOUT");
        assert_eq!(client_code("500"), "500");
        for text in ["", "the model exploded", "RuntimeError", "Ü", "sk-abcdefghijklmnop1234", "10.0.0.5"] {
            assert_eq!(client_code(text), "AGENT_ERROR");
        }
    }

    proptest! {
        #[test]
        fn hiding_ends_and_keeps_what_is_hidden_hidden(text in "(?s).{0,200}|([a-z]{0,9}[=:]|://|[@\"' /?]|Bearer |sk-[a-z0-9]{9,20}|-----BEGIN ){0,30}") {
            for what in [Hide::Secrets, Hide::SecretsAndPlaces] {
                let once = hide(&text, what);
                prop_assert!(once.len() <= 4 * text.len());
            }
        }

        #[test]
        fn any_text_becomes_one_short_line(text in "(?s).{0,300}|(Error: |Traceback|<class |\\n | )*|.{4000}") {
            let said = client_text("X", &text);
            prop_assert!(!said.is_empty() && said.len() <= LONGEST + '…'.len_utf8());
            prop_assert!(!said.contains(['\n', '\r']));
        }
    }
}
