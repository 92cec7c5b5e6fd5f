//! `interlingua call`: a small client for the terminal.

use crate::upstream::client;

/// Ask an agent, and stream its answer to the terminal
#[derive(clap::Args, Debug)]
pub(super) struct Call {
    /// Where the agent answers, such as http://127.0.0.1:8080/agents/demo
    url: String,
    /// What to say
    #[arg(required = true, num_args = 1..)]
    text: Vec<String>,
    /// The protocol spoken there
    #[arg(long, default_value = "agent-api", value_parser = ["agent-api"])]
    protocol: String,
    /// Go on with this session
    #[arg(long)]
    session: Option<String>,
    /// Print the frames as they come
    #[arg(long)]
    raw: bool,
}

impl Call {
    /// Asks.
    pub(super) fn run(&self) -> anyhow::Result<()> {
        let question = client::Question {
            url: &self.url,
            text: &self.text.join(" "),
            session: self.session.as_deref(),
            raw: self.raw,
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(client::ask(&question, &mut std::io::stdout().lock()))
    }
}
