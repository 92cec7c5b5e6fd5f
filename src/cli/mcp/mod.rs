//! `interlingua mcp`: connects a host that only starts programs to an MCP endpoint. The host's messages arrive on
//! standard input and are sent over HTTP, the messages of the server are written to standard output.
//!
//! Each kind of state has its file: messages under way (`bridge`), the session (`session`), its stream (`listener`). Not
//! here: the meaning of messages, except those that belong to the transport.

mod answer;
mod bridge;
mod budget;
mod call;
mod fields;
mod lines;
mod link;
mod listener;
mod message;
mod session;

use std::path::PathBuf;

use anyhow::{Context as _, bail};
use interlingua_base::secrets::Masks;
use interlingua_upstream::message_client::MessageClient;

use self::bridge::Bridge;
use self::lines::Output;
use self::link::Link;
use super::error_line::error_line;
use super::{raise_file_limit, scheme, signals};

/// Headers with credentials, which belong into a variable or a file: every user of a machine sees the command line.
const SECRET_HEADERS: [&str; 4] = ["authorization", "cookie", "proxy-authorization", "x-api-key"];
/// Headers that the bridge sets itself.
const OWN_HEADERS: [&str; 9] = [
    "accept",
    "connection",
    "content-length",
    "content-type",
    "host",
    "last-event-id",
    "mcp-protocol-version",
    "mcp-session-id",
    "transfer-encoding",
];

/// The arguments. The help text of the command is in [`super::Command`].
#[derive(clap::Args, Debug)]
pub(super) struct Mcp {
    /// The URL of the endpoint, such as https://gw.example.com/mcp
    #[arg(long, value_name = "URL")]
    url: String,
    /// The environment variable that contains the key or token, which is sent as the bearer token
    #[arg(long, value_name = "NAME", conflicts_with = "key_file")]
    key_env: Option<String>,
    /// The file that contains the key or token
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// A header of each request, such as 'x-tenant: blue'. Can be repeated
    #[arg(long = "header", value_name = "NAME: VALUE")]
    headers: Vec<String>,
}

impl Mcp {
    /// Runs it until the host closes standard input. The error is the exit code.
    pub(super) fn run(&self) -> Result<anyhow::Result<()>, i32> {
        match self.client() {
            Ok((client, masks)) => Ok(run(client, masks)),
            Err(error) => {
                eprintln!("error: {}", error_line(&error));
                Err(2)
            }
        }
    }

    /// The client, and the masks of its key if it has one.
    fn client(&self) -> anyhow::Result<(MessageClient, Option<Masks>)> {
        scheme::check(&self.url)?;
        let mut headers = self.headers.iter().map(|header| parse_header(header)).collect::<anyhow::Result<Vec<_>>>()?;
        let key = self.key()?;
        let masks = key.as_ref().map(|key| Masks::from_texts(&[key]));
        if let Some(key) = key {
            headers.push(("authorization".to_owned(), format!("Bearer {key}")));
        }
        let client = MessageClient::new(&self.url, &headers).context("--url, --header or the key cannot be used")?;
        Ok((client, masks))
    }

    fn key(&self) -> anyhow::Result<Option<String>> {
        let (key, origin) = match (&self.key_env, &self.key_file) {
            (Some(name), _) => {
                let key = std::env::var(name).with_context(|| format!("--key-env {name}: the variable is not set"))?;
                (key, format!("--key-env {name}"))
            }
            (None, Some(file)) => {
                let key = std::fs::read_to_string(file);
                let origin = format!("--key-file {}", file.display());
                (key.with_context(|| format!("{origin}: the file cannot be read"))?, origin)
            }
            (None, None) => return Ok(None),
        };
        let key = key.trim();
        if key.is_empty() {
            bail!("{origin} contains no key");
        }
        Ok(Some(key.to_owned()))
    }
}

fn parse_header(header: &str) -> anyhow::Result<(String, String)> {
    let Some((name, value)) = header.split_once(':') else { bail!("--header {header:?}: write 'name: value'") };
    let name = name.trim().to_ascii_lowercase();
    if SECRET_HEADERS.contains(&name.as_str()) {
        bail!("--header {name}: every user of the machine can read the command line, use --key-env or --key-file");
    }
    if OWN_HEADERS.contains(&name.as_str()) || ["mcp-method", "mcp-name"].contains(&name.as_str()) {
        bail!("--header {name}: this header is set by the command itself");
    }
    Ok((name, value.trim().to_owned()))
}

fn run(client: MessageClient, masks: Option<Masks>) -> anyhow::Result<()> {
    raise_file_limit();
    if let Some(masks) = &masks {
        masks.enforce();
    }
    interlingua_server::block_on(async {
        let stop = signals::stop()?;
        let lines = lines::read(std::io::stdin())?;
        let (output, writers) = Output::start(std::io::stdout(), std::io::stderr())?;
        let bridge = Bridge::new(Link::new(client, masks.is_some(), output));
        bridge.run(lines, stop).await;
        writers.flush().await;
        Ok(())
    })
}
