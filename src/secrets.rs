//! The secrets of the configuration, known word for word, and their cover: whatever an agent says, no client and no log
//! line shows one.
//!
//! The configuration tells every secret it reads. Masked are texts of upstreams before they become faults, and every log
//! line as it is written. Not here: secrets nobody told us of, which are found by their shape
//! ([`interlingua_core::filter`]); what an agent answers, which is passed on as it is.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::io::{self, Write};
use std::sync::{PoisonError, RwLock};

use base64::Engine as _;
use base64::prelude::{BASE64_STANDARD, BASE64_STANDARD_NO_PAD, BASE64_URL_SAFE, BASE64_URL_SAFE_NO_PAD};
use interlingua_core::Fault;
use interlingua_core::filter;
use tracing_subscriber::fmt::MakeWriter;

/// What stands where a secret was.
const COVER: &str = "***";

/// Shorter ones are words like others: masking them would tear holes into every text, and tell where they stood.
const MIN_LEN: usize = 6;

/// Every form a secret may take, the longest first. There is one list for the process, as there is one log.
static KNOWN: RwLock<Vec<String>> = RwLock::new(Vec::new());

/// From now on this is masked, in all its forms: as it is, without the scheme in front of it, packed as basic
/// credentials or unpacked from them, as it stands in a URL or in JSON.
pub fn remember(secret: &str) {
    let mut forms = BTreeSet::new();
    collect(secret.trim(), &mut forms);
    let mut known = KNOWN.write().unwrap_or_else(PoisonError::into_inner);
    for form in forms {
        if form.len() >= MIN_LEN && !known.contains(&form) {
            known.push(form);
        }
    }
    // A short one may be a part of a long one.
    known.sort_by_key(|form| std::cmp::Reverse(form.len()));
}

/// What a URL holds that is secret: who logs in, and the values of its query that look or are named so.
pub fn remember_url(url: &url::Url) {
    if let Some(password) = url.password() {
        remember(&format!("{}:{password}", url.username()));
    }
    for (name, value) in url.query_pairs() {
        let name = name.to_ascii_lowercase();
        let says_so = ["key", "token", "secret", "password", "sig", "signature", "auth", "code"];
        // `mode=streaming` is a word, and stays one.
        let looks_so = value.len() >= 16 && value.bytes().any(|letter| letter.is_ascii_digit());
        if looks_so || says_so.iter().any(|end| name.ends_with(end)) {
            remember(&value);
        }
    }
}

/// A text with a cover over every secret in it.
#[must_use]
pub fn mask(text: &str) -> Cow<'_, str> {
    let known = KNOWN.read().unwrap_or_else(PoisonError::into_inner);
    let mut text = Cow::Borrowed(text);
    for form in known.iter() {
        if text.contains(form.as_str()) {
            text = Cow::Owned(text.replace(form.as_str(), COVER));
        }
    }
    text
}

/// The beginning of a text that was cut somewhere, with a cover over every secret in it: half a secret at the cut is one
/// too.
#[must_use]
pub fn mask_beginning(text: &str) -> Cow<'_, str> {
    let text = mask(text);
    let known = KNOWN.read().unwrap_or_else(PoisonError::into_inner);
    let begun = |form: &String| {
        let mut lengths = (MIN_LEN..form.len()).rev().filter(|length| form.is_char_boundary(*length));
        lengths.find(|length| text.ends_with(&form[..*length]))
    };

    match known.iter().filter_map(begun).max() {
        Some(length) => Cow::Owned(format!("{}{COVER}", &text[..text.len() - length])),
        None => text,
    }
}

/// A fault with a cover over every secret in it. What is only for the log is cut too, and goes without whatever looks
/// like a secret.
#[must_use]
pub fn masked(mut fault: Fault) -> Fault {
    fn cover(text: &mut String) {
        if let Cow::Owned(masked) = mask(text) {
            *text = masked;
        }
    }
    cover(&mut fault.message);
    fault.field.iter_mut().for_each(cover);
    if let Some(code) = &fault.code {
        fault.code = Some(filter::client_code(&mask(code)).to_owned());
    }
    for (field, sentence) in &mut fault.violations {
        cover(field);
        cover(sentence);
    }
    fault.detail = fault.detail.map(|detail| filter::log_text(&mask(&detail)));
    fault
}

