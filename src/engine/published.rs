//! What agents' own servers publish about them, for those who may ask those agents.

use interlingua_core::well_known::WellKnownDocument;
use interlingua_core::{Fault, FaultKind};

use super::{Answer, Engine, Scope};

impl Engine {
    pub(super) async fn published(&self, wanted: &WellKnownDocument, scope: &Scope) -> Result<Answer, Fault> {
        let known = scope.agents.iter().any(|card| card.name == wanted.agent);
        let agent = self
            .0
            .agents
            .get(&wanted.agent)
            .filter(|_| known)
            .ok_or_else(|| Fault::new(FaultKind::NoSuchAgent, format!("no agent is called '{}'", wanted.agent)))?;
        Ok(Answer::FetchedDocument(agent.upstream.published(wanted).await))
    }
}
