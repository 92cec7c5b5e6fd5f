//! The load rig: a scripted upstream, a load client, and a runner that measures the gateway between them. Baselines are
//! nginx as a pass-through proxy and no proxy at all.
//!
//! ```text
//! load-rig measure --gateway BINARY [MODE]… [--streams N] [--events N] [--rounds N] [--workers N]
//!     modes: paced, burst, flood, protocols, pairs, guarded, calls, ttfb, idle, start, replicas; default: all
//! load-rig upstream PORT
//! load-rig client PORT PATH STREAMS RUNS AUTHORIZATION TRUSTED SCRIPT…
//! load-rig follow PORT OTHER-PORT STREAMS FOLLOWED SCRIPT…
//! load-rig resume PORT OTHER-PORT EVENTS TIMES
//! ```
//!
//! Upstream and client are separate processes, so that their CPU time is not counted as the gateway's. Started by
//! `cargo xtask bench load`; methods and results are in `docs/benchmarks.md`.
//!
//! Not here: a general HTTP client or server. Both sides implement only the HTTP/1.1 that the rig needs.

mod client;
mod clients;
mod database;
mod follow;
mod guards;
mod measure;
mod processes;
mod replicas;
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
        ["upstream", port] => block_on_current_thread(upstream::serve(port.parse().context("PORT")?)),
        ["client", port, path, streams, runs, authorization, trusted, script @ ..] => {
            block_on_current_thread(client::load(&client::Load {
                port: port.parse().context("PORT")?,
                path: (*path).to_owned(),
                streams: streams.parse().context("STREAMS")?,
                runs: runs.parse().context("RUNS")?,
                script: script.join(" ").parse()?,
                pass: guards::Pass { authorization: (*authorization).to_owned(), trusted: (*trusted).to_owned() },
            }))
        }
        ["follow", here, there, streams, followed, script @ ..] => {
            block_on_current_thread(follow::follow(follow::Following {
                here: here.parse().context("PORT")?,
                there: there.parse().context("OTHER-PORT")?,
                streams: streams.parse().context("STREAMS")?,
                followed: followed.parse().context("FOLLOWED")?,
                script: script.join(" ").parse()?,
            }))
        }
        ["resume", here, there, events, times] => block_on_current_thread(follow::resume(
            here.parse().context("PORT")?,
            there.parse().context("OTHER-PORT")?,
            events.parse().context("EVENTS")?,
            times.parse().context("TIMES")?,
        )),
        ["measure", rest @ ..] => measure::run(rest),
        _ => bail!("usage: load-rig measure|upstream|client|follow|resume …"),
    }
}

fn block_on_current_thread(work: impl Future<Output = Result<()>>) -> Result<()> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(work)
}
