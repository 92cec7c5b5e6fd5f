//! Where requests and changes are logged.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;

use super::access::{Access, AccessLog};
use super::audit::{Audit, AuditEntry};
use super::lines::Target;
use super::parts::RequestParts;
use crate::metrics::Metrics;

/// Which logs there are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Logs {
    /// The access log. `None`: none is written.
    pub access: Option<AccessLog>,
    /// The file of the audit log. `None`: none is written.
    pub audit: Option<PathBuf>,
}

/// The observer in force. A reload of the configuration replaces it.
pub type SharedObserver = Arc<ArcSwap<Observer>>;

/// Where requests and changes are reported. A reload replaces it; a request keeps the one it began with.
pub struct Observer {
    metrics: Arc<Metrics>,
    access: Option<Access>,
    audit: Option<Audit>,
}

impl Observer {
    /// Opens the logs.
    ///
    /// # Errors
    /// If a file cannot be opened; the error names it.
    pub fn open(logs: &Logs, metrics: Arc<Metrics>) -> io::Result<Self> {
        let access = logs.access.as_ref().map(|log| {
            let name = match &log.target {
                Target::Stdout => "standard output".to_owned(),
                Target::File(path) => path.display().to_string(),
            };
            Access::open(log, Arc::clone(&metrics)).map_err(|error| opening("access log", &name, &error))
        });
        let audit = logs.audit.as_ref().map(|path| {
            let opened = Audit::open(path, Arc::clone(&metrics));
            opened.map_err(|error| opening("audit log", &path.display().to_string(), &error))
        });
        Ok(Self { access: access.transpose()?, audit: audit.transpose()?, metrics })
    }

    /// No logs; requests are counted.
    #[must_use]
    pub const fn silent(metrics: Arc<Metrics>) -> Self {
        Self { metrics, access: None, audit: None }
    }

    /// What the gateway counts.
    #[must_use]
    pub const fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    /// Writes an entry to the audit log, if there is one.
    pub fn audit(&self, entry: AuditEntry) {
        if let Some(audit) = &self.audit {
            audit.record(entry);
        }
    }

    /// Waits until what was logged is written, at most for this time.
    pub fn flush(&self, limit: Duration) {
        if let Some(audit) = &self.audit {
            audit.flush(limit);
        }
        if let Some(access) = &self.access {
            access.flush(limit);
        }
    }

    /// A request has ended.
    pub(super) fn ended(&self, parts: RequestParts) {
        let status = if parts.status == 0 { CLIENT_LEFT } else { parts.status };
        let route = parts.route.clone().unwrap_or_else(|| Arc::from(""));
        self.metrics.answered(&route, parts.protocol, status);
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
