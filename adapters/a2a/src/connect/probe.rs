//! Reads an agent's card for the operator: its description, its interfaces and its requirements.

use std::sync::Arc;

use interlingua_core::connector::HttpRequest;
use interlingua_core::probe::{AgentProbe, Finding, ProbeAnswer};
use interlingua_core::tree::Node;
use interlingua_core::{Fault, Json};
use serde::Deserialize;

use super::interface::{Interface, card_urls, is_trusted};
use super::options::UpstreamOptions;
use crate::dialect::Generation;

/// Fetches the card at its places.
pub(super) struct A2aProbe {
    url: Arc<str>,
    options: Arc<UpstreamOptions>,
    /// Where the card may be, the next place last.
    places: Vec<String>,
    latest: String,
    is_found: bool,
    findings: Vec<Finding>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Card {
    name: Option<String>,
    version: Option<String>,
    skills: Vec<Json>,
    capabilities: Capabilities,
    #[serde(alias = "security")]
    security_requirements: Vec<Json>,
    security_schemes: Option<Json>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Capabilities {
    extensions: Vec<Extension>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Extension {
    uri: String,
    required: bool,
}

impl A2aProbe {
    pub(super) fn new(url: &Arc<str>, options: &Arc<UpstreamOptions>) -> Self {
        let mut places = card_urls(url, options);
        places.reverse();
        let mut findings = Vec::new();
        if Interface::from_options(url, options).is_some() {
            findings.push(Finding::note("binding and version are set: the agent is asked without its card"));
        }
        Self {
            url: Arc::clone(url),
            options: Arc::clone(options),
            places,
            latest: String::new(),
            is_found: false,
            findings,
        }
    }

    fn card(&mut self, body: &[u8]) {
        let card: Card = serde_json::from_slice(body).unwrap_or_default();
        let name = [card.name, card.version].into_iter().flatten().collect::<Vec<_>>().join(" ");
        let skills = match card.skills.len() {
            1 => "1 skill".to_owned(),
            count => format!("{count} skills"),
        };
        self.findings.push(Finding::good(format!("the card is at {}: {name}, {skills}", self.latest)));

        match Interface::from_card(body, &self.url, &self.options) {
            Ok(interface) => self.interface(&interface),
            Err(fault) => self.findings.push(Finding::problem(format!(
                "{}: the gateway speaks JSON-RPC and HTTP+JSON in versions 1.0 and 0.3{}",
                fault.message,
                if self.options.binding.is_some() || self.options.version.is_some() {
                    ", and the options binding and version allow fewer"
                } else {
                    ""
                }
            ))),
        }
        for extension in card.capabilities.extensions.iter().filter(|extension| extension.required) {
            if !self.options.extensions.contains(&extension.uri) {
                let uri = &extension.uri;
                self.findings.push(Finding::problem(format!(
                    "the agent requires the extension {uri}: add it to options.extensions if clients may use it"
                )));
            }
        }
        if !card.security_requirements.is_empty() {
            let schemes = card.security_schemes.as_ref().and_then(Json::decode::<interlingua_core::Extra>);
            let schemes = schemes.unwrap_or_default();
            let names: Vec<&str> = schemes.iter().map(|(name, _)| name).collect();
            self.findings.push(Finding::note(format!(
                "the agent wants credentials ({}): upstream.headers has to send them",
                names.join(", ")
            )));
        }
    }

    fn interface(&mut self, interface: &Interface) {
        let Interface { url, dialect, streaming, is_replaced, .. } = interface;
        let (version, binding) = (dialect.generation.as_str(), dialect.binding.as_str());
        self.findings.push(Finding::good(format!("asked over {binding} in version {version} at {url}")));
        if *is_replaced {
            self.findings.push(Finding::note(
                "the card names another host or port than the configured one: its path is asked there; name host:port in \
                 options.allow_hosts to follow the card",
            ));
        }
        self.findings.push(if *streaming {
            Finding::good("streams, and is subscribed to again when a stream breaks".to_owned())
        } else {
            Finding::note("does not stream: its tasks are polled")
        });
    }
}

impl AgentProbe for A2aProbe {
    fn next(&mut self) -> Option<HttpRequest> {
        if self.is_found {
            return None;
        }
        self.latest = self.places.pop()?;
        let mut request = HttpRequest::lookup(&self.latest).with_header("a2a-version", Generation::V1.as_str());
        request.is_trusted = is_trusted(&self.url, &self.latest, &self.options.allow_hosts);
        Some(request)
    }

    fn on_answer(&mut self, answer: Result<ProbeAnswer<'_>, &Fault>) {
        match answer {
            Ok(ProbeAnswer { status: 200, body, .. }) if Node::parse_object(body).is_ok() => {
                self.is_found = true;
                self.card(body);
            }
            Ok(ProbeAnswer { status: 401 | 403, .. }) => {
                self.is_found = true;
                self.findings.push(Finding::problem("the agent refuses the gateway's credentials: set upstream.headers"));
            }
            Ok(_) if !self.places.is_empty() => {}
            Ok(ProbeAnswer { status, .. }) => self.findings.push(Finding::problem(format!(
                "no card at the well-known places, the last one answers with {status}: set options.card_url, or binding \
                 and version"
            ))),
            Err(fault) => {
                self.is_found = true;
                self.findings.push(Finding::problem(fault.message.clone()));
            }
        }
    }

    fn findings(&self) -> &[Finding] {
        &self.findings
    }
}
