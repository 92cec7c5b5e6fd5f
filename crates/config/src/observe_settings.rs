//! The validated settings of logs and telemetry.
//!
//! Not here: their form in the file and its checks ([`super::observe`]).

use std::path::PathBuf;
use std::time::Duration;

use secrecy::{ExposeSecret as _, SecretString};
use url::Url;

/// Settings of logs and telemetry.
#[derive(Clone, Debug, Default)]
pub struct Observe {
    /// `None`: no access log is written.
    pub access_log: Option<AccessLog>,
    /// The file of the audit log. `None`: no audit log is written.
    pub audit: Option<PathBuf>,
    /// The collector of spans. `None`: no spans are sent.
    pub traces: Option<Traces>,
    /// The collector of the metrics of the GenAI conventions. `None`: none are sent.
    pub metrics: Option<Reports>,
    /// The collector of log records. `None`: none are sent.
    pub logs: Option<Collector>,
    /// `service.name` of the telemetry.
    pub service_name: String,
    /// Whether requests and runs are counted by caller too.
    pub caller_label: bool,
}

impl Observe {
    /// Whether both settings send the same telemetry to the same collectors.
    #[must_use]
    pub fn sends_like(&self, other: &Self) -> bool {
        let traces = |observe: &Self| observe.traces.as_ref().map(|traces| (traces.sample, traces.content));
        let every = |observe: &Self| observe.metrics.as_ref().map(|reports| reports.every);
        self.service_name == other.service_name
            && traces(self) == traces(other)
            && every(self) == every(other)
            && self.collectors() == other.collectors()
    }

    /// The collectors of the three signals, for a comparison.
    fn collectors(&self) -> [Option<Identity<'_>>; 3] {
        let traces = self.traces.as_ref().map(|traces| &traces.collector);
        let reports = self.metrics.as_ref().map(|reports| &reports.collector);
        [traces, reports, self.logs.as_ref()].map(|collector| collector.map(Collector::identity))
    }
}

/// Settings of the access log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessLog {
    /// The file. `None`: standard output.
    pub path: Option<PathBuf>,
    /// True: one JSON object per line. False: lines for people.
    pub json: bool,
    /// True: sessions are logged as a hash that changes with each start of the gateway.
    pub hash_sessions: bool,
}

/// Settings of traces.
#[derive(Clone, Debug)]
pub struct Traces {
    /// The collector of spans.
    pub collector: Collector,
    /// The share of traces that are sent, from 0 to 1, of the traces that no client began.
    pub sample: f64,
    /// Whether spans contain messages of people and agents.
    pub content: bool,
}

/// Settings of metrics that are pushed.
#[derive(Clone, Debug)]
pub struct Reports {
    /// The collector of metrics.
    pub collector: Collector,
    /// The interval between two reports.
    pub every: Duration,
}

/// A collector of telemetry.
#[derive(Clone, Debug)]
pub struct Collector {
    /// The URL of the collector, without the path of a signal.
    pub endpoint: Url,
    /// Whether the collector is called by gRPC. Otherwise by HTTP with Protobuf.
    pub grpc: bool,
    /// Headers of every request: names in lower case, and values.
    pub headers: Vec<(String, SecretString)>,
}

/// URL, protocol and headers of a collector. Contains secrets.
type Identity<'a> = (&'a Url, bool, Vec<(&'a str, &'a str)>);

impl Collector {
    fn identity(&self) -> Identity<'_> {
        let headers = self.headers.iter().map(|(name, value)| (name.as_str(), value.expose_secret()));
        (&self.endpoint, self.grpc, headers.collect())
    }
}
