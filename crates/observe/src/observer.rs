//! Where requests and changes are logged.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;

use super::access::{Access, AccessLog};
use super::audit::{Audit, AuditEntry};
use super::lines::LogTarget;
use super::losses;
use super::otlp::Otlp;
use super::parts::RequestParts;
use super::recent_audit::RecentAudit;
use super::refusals::Refusals;
use crate::metrics::{Metrics, TurnEnd};

/// The configured logs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Logs {
    /// The access log. `None`: no access log is written.
    pub access: Option<AccessLog>,
    /// The file of the audit log. `None`: no audit log is written.
    pub audit: Option<PathBuf>,
}

/// The observer in force. A reload of the configuration replaces it.
pub type SharedObserver = Arc<ArcSwap<Observer>>;

/// Where requests and changes are reported. A reload replaces it; a request keeps the one it began with.
pub struct Observer {
    metrics: Arc<Metrics>,
    access: Option<Access>,
    audit: Option<Audit>,
    recent: RecentAudit,
    refusals: Arc<Refusals>,
    otlp: Option<Arc<Otlp>>,
    /// True: sessions are shown as hashes.
    hides_sessions: bool,
}

impl Observer {
    /// Opens the logs. `otlp`: what sends to collectors, if anything is sent.
    ///
    /// # Errors
    /// If a file cannot be opened; the error names it.
    pub fn open(logs: &Logs, metrics: Arc<Metrics>, otlp: Option<Arc<Otlp>>) -> io::Result<Self> {
        let access = logs.access.as_ref().map(|log| {
            let name = match &log.target {
                LogTarget::Stdout => "standard output".to_owned(),
                LogTarget::File(path) => path.display().to_string(),
            };
            Access::open(log, Arc::clone(&metrics)).map_err(|error| opening("access log", &name, &error))
        });
        let audit = logs.audit.as_ref().map(|path| {
            let opened = Audit::open(path, Arc::clone(&metrics));
            opened.map_err(|error| opening("audit log", &path.display().to_string(), &error))
        });
        let hides_sessions = logs.access.as_ref().is_some_and(|log| log.hash_sessions);
        let (access, audit, recent) = (access.transpose()?, audit.transpose()?, RecentAudit::default());
        let refusals = Arc::new(Refusals::new(Instant::now()));
        Ok(Self { access, audit, recent, refusals, metrics, otlp, hides_sessions })
    }

    /// No logs; requests are counted.
    #[must_use]
    pub fn silent(metrics: Arc<Metrics>) -> Self {
        let (recent, refusals) = (RecentAudit::default(), Arc::new(Refusals::new(Instant::now())));
        Self { metrics, access: None, audit: None, recent, refusals, otlp: None, hides_sessions: false }
    }

    /// The gateway's metrics.
    #[must_use]
    pub const fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    /// The sender to collectors. `None`: no telemetry is sent.
    #[must_use]
    pub const fn otlp(&self) -> Option<&Arc<Otlp>> {
        self.otlp.as_ref()
    }

    /// The share of new traces that are sent. `None`: requests are not traced.
    pub(super) fn sample(&self) -> Option<f64> {
        self.otlp.as_ref().and_then(|otlp| otlp.sample())
    }

    /// True if requests are logged one by one, or sent to a collector.
    pub(super) const fn wants_requests(&self) -> bool {
        self.access.is_some() || self.otlp.is_some()
    }

    /// Whether spans contain messages.
    pub(super) fn wants_content(&self) -> bool {
        self.otlp.as_ref().is_some_and(|otlp| otlp.wants_content())
    }

    /// The same, with the audit entries of the one before.
    #[must_use]
    pub fn continuing(mut self, before: &Self) -> Self {
        self.recent = before.recent.clone();
        self.refusals = Arc::clone(&before.refusals);
        self
    }

    /// The latest audit entries, the newest first: at most 1,000 refusals and 1,000 others since the start of the
    /// gateway.
    #[must_use]
    pub fn recent_audit(&self, before: u64, count: usize) -> (Vec<AuditEntry>, Option<u64>) {
        self.refusals.sums(Instant::now(), false).into_iter().for_each(|sum| self.record(sum));
        self.recent.latest(before, count)
    }

    /// Keeps an entry for the console, and writes it to the audit log, if there is one. Of refusals, a limited number
    /// of each kind and address: the others are summed up.
    pub fn audit(&self, entry: AuditEntry) {
        let now = Instant::now();
        if entry.is_refusal() {
            self.refusals.admit(entry, now).into_iter().for_each(|entry| self.record(entry));
        } else {
            self.refusals.sums(now, false).into_iter().for_each(|sum| self.record(sum));
            self.record(entry);
        }
    }

    fn record(&self, entry: AuditEntry) {
        self.recent.add(&entry);
        if let Some(audit) = &self.audit {
            audit.write(entry);
        }
    }

    /// Waits until what was logged is written and sent, at most for this time in all.
    pub fn flush(&self, limit: Duration) {
        let deadline = Instant::now() + limit;
        let left = || deadline.saturating_duration_since(Instant::now());
        // What the current period left out would never be reported.
        self.refusals.sums(Instant::now(), true).into_iter().for_each(|sum| self.record(sum));
        if let Some(audit) = &self.audit {
            audit.flush(left());
        }
        if let Some(access) = &self.access {
            access.flush(left());
        }
        if let Some(otlp) = &self.otlp {
            otlp.flush(left());
        }
    }

    /// A request has ended.
    pub(super) fn ended(&self, mut parts: RequestParts) {
        let status = if parts.status == 0 { CLIENT_LEFT } else { parts.status };
        let route = parts.route.clone().unwrap_or_else(|| Arc::from(""));
        self.metrics.count_request(&route, parts.protocol, status, parts.caller.as_ref());
        losses::report(&parts, &self.metrics);
        if !self.wants_requests() {
            return;
        }

        parts.hide_session = self.hides_sessions;
        let parts = Arc::new(parts);
        if let Some(otlp) = &self.otlp {
            otlp.trace(&parts);
            otlp.log_access(&parts);
            if let Some(turn) = parts.turn.as_ref().filter(|_| otlp.sends_metrics()) {
                self.metrics.gen_ai().turn_ended(&TurnEnd {
                    provider: &turn.provider,
                    agent: &turn.agent,
                    error: turn.error_type,
                    took: turn.took,
                    first_chunk: turn.first_event,
                    tokens: turn.usage,
                });
            }
        }
        if let Some(access) = &self.access {
            access.write(parts);
        }
    }
}

/// The status by which requests are counted whose client left before the answer, as proxies do.
const CLIENT_LEFT: u16 = 499;

fn opening(log: &str, name: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("cannot open the {log} {name}: {error}"))
}
