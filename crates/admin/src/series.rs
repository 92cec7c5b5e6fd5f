//! Time series for the charts of the console, sampled once per second while the admin listener runs.
//!
//! Not here: their storage (`interlingua_observe::metrics`).

use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use interlingua_core::Fault;
use serde::Serialize;
use tokio::time::{MissedTickBehavior, interval};

use super::AdminState;
use interlingua_observe::metrics::{
    EndedBy, MetricsSample, MetricsWindow, Series, SeriesFilter, Window, resident_memory,
};

/// The series of a window, and the current and ended runs by agent and protocol.
#[derive(Serialize)]
#[cfg_attr(test, derive(ts_rs::TS, schemars::JsonSchema), ts(rename = "Metrics"))]
pub(super) struct View {
    /// `15m` or `24h`.
    window: &'static str,
    /// The length of a step, in milliseconds.
    step_ms: u64,
    /// The start of each step, in milliseconds since 1970.
    times: Vec<u64>,
    series: Series,
    by_agent: Vec<Row>,
    by_protocol: Vec<Row>,
}

/// The runs of an agent or of a protocol.
#[derive(Serialize)]
#[cfg_attr(test, derive(ts_rs::TS, schemars::JsonSchema))]
pub(super) struct Row {
    name: String,
    /// Runs under way now.
    live: usize,
    /// Runs that ended in the window.
    ended: u64,
    /// The number of failed ones.
    failed: u64,
}

/// The series for a query: of the window `window`, by default the shorter one, and of all runs or those of an `agent`
/// or `protocol`.
///
/// # Errors
/// Unknown parameters, invalid values, and both filters at once.
pub(super) fn view(state: &AdminState, query: &str) -> Result<View, Fault> {
    let mut window = Window::Minutes;
    let mut of = SeriesFilter::All;
    for (name, value) in url::form_urlencoded::parse(query.as_bytes()) {
        match &*name {
            "window" => {
                window = Window::parse(&value).ok_or_else(|| Fault::invalid("window", "must be '15m' or '24h'"))?;
            }
            "agent" | "protocol" if of != SeriesFilter::All => {
                return Err(Fault::invalid(name.into_owned(), "cannot be combined: name an agent or a protocol"));
            }
            "agent" => of = SeriesFilter::Agent(value.into_owned()),
            "protocol" => of = SeriesFilter::Protocol(value.into_owned()),
            _ => return Err(Fault::invalid(name.into_owned(), "is not a parameter of this path")),
        }
    }

    let MetricsWindow { times, series, by_agent, by_protocol } =
        state.history.lock().unwrap_or_else(PoisonError::into_inner).past(window, &of);
    let engine = &state.admin.engine;
    let agents = engine.levels().runs_active.into_iter().map(|(name, live)| (name.to_string(), live)).collect();
    let mut protocols: HashMap<String, usize> = engine.running_by_protocol();
    for route in state.admin.control.all_routes() {
        protocols.entry(route.scope.protocol.to_owned()).or_default();
    }
    Ok(View {
        window: window.name(),
        step_ms: window.step_ms(),
        times,
        series,
        by_agent: rows(agents, &by_agent),
        by_protocol: rows(protocols, &by_protocol),
    })
}

/// A row for each name that is configured or has live or ended runs, in alphabetical order.
fn rows(live: HashMap<String, usize>, ended: &EndedBy) -> Vec<Row> {
    let mut names: BTreeMap<String, usize> = live.into_iter().collect();
    for name in ended.keys() {
        names.entry(name.clone()).or_default();
    }
    let row = |(name, live): (String, usize)| {
        let count = ended.get(&name).copied().unwrap_or_default();
        Row { name, live, ended: count.ended, failed: count.failed }
    };
    names.into_iter().map(row).collect()
}

/// Adds a sample to the history once per second. Never returns: the caller drops the future.
pub(super) async fn sample(state: &AdminState) -> Infallible {
    let metrics = Arc::clone(state.admin.observer.load().metrics());
    // Discard counts from before the first step.
    drop(metrics.take_recent());
    let mut seconds = interval(Duration::from_secs(1));
    seconds.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        seconds.tick().await;
        let (counted, engine) = (metrics.take_recent(), &state.admin.engine);
        let sizes = engine.store_sizes();
        let levels = MetricsSample {
            live: engine.working(),
            memory: resident_memory(),
            store_owed: sizes.owed,
            store_bytes: sizes.bytes,
        };
        let mut history = state.history.lock().unwrap_or_else(PoisonError::into_inner);
        history.add(interlingua_base::clock::now(), levels, &counted);
    }
}
