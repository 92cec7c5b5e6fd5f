//! The audit log: who changed or was refused what. Append-only, apart from all other logs, one JSON object per line.
//!
//! Never a credential, and never a text of a person or an agent.

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::net::IpAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::Serialize;

use super::lines::{LineWriter, LogTarget};
use super::time::time;
use crate::metrics::Metrics;
use interlingua_base::clock;
use interlingua_base::secrets;

/// The longest name, target and detail of an entry, in bytes. The rest is cut off.
const MAX_NAME_LEN: usize = 256;
const MAX_TARGET_LEN: usize = 256;
const MAX_DETAIL_LEN: usize = 1024;
/// The pause between two log lines about audit lines that could not be written.
const COMPLAINT_INTERVAL: Duration = Duration::from_secs(60);

/// The audited action.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[derive(ts_rs::TS, schemars::JsonSchema)]
pub enum Action {
    /// A key was made.
    KeyCreated,
    /// A key was revoked.
    KeyRevoked,
    /// Credentials were refused.
    CredentialRefused,
    /// A person decided a pending item.
    Decision,
    /// A run was canceled by another than its owner.
    RunCanceled,
    /// A run was deleted by another than its owner.
    RunDeleted,
    /// Someone signed in to the console.
    SignIn,
    /// Someone signed out of the console.
    SignOut,
    /// Someone opened another's run in the console.
    RunOpened,
    /// An agent takes no new runs, or takes them again.
    Drain,
    /// The configuration was reloaded, or was not.
    Reload,
    /// The admin listener was used for a change, or refused one.
    AdminCall,
    /// The log level was changed.
    LogLevel,
    /// The gateway began to serve.
    Started,
    /// The gateway stopped.
    Stopped,
}

/// A line of the audit log. Empty fields are left out.
#[derive(Clone, Debug, Serialize, ts_rs::TS, schemars::JsonSchema)]
pub struct AuditEntry {
    time: String,
    what: Action,
    #[serde(skip_serializing_if = "String::is_empty")]
    #[ts(as = "Option<String>", optional)]
    #[schemars(with = "Option<String>")]
    who: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[ts(as = "Option<String>", optional)]
    #[schemars(with = "Option<String>")]
    from: Option<IpAddr>,
    #[serde(skip_serializing_if = "String::is_empty")]
    #[ts(as = "Option<String>", optional)]
    #[schemars(with = "Option<String>")]
    target: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    #[ts(as = "Option<String>", optional)]
    #[schemars(with = "Option<String>")]
    detail: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    #[ts(as = "Option<String>", optional)]
    #[schemars(with = "Option<String>")]
    request: String,
    /// The number of entries of this kind that the line stands for, if more than one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[ts(optional)]
    count: Option<u32>,
    /// Whether a request was refused.
    #[serde(skip)]
    refused: bool,
}

impl AuditEntry {
    /// An entry of now.
    #[must_use]
    pub fn new(what: Action) -> Self {
        Self {
            time: time(clock::machine()),
            what,
            who: String::new(),
            from: None,
            target: String::new(),
            detail: String::new(),
            request: String::new(),
            count: None,
            refused: matches!(what, Action::CredentialRefused),
        }
    }

    /// One entry for several refusals.
    pub(super) fn sum(kind: &RefusalKind, from: Option<IpAddr>, count: u32) -> Self {
        Self { from, count: Some(count), ..Self::new(kind.what).refused().who(&kind.who).detail(&kind.detail) }
    }

    /// Marks a request that was refused: such entries are limited.
    #[must_use]
    pub const fn refused(mut self) -> Self {
        self.refused = true;
        self
    }

    /// The caller who did it, or `operator`. Empty if no one is known to have done it.
    #[must_use]
    pub fn who(mut self, who: impl Into<String>) -> Self {
        self.who = cut(who.into(), MAX_NAME_LEN);
        self
    }

    /// The address it came from.
    #[must_use]
    pub const fn from(mut self, address: IpAddr) -> Self {
        self.from = Some(address);
        self
    }

    /// The object of the action: a key's id, a run, an item, a path.
    #[must_use]
    pub fn target(mut self, target: impl Into<String>) -> Self {
        self.target = cut(target.into(), MAX_TARGET_LEN);
        self
    }

