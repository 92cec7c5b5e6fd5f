//! `interlingua probe`: asks a configured agent what it is, and says in plain words what will work.
//!
//! Without `--ask`, nothing is sent that runs the agent. Not here: what each protocol asks (the connectors).

use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use interlingua_core::capability::{Cancel, ClientCapabilities, HistoryNeed, Media, UpstreamCapabilities};
use interlingua_core::duration::Period;
use interlingua_core::pending::Decision;
use interlingua_core::probe::{Finding, Level};
use interlingua_core::step::Step;
use interlingua_core::{End, Fault};
use serde_json::{Value, json};

use super::signs;
use crate::Gateway;
use interlingua_base::secrets;
use interlingua_config::{Agent, History, Mount, Settings};
use interlingua_upstream::Upstream;
use interlingua_upstream::dialogue::{Dialogue, Listener, TurnEnd, UserInput};

/// The question of the second turn, which shows whether the agent remembers the first one.
const MEMORY_QUESTION: &str = "Repeat the first words that I have said to you, word for word.";

/// Ask a configured agent what it is, and say what will work. Without --ask nothing is sent that runs the agent
#[derive(clap::Args, Debug)]
pub(super) struct Probe {
    /// The agent's name in the configuration
    agent: String,
    /// Also take a turn with this text, and a second one to see whether the agent remembers it
    #[arg(long, value_name = "TEXT")]
    ask: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Only this endpoint, counted from 1
    #[arg(long, value_name = "NUMBER")]
    endpoint: Option<usize>,
    /// Timeout of each answer
    #[arg(long, default_value = "10s", value_name = "TIME", value_parser = Period::parse)]
    timeout: Period,
}

/// The findings about one endpoint.
struct EndpointFindings {
    url: String,
    findings: Vec<Finding>,
}

/// The result of a turn with the agent.
struct TurnResult {
    findings: Vec<Finding>,
    text: String,
}

impl Probe {
    /// The name of the agent.
    pub(super) fn agent(&self) -> &str {
        &self.agent
    }

    /// Runs it. The result is the exit code.
    pub(super) fn run(&self, gateway: &Gateway, settings: &Settings) -> anyhow::Result<i32> {
        let Some(agent) = settings.agent(&self.agent) else {
            let names: Vec<&str> = settings.agents.iter().map(|agent| agent.name.as_str()).collect();
            eprintln!("error: no agent is called '{}': there are {}", self.agent, names.join(", "));
            return Ok(2);
        };
        let endpoints = agent.upstream.endpoints.len();
        if let Some(wanted) = self.endpoint.filter(|wanted| !(1..=endpoints).contains(wanted)) {
            eprintln!("error: there is no endpoint {wanted}: the agent has {endpoints}");
            return Ok(2);
        }

        let upstream = gateway.open_upstream(agent, settings)?;
        let (probed, asked) = interlingua_server::block_on(async {
            let probed = self.probe(gateway, &*upstream, agent).await;
            let reaches = probed.iter().any(|one| one.findings.first().is_some_and(|first| first.level == Level::Good));
            let asked = match &self.ask {
                Some(text) if reaches => Some(ask(&upstream, agent, text).await),
                _ => None,
            };
            (probed, asked)
        });
        let general = in_general(gateway, settings, agent);
        let print = if self.json { print_json } else { print_lines };
        print(agent, &probed, &general, asked.as_ref())?;

        let all = probed.iter().flat_map(|one| &one.findings).chain(&general);
        let mut all = all.chain(asked.iter().flat_map(|asked| &asked.findings));
        Ok(i32::from(all.any(|finding| finding.level == Level::Problem)))
    }

    async fn probe(&self, gateway: &Gateway, upstream: &dyn Upstream, agent: &Agent) -> Vec<EndpointFindings> {
        let mut probed = Vec::new();
        let limit = self.timeout.0;
        if agent.upstream.endpoints.is_empty() {
            probed.push(EndpointFindings { url: String::new(), findings: upstream.probe(0, limit).await });
        }
        for (index, endpoint) in agent.upstream.endpoints.iter().enumerate() {
            if self.endpoint.is_none_or(|wanted| wanted == index + 1) {
                let mut findings = upstream.probe(index, limit).await;
                let reaches = findings.first().is_some_and(|first| first.level == Level::Good);
                if reaches {
                    let known = gateway.server_signs();
                    let protocol = &agent.upstream.protocol;
                    findings.extend(signs::of_other_protocols(&known, protocol, &endpoint.url, limit).await);
                }
                probed.push(EndpointFindings { url: endpoint.shown(), findings });
            }
        }
        probed
    }
}

