//! What the gateway reports about itself, as used: logs, and the collectors of telemetry.
//!
//! Not here: how it is written and checked ([`super::observe`]).

use std::path::PathBuf;
use std::time::Duration;

use secrecy::{ExposeSecret as _, SecretString};
use url::Url;

/// What the gateway logs about itself.
#[derive(Clone, Debug, Default)]
pub struct Observe {
    /// `None`: no access log is written.
    pub access_log: Option<AccessLog>,
    /// The file of the audit log. `None`: none is written.
    pub audit: Option<PathBuf>,
    /// Where spans are sent. `None`: nowhere.
    pub traces: Option<Traces>,
    /// Where the metrics of the GenAI conventions are sent. `None`: nowhere.
    pub metrics: Option<Reports>,
    /// Where log records are sent. `None`: nowhere.
    pub logs: Option<Collector>,
    /// The gateway's name in what is sent.
    pub service_name: String,
    /// True: requests and runs are counted by caller too.
    pub caller_label: bool,
}

impl Observe {
    /// True if the same is sent to the same collectors.
    #[must_use]
    pub fn sends_like(&self, other: &Self) -> bool {
        let traces = |observe: &Self| observe.traces.as_ref().map(|traces| (traces.sample, traces.content));
        let every = |observe: &Self| observe.metrics.as_ref().map(|reports| reports.every);
        self.service_name == other.service_name
            && traces(self) == traces(other)
            && every(self) == every(other)
            && self.collectors() == other.collectors()
    }

    /// The collectors of the three signals, to compare.
    fn collectors(&self) -> [Option<Identity<'_>>; 3] {
        let traces = self.traces.as_ref().map(|traces| &traces.collector);
        let reports = self.metrics.as_ref().map(|reports| &reports.collector);
        [traces, reports, self.logs.as_ref()].map(|collector| collector.map(Collector::identity))
    }
}

/// The access log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessLog {
    /// The file. `None`: standard output.
    pub path: Option<PathBuf>,
    /// True: one JSON object per line. False: lines for people.
    pub json: bool,
    /// True: sessions are logged as a hash that changes with each start of the gateway.
    pub hash_sessions: bool,
}

/// What is traced, and where it is sent.
#[derive(Clone, Debug)]
pub struct Traces {
    /// Where spans are sent.
    pub collector: Collector,
    /// The share of traces that are sent, from 0 to 1, of those that no client began.
    pub sample: f64,
    /// True: spans have what people and agents say.
    pub content: bool,
}

/// How often metrics are sent, and where.
#[derive(Clone, Debug)]
pub struct Reports {
    /// Where they are sent.
    pub collector: Collector,
    /// How often.
    pub every: Duration,
}

/// A collector of telemetry.
#[derive(Clone, Debug)]
pub struct Collector {
    /// Its URL, without the path of a signal.
    pub endpoint: Url,
    /// True: it is spoken to by gRPC. False: by HTTP with Protobuf.
    pub grpc: bool,
    /// Headers of every request: names in lower case, and values.
    pub headers: Vec<(String, SecretString)>,
}

/// URL, protocol and headers of a collector. Holds secrets.
type Identity<'a> = (&'a Url, bool, Vec<(&'a str, &'a str)>);

impl Collector {
    fn identity(&self) -> Identity<'_> {
        let headers = self.headers.iter().map(|(name, value)| (name.as_str(), value.expose_secret()));
        (&self.endpoint, self.grpc, headers.collect())
    }
}
