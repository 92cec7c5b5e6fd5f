//! Masking of the secrets in a configuration: none of them appears in errors or log lines, whatever an agent returns.
//!
//! Each configuration collects the secrets that it reads ([`SecretForms`]) and masks its own diagnostics with them
//! ([`Masks`]). Only the secrets of settings in force are masked in the texts of agents and in log lines: a
//! configuration that is only checked changes no log. Not here: unknown secrets, which are detected by their form
//! ([`interlingua_core::filter`]); the output of agents, which is passed on unchanged.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;
use std::io::{self, Write};
use std::ops::Range;
use std::sync::{Arc, LazyLock, Mutex, OnceLock, PoisonError, Weak};

use aho_corasick::{AhoCorasick, AhoCorasickKind};
use arc_swap::ArcSwap;
use base64::Engine as _;
use base64::prelude::{BASE64_STANDARD, BASE64_STANDARD_NO_PAD, BASE64_URL_SAFE, BASE64_URL_SAFE_NO_PAD};
use interlingua_core::Fault;
use interlingua_core::fault::error_chain;
use interlingua_core::filter;
use tracing::Metadata;
use tracing_subscriber::fmt::MakeWriter;

/// The replacement for a secret.
const MASK: &str = "***";

/// Shorter secrets are not masked: they may be ordinary words, and masking them everywhere would also reveal them. In
/// bytes.
pub const MIN_LEN: usize = 6;

/// All forms of the secrets of one configuration, in bytes: room for a hundred private keys.
const MAX_FORMS_LEN: usize = 4 << 20;

/// Fields of a JSON log line with a fixed vocabulary, which are never masked.
const FIXED_FIELDS: [&str; 3] = ["timestamp", "level", "target"];

/// Levels of log lines, as they are written.
const LEVELS: [&str; 5] = ["ERROR", "WARN", "INFO", "DEBUG", "TRACE"];

/// The secrets of a configuration that is being read, in all their forms.
#[derive(Default)]
pub struct SecretForms {
    forms: BTreeSet<String>,
    /// The length of all forms.
    len: usize,
    is_full: bool,
}

impl SecretForms {
    /// Adds a secret in all its forms: unchanged, without an authentication scheme, encoded as or decoded from basic
    /// credentials, and escaped for URLs and JSON.
    pub fn add(&mut self, secret: &str) {
        let mut forms = BTreeSet::new();
        collect(secret.trim(), &mut forms);
        for form in forms {
            if form.len() < MIN_LEN || self.forms.contains(&form) {
                continue;
            }
            if self.len + form.len() > MAX_FORMS_LEN {
                self.is_full = true;
                return;
            }
            self.len += form.len();
            self.forms.insert(form);
        }
    }

    /// Adds the secrets of a URL: its user info, and query values that look like a secret or have the name of one. True
    /// if the query holds one.
    pub fn add_url(&mut self, url: &url::Url) -> bool {
        if let Some(password) = url.password() {
            self.add(&format!("{}:{password}", url.username()));
        }

        let mut found = false;
        for (name, value) in url.query_pairs() {
            let name = name.to_ascii_lowercase();
            let secret_names = ["key", "token", "secret", "password", "sig", "signature", "auth", "code"];
            // Requires a digit, so that ordinary words such as in `mode=streaming` are not masked.
            let looks_secret = value.len() >= 16 && value.bytes().any(|byte| byte.is_ascii_digit());
            if looks_secret || secret_names.iter().any(|end| name.ends_with(end)) {
                self.add(&value);
                found = true;
            }
        }
        found
    }

    /// True if a secret was left out, because all of them together are too long.
    pub const fn is_full(&self) -> bool {
        self.is_full
    }

    /// The masks for these secrets.
    #[must_use]
    pub fn masks(self) -> Masks {
        Masks(Arc::new(Forms { forms: self.forms.into_iter().collect(), searcher: OnceLock::new() }))
    }
}

/// Masks the secrets of a configuration. Clones are the same masks.
#[derive(Clone, Default)]
pub struct Masks(Arc<Forms>);

#[derive(Default)]
struct Forms {
    forms: Vec<String>,
    /// Made for the first text. `None`: there is nothing to mask.
    searcher: OnceLock<Option<AhoCorasick>>,
}

impl Masks {
    /// Masks for these secrets.
    #[must_use]
    pub fn from_texts(secrets: &[&str]) -> Self {
        let mut forms = SecretForms::default();
        secrets.iter().for_each(|secret| forms.add(secret));
        forms.masks()
    }