    /// A further fact: a reason, the name of a decision.
    #[must_use]
    pub fn detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = cut(detail.into(), MAX_DETAIL_LEN);
        self
    }

    /// The id of the request, as the access log has it.
    #[must_use]
    pub fn request(mut self, request: impl Into<String>) -> Self {
        self.request = request.into();
        self
    }

    pub(super) const fn is_refusal(&self) -> bool {
        self.refused
    }

    #[cfg(test)]
    pub(super) const fn action(&self) -> Action {
        self.what
    }

    pub(super) const fn address(&self) -> Option<IpAddr> {
        self.from
    }

    /// Distinguishes refusals that are counted apart.
    pub(super) fn kind(&self) -> RefusalKind {
        RefusalKind { what: self.what, who: self.who.clone(), detail: self.detail.clone() }
    }

    /// The number of entries that this one stands for.
    #[cfg(test)]
    pub(super) fn count(&self) -> u32 {
        self.count.unwrap_or(1)
    }

    /// The entry as one line of JSON. Secrets are masked in the texts that requests and configurations bring along, and
    /// nowhere else: who did what from where is always shown.
    fn line(&self) -> String {
        let mask = |text: &str| secrets::mask(text).into_owned();
        let (target, detail, request) = (mask(&self.target), mask(&self.detail), mask(&self.request));
        serde_json::to_string(&Self { target, detail, request, ..self.clone() }).unwrap_or_default()
    }
}

/// The action, the code and the person of a refusal: a person who is known is not hidden among strangers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct RefusalKind {
    what: Action,
    who: String,
    detail: String,
}

impl RefusalKind {
    /// The same without what distinguishes refusals of one action.
    pub(super) const fn merged(&self) -> Self {
        Self { what: self.what, who: String::new(), detail: String::new() }
    }
}

/// A text up to a length in bytes, with a mark if something was cut off.
fn cut(mut text: String, max: usize) -> String {
    if text.len() > max {
        let end = (0..=max).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
        text.truncate(end);
        text.push('…');
    }
    text
}

/// Appends one entry to an audit log that no process may be serving, and waits until it is written: for commands.
///
/// # Errors
/// If the file cannot be written.
pub fn append_audit(path: &Path, entry: &AuditEntry) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.create(true).append(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let line = entry.line() + "\n";
    options.open(path)?.write_all(line.as_bytes())
}

/// The audit log of a running gateway.
pub(super) struct Audit {
    lines: LineWriter,
    complained: Mutex<Complaint>,
}

#[derive(Default)]
struct Complaint {
    last: Option<Instant>,
    lost: u64,
}

impl Audit {
    pub(super) fn open(path: &Path, metrics: Arc<Metrics>) -> io::Result<Self> {
        Ok(Self {
            // Entries are rare, and have to be in the file soon.
            lines: LineWriter::open("audit", &LogTarget::File(path.to_owned()), Duration::ZERO, metrics)?,
            complained: Mutex::default(),
        })
    }

    pub(super) fn write(&self, entry: AuditEntry) {
        if self.lines.write(move |line| line.push_str(&entry.line())) {
            return;
        }

        let mut complaint = self.complained.lock().unwrap_or_else(PoisonError::into_inner);
        complaint.lost += 1;
        if complaint.last.is_none_or(|last| last.elapsed() >= COMPLAINT_INTERVAL) {
            complaint.last = Some(Instant::now());
            let lost = std::mem::take(&mut complaint.lost);
            tracing::error!(lost, "cannot write the audit log");
        }
    }

    pub(super) fn flush(&self, limit: Duration) {
        self.lines.flush(limit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_lines_of_bounded_length_in_which_only_free_texts_are_masked() {
        let masks = secrets::Masks::from_texts(&["mallory", "credential_refused", "\"what\":\"", "/a/secret-path"]);
        masks.enforce();
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("audit.jsonl");
        let audit = Audit::open(&path, Metrics::new()).expect("a log");
        let entry = AuditEntry::new(Action::CredentialRefused).from([192, 0, 2, 1].into()).who("mallory");
        audit.write(entry.clone().target(format!("/a/secret-path/{}", "ü".repeat(100_000))).detail("mallory"));
        audit.flush(Duration::from_secs(10));
        append_audit(&path, &AuditEntry::new(Action::KeyCreated).target("k1")).expect("appended");

        let text = std::fs::read_to_string(path).expect("the file");
        let lines: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        let refused = &lines[0];
        assert_eq!((&refused["what"], &refused["who"]), (&"credential_refused".into(), &"mallory".into()));
        assert_eq!((&refused["detail"], &refused["from"]), (&"***".into(), &"192.0.2.1".into()));
        let target = refused["target"].as_str().expect("a path");
        assert!(target.starts_with("***/üü") && target.ends_with("ü…") && target.len() < 300, "{target}");
        assert_eq!((&lines[1]["what"], lines[1].get("who")), (&"key_created".into(), None));
    }
}
