//! The load rig: a scripted upstream, a load client and the runner that measures the gateway between them, beside
//! nginx as a pass-through proxy and beside no proxy at all.
//!
//! ```text
//! load-rig measure --gateway BINARY [MODE]… [--streams N] [--events N] [--rounds N] [--workers N]
//!     modes: paced, burst, flood, tongues, ttfb, idle, start; none means all
//! load-rig upstream PORT
//! load-rig client PORT PATH STREAMS RUNS SCRIPT…
//! ```
//!
//! Upstream and client are processes of their own, so that their time is nobody else's. People start it by
//! `cargo xtask bench load`; what is measured, and what came out, is in `benches/README.md`.
//!
//! What deliberately is not here: a general HTTP client or server. Both halves speak just the HTTP/1.1 this needs.

mod client;
mod measure;
mod processes;
mod script;
mod servers;
mod table;
mod upstream;
mod wire;

use anyhow::{Context, Result, bail};

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    processes::raise_open_files()?;
    match arguments.as_slice() {
        ["upstream", port] => waiting(upstream::serve(port.parse().context("PORT")?)),
        ["client", port, path, streams, runs, script @ ..] => waiting(client::load(&client::Load {
            port: port.parse().context("PORT")?,
            path: (*path).to_owned(),
            streams: streams.parse().context("STREAMS")?,
            runs: runs.parse().context("RUNS")?,
            script: script.join(" ").parse()?,
        })),
        ["measure", rest @ ..] => measure::run(rest),
        _ => bail!("usage: load-rig measure|upstream|client …"),
    }
}

fn waiting(work: impl Future<Output = Result<()>>) -> Result<()> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(work)
}
