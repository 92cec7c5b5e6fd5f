//! The command line: `serve`, `check`, `probe`, `routes`, `schema`, `key`, `store`, `call`, `mcp`, `health`.
//!
//! Exit codes: 0 success, 1 a failure while running, 2 an error in the configuration or on the command line.

mod admin_banner;
mod call;
mod call_foreign;
mod error_line;
mod guess;
mod health;
mod key;
mod log;
mod log_lines;
mod mcp;
mod probe;
mod routes;
mod scheme;
mod signals;
mod signs;
mod store;
mod waiting;

use std::io::{IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::{Parser, Subcommand, ValueEnum};

use self::admin_banner::AdminBanner;
use self::error_line::error_line;
use crate::Gateway;
use crate::reload::{Reloader, Trigger, warnings};
use interlingua_config::{DEFAULT_FILE, Diagnostics, LoadedConfig, Settings};
use interlingua_observe::LogFilter;

/// A gateway between agent protocols: clients of any of them can use agents of any other.
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
    /// Ask a configured agent what it is
    Probe(probe::Probe),
    /// List the mounted routes
    Routes {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Print the JSON Schema of the configuration file
    Schema,
    /// Make, list and revoke API keys
    #[command(subcommand)]
    Key(key::Key),
    /// Copy everything to a store of another kind
    #[command(subcommand)]
    Store(store::Store),
    /// Send a message to an agent and stream its response to the terminal
    Call(call::Call),
    /// Connect a program that speaks MCP over standard input and output to an MCP endpoint
    ///
    /// For programs that only start other programs. Each line of standard input is a message that is sent to the URL;
    /// each line of standard output is a message of the server. Problems are written to standard error. Standard input
    /// that ends gives open answers 5 s, ends the session, and exits with code 0.
    Mcp(mcp::Mcp),
    /// Check whether a running gateway is ready: exit code 0 if it is
    Health {
        /// The gateway's URL; with a path, such as /healthz, that path is requested instead of /readyz
        #[arg(default_value = "http://127.0.0.1:8080")]
        url: String,
    },
}

impl Gateway {
    /// Runs the command line. Returns the exit code.
    #[must_use]
    pub fn main(self) -> i32 {
        let code = run(&self);
        log_lines::flush();
        code
    }
}

/// Runs the command line and returns the exit code.
fn run(gateway: &Gateway) -> i32 {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            // This includes --help and --version, with exit code 0.
            let code = error.exit_code();
            let _ = error.print();
            return code;
        }
    };
    let log = match log::start(&arguments.log, arguments.log_format) {
        Ok(log) => log,
        Err(error) => {
            eprintln!("error: {}", error_line(&error));
            return 2;
        }
    };
    let config = &arguments.config;

    let done = match arguments.command.unwrap_or(Command::Serve) {
        Command::Serve => load_watching(gateway, config).map(|loaded| {
            match arguments.log_format {
                LogFormat::Pretty => print_warnings(&loaded.diagnostics),
                LogFormat::Json => warnings::log(&loaded.diagnostics),
            }
            serve(gateway, loaded, config, log)
        }),
        Command::Check => load_watching(gateway, config).map(|LoadedConfig { settings, diagnostics, .. }| {
            print_warnings(&diagnostics);
            let store = Gateway::check_store(&settings)?;
            let agents = count(settings.agents.len(), "agent");
            let mounts = count(settings.mounts().len(), "route");
            println!("{}: OK ({agents}, {mounts})", config.display());
            if let Some(store) = store {
                println!("store: {store}");
            }
            Ok(())
        }),
        Command::Probe(probe) => {
            load_watching(gateway, config).and_then(|LoadedConfig { settings, diagnostics, .. }| {
                print_warnings(&diagnostics.filtered(|one| one.is_of_agent(probe.agent())));
                match probe.run(gateway, &settings) {
                    Ok(0) => Ok(Ok(())),
                    Ok(code) => Err(code),
                    Err(error) => Ok(Err(error)),
                }
            })
        }
        Command::Routes { json } => load(gateway, config).map(|settings| routes::list(gateway, &settings, json)),
        Command::Schema => Ok(print_schema(gateway)),
        Command::Key(key) => key.run(gateway, config),
        Command::Store(store) => store.run(gateway, config),
        Command::Call(call) => Ok(scheme::check(&call.url)
            .and_then(|()| if call.is_foreign() { call_foreign::run(&call, gateway) } else { call.run(gateway) })),
        Command::Mcp(mcp) => mcp.run(),
        Command::Health { url } => Ok(scheme::check(&url).and_then(|()| health::check(&url))),
    };

    match done {
        Ok(Ok(())) => 0,
        Ok(Err(error)) => {
            // Before the last line of the output.
            log_lines::flush();
            eprintln!("error: {}", error_line(&error));
            1
        }
        Err(code) => code,
    }
}

/// A number with its noun in singular or plural.
fn count(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// Reads the configuration and prints its errors, but no warnings: they concern the gateway that serves. The error is
/// the exit code.
fn load(gateway: &Gateway, file: &Path) -> Result<Settings, i32> {
    load_watching(gateway, file).map(|loaded| loaded.settings)
}

/// The same, with the files that were read.
fn load_watching(gateway: &Gateway, file: &Path) -> Result<LoadedConfig, i32> {
    match gateway.load_watching(file).0 {
        Ok(loaded) => {
            loaded.settings.secrets.enforce();
            Ok(loaded)
        }
        Err(errors) => {
            print_warnings(&errors);
            Err(2)
        }
    }
}

/// Prints errors and warnings with the lines of the file that they are about.
fn print_warnings(diagnostics: &Diagnostics) {
    let colour = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    if !diagnostics.is_empty() {
        log_lines::flush();
        eprintln!("{}", diagnostics.render(colour));
    }
}

fn serve(gateway: &Gateway, loaded: LoadedConfig, file: &Path, log: LogFilter) -> anyhow::Result<()> {
    raise_file_limit();
    interlingua_server::block_on(async {
        // Install the handlers before the address is printed, since a signal may arrive right after.
        let (stop, mut hang_ups) = (signals::stop()?, signals::hang_ups()?);
        let settings = loaded.settings.clone();
        let mut running = gateway.start(&settings).await?;
        let reloader = Reloader::new(gateway.clone(), running.parts(), file.to_owned(), loaded);
        let admin = running.serve_admin(Arc::new(reloader.clone()), log)?;
        // Kept to the end: it removes the file of the key.
        let banner = admin.zip(settings.admin.as_ref()).map(|((address, start_key), admin)| {
            AdminBanner::new(address, admin.tls.is_some(), admin.access.console, start_key)
        });
        routes::print_banner(gateway, &settings, running.address, || {
            banner.iter().for_each(AdminBanner::print_console);
            banner.iter().for_each(AdminBanner::print_address);
        });
        // Its secrets are masked for as long as they are in force, which a reload may end.
        drop(settings);
        tracing::info!(address = %running.address, config = %file.display(), "serving");

        let watching = tokio::task::spawn_local(reloader.clone().watch());
        let on_hang_up = tokio::task::spawn_local(async move {
            while hang_ups.recv().await.is_some() {
                // The reload logs its result.
                let _ = reloader.reload(Trigger::Signal).await;
            }
        });
        running.run(stop).await?;
        watching.abort();
        on_hang_up.abort();
        tracing::info!("stopped");
        Ok(())
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
    print(&serde_json::to_string_pretty(&interlingua_config::schema(&gateway.protocols()))?)
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