    /// Masks these secrets in all texts of agents and log lines from now on. They stay in force as long as a clone of
    /// these masks exists, and then until the next call for other masks: turns of the settings before may still use
    /// them.
    pub fn enforce(&self) {
        let mut enforced = ENFORCED.lock().unwrap_or_else(PoisonError::into_inner);
        enforced.retain(|masks| masks.strong_count() > 0);
        if !enforced.iter().any(|masks| masks.as_ptr() == Arc::as_ptr(&self.0)) {
            enforced.push(Arc::downgrade(&self.0));
        }
        let all: BTreeSet<String> =
            enforced.iter().filter_map(Weak::upgrade).flat_map(|masks| masks.forms.clone()).collect();
        IN_FORCE.store(Arc::new(Forms { forms: all.into_iter().collect(), searcher: OnceLock::new() }));
    }

    /// Masks every secret in a text.
    #[must_use]
    pub fn mask<'t>(&self, text: &'t str) -> Cow<'t, str> {
        self.0.mask(text)
    }

    /// Overwrites every secret in a text with asterisks. The text keeps its length and its lines.
    #[must_use]
    pub fn overwrite(&self, text: String) -> String {
        let found = self.0.find(&text);
        if found.is_empty() {
            return text;
        }
        let mut bytes = text.into_bytes();
        for span in found {
            bytes[span].iter_mut().filter(|byte| **byte != b'\n').for_each(|byte| *byte = b'*');
        }
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

impl fmt::Debug for Masks {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Masks")
    }
}

impl Forms {
    fn searcher(&self) -> Option<&AhoCorasick> {
        let build = || {
            // The smallest kind: keys of TLS are long.
            let mut builder = AhoCorasick::builder();
            builder.kind(Some(AhoCorasickKind::ContiguousNFA));
            (!self.forms.is_empty()).then(|| builder.build(&self.forms).ok()).flatten()
        };
        self.searcher.get_or_init(build).as_ref()
    }

    /// The spans of secrets in a text, in their order. Overlapping ones are one span. The time is linear in the text.
    fn find(&self, text: &str) -> Vec<Range<usize>> {
        let mut spans: Vec<Range<usize>> = Vec::new();
        let Some(searcher) = self.searcher() else { return spans };
        // In the order of their ends: a later one may begin before several earlier ones.
        for found in searcher.find_overlapping_iter(text) {
            let mut span = found.range();
            while let Some(last) = spans.pop_if(|last| last.end > span.start) {
                span.start = span.start.min(last.start);
            }
            spans.push(span);
        }
        spans
    }

    fn mask<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let found = self.find(text);
        if found.is_empty() {
            return Cow::Borrowed(text);
        }
        let (mut masked, mut end) = (String::with_capacity(text.len()), 0);
        for span in found {
            masked.push_str(&text[end..span.start]);
            masked.push_str(MASK);
            end = span.end;
        }
        masked.push_str(&text[end..]);
        Cow::Owned(masked)
    }
}

/// The masks that are enforced. A gateway has one set for its settings; a process may have several gateways.
static ENFORCED: Mutex<Vec<Weak<Forms>>> = Mutex::new(Vec::new());

/// The secrets of all enforced masks together. Global, like the log.
static IN_FORCE: LazyLock<ArcSwap<Forms>> = LazyLock::new(ArcSwap::default);

/// Masks every secret of the settings in force in a text.
#[must_use]
pub fn mask(text: &str) -> Cow<'_, str> {
    IN_FORCE.load().mask(text)
}

/// Masks every secret of the settings in force in a truncated text, including a partial secret at its end.
#[must_use]
pub fn mask_truncated(text: &str) -> Cow<'_, str> {
    let in_force = IN_FORCE.load();
    let text = in_force.mask(text);
    let partial_len = |form: &String| {
        let mut lengths = (MIN_LEN..form.len()).rev().filter(|length| form.is_char_boundary(*length));
        lengths.find(|length| text.ends_with(&form[..*length]))
    };

    match in_force.forms.iter().filter_map(partial_len).max() {
        Some(length) => Cow::Owned(format!("{}{MASK}", &text[..text.len() - length])),
        None => text,
    }
}

