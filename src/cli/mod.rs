//! The command line: `serve`, `check`, `routes`, `schema`, `call`, `health`.
//!
//! Exit codes: 0 success, 1 a failure while running, 2 an error in the configuration or on the command line.

mod call;
mod health;
mod log;
mod routes;

use std::io::{IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};

use crate::Gateway;
use crate::config::{DEFAULT_FILE, Settings};

/// A gateway in front of AI agents: serves agents of the Agent API to clients of several agent protocols.
#[derive(Parser, Debug)]
#[command(name = "interlingua", version, about)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    /// The configuration file
    #[arg(long, global = true, env = "INTERLINGUA_CONFIG", default_value = DEFAULT_FILE, value_name = "FILE")]
    config: PathBuf,
    /// The log level, or a filter such as "info,interlingua::engine=debug"
    #[arg(long, global = true, env = "INTERLINGUA_LOG", default_value = "info", value_name = "FILTER")]
    log: String,
    /// The format of log lines
    #[arg(long, global = true, env = "INTERLINGUA_LOG_FORMAT", default_value = "pretty", value_name = "FORMAT")]
    log_format: LogFormat,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum LogFormat {
    /// For people
    Pretty,
    /// One JSON object per line
    Json,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Start the gateway (the default)
    Serve,
    /// Validate the configuration file and report all errors
    Check,
    /// List the mounted routes
    Routes {
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Print the JSON Schema of the configuration file
    Schema,
    /// Send a message to an agent and stream its response to the terminal
    Call(call::Call),
    /// Check whether a running gateway is ready: exit code 0 if it is
    Health {
        /// The gateway's URL
        #[arg(default_value = "http://127.0.0.1:8080")]
        url: String,
    },
}

/// Runs the command line and returns the exit code.
pub(crate) fn run(gateway: &Gateway) -> i32 {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            // This includes --help and --version, with exit code 0.
            let code = error.exit_code();
            let _ = error.print();
            return code;
        }
    };
    if let Err(error) = log::start(&arguments.log, arguments.log_format) {
        eprintln!("error: {error:#}");
        return 2;
    }
    let config = &arguments.config;

    let done = match arguments.command.unwrap_or(Command::Serve) {
        Command::Serve => load(gateway, config).map(|settings| serve(gateway, &settings, config)),
        Command::Check => load(gateway, config).map(|settings| {
            let agents = count(settings.agents.len(), "agent");
            let mounts = count(settings.mounts().len(), "route");
            println!("{}: OK ({agents}, {mounts})", config.display());
            Ok(())
        }),
        Command::Routes { json } => load(gateway, config).map(|settings| routes::list(&settings, json)),
        Command::Schema => Ok(print_schema(gateway)),
        Command::Call(call) => Ok(call.run()),
        Command::Health { url } => Ok(health::check(&url)),
    };

    match done {
        Ok(Ok(())) => 0,
        Ok(Err(error)) => {
            eprintln!("error: {error:#}");
            1
        }
        Err(code) => code,
    }
}

/// A number with its noun in singular or plural.
fn count(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// Reads the configuration and prints its errors or warnings. The error is the exit code.
fn load(gateway: &Gateway, file: &Path) -> Result<Settings, i32> {
    let colour = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    match gateway.load(file) {
        Ok((settings, warnings)) => {
            if !warnings.is_empty() {
                eprintln!("{}", crate::secrets::mask(&warnings.render(colour)));
            }
            Ok(settings)
        }
        Err(errors) => {
            eprintln!("{}", crate::secrets::mask(&errors.render(colour)));
            Err(2)
        }
    }
}

fn serve(gateway: &Gateway, settings: &Settings, file: &Path) -> anyhow::Result<()> {
    raise_file_limit();
    crate::server::block_on(async {
        // Install the handlers before the address is printed, since a signal may arrive right after.
        let stop = stop_signal()?;
        let running = gateway.start(settings).await?;
        routes::print_banner(gateway, settings, running.address);
        tracing::info!(address = %running.address, config = %file.display(), "serving");
        running.run(stop).await?;
        tracing::info!("stopped");
        Ok(())
    })
}

/// Resolves at the first SIGINT, SIGTERM or SIGHUP; a second one exits the process at once. The handlers are installed
/// by the call itself. SIGHUP drains too: a closing terminal sends it, and reloading the configuration is not
/// implemented.
fn stop_signal() -> std::io::Result<impl Future<Output = ()> + 'static> {
    use tokio::signal::unix::{Signal, SignalKind, signal};

    async fn any(signals: &mut [Signal; 3]) {
        let [interrupt, terminate, hang_up] = signals;
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hang_up.recv() => {}
        }
    }

    let mut signals =
        [signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?, signal(SignalKind::hangup())?];
    Ok(async move {
        any(&mut signals).await;
        tokio::task::spawn_local(async move {
            any(&mut signals).await;
            // Not `eprintln!`, which panics if the terminal is closed.
            let _ = writeln!(std::io::stderr(), "second signal received: exiting immediately");
            std::process::exit(1);
        });
    })
}

/// Raises the limit of open files to the maximum, since every stream needs a socket.
fn raise_file_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    }
}

fn print_schema(gateway: &Gateway) -> anyhow::Result<()> {
    print(&serde_json::to_string_pretty(&crate::config::schema(&gateway.protocols()))?)
}

/// Writes to standard output. A closed pipe is not an error.
fn print(text: &str) -> anyhow::Result<()> {
    match writeln!(std::io::stdout(), "{}", text.trim_end()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        written => Ok(written?),
    }
}

/// Converts an exit code, for `main`.
#[must_use]
pub fn exit(code: i32) -> ExitCode {
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}
