//! `interlingua call`: a small client for the terminal. If a run waits for an answer, it prompts for it on an
//! interactive terminal, and otherwise prints the command that sends the answer.
//!
//! Not here: calls of other protocols than the Agent API ([`super::call_foreign`]).

use std::io::{BufRead as _, IsTerminal as _, Write as _};
use std::path::PathBuf;

use clap::ArgGroup;
use interlingua_core::pending::Pending;

use super::guess::{Guess, NATIVE};
use super::waiting::{choices, question};
use crate::Gateway;
use interlingua_upstream::InProcessAgent as _;
use interlingua_upstream::client::{self, Outcome, Question};
use interlingua_upstream::demo::Demo;

/// The environment variable with the key or token to send.
pub(super) const KEY_VARIABLE: &str = "INTERLINGUA_KEY";

/// Send a message to an agent and stream its response to the terminal. If the environment variable INTERLINGUA_KEY is
/// set, it is sent as the bearer token
#[derive(clap::Args, Debug)]
#[command(group = ArgGroup::new("continued").args(["session", "resume"]))]
pub(super) struct Call {
    /// The agent's URL, such as http://127.0.0.1:8080/agents/demo
    pub(super) url: String,
    /// The message, or with --answer the answer: "yes", "no", "reject REASON", "edit JSON", or a text
    #[arg(required = true, num_args = 1..)]
    pub(super) text: Vec<String>,
    /// The protocol of the URL, or auto: by what the URL looks like, and whether there is an agent card
    #[arg(long, default_value = NATIVE)]
    pub(super) protocol: String,
    /// The model to ask for
    #[arg(long)]
    pub(super) model: Option<String>,
    /// An option of the protocol, as in upstream.options of the configuration
    #[arg(long = "option", value_name = "KEY=VALUE")]
    pub(super) options: Vec<String>,
    /// A file with a JSON list of tools that you run yourself
    #[arg(long, value_name = "FILE")]
    pub(super) tools: Option<PathBuf>,
    /// Go on where an earlier call of another protocol than agent-api ended, as it printed
    #[arg(long, value_name = "TOKEN", conflicts_with = "session")]
    pub(super) resume: Option<String>,
    /// Continue this session
    #[arg(long)]
    pub(super) session: Option<String>,
    /// Answer this pending item of the session instead of sending a message
    #[arg(long, value_name = "ITEM", requires = "continued")]
    pub(super) answer: Option<String>,
    /// Print the raw events as they arrive
    #[arg(long)]
    pub(super) raw: bool,
}

impl Call {
    /// Sends the message, and then every answer typed in at the prompt.
    pub(super) fn run(&self, gateway: &Gateway) -> anyhow::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let mut text = self.text.join(" ");
        let mut session = self.session.clone();
        let key = std::env::var(KEY_VARIABLE).ok().filter(|key| !key.is_empty());
        let mut item = self.answer.as_ref().map(|id| {
            // The kind of the item decides the form of the answer.
            let session = session.as_deref().unwrap_or_default();
            let found = runtime.block_on(client::find_item(&self.url, session, id, key.as_deref()));
            found.unwrap_or_else(|| client::unknown_item(id))
        });

        loop {
            let asked = Question {
                url: &self.url,
                text: &text,
                item: item.as_ref(),
                session: session.as_deref(),
                // Never an argument: every user of a machine sees those.
                key: key.as_deref(),
                raw: self.raw,
            };
            let answered = runtime.block_on(client::ask(&asked, &mut std::io::stdout().lock()));
            let outcome = answered.map_err(|error| runtime.block_on(self.with_hint(error, gateway)))?;

            self.report(&outcome);
            let Some(pending) = outcome.pending.first() else { return Ok(()) };
            let Some(typed) = prompt(pending)? else { return Ok(()) };
            (text, item, session) = (typed, Some(pending.clone()), outcome.session.or(session));
        }
    }

    /// True if only the general client knows the protocol or the settings.
    pub(super) fn is_foreign(&self) -> bool {
        self.protocol != NATIVE
            || self.model.is_some()
            || !self.options.is_empty()
            || self.tools.is_some()
            || self.resume.is_some()
    }

    /// Prints what is needed to continue: the ids, and what the run waits for. To standard error, so that standard
    /// output contains only the response.
    fn report(&self, outcome: &Outcome) {
        let known = |id: &Option<String>| id.clone().unwrap_or_else(|| "unknown".to_owned());
        let session = known(&outcome.session);
        eprintln!("session {session}, run {}", known(&outcome.run));

        for item in &outcome.pending {
            let command = format!("interlingua call {} --session {session} --answer {}", self.url, item.id);
            eprint!("{}", question(item, Some(&command)));
        }
    }

    /// Appends a hint to an error if the URL does not serve the Agent API: the protocol that it serves, or a list.
    async fn with_hint(&self, error: anyhow::Error, gateway: &Gateway) -> anyhow::Error {
        let status = error.downcast_ref::<client::Refusal>().map(|refused| refused.status);
        // Statuses of servers of other protocols: not found, wrong method, wrong content, unknown fields.
        if self.item_or_session() || !matches!(status, Some(400 | 404 | 405 | 406 | 415 | 422)) {
            return error;
        }
        match (Guess::from_url(&gateway.server_signs(), &self.url).await, status) {
            (Guess::Protocol(known), _) if known != NATIVE => {
                anyhow::anyhow!("{error}\nthis is a URL of {known}: add --protocol {known}")
            }
            (Guess::Models(protocols), _) => {
                // The protocol that every model server speaks is the last resort.
                let arguments: Vec<String> =
                    protocols.iter().rev().map(|protocol| format!("--protocol {protocol}")).collect();
                anyhow::anyhow!("{error}\nthis is the base URL of a model server: add {}", arguments.join(" or "))
            }
            (_, Some(404 | 405)) => anyhow::anyhow!(
                "{error}\nif another protocol is spoken there, name it: --protocol {}",
                gateway
                    .upstream_names()
                    .into_iter()
                    .filter(|name| ![NATIVE, Demo::NAME].contains(name))
                    .collect::<Vec<_>>()
                    .join(", ")
            ),
            _ => error,
        }
    }

    /// True if the URL has answered before: its protocol is known.
    const fn item_or_session(&self) -> bool {
        self.answer.is_some() || self.session.is_some()
    }
}

/// Prompts for an answer. `None` if the terminal is not interactive or the input is empty.
pub(super) fn prompt(item: &Pending) -> anyhow::Result<Option<String>> {
    if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
        return Ok(None);
    }

    eprint!("{} (empty to leave it open): ", choices(item));
    std::io::stderr().flush()?;

    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line)?;
    let typed = line.trim();
    Ok((!typed.is_empty()).then(|| typed.to_owned()))
}
