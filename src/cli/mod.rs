//! The command line: `serve`, `check`, `routes`, `schema`, `call`, `health`.
//!
//! Exit codes: 0 well, 1 something failed while running, 2 a wrong configuration or command line.

mod call;
mod health;
mod log;
mod routes;

use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};

use crate::Gateway;
use crate::config::{DEFAULT_FILE, Settings};

/// The front door in front of existing AI agents: any agent protocol in, any agent protocol out.
#[derive(Parser, Debug)]
#[command(name = "interlingua", version, about, args_conflicts_with_subcommands = true)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    serve: Serve,
    /// Which log lines are written: a level, or a filter such as "info,interlingua::engine=debug"
    #[arg(long, global = true, env = "INTERLINGUA_LOG", default_value = "info", value_name = "FILTER")]
    log: String,
    /// How log lines are written
    #[arg(long, global = true, env = "INTERLINGUA_LOG_FORMAT", default_value = "pretty", value_name = "FORMAT")]
    log_format: LogFormat,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum LogFormat {
    /// For people
    Pretty,
    /// One JSON object a line
    Json,
}

#[derive(clap::Args, Debug)]
struct Serve {
    #[command(flatten)]
    config: ConfigFile,
}

#[derive(clap::Args, Debug)]
struct ConfigFile {
    /// The configuration file
    #[arg(long, env = "INTERLINGUA_CONFIG", default_value = DEFAULT_FILE, value_name = "FILE")]
    config: PathBuf,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Serve what the configuration says (the default)
    Serve(Serve),
    /// Tell everything that is wrong with the configuration
    Check(ConfigFile),
    /// List what would be mounted
    Routes {
        #[command(flatten)]
        config: ConfigFile,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Print the JSON Schema of the configuration file
    Schema,
    /// Ask an agent, and stream its answer to the terminal
    Call(call::Call),
    /// Ask a running gateway whether it is ready: exit code 0 if it is
    Health {
        /// The gateway's URL
        #[arg(default_value = "http://127.0.0.1:8080")]
        url: String,
    },
}

/// Runs the command line.
pub(crate) fn run(gateway: &Gateway) -> i32 {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            // Help and version are no mistakes.
            let code = error.exit_code();
            let _ = error.print();
            return code;
        }
    };
    if let Err(error) = log::start(&arguments.log, arguments.log_format) {
        eprintln!("error: {error:#}");
        return 2;
    }
    let done = match arguments.command.unwrap_or(Command::Serve(arguments.serve)) {
        Command::Serve(Serve { config }) => load(gateway, &config).map(|settings| serve(gateway, &settings, &config)),
        Command::Check(config) => load(gateway, &config).map(|settings| {
            println!(
                "{} is right: {} agents, {} routes",
                config.config.display(),
                settings.agents.len(),
                settings.mounts().len()
            );
            Ok(())
        }),
        Command::Routes { config, json } => load(gateway, &config).map(|settings| routes::list(&settings, json)),
        Command::Schema => Ok(print_schema(gateway)),
        Command::Call(call) => Ok(call.run()),
        Command::Health { url } => Ok(health::ask(&url)),
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

/// Reads the configuration, or tells what is wrong with it.
fn load(gateway: &Gateway, file: &ConfigFile) -> Result<Settings, i32> {
    let colour = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    match gateway.load(&file.config) {
        Ok((settings, warnings)) => {
            if !warnings.is_empty() {
                eprintln!("{}", warnings.render(colour));
            }
            Ok(settings)
        }
        Err(mistakes) => {
            eprintln!("{}", mistakes.render(colour));
            Err(2)
        }
    }
}

fn serve(gateway: &Gateway, settings: &Settings, file: &ConfigFile) -> anyhow::Result<()> {
    raise_file_limit();
    crate::server::block_on(async {
        // Before anybody can know of the process, who may also tell it to stop.
        let stop = told_to_stop()?;
        let running = gateway.start(settings).await?;
        routes::announce(gateway, settings, running.address);
        tracing::info!(address = %running.address, config = %file.config.display(), "serving");
        running.run(stop).await?;
        tracing::info!("stopped");
        Ok(())
    })
}

/// Resolves at the first SIGINT or SIGTERM; a second one ends the process at once. Both are caught from the call on.
fn told_to_stop() -> std::io::Result<impl Future<Output = ()> + 'static> {
    use tokio::signal::unix::{SignalKind, signal};
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        tokio::task::spawn_local(async move {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
            eprintln!("told to stop twice: ending at once");
            std::process::exit(1);
        });
    })
}

/// Thousands of streams need thousands of sockets: takes what the system allows.
fn raise_file_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    }
}

fn print_schema(gateway: &Gateway) -> anyhow::Result<()> {
    show(&serde_json::to_string_pretty(&crate::config::schema(&gateway.protocols()))?)
}

/// Writes to standard output. A reader that has read enough is no failure.
fn show(text: &str) -> anyhow::Result<()> {
    use std::io::Write as _;
    match writeln!(std::io::stdout(), "{}", text.trim_end()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        written => Ok(written?),
    }
}

/// What `main` returns.
#[must_use]
pub fn exit(code: i32) -> ExitCode {
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}
