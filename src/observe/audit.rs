//! The audit log: who changed or was refused what. Append-only, apart from all other logs, one JSON object per line.
//!
//! Never a credential, and never a text of a person or an agent.

use std::collections::VecDeque;
use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::net::IpAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::Serialize;

use super::lines::{LineWriter, Target};
use super::time::time;
use crate::metrics::Metrics;
use crate::{clock, secrets};

/// Refused credentials that are written in one second. The rest of it is summed up in one line.
const MAX_REFUSED_PER_SECOND: u32 = 10;
/// The pause between two log lines about audit lines that could not be written.
const COMPLAINT_INTERVAL: Duration = Duration::from_secs(60);

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(test, derive(ts_rs::TS))]
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
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct AuditEntry {
    time: String,
    what: Action,
    #[serde(skip_serializing_if = "String::is_empty")]
    #[cfg_attr(test, ts(as = "Option<String>", optional))]
    who: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, ts(as = "Option<String>", optional))]
    from: Option<IpAddr>,
    #[serde(skip_serializing_if = "String::is_empty")]
    #[cfg_attr(test, ts(as = "Option<String>", optional))]
    target: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    #[cfg_attr(test, ts(as = "Option<String>", optional))]
    detail: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    #[cfg_attr(test, ts(as = "Option<String>", optional))]
    request: String,
    /// How many entries of this kind the line stands for, if more than one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, ts(optional))]
    count: Option<u32>,
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
        }
    }

    /// The caller who did it, or `operator`.
    #[must_use]
    pub fn who(mut self, who: impl Into<String>) -> Self {
        self.who = who.into();
        self
    }

    /// The address it came from.
    #[must_use]
    pub const fn from(mut self, address: IpAddr) -> Self {
        self.from = Some(address);
        self
    }

    /// What it was done to: a key's id, a run, an item, a path.
    #[must_use]
    pub fn target(mut self, target: impl Into<String>) -> Self {
        self.target = target.into();
        self
    }

    /// What else is to be known: a reason, the name of a decision.
    #[must_use]
    pub fn detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = detail.into();
        self
    }

    /// The id of the request, as the access log has it.
    #[must_use]
    pub fn request(mut self, request: impl Into<String>) -> Self {
        self.request = request.into();
        self
    }

    fn line(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
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
    let line = secrets::mask(&entry.line()).into_owned() + "\n";
    options.open(path)?.write_all(line.as_bytes())
}

/// How many entries are kept in memory.
const MAX_RECENT: usize = 1000;

/// The latest entries, whether they are written to a file or not. Clones are one list.
#[derive(Clone, Default)]
pub(super) struct RecentAudit(Arc<Mutex<(u64, VecDeque<AuditEntry>)>>);

impl RecentAudit {
    pub(super) fn add(&self, entry: &AuditEntry) {
        let mut recent = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if recent.1.len() >= MAX_RECENT {
            recent.1.pop_back();
        }
        recent.0 += 1;
        recent.1.push_front(entry.clone());
    }

    /// The latest ones first, of those before this number, and the number of the last one if there are more.
    pub(super) fn latest(&self, before: u64, count: usize) -> (Vec<AuditEntry>, Option<u64>) {
        let recent = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (added, entries) = (recent.0, &recent.1);
        // The first has the number `added`.
        let skipped = usize::try_from(added.saturating_sub(before.saturating_sub(1))).unwrap_or(usize::MAX);
        let found: Vec<AuditEntry> = entries.iter().skip(skipped).take(count).cloned().collect();
        let end = skipped.saturating_add(found.len());
        let next = (end < entries.len()).then(|| added - end as u64 + 1);
        (found, next)
    }
}

/// The audit log of a running gateway.
pub(super) struct Audit {
    lines: LineWriter,
    refused: Mutex<Refused>,
    complained: Mutex<Complaint>,
}

/// Refused credentials within the current second.
struct Refused {
    since: Instant,
    written: u32,
    left_out: u32,
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
            lines: LineWriter::open("audit", &Target::File(path.to_owned()), Duration::ZERO, metrics)?,
            refused: Mutex::new(Refused { since: Instant::now(), written: 0, left_out: 0 }),
            complained: Mutex::default(),
        })
    }

    pub(super) fn record(&self, entry: AuditEntry) {
        if entry.what == Action::CredentialRefused && !self.may_write_refused() {
            return;
        }
        self.write(entry);
    }

    /// True while a line for this refusal may be written. Sums up what the last second left out.
    fn may_write_refused(&self) -> bool {
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        let mut left_out = 0;
        if refused.since.elapsed() >= Duration::from_secs(1) {
            left_out = refused.left_out;
            *refused = Refused { since: Instant::now(), written: 0, left_out: 0 };
        }
        let may = refused.written < MAX_REFUSED_PER_SECOND;
        if may {
            refused.written += 1;
        } else {
            refused.left_out += 1;
        }
        drop(refused);

        if left_out > 0 {
            self.write(AuditEntry { count: Some(left_out), ..AuditEntry::new(Action::CredentialRefused) });
        }
        may
    }

    fn write(&self, entry: AuditEntry) {
        if self.lines.write(move |line| line.push_str(&entry.line())) {
            return;
        }

        let mut complaint = self.complained.lock().unwrap_or_else(PoisonError::into_inner);
        complaint.lost += 1;
        if complaint.last.is_none_or(|last| last.elapsed() >= COMPLAINT_INTERVAL) {
            complaint.last = Some(Instant::now());
            let lost = std::mem::take(&mut complaint.lost);
            tracing::error!(lost, "lines of the audit log could not be written");
        }
    }

    pub(super) fn flush(&self, limit: Duration) {
        // What the last second left out would never be reported.
        let left_out = {
            let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut refused.left_out)
        };
        if left_out > 0 {
            self.write(AuditEntry { count: Some(left_out), ..AuditEntry::new(Action::CredentialRefused) });
        }
        self.lines.flush(limit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_credentials_are_summed_up_and_nothing_else_is() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("audit.jsonl");
        let audit = Audit::open(&path, Metrics::new()).expect("a log");
        for _ in 0..25 {
            audit.record(AuditEntry::new(Action::CredentialRefused).from([192, 0, 2, 1].into()).detail("unknown"));
        }
        for number in 0..25 {
            audit.record(AuditEntry::new(Action::Reload).who("operator").detail(number.to_string()));
        }
        audit.flush(Duration::from_secs(10));
        append_audit(&path, &AuditEntry::new(Action::KeyCreated).target("k1")).expect("appended");

        let text = std::fs::read_to_string(path).expect("the file");
        let lines: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        let of = |what: &str| lines.iter().filter(|line| line["what"] == what).collect::<Vec<_>>();
        let refused = of("credential_refused");
        let reported: u64 = refused.iter().map(|line| line["count"].as_u64().unwrap_or(1)).sum();
        assert_eq!(reported, 25, "{text}");
        assert!(refused.len() <= 21 && refused[0]["from"] == "192.0.2.1", "{text}");
        assert_eq!((of("reload").len(), of("key_created").len()), (25, 1));
        assert!(of("key_created")[0].get("who").is_none());
    }
}