/// Takes two turns in one session.
async fn ask(upstream: &Arc<dyn Upstream>, agent: &Agent, text: &str) -> TurnResult {
    let sends_history = agent.history == History::Gateway;
    let mut dialogue = Dialogue::new(Arc::clone(upstream), &agent.name, sends_history);
    let first = match dialogue.turn(UserInput::Text(text), &mut Silent).await {
        Ok(end) => end,
        Err(fault) => return TurnResult { findings: vec![Finding::problem(in_words(&fault))], text: String::new() },
    };
    let mut findings = turn_findings(&first);
    if first.end != End::Completed || !first.pending.is_empty() {
        return TurnResult { findings, text: first.text };
    }

    findings.push(match dialogue.turn(UserInput::Text(MEMORY_QUESTION), &mut Silent).await {
        Err(fault) => Finding::problem(format!("a second turn of the session failed: {}", in_words(&fault))),
        Ok(second) if second.end != End::Completed => Finding::problem("a second turn of the session failed"),
        Ok(second) if second.text.to_lowercase().contains(&text.trim().to_lowercase()) => {
            Finding::good("it remembers what was said")
        }
        Ok(_) if sends_history => {
            Finding::note("its second answer does not repeat the first words, although it was sent them")
        }
        Ok(_) => Finding::note(
            "its second answer does not repeat the first words: if it remembers nothing, set history = \"gateway\"",
        ),
    });
    TurnResult { findings, text: first.text }
}

fn turn_findings(turn: &TurnEnd) -> Vec<Finding> {
    let mut findings = Vec::new();
    let millis = |time: Duration| time.as_millis();
    let first =
        turn.first_event.map_or_else(String::new, |first| format!(", its first event after {} ms", millis(first)));
    let kinds: Vec<String> = turn.messages.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
    let ended =
        format!("the turn ended as {} after {} ms{first}: {}", turn.end.as_str(), millis(turn.took), kinds.join(", "));
    match (turn.end, &turn.error) {
        (End::Completed, _) => findings.push(Finding::good(ended)),
        (_, Some(error)) => findings.push(Finding::problem(format!("{ended}: {} {}", error.code, error.message))),
        (_, None) => findings.push(Finding::problem(ended)),
    }
    if turn.ignored > 0 {
        findings.push(Finding::note(format!("{} frames meant nothing in this protocol", turn.ignored)));
    }
    for item in &turn.pending {
        findings.push(Finding::note(format!("it waits for an answer: {}", item.name)));
    }
    findings.extend(turn.losses.iter().map(|loss| Finding::note(format!("{}: {loss}", loss.change.as_str()))));
    findings
}

struct Silent;

