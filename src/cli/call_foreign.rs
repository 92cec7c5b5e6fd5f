//! `interlingua call` for every protocol that agents are called by: with its connector, as the gateway would call an
//! agent at this URL.
//!
//! Not here: the Agent API without further settings ([`super::call`]).

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::sync::Arc;

use anyhow::{Context as _, bail};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use flate2::Compression;
use flate2::read::DeflateDecoder;
use flate2::write::DeflateEncoder;
use interlingua_core::capability::HistoryNeed;
use interlingua_core::event::Event;
use interlingua_core::model::MessageType;
use interlingua_core::run::Message;
use interlingua_core::step::Step;
use interlingua_core::{End, Fault, Json};
use serde::{Deserialize, Serialize};

use super::call::{Call, KEY_VARIABLE, prompt};
use super::guess::{Guess, NATIVE};
use super::waiting::question;
use crate::Gateway;
use interlingua_config::{self as config, Env, Settings};
use interlingua_upstream::dialogue::{Dialogue, Listener, Memory, TurnEnd, UserInput};

/// The name of the agent that is called, in its settings.
const AGENT: &str = "called";
/// The longest token that is printed; shells and people take no longer ones.
const MAX_TOKEN: usize = 8 * 1024;
/// The most that a token holds, unpacked.
const MAX_MEMORY: u64 = 4 << 20;

/// The state that an answer to a pending item needs. It is part of the printed command.
#[derive(Serialize, Deserialize)]
struct Token {
    protocol: String,
    memory: Memory,
}

/// Sends the message, and then every answer typed in at the prompt.
pub(super) fn run(call: &Call, gateway: &Gateway) -> anyhow::Result<()> {
    let token = call.resume.as_deref().map(read_token).transpose()?;
    interlingua_server::block_on(async {
        let protocol = match &token {
            Some(token) => token.protocol.clone(),
            None if call.protocol == "auto" => guess(gateway, &call.url).await,
            None => call.protocol.clone(),
        };
        if !gateway.upstream_names().contains(&protocol.as_str()) {
            bail!("unknown protocol {protocol:?}: there are auto, {}", gateway.upstream_names().join(", "));
        }

        let mut dialogue = dialogue(call, gateway, &protocol)?;
        if let Some(token) = token {
            dialogue = dialogue.with_memory(token.memory);
        } else if let Some(session) = &call.session {
            dialogue = dialogue.in_session(session);
        }
        converse(call, &protocol, dialogue).await
    })
}

async fn converse(call: &Call, protocol: &str, mut dialogue: Dialogue) -> anyhow::Result<()> {
    let mut text = call.text.join(" ");
    let mut item = call.answer.clone();
    loop {
        let spoken = match &item {
            Some(item) => UserInput::Answer { item, text: &text },
            None => UserInput::Text(&text),
        };
        let mut shown = AnswerPrinter { raw: call.raw, is_printed: false };
        let end = dialogue.turn(spoken, &mut shown).await.map_err(|fault| in_words(&fault))?;
        report(call, protocol, &dialogue, &end)?;

        let Some(pending) = end.pending.first() else { return Ok(()) };
        let Some(typed) = prompt(pending)? else { return Ok(()) };
        (text, item) = (typed, Some(pending.id.clone()));
    }
}

/// A conversation with the agent at the URL, set up as a configuration would.
fn dialogue(call: &Call, gateway: &Gateway, protocol: &str) -> anyhow::Result<Dialogue> {
    let settings = settings(call, gateway, protocol)?;
    let agent = settings.agent(AGENT).context("the agent has no settings")?;
    let upstream = gateway.open_upstream(agent, &settings)?;
    let sends_history = agent.upstream.capabilities.history == HistoryNeed::SentEachTime;
    let tools = match &call.tools {
        Some(file) => {
            let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
            let tools: Vec<Json> =
                serde_json::from_str(&text).with_context(|| format!("{} has no list of tools", file.display()))?;
            Some(tools)
        }
        None => None,
    };
    Ok(Dialogue::new(Arc::clone(&upstream), AGENT, sends_history).with_model(call.model.clone()).with_tools(tools))
}

/// The settings of a gateway that has this agent alone. So its options are checked as in a file.
fn settings(call: &Call, gateway: &Gateway, protocol: &str) -> anyhow::Result<Settings> {
    let quoted = |text: &str| toml::Value::String(text.to_owned()).to_string();
    let mut options = String::new();
    for option in &call.options {
        let Some((key, value)) = option.split_once('=') else { bail!("--option {option}: write KEY=VALUE") };
        // Other values are texts.
        let is_value = toml::from_str::<toml::Table>(&format!("value = {value}")).is_ok_and(|table| table.len() == 1);
        let value = if is_value { value.to_owned() } else { quoted(value) };
        let _ = write!(options, "{} = {value}, ", quoted(key.trim()));
    }
    if let Some(model) = call.model.as_ref().filter(|_| has_model(gateway, protocol) && !options.contains("\"model\""))
    {
        let _ = write!(options, "model = {}", quoted(model));
    }
    let has_key = std::env::var(KEY_VARIABLE).is_ok_and(|key| !key.is_empty());
    let headers = if has_key {
        format!("headers = {{ authorization = {{ env = \"{KEY_VARIABLE}\", prefix = \"Bearer \" }} }}")
    } else {
        String::new()
    };
    let source = format!(
        "[agents.{AGENT}.upstream]\nprotocol = {}\nurl = {}\noptions = {{ {} }}\n{headers}\n",
        quoted(protocol),
        quoted(&call.url),
        options.trim_end_matches(", "),
    );
    let read = config::read(&source, "call".as_ref(), &gateway.protocols(), &Env::process());
    let (settings, _) = read.map_err(|errors| anyhow::anyhow!("{}", errors.render(false).trim()))?;
    settings.secrets.enforce();
    Ok(settings)
}

