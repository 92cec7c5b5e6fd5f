//! Masking of the secrets in the configuration: none of them appears in errors or log lines, whatever an agent returns.
//!
//! The configuration registers every secret it reads. Texts of upstreams are masked before they become faults, and
//! every log line as it is written. Not here: unknown secrets, which are detected by their form
//! ([`interlingua_core::filter`]); the output of agents, which is passed on unchanged.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::io::{self, Write};
use std::sync::{PoisonError, RwLock};

use base64::Engine as _;
use base64::prelude::{BASE64_STANDARD, BASE64_STANDARD_NO_PAD, BASE64_URL_SAFE, BASE64_URL_SAFE_NO_PAD};
use interlingua_core::Fault;
use interlingua_core::fault::error_chain;
use interlingua_core::filter;
use tracing_subscriber::fmt::MakeWriter;

/// The replacement for a secret.
const MASK: &str = "***";

/// Shorter secrets are not masked: they may be ordinary words, and masking them everywhere would also reveal them. In
/// bytes.
pub const MIN_LEN: usize = 6;

/// Every form of every secret, the longest first. Global, like the log.
static KNOWN: RwLock<Vec<String>> = RwLock::new(Vec::new());

/// Registers a secret. From now on it is masked in all its forms: as it is, without an authentication scheme, encoded
/// as or decoded from basic credentials, and escaped for URLs and JSON.
pub fn remember(secret: &str) {
    let mut forms = BTreeSet::new();
    collect(secret.trim(), &mut forms);
    let mut known = KNOWN.write().unwrap_or_else(PoisonError::into_inner);
    for form in forms {
        if form.len() >= MIN_LEN && !known.contains(&form) {
            known.push(form);
        }
    }

    // Longer forms first, since a short form may be part of a longer one.
    known.sort_by_key(|form| std::cmp::Reverse(form.len()));
}

/// Registers the secrets of a URL: its user info, and query values that look like a secret or have the name of one.
/// True if the query holds one.
pub fn remember_url(url: &url::Url) -> bool {
    if let Some(password) = url.password() {
        remember(&format!("{}:{password}", url.username()));
    }

    let mut found = false;
    for (name, value) in url.query_pairs() {
        let name = name.to_ascii_lowercase();
        let secret_names = ["key", "token", "secret", "password", "sig", "signature", "auth", "code"];
        // Requires a digit, so that ordinary words such as in `mode=streaming` are not masked.
        let looks_secret = value.len() >= 16 && value.bytes().any(|byte| byte.is_ascii_digit());
        if looks_secret || secret_names.iter().any(|end| name.ends_with(end)) {
            remember(&value);
            found = true;
        }
    }
    found
}

/// Masks every registered secret in a text.
#[must_use]
pub fn mask(text: &str) -> Cow<'_, str> {
    let known = KNOWN.read().unwrap_or_else(PoisonError::into_inner);
    let mut text = Cow::Borrowed(text);
    for form in known.iter() {
        if text.contains(form.as_str()) {
            text = Cow::Owned(text.replace(form.as_str(), MASK));
        }
    }

    text
}

/// Masks every registered secret in a truncated text, including a partial secret at its end.
#[must_use]
pub fn mask_truncated(text: &str) -> Cow<'_, str> {
    let text = mask(text);
    let known = KNOWN.read().unwrap_or_else(PoisonError::into_inner);
    let partial_len = |form: &String| {
        let mut lengths = (MIN_LEN..form.len()).rev().filter(|length| form.is_char_boundary(*length));
        lengths.find(|length| text.ends_with(&form[..*length]))
    };

    match known.iter().filter_map(partial_len).max() {
        Some(length) => Cow::Owned(format!("{}{MASK}", &text[..text.len() - length])),
        None => text,
    }
}

/// Masks every registered secret in a fault. The detail, which is for the log only, is also truncated, and filtered for
/// unknown secrets.
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

/// Collects the forms of a secret.
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

/// A log writer that masks every registered secret.
#[derive(Clone, Copy, Debug)]
pub struct MaskingWriter<M>(pub M);

impl<'a, M: MakeWriter<'a>> MakeWriter<'a> for MaskingWriter<M> {
    type Writer = MaskingWriter<M::Writer>;

    fn make_writer(&'a self) -> Self::Writer {
        MaskingWriter(self.0.make_writer())
    }
}

impl<W: Write> Write for MaskingWriter<W> {
    /// Invariant: tracing-subscriber writes every line in one call, so that no secret is split between two calls.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        match std::str::from_utf8(line).map(mask) {
            Ok(Cow::Owned(masked)) => self.0.write_all(masked.as_bytes())?,
            _ => self.0.write_all(line)?,
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partial_secret_at_the_end_of_a_truncated_text_is_masked() {
        remember("half-a-secret-at-a-cut");
        assert_eq!(mask_truncated("the key half-a-secret-"), "the key ***");
        assert_eq!(mask_truncated("half-a-secret-at-a-cut and half-a-s"), "*** and ***");
        assert_eq!(mask_truncated("half a word, and half-a-secret no more"), "half a word, and half-a-secret no more");
    }

    #[test]
    fn a_secret_is_masked_in_every_form() {
        remember("Bearer tok/en+1\"2");
        for text in ["tok/en+1\"2", "x=tok%2Fen%2B1%222&", "{\"t\":\"tok/en+1\\\"2\"}"] {
            assert!(!mask(text).contains("en") && mask(text).contains(MASK), "{text} became {}", mask(text));
        }
        assert!(mask(&BASE64_STANDARD.encode("tok/en+1\"2")) == MASK);

        remember(&BASE64_STANDARD.encode("eve:trustno1"));
        assert_eq!(mask("eve:trustno1, or trustno1"), "***, or ***");
        remember(&format!("Basic {}", BASE64_STANDARD.encode("ada:swordfish")));
        assert_eq!(mask("ada logged in with swordfish as ada:swordfish"), "ada logged in with *** as ***");
        assert_eq!(mask(&format!("got {}", BASE64_STANDARD.encode("ada:swordfish"))), "got ***");

        remember("-----BEGIN KEY-----\nMIIEvQIBADANBgkqhkiG9w0\nBAQEFAASCBKcwggSjAgEAAo\n-----END KEY-----\n");
        assert_eq!(mask("line BAQEFAASCBKcwggSjAgEAAo of it"), "line *** of it");

        remember_url(&url::Url::parse("https://bob:opensesame@host/?key=12345678&mode=streaming").expect("a URL"));
        assert_eq!(mask("bob:opensesame asked ?key=12345678&mode=streaming"), "*** asked ?key=***&mode=streaming");
        assert_eq!(mask("nothing of this is one"), "nothing of this is one");
    }

    #[test]
    fn short_secrets_are_not_masked() {
        remember("demo");
        remember("");
        assert_eq!(mask("the demo agent"), "the demo agent");
    }

    #[test]
    fn secrets_are_masked_in_all_fields_of_a_fault() {
        remember("canary-in-a-fault");
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
    fn secrets_are_masked_in_log_lines() {
        remember("canary-in-a-line");
        let mut written = MaskingWriter(Vec::new());
        written.write_all(b"WARN said=canary-in-a-line\n").expect("memory");
        written.write_all(b"\xff not text\n").expect("memory");
        assert_eq!(written.0, b"WARN said=***\n\xff not text\n");
    }
}
