//! The exchanges, one for each endpoint of docs/protocols/chat-completions.md#endpoints, and what they share.
//!
//! Here: the mounted route. Not here: what all APIs of OpenAI have ([`interlingua_adapter_kit::openai_api`]), and
//! writing answers ([`crate::encode`]).

pub(crate) mod complete;
pub(crate) mod judge;
pub(crate) mod list;
pub(crate) mod stored;

use std::sync::Arc;

use interlingua_adapter_kit::model_list::ModelNames;
use interlingua_core::answer::offer;
use interlingua_core::pending::{Pending, PendingKind};

use crate::options::Options;

#[derive(Debug)]
pub(crate) struct MountedRoute {
    pub(crate) options: Options,
    pub(crate) names: Arc<ModelNames>,
}

impl MountedRoute {
    /// These items with the decisions that the agent takes, without the calls that the client runs.
    pub(crate) fn limited(&self, agent: &str, items: &[Pending]) -> Vec<Pending> {
        let taken = self.names.card(agent).map_or(&[][..], |card| card.decisions);
        let asked = items.iter().filter(|item| item.kind != PendingKind::Tool);
        let limit = |item: &Pending| Pending { decisions: offer(item, taken), ..item.clone() };
        asked.map(limit).collect()
    }
}