/// True if the protocol has an option that names the model.
fn has_model(gateway: &Gateway, protocol: &str) -> bool {
    gateway.upstream_options(protocol).is_some_and(|schema| schema["properties"].get("model").is_some())
}

/// The protocol that a URL looks like.
async fn guess(gateway: &Gateway, url: &str) -> String {
    let protocol = match Guess::of_server(&gateway.server_signs(), url).await {
        Guess::Protocol(protocol) => protocol,
        // Every model server speaks the first one.
        Guess::Models(protocols) => protocols.first().copied().unwrap_or(NATIVE),
        Guess::Unknown => NATIVE,
    };
    eprintln!("protocol {protocol}");
    protocol.to_owned()
}

/// Prints what is needed to continue, to standard error, so that standard output contains only the response.
fn report(call: &Call, protocol: &str, dialogue: &Dialogue, end: &TurnEnd) -> anyhow::Result<()> {
    eprintln!("session {}", dialogue.session());
    for loss in &end.losses {
        eprintln!("{}: {loss}", loss.change.as_str());
    }
    for item in &end.pending {
        let options = call.options.iter().fold(String::new(), |text, option| format!("{text} --option '{option}'"));
        let command = token(protocol, dialogue)?
            .map(|token| format!("interlingua call {} --resume {token} --answer {}{options}", call.url, item.id));
        eprint!("{}", question(item, command.as_deref()));
        if command.is_none() {
            eprintln!("  this protocol has no sessions: answer at the prompt of an interactive terminal");
        }
    }

    match (end.end, &end.error) {
        (End::Completed, _) => Ok(()),
        (end, Some(error)) => bail!("the run ended as {}: {} {}", end.as_str(), error.code, error.message),
        (end, None) => bail!("the run ended as {}", end.as_str()),
    }
}

/// The state that an answer in another process needs. `None`: it is too large, or the dialogue is complete.
fn token(protocol: &str, dialogue: &Dialogue) -> anyhow::Result<Option<String>> {
    let Some(memory) = dialogue.memory() else { return Ok(None) };
    let token = write_token(&Token { protocol: protocol.to_owned(), memory: memory.clone() })?;
    Ok((token.len() <= MAX_TOKEN).then_some(token))
}

/// Compressed, since a question appears in several forms.
fn write_token(token: &Token) -> anyhow::Result<String> {
    let mut packed = DeflateEncoder::new(Vec::new(), Compression::best());
    packed.write_all(&serde_json::to_vec(token)?)?;
    Ok(URL_SAFE_NO_PAD.encode(packed.finish()?))
}

fn read_token(text: &str) -> anyhow::Result<Token> {
    let read = || -> anyhow::Result<Token> {
        let packed = URL_SAFE_NO_PAD.decode(text.trim())?;
        let mut whole = Vec::new();
        DeflateDecoder::new(&*packed).take(MAX_MEMORY).read_to_end(&mut whole)?;
        Ok(serde_json::from_slice(&whole)?)
    };
    read().map_err(|_| anyhow::anyhow!("--resume: this is no token that an earlier call printed"))
}

fn in_words(fault: &Fault) -> anyhow::Error {
    let detail = fault.detail.as_deref().map(|detail| format!(": {detail}")).unwrap_or_default();
    anyhow::anyhow!("{}{detail}", fault.message)
}

/// Prints an answer as it comes.
struct AnswerPrinter {
    raw: bool,
    /// The content under way was printed piece by piece.
    is_printed: bool,
}

impl Listener for AnswerPrinter {
    fn chunk(&mut self, chunk: &[u8]) {
        if self.raw {
            print(&String::from_utf8_lossy(chunk));
        }
    }

    fn step(&mut self, step: Step<'_>) {
        // Questions are printed with the commands that answer them.
        let is_shown = |message: &Message| !self.raw && message.kind != MessageType::McpApprovalRequest;
        let Some((_, message)) = step.message().filter(|(_, message)| is_shown(message)) else { return };
        match step.event {
            Event::MessageStarted { .. } if !matches!(message.kind, MessageType::Message | MessageType::Error) => {
                print(&format!("[{}]\n", message.kind));
            }
            Event::ContentDelta { .. } => {
                print(step.delta());
                self.is_printed = true;
            }
            Event::ContentFinished { .. } => {
                if let (false, Some((_, slot))) = (self.is_printed, step.slot()) {
                    print(Json::from_serialize(&slot.content()).text());
                }
                self.is_printed = false;
            }
            Event::MessageFinished { .. } => print("\n"),
            _ => {}
        }
    }
}

/// Writes to standard output at once. A reader that has left does not matter.
fn print(text: &str) {
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}
