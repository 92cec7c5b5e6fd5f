//! `interlingua call`: a small client for the terminal. If a run waits for an answer, it prompts for it on an
//! interactive terminal, and otherwise prints the command that sends the answer.

use std::io::{BufRead as _, IsTerminal as _, Write as _};

use crate::upstream::client::{self, Outcome, PendingItem, Question};

/// The environment variable with the key or token to send.
const KEY_VARIABLE: &str = "INTERLINGUA_KEY";

/// Send a message to an agent and stream its response to the terminal. If the environment variable INTERLINGUA_KEY is
/// set, it is sent as the bearer token
#[derive(clap::Args, Debug)]
pub(super) struct Call {
    /// The agent's URL, such as http://127.0.0.1:8080/agents/demo
    url: String,
    /// The message, or with --answer the answer: "yes", "no", "edit JSON", or a text
    #[arg(required = true, num_args = 1..)]
    text: Vec<String>,
    /// The protocol of the URL
    #[arg(long, default_value = "agent-api", value_parser = ["agent-api"])]
    protocol: String,
    /// Continue this session
    #[arg(long)]
    session: Option<String>,
    /// Answer this pending item of the session instead of sending a message
    #[arg(long, value_name = "ITEM", requires = "session")]
    answer: Option<String>,
    /// Print the raw events as they arrive
    #[arg(long)]
    raw: bool,
}

impl Call {
    /// Sends the message, and then every answer typed in at the prompt.
    pub(super) fn run(&self) -> anyhow::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let mut text = self.text.join(" ");
        let mut item = self.answer.clone();
        let mut session = self.session.clone();
        let key = std::env::var(KEY_VARIABLE).ok().filter(|key| !key.is_empty());

        loop {
            let question = Question {
                url: &self.url,
                text: &text,
                item: item.as_deref(),
                session: session.as_deref(),
                // Never an argument: every user of a machine sees those.
                key: key.as_deref(),
                raw: self.raw,
            };
            let outcome = runtime.block_on(client::ask(&question, &mut std::io::stdout().lock()))?;

            self.report(&outcome);
            let Some(pending) = outcome.pending.first() else { return Ok(()) };
            let Some(typed) = prompt(pending)? else { return Ok(()) };
            (text, item, session) = (typed, Some(pending.id.clone()), outcome.session.or(session));
        }
    }

    /// Prints what is needed to continue: the ids, and what the run waits for. To standard error, so that standard
    /// output contains only the response.
    fn report(&self, outcome: &Outcome) {
        let known = |id: &Option<String>| id.clone().unwrap_or_else(|| "unknown".to_owned());
        let session = known(&outcome.session);
        eprintln!("session {session}, run {}", known(&outcome.run));

        for PendingItem { id, is_tool_call, name, arguments, message } in &outcome.pending {
            let waits_for = if *is_tool_call { "the output of a tool call" } else { "an answer" };
            eprintln!("waiting for {waits_for}: {name} {arguments}");
            if let Some(message) = message {
                eprintln!("  {message}");
            }
            let example = if *is_tool_call { "OUTPUT" } else { "yes" };
            eprintln!("  interlingua call {} --session {session} --answer {id} {example}", self.url);
        }
    }
}

/// Prompts for an answer. `None` if the terminal is not interactive or the input is empty.
fn prompt(item: &PendingItem) -> anyhow::Result<Option<String>> {
    if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
        return Ok(None);
    }

    let choices = if item.is_tool_call { "output" } else { "yes, no, edit JSON, or a text" };
    eprint!("{choices} (empty to leave it open): ");
    std::io::stderr().flush()?;

    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line)?;
    let typed = line.trim();
    Ok((!typed.is_empty()).then(|| typed.to_owned()))
}
