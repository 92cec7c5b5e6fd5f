//! Signals: SIGINT and SIGTERM stop the gateway, SIGHUP reloads its configuration.

use std::io::Write as _;

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::log_lines;

/// Resolves at the first SIGINT or SIGTERM; a second one exits the process at once. The handlers are installed by the
/// call itself.
pub(super) fn stop() -> std::io::Result<impl Future<Output = ()> + 'static> {
    async fn any(signals: &mut [Signal; 2]) {
        let [interrupt, terminate] = signals;
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    }

    let mut signals = [signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?];
    Ok(async move {
        any(&mut signals).await;
        tokio::task::spawn_local(async move {
            any(&mut signals).await;
            log_lines::flush();
            // Not `eprintln!`, which panics if the terminal is closed.
            let _ = writeln!(std::io::stderr(), "second signal received: exiting immediately");
            std::process::exit(1);
        });
    })
}

/// SIGHUP. The call itself installs the handler: without a handler, the signal would end the process.
pub(super) fn hang_ups() -> std::io::Result<Signal> {
    signal(SignalKind::hangup())
}
