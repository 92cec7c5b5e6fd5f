//! The access log: one line for each request, with the turn that it began.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use serde::Serialize;
use sha2::{Digest as _, Sha256};

use super::lines::{LineWriter, LogTarget};
use super::losses::{self, LossAt};
use super::parts::RequestParts;
use super::time::time;
use crate::metrics::Metrics;
use interlingua_base::clock;
use interlingua_base::secrets;

/// Time that lines are collected before they are written.
const PAUSE: Duration = Duration::from_millis(10);

/// The settings of the access log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessLog {
    /// Where it goes.
    pub target: LogTarget,
    /// True: one JSON object per line. False: for people.
    pub json: bool,
    /// True: sessions are logged as a hash that changes with each start of the gateway.
    pub hash_sessions: bool,
}

/// The key of hashes of sessions: unused before and never shown, so that hashes cannot be looked up.
static SESSION_KEY: LazyLock<[u8; 32]> =
    LazyLock::new(|| Sha256::digest(format!("{:032x}{}", clock::new_trace_id(), clock::new_id())).into());

pub(super) struct Access {
    lines: LineWriter,
    json: bool,
}

impl Access {
    pub(super) fn open(log: &AccessLog, metrics: Arc<Metrics>) -> io::Result<Self> {
        Ok(Self { lines: LineWriter::open("access", &log.target, PAUSE, metrics)?, json: log.json })
    }

    pub(super) fn write(&self, parts: Arc<RequestParts>) {
        let json = self.json;
        self.lines.write(move |out| {
            let line = Line::new(&parts);
            if json {
                out.push_str(&serde_json::to_string(&line).unwrap_or_default());
            } else {
                line.write_pretty(out);
            }
        });
    }

    pub(super) fn flush(&self, limit: Duration) {
        self.lines.flush(limit);
    }
}

/// A line of the access log. Secrets are masked in the texts of clients and agents, and nowhere else.
#[derive(Serialize)]
pub(super) struct Line<'a> {
    time: String,
    request: Cow<'a, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    client: Option<String>,
    method: &'a str,
    path: Cow<'a, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    route: Option<&'a str>,
    #[serde(skip_serializing_if = "str::is_empty")]
    protocol: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    caller: Option<&'a str>,
    /// Left out if the client left before there was an answer.
    #[serde(skip_serializing_if = "is_zero")]
    status: u16,
    outcome: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    blame: Option<&'a str>,
    bytes_in: u64,
    bytes_out: u64,
    duration_ms: u64,
    /// The lost or changed content.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    lost: Vec<LossAt>,
    #[serde(flatten)]
    turn: Option<TurnFields<'a>>,
}

#[derive(Serialize)]
struct TurnFields<'a> {
    run: &'a str,
    agent: &'a str,
    session: Cow<'a, str>,
    /// Host and port. Left out if the agent was not reached, or is in this process.
    #[serde(skip_serializing_if = "Option::is_none")]
    endpoint: Option<String>,
    events: u64,
    turn_ms: u64,
    /// The part of it that it waited for its session and for a place at an endpoint.
    #[serde(skip_serializing_if = "Option::is_none")]
    queued_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    first_event_ms: Option<u64>,
    /// The number of retries of requests to the agent.
    retries: u32,
    /// Why, of the first of them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    retry_reasons: Vec<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    input_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    output_tokens: Option<u64>,
}

// Serde passes a reference.
#[allow(clippy::trivially_copy_pass_by_ref)]
const fn is_zero(status: &u16) -> bool {
    *status == 0
}