impl Listener for Silent {
    fn chunk(&mut self, _: &[u8]) {}
    fn step(&mut self, _: Step<'_>) {}
}

/// Findings that follow from the protocol and the options, and their consequences for each route.
fn in_general(gateway: &Gateway, settings: &Settings, agent: &Agent) -> Vec<Finding> {
    let carried = &agent.upstream.capabilities;
    let mut findings = vec![Finding::good(abilities(carried))];
    findings.push(Finding::note(match (carried.history, agent.history) {
        (HistoryNeed::SentEachTime, _) => "remembers nothing: the gateway sends the history with each request",
        (HistoryNeed::KeptByAgent, History::Gateway) => {
            "may remember sessions, but the gateway sends the history with each request (history = \"gateway\")"
        }
        (HistoryNeed::KeptByAgent, History::Upstream) => {
            "keeps the history of its sessions itself (history = \"upstream\")"
        }
        (HistoryNeed::KeptByAgentOnly, _) => {
            "keeps the history of its sessions itself: its protocol has no place for one"
        }
    }));
    if carried.cancel == Cancel::Ignored {
        findings.push(Finding::note("cannot be stopped: the answer to a canceled run is thrown away"));
    }

    let protocols = gateway.protocols();
    let serves = |mount: &Mount| mount.agents.iter().any(|served| served.name == agent.name);
    for mount in settings.mounts().into_iter().filter(serves) {
        if let Some(clients) = protocols.carried_on(&mount.route) {
            findings.extend(on_route(&mount.path, &clients, carried));
        }
    }
    findings
}

/// Features that will not work for clients of a route.
fn on_route(path: &str, clients: &ClientCapabilities, agent: &UpstreamCapabilities) -> Vec<Finding> {
    let mut lost = Vec::new();
    if clients.tool_declarations && !agent.client_tools {
        lost.push("tools that clients declare are not passed on");
    }
    if agent.client_tools && !clients.client_tools {
        lost.push("clients cannot run tools for the agent");
    }
    let settles = |decision: &&Decision| **decision != Decision::Cancel && agent.decisions.contains(decision);
    let can_decide = clients.decisions.iter().any(|decision| settles(&decision));
    match (agent.decisions.is_empty(), clients.decisions.is_empty()) {
        (true, false) => lost.push("clients will never be asked for approval: the agent cannot ask"),
        (false, _) if !can_decide => lost.push("clients cannot answer when the agent asks for approval"),
        _ => {}
    }
    if agent.asks.input && !clients.asks.input {
        lost.push("clients cannot answer the agent's questions");
    }
    if agent.asks.auth && !clients.asks.auth {
        lost.push("clients are not asked to log in");
    }
    if agent.wants_model && !clients.names_model {
        lost.push("the agent's server is asked for no model: set options.model");
    }
    if agent.reasoning && !clients.reasoning {
        lost.push("reasoning is not shown");
    }
    if agent.usage && !clients.usage {
        lost.push("usage is not reported");
    }
    if agent.streaming && !clients.streaming {
        lost.push("answers come in one piece");
    }
    if lost.is_empty() {
        return vec![Finding::good(format!("{path}: everything of the agent reaches its clients"))];
    }
    lost.into_iter().map(|what| Finding::note(format!("{path}: {what}"))).collect()
}

/// The agent's abilities, in one sentence.
fn abilities(agent: &UpstreamCapabilities) -> String {
    let mut able = vec![if agent.streaming { "streams" } else { "answers in one piece" }.to_owned()];
    if agent.client_tools {
        able.push("takes tools of clients".to_owned());
    }
    let asks = [
        (agent.asks.approval || !agent.decisions.is_empty(), "approval"),
        (agent.asks.input, "answers"),
        (agent.asks.auth, "logins"),
    ];
    if asks.iter().any(|(asks, _)| *asks) {
        able.push(format!("asks for {}", listed(&asks)));
    }
    if agent.reasoning {
        able.push("shows its reasoning".to_owned());
    }
    if agent.usage {
        able.push("reports usage".to_owned());
    }
    for (media, verb) in [(agent.input_media, "takes"), (agent.output_media, "makes")] {
        if media != Media::NONE {
            let kinds =
                [(media.image, "images"), (media.audio, "audio"), (media.video, "video"), (media.file, "files")];
            able.push(format!("{verb} {}", listed(&kinds)));
        }
    }
    able.join("; ")
}

/// The names of the present ones, as a list in a sentence.
fn listed(all: &[(bool, &str)]) -> String {
    let there: Vec<&str> = all.iter().filter(|(is_there, _)| *is_there).map(|(_, name)| *name).collect();
    match there.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} and {last}", rest.join(", ")),
        _ => there.concat(),
    }
}

fn in_words(fault: &Fault) -> String {
    let text = match &fault.detail {
        Some(detail) => format!("{}: {detail}", fault.message),
        None => fault.message.clone(),
    };
    secrets::mask(&text).into_owned()
}

fn print_lines(
    agent: &Agent,
    probed: &[EndpointFindings],
    general: &[Finding],
    asked: Option<&TurnResult>,
) -> anyhow::Result<()> {
    let mut out = String::new();
    let line = |out: &mut String, finding: &Finding| {
        // Further lines of a finding are indented below its first one.
        let text = finding.text.replace('\n', "\n         ");
        out.push_str(&format!("{:<8} {text}\n", finding.level.as_str()));
    };
    for one in probed {
        let at = if one.url.is_empty() { String::new() } else { format!(", {}", one.url) };
        out.push_str(&format!("{}: protocol {}{at}\n", agent.name, agent.upstream.protocol));
        one.findings.iter().for_each(|finding| line(&mut out, finding));
    }
    general.iter().for_each(|finding| line(&mut out, finding));
    if let Some(asked) = asked {
        asked.findings.iter().for_each(|finding| line(&mut out, finding));
        if !asked.text.is_empty() {
            out.push_str(&format!("\n{}\n", secrets::mask(&asked.text)));
        }
    }
    std::io::stdout().flush()?;
    super::print(&out)
}

fn print_json(
    agent: &Agent,
    probed: &[EndpointFindings],
    general: &[Finding],
    asked: Option<&TurnResult>,
) -> anyhow::Result<()> {
    let list = |findings: &[Finding]| -> Value {
        findings.iter().map(|finding| json!({ "level": finding.level.as_str(), "text": finding.text })).collect()
    };
    let endpoints: Vec<Value> =
        probed.iter().map(|one| json!({ "url": one.url, "findings": list(&one.findings) })).collect();
    let mut shown = json!({
        "agent": agent.name, "protocol": agent.upstream.protocol, "endpoints": endpoints, "findings": list(general),
    });
    if let Some(asked) = asked {
        shown["asked"] = json!({ "findings": list(&asked.findings), "text": secrets::mask(&asked.text) });
    }
    super::print(&serde_json::to_string_pretty(&shown)?)
}