/// Masks secrets in the values of a line of JSON, and in nothing else: not in names of fields, numbers, or fields with
/// a fixed vocabulary. Other text than JSON is masked as a whole.
#[must_use]
pub fn mask_json_line(line: &str) -> Cow<'_, str> {
    let in_force = IN_FORCE.load();
    if in_force.searcher().is_none() {
        return Cow::Borrowed(line);
    }
    let bytes = line.as_bytes();
    if bytes.first() != Some(&b'{') {
        return in_force.mask(line);
    }
    let (mut masked, mut copied, mut at) = (String::new(), 0, 0);
    let mut is_fixed = false;
    while let Some(start) = memchr::memchr(b'"', &bytes[at..]).map(|found| at + found) {
        let Some(length) = string_len(&bytes[start..]) else { return in_force.mask(line) };
        let (text, end) = (&line[start..start + length], start + length);
        at = end;
        if bytes.get(end) == Some(&b':') {
            is_fixed = FIXED_FIELDS.contains(&text.trim_matches('"'));
            continue;
        }
        let Ok(value) = serde_json::from_str::<Cow<'_, str>>(text) else { continue };
        if !is_fixed && let Cow::Owned(value) = in_force.mask(&value) {
            masked.push_str(&line[copied..start]);
            masked.push_str(&serde_json::Value::String(value).to_string());
            copied = end;
        }
    }
    if copied == 0 {
        return Cow::Borrowed(line);
    }
    masked.push_str(&line[copied..]);
    Cow::Owned(masked)
}

/// The length of the JSON string that bytes begin with, with its quotes.
fn string_len(bytes: &[u8]) -> Option<usize> {
    let mut at = 1;
    loop {
        at += memchr::memchr2(b'"', b'\\', bytes.get(at..)?)?;
        match bytes[at] {
            b'"' => return Some(at + 1),
            _ => at += 2,
        }
    }
}

/// Masks secrets in a log line for people, after its time and level.
fn mask_text_line(line: &str) -> Cow<'_, str> {
    let level = LEVELS.iter().filter_map(|level| Some(line.find(level)? + level.len())).min();
    // The time and the colours before it are short.
    let (prefix, rest) = line.split_at(level.filter(|end| *end <= 64).unwrap_or(0));
    match mask(rest) {
        Cow::Owned(masked) => Cow::Owned(format!("{prefix}{masked}")),
        Cow::Borrowed(_) => Cow::Borrowed(line),
    }
}

/// Masks every secret of the settings in force in a fault. The detail, which is for the log only, is also truncated,
/// and filtered for unknown secrets.
#[must_use]
pub fn mask_fault(mut fault: Fault) -> Fault {
    fn mask_in_place(text: &mut String) {
        if let Cow::Owned(masked) = mask(text) {
            *text = masked;
        }
    }

    mask_in_place(&mut fault.message);
    fault.field.iter_mut().for_each(mask_in_place);
    if let Some(code) = &fault.code {
        fault.code = Some(filter::client_code(&mask(code)).to_owned());
    }
    for (field, sentence) in &mut fault.violations {
        mask_in_place(field);
        mask_in_place(sentence);
    }
    fault.detail = fault.detail.map(|detail| filter::log_text(&mask(&detail)));
    // An error cannot be masked: one that holds a secret is dropped, and only its masked text stays, in the detail.
    fault.source = fault.source.filter(|source| {
        let text = error_chain(&**source);
        mask(&text) == text
    });
    fault
}

fn collect(secret: &str, forms: &mut BTreeSet<String>) {
    if secret.len() < MIN_LEN || !forms.insert(secret.to_owned()) {
        return;
    }

    // Multi-line keys may be logged line by line. Their header and footer are not secret.
    let lines = secret.lines().map(str::trim).filter(|line| line.len() >= 16 && !line.starts_with("-----"));
    if secret.contains('\n') {
        forms.extend(lines.map(str::to_owned));
    }
    if let Some((scheme, rest)) = secret.split_once(' ')
        && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    {
        collect(rest.trim(), forms);
    }

    // Basic credentials, with or without their scheme.
    if let Ok(decoded) = BASE64_STANDARD.decode(secret)
        && let Ok(decoded) = String::from_utf8(decoded)
        && decoded.contains(':')
        && decoded.chars().all(|character| !character.is_control())
    {
        collect(&decoded, forms);
    }
    // `user:password`
    if let Some((user, password)) = secret.split_once(':')
        && !user.contains(['/', ' '])
        && !password.starts_with("//")
    {
        collect(password, forms);
    }
    let bytes = secret.as_bytes();
    for engine in [&BASE64_STANDARD, &BASE64_STANDARD_NO_PAD, &BASE64_URL_SAFE, &BASE64_URL_SAFE_NO_PAD] {
        forms.insert(engine.encode(bytes));
    }
    forms.insert(percent_encoding::utf8_percent_encode(secret, percent_encoding::NON_ALPHANUMERIC).to_string());
    forms.insert(url::form_urlencoded::byte_serialize(bytes).collect::<String>());
    if let Ok(json) = serde_json::to_string(secret) {
        forms.insert(json[1..json.len() - 1].to_owned());
    }
}