/// The forms of a secret.
fn collect(secret: &str, forms: &mut BTreeSet<String>) {
    if secret.len() < MIN_LEN || !forms.insert(secret.to_owned()) {
        return;
    }
    // Keys in several lines are logged line by line, and their first and last lines are no secret.
    let lines = secret.lines().map(str::trim).filter(|line| line.len() >= 16 && !line.starts_with("-----"));
    if secret.contains('\n') {
        forms.extend(lines.map(str::to_owned));
    }
    if let Some((scheme, rest)) = secret.split_once(' ')
        && scheme.bytes().all(|letter| letter.is_ascii_alphanumeric() || letter == b'-')
    {
        collect(rest.trim(), forms);
    }
    // Basic credentials, with or without their scheme in front.
    if let Ok(unpacked) = BASE64_STANDARD.decode(secret)
        && let Ok(unpacked) = String::from_utf8(unpacked)
        && unpacked.contains(':')
        && unpacked.chars().all(|letter| !letter.is_control())
    {
        collect(&unpacked, forms);
    }
    // `ada:password`
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

/// Writes log lines with a cover over every secret in them.
#[derive(Clone, Copy, Debug)]
pub struct Masked<M>(pub M);

impl<'a, M: MakeWriter<'a>> MakeWriter<'a> for Masked<M> {
    type Writer = Masked<M::Writer>;

    fn make_writer(&'a self) -> Self::Writer {
        Masked(self.0.make_writer())
    }
}

impl<W: Write> Write for Masked<W> {
    /// A line comes in one piece: what is written is masked by itself.
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
    fn half_a_secret_where_a_text_was_cut_is_masked() {
        remember("half-a-secret-at-a-cut");
        assert_eq!(mask_beginning("the key half-a-secret-"), "the key ***");
        assert_eq!(mask_beginning("half-a-secret-at-a-cut and half-a-s"), "*** and ***");
        assert_eq!(mask_beginning("half a word, and half-a-secret no more"), "half a word, and half-a-secret no more");
    }

    #[test]
    fn a_secret_is_masked_in_every_form_it_may_take() {
        remember("Bearer tok/en+1\"2");
        for text in ["tok/en+1\"2", "x=tok%2Fen%2B1%222&", "{\"t\":\"tok/en+1\\\"2\"}"] {
            assert!(!mask(text).contains("en") && mask(text).contains(COVER), "{text} became {}", mask(text));
        }
        assert!(mask(&BASE64_STANDARD.encode("tok/en+1\"2")) == COVER);

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
    fn what_is_short_is_a_word() {
        remember("demo");
        remember("");
        assert_eq!(mask("the demo agent"), "the demo agent");
    }

    #[test]
    fn a_fault_holds_no_secret_anywhere() {
        remember("canary-in-a-fault");
        let mut fault = Fault::invalid("canary-in-a-fault.x", "no canary-in-a-fault")
            .with_code("canary-in-a-fault")
            .with_detail(format!("password=hunter2 canary-in-a-fault {}", "x ".repeat(2000)));
        fault.violations.push(("canary-in-a-fault".into(), "canary-in-a-fault".into()));
        let masked = masked(fault);
        assert!(!format!("{masked:?}").contains("canary-in"), "{masked:?}");
        let detail = masked.detail.expect("it had one");
        assert!(detail.starts_with("password=… ***") && detail.len() < 520, "{detail}");
    }

    #[test]
    fn a_log_line_holds_no_secret() {
        remember("canary-in-a-line");
        let mut written = Masked(Vec::new());
        written.write_all(b"WARN said=canary-in-a-line\n").expect("memory");
        written.write_all(b"\xff not text\n").expect("memory");
        assert_eq!(written.0, b"WARN said=***\n\xff not text\n");
    }
}