impl<'a> Line<'a> {
    pub(super) fn new(parts: &'a RequestParts) -> Self {
        let turn = parts.turn.as_ref();
        let outcome = match turn {
            Some(turn) => turn.outcome,
            None if parts.client_left => "client_left",
            None if parts.code.is_some() || parts.status >= 400 => "refused",
            None => "answered",
        };

        Self {
            time: time(parts.at),
            request: secrets::mask(&parts.id),
            client: parts.client.map(|client| client.to_canonical().to_string()),
            method: &parts.method,
            path: secrets::mask(&parts.path),
            route: parts.route.as_deref(),
            protocol: parts.protocol,
            caller: parts.caller.as_deref(),
            status: parts.status,
            outcome,
            code: parts.code.as_deref().or_else(|| turn?.code.as_deref()).map(secrets::mask),
            blame: parts.blame.or_else(|| turn?.blame),
            bytes_in: parts.bytes_in,
            bytes_out: parts.bytes_out,
            duration_ms: millis(parts.took.unwrap_or_default()),
            lost: losses::in_request(parts).collect(),
            turn: turn.map(|turn| TurnFields {
                run: &turn.run,
                agent: &turn.agent,
                session: match shown_session(&turn.session, parts.hide_session) {
                    Cow::Borrowed(session) => secrets::mask(session),
                    hash @ Cow::Owned(_) => hash,
                },
                endpoint: turn.server.as_ref().map(|(host, port)| format!("{host}:{port}")),
                events: turn.events,
                turn_ms: millis(turn.took),
                queued_ms: turn.queued.map(millis),
                first_event_ms: turn.first_event.map(millis),
                retries: turn.retries,
                retry_reasons: turn.first_retries.iter().map(|(_, reason)| reason.as_str()).collect(),
                input_tokens: turn.usage.map(|usage| usage.0),
                output_tokens: turn.usage.map(|usage| usage.1),
            }),
        }
    }

    /// Writes it for people.
    pub(super) fn write_pretty(&self, out: &mut String) {
        let Self { time, method, path, status, outcome, duration_ms, .. } = self;
        let status = if *status == 0 { "-".to_owned() } else { status.to_string() };
        let _ = write!(out, "{time} {status} {method} {} {duration_ms}ms {outcome}", path.escape_debug());
        let mut field = |name: &str, value: Option<&str>| {
            if let Some(value) = value.filter(|value| !value.is_empty()) {
                let _ = write!(out, " {name}={}", value.escape_debug());
            }
        };

        field("code", self.code.as_deref());
        field("blame", self.blame);
        if let Some(turn) = &self.turn {
            field("agent", Some(turn.agent));
            field("run", Some(turn.run));
            field("session", Some(&turn.session));
            field("endpoint", turn.endpoint.as_deref());
            if turn.retries > 0 {
                field("retries", Some(&turn.retries.to_string()));
            }
        }
        field("caller", self.caller);
        field("client", self.client.as_deref());
        field("request", Some(&self.request));
    }
}

/// A session as it is shown. `hide`: as a hash, which is the same for the same session until the gateway ends.
pub(super) fn shown_session(session: &str, hide: bool) -> Cow<'_, str> {
    if !hide {
        return Cow::Borrowed(session);
    }

    let hash = Sha256::new().chain_update(*SESSION_KEY).chain_update(session).finalize();
    let text = hash[..8].iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    });
    Cow::Owned(text)
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::super::parts::TurnPart;
    use super::*;

    #[test]
    fn a_line_names_the_turn_and_hides_its_session_if_asked() {
        let turn = TurnPart { run: "r".into(), session: "s\n".into(), outcome: "completed", ..TurnPart::default() };
        let mut parts = RequestParts {
            id: "req_1".into(),
            method: "POST".into(),
            path: "/x\n".into(),
            status: 200,
            turn: Some(turn),
            ..RequestParts::default()
        };
        let line = serde_json::to_value(Line::new(&parts)).expect("JSON");
        assert_eq!(
            (&line["session"], &line["outcome"], &line["status"]),
            (&"s\n".into(), &"completed".into(), &200.into())
        );

        let mut pretty = String::new();
        Line::new(&parts).write_pretty(&mut pretty);
        assert_eq!(pretty, "1970-01-01T00:00:00.000Z 200 POST /x\\n 0ms completed run=r session=s\\n request=req_1");

        parts.hide_session = true;
        let hashed = || serde_json::to_value(Line::new(&parts)).expect("JSON")["session"].clone();
        assert_eq!(hashed().as_str().map(str::len), Some(16));
        assert_eq!(hashed(), hashed(), "the same for the same session");
    }

    #[test]
    fn a_request_without_a_turn_reports_its_result() {
        let outcome = |status, client_left| {
            let parts = RequestParts { status, client_left, ..RequestParts::default() };
            Line::new(&parts).outcome.to_owned()
        };
        assert_eq!(
            [outcome(200, false), outcome(404, false), outcome(0, true)],
            ["answered", "refused", "client_left"]
        );
    }
}