/// A log writer that masks every secret of the settings in force.
#[derive(Clone, Copy, Debug)]
pub struct MaskingWriter<M> {
    /// The writer of masked lines.
    pub inner: M,
    /// True if each line is a JSON object.
    pub json: bool,
}

impl<'a, M: MakeWriter<'a>> MakeWriter<'a> for MaskingWriter<M> {
    type Writer = MaskingWriter<M::Writer>;

    fn make_writer(&'a self) -> Self::Writer {
        MaskingWriter { inner: self.inner.make_writer(), json: self.json }
    }

    fn make_writer_for(&'a self, line: &Metadata<'_>) -> Self::Writer {
        MaskingWriter { inner: self.inner.make_writer_for(line), json: self.json }
    }
}

impl<W: Write> Write for MaskingWriter<W> {
    /// Invariant: tracing-subscriber writes every line in one call, so that no secret is split between two calls.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let masked = std::str::from_utf8(line).map(if self.json { mask_json_line } else { mask_text_line });
        match masked {
            Ok(Cow::Owned(masked)) => self.inner.write_all(masked.as_bytes())?,
            _ => self.inner.write_all(line)?,
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn a_partial_secret_at_the_end_of_a_truncated_text_is_masked() {
        let masks = Masks::from_texts(&["half-a-secret-at-a-cut"]);
        masks.enforce();
        assert_eq!(mask_truncated("the key half-a-secret-"), "the key ***");
        assert_eq!(mask_truncated("half-a-secret-at-a-cut and half-a-s"), "*** and ***");
        assert_eq!(mask_truncated("half a word, and half-a-secret no more"), "half a word, and half-a-secret no more");
    }

    #[test]
    fn a_secret_is_masked_in_every_form() {
        let masks = Masks::from_texts(&["Bearer tok/en+1\"2"]);
        for text in ["tok/en+1\"2", "x=tok%2Fen%2B1%222&", "{\"t\":\"tok/en+1\\\"2\"}"] {
            let masked = masks.mask(text);
            assert!(!masked.contains("en") && masked.contains(MASK), "{text} became {masked}");
        }
        assert_eq!(masks.mask(&BASE64_STANDARD.encode("tok/en+1\"2")), MASK);

        let masks = Masks::from_texts(&[&BASE64_STANDARD.encode("eve:trustno1")]);
        assert_eq!(masks.mask("eve:trustno1, or trustno1"), "***, or ***");
        let masks = Masks::from_texts(&[&format!("Basic {}", BASE64_STANDARD.encode("ada:swordfish"))]);
        assert_eq!(masks.mask("ada logged in with swordfish as ada:swordfish"), "ada logged in with *** as ***");
        assert_eq!(masks.mask(&format!("got {}", BASE64_STANDARD.encode("ada:swordfish"))), "got ***");

        let pem = "-----BEGIN KEY-----\nMIIEvQIBADANBgkqhkiG9w0\nBAQEFAASCBKcwggSjAgEAAo\n-----END KEY-----\n";
        assert_eq!(Masks::from_texts(&[pem]).mask("line BAQEFAASCBKcwggSjAgEAAo of it"), "line *** of it");

        let mut forms = SecretForms::default();
        let url = url::Url::parse("https://bob:opensesame@host/?key=12345678&mode=streaming").expect("a URL");
        assert!(forms.add_url(&url));
        let masks = forms.masks();
        assert_eq!(
            masks.mask("bob:opensesame asked ?key=12345678&mode=streaming"),
            "*** asked ?key=***&mode=streaming"
        );
        assert_eq!(masks.mask("nothing of this is one"), "nothing of this is one");
    }

    #[test]
    fn overlapping_secrets_are_masked_together_and_a_source_keeps_its_length() {
        let masks = Masks::from_texts(&["abcdefgh", "efghijkl", "ghijklmnop"]);
        assert_eq!(masks.mask("x abcdefghijklmnop y efghijkl"), "x *** y ***");
        assert_eq!(masks.overwrite("x = efghijkl\n".to_owned()), "x = ********\n");
    }

    #[test]
    fn short_secrets_are_not_masked() {
        assert_eq!(Masks::from_texts(&["demo", ""]).mask("the demo agent"), "the demo agent");
    }

    #[test]
    fn only_enforced_masks_count_and_they_end_with_their_settings() {
        let (first, checked) = (Masks::from_texts(&["a-secret-in-force"]), Masks::from_texts(&["only-in-a-check"]));
        first.enforce();
        let text = "a-secret-in-force only-in-a-check a-later-secret";
        assert_eq!(mask(text), "*** only-in-a-check a-later-secret");
        assert_eq!(checked.mask(text), "a-secret-in-force *** a-later-secret");

        let second = Masks::from_texts(&["a-later-secret"]);
        second.enforce();
        drop(first);
        assert_eq!(mask(text), "*** only-in-a-check ***", "turns may have begun before");
        second.enforce();
        assert_eq!(mask(text), "a-secret-in-force only-in-a-check ***");
    }

    #[test]
    fn secrets_without_bound_are_refused() {
        let mut forms = SecretForms::default();
        for number in 0..100_000 {
            forms.add(&format!("secret-number-{number}"));
        }
        assert!(forms.is_full() && forms.len <= MAX_FORMS_LEN);
    }

    #[test]
    fn the_cost_of_masking_does_not_grow_with_the_number_of_secrets() {
        let time = |count: u32| {
            let secrets: Vec<String> = (0..count).map(|number| format!("secret/number-{number}")).collect();
            let masks = Masks::from_texts(&secrets.iter().map(String::as_str).collect::<Vec<_>>());
            let text = "a line of the log without any of them, at /agents/friday/process ".repeat(1000);
            assert!(matches!(masks.mask(&text), Cow::Borrowed(_)));
            let began = Instant::now();
            assert!(matches!(masks.mask(&text), Cow::Borrowed(_)));
            began.elapsed()
        };
        let best = |count| (0..5).map(|_| time(count)).min().unwrap_or_default();
        let (few, many) = (best(10), best(5_000));
        assert!(many < few * 50, "10 secrets: {few:?}, 5,000 secrets: {many:?}");
    }

    #[test]
    fn secrets_are_masked_in_all_fields_of_a_fault() {
        let masks = Masks::from_texts(&["canary-in-a-fault"]);
        masks.enforce();
        let mut fault = Fault::invalid("canary-in-a-fault.x", "no canary-in-a-fault")
            .with_code("canary-in-a-fault")
            .with_detail(format!("password=hunter2 canary-in-a-fault {}", "x ".repeat(2000)));
        fault.violations.push(("canary-in-a-fault".into(), "canary-in-a-fault".into()));
        let masked = mask_fault(fault);
        assert!(!format!("{masked:?}").contains("canary-in"), "{masked:?}");

        let detail = masked.detail.expect("it had one");
        assert!(detail.starts_with("password=… ***") && detail.len() < 520, "{detail}");
    }

    #[test]
    fn secrets_are_masked_in_log_lines_and_never_their_structure() {
        let masks = Masks::from_texts(&[
            "canary-in-a-line",
            "message",
            "\"level\":\"",
            "WARNING",
            "ends-with\\",
            "interlingua",
        ]);
        masks.enforce();
        let written = |json, line: &[u8]| {
            let mut writer = MaskingWriter { inner: Vec::new(), json };
            writer.write_all(line).expect("memory");
            String::from_utf8_lossy(&writer.inner).into_owned()
        };
        assert_eq!(
            written(false, b"2026-01-01T00:00:00Z WARN said=canary-in-a-line\n"),
            "2026-01-01T00:00:00Z WARN said=***\n"
        );
        assert_eq!(written(false, b"\xff not text\n"), "\u{fffd} not text\n");

        let line = serde_json::json!({
            "level": "WARNING", "target": "interlingua", "message": "a message ends-with\\",
            "fields": { "said": ["canary-in-a-line \"level\":\" \n"], "count": 12 },
        });
        let masked = written(true, line.to_string().as_bytes());
        let read: serde_json::Value = serde_json::from_str(&masked).expect("still JSON");
        let expected = serde_json::json!({
            "level": "WARNING", "target": "interlingua", "message": "a *** ***",
            "fields": { "said": ["*** *** \n"], "count": 12 },
        });
        assert_eq!(read, expected, "{masked}");
    }
}
