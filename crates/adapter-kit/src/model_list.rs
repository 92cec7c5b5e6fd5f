//! The agents of a route as models, for protocols whose clients choose a model: which agent a name means, and one
//! document of a model that the clients of all model APIs read.
//!
//! Not here: which agents a caller may see (the engine), and endpoints.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use serde::Serialize;

use interlingua_core::call::AgentCard;
use interlingua_core::fault::{Fault, FaultKind};
use interlingua_core::time::format_rfc3339;

/// The names that clients may send as `model`, and the agents they mean.
#[derive(Clone, Debug)]
pub struct ModelNames {
    agents: Vec<Arc<AgentCard>>,
    positions: HashMap<String, usize>,
    aliases: BTreeMap<String, String>,
    any: bool,
}

impl ModelNames {
    /// The names of a route: those of its agents, `aliases` from further names to agents, and with `any` every other
    /// name, for the route's only agent.
    ///
    /// # Errors
    /// A message for the operator that names the option: an alias of an agent that the route does not have, or `any`
    /// with several agents.
    pub fn new(agents: &[Arc<AgentCard>], aliases: BTreeMap<String, String>, any: bool) -> Result<Self, String> {
        let positions: HashMap<_, _> =
            agents.iter().enumerate().map(|(position, card)| (card.name.clone(), position)).collect();
        for (name, agent) in &aliases {
            if !positions.contains_key(agent) {
                return Err(format!("models: \"{name}\" maps to \"{agent}\", which is not an agent of this route"));
            }
        }
        if any && agents.len() > 1 {
            return Err("any_model: not allowed on a route with several agents".to_owned());
        }
        Ok(Self { agents: agents.to_vec(), positions, aliases, any })
    }

    /// The agents of the route.
    #[must_use]
    pub fn agents(&self) -> &[Arc<AgentCard>] {
        &self.agents
    }

    /// The agent with this name in the configuration.
    #[must_use]
    pub fn card(&self, agent: &str) -> Option<&AgentCard> {
        self.positions.get(agent).map(|position| self.agents[*position].as_ref())
    }

    /// The name that an agent's own tools go by: its `server_label`, or its name.
    #[must_use]
    pub fn server_label<'a>(&'a self, agent: &'a str) -> &'a str {
        let label = self.card(agent).map(|card| card.server_label.as_str());
        label.filter(|label| !label.is_empty()).unwrap_or(agent)
    }

    /// The name of the agent that a `model` means.
    ///
    /// # Errors
    /// [`FaultKind::NoSuchAgent`] with the known names, for the field `model`.
    pub fn agent(&self, model: &str) -> Result<&str, Fault> {
        let found = self.card(model).or_else(|| self.card(self.aliases.get(model)?));
        if let Some(agent) = found {
            return Ok(&agent.name);
        }

        match self.agents.as_slice() {
            [agent] if self.any => Ok(&agent.name),
            _ => {
                let known: Vec<_> = self.iter().map(|(name, _)| format!("'{name}'")).collect();
                let message = format!("The model '{model}' does not exist. Known models: {}.", known.join(", "));
                Err(Fault::new(FaultKind::NoSuchAgent, message).with_field("model"))
            }
        }
    }

    /// Every name, and the agent it means.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &AgentCard)> {
        let names = self.agents.iter().map(|agent| (agent.name.as_str(), agent.as_ref()));
        let aliases = self.aliases.iter().filter_map(|(name, agent)| Some((name.as_str(), self.card(agent)?)));
        names.chain(aliases)
    }

    /// The models whose agents are among `visible`.
    #[must_use]
    pub fn models(&self, visible: &[Arc<AgentCard>]) -> Vec<Model<'_>> {
        let visible: HashSet<&str> = visible.iter().map(|card| card.name.as_str()).collect();
        let models = self.iter().filter(|(_, agent)| visible.contains(agent.name.as_str()));
        models.map(|(id, agent)| Model::new(id, agent)).collect()
    }

    /// The model of this name, if its agent is among `visible`.
    ///
    /// # Errors
    /// [`FaultKind::NoSuchAgent`] for the field `model`.
    pub fn model(&self, id: &str, visible: &[Arc<AgentCard>]) -> Result<Model<'_>, Fault> {
        self.models(visible).into_iter().find(|model| model.id == id).ok_or_else(|| {
            Fault::new(FaultKind::NoSuchAgent, format!("The model '{id}' does not exist.")).with_field("model")
        })
    }
}

/// The document of a model: the fields of OpenAI's and of Anthropic's API together. The clients of either read it.
#[derive(Clone, Debug, Serialize)]
pub struct Model<'a> {
    /// The name that requests send as `model`.
    pub id: &'a str,
    object: &'static str,
    #[serde(rename = "type")]
    kind: &'static str,
    created: u64,
    created_at: String,
    display_name: &'a str,
    owned_by: &'static str,
    lifecycle: &'static str,
    max_input_tokens: Option<u64>,
    max_tokens: Option<u64>,
    capabilities: Option<()>,
}

impl<'a> Model<'a> {
    fn new(id: &'a str, agent: &AgentCard) -> Self {
        Self {
            id,
            object: "model",
            kind: "model",
            created: agent.since / 1000,
            created_at: format_rfc3339(agent.since / 1000 * 1000),
            display_name: id,
            owned_by: "interlingua",
            lifecycle: "active",
            max_input_tokens: None,
            max_tokens: None,
            capabilities: None,
        }
    }
}

/// A list of models. Ids are null when it is empty.
#[derive(Clone, Debug, Serialize)]
pub struct ModelList<'a> {
    object: &'static str,
    data: &'a [Model<'a>],
    has_more: bool,
    first_id: Option<&'a str>,
    last_id: Option<&'a str>,
}

impl<'a> ModelList<'a> {
    /// A page of models; `has_more`: others follow it.
    #[must_use]
    pub fn new(data: &'a [Model<'a>], has_more: bool) -> Self {
        let id = |model: Option<&'a Model<'a>>| model.map(|model| model.id);
        Self { object: "list", data, has_more, first_id: id(data.first()), last_id: id(data.last()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(aliases: &[(&str, &str)], any: bool) -> Result<ModelNames, String> {
        let card = AgentCard { name: "friday".into(), since: 1_795_168_800_999, ..AgentCard::default() };
        let aliases = aliases.iter().map(|(name, agent)| ((*name).to_owned(), (*agent).to_owned())).collect();
        ModelNames::new(&[Arc::new(card)], aliases, any)
    }

    #[test]
    fn a_name_an_alias_and_any_name_mean_an_agent() {
        let strict = names(&[("gpt", "friday")], false).expect("names");
        assert_eq!(strict.agent("friday").expect("its name"), "friday");
        assert_eq!(strict.agent("gpt").expect("an alias"), "friday");
        let unknown = strict.agent("other").expect_err("no such model");
        assert_eq!((unknown.kind, unknown.field.as_deref()), (FaultKind::NoSuchAgent, Some("model")));
        assert!(unknown.message.contains("'friday', 'gpt'"), "{}", unknown.message);

        assert_eq!(names(&[], true).expect("names").agent("other").expect("any"), "friday");
        assert!(names(&[("gpt", "who")], false).expect_err("an alias of nothing").contains("\"who\""));
    }

    #[test]
    fn a_list_has_the_fields_of_both_apis() {
        let names = names(&[], false).expect("names");
        let models = names.models(names.agents());
        let json = serde_json::to_value(ModelList::new(&models, false)).expect("JSON");
        let model = &json["data"][0];
        assert_eq!((&model["object"], &model["type"]), (&"model".into(), &"model".into()));
        assert_eq!((&model["created"], &model["created_at"]), (&1_795_168_800.into(), &"2026-11-20T10:00:00Z".into()));
        assert_eq!((&json["first_id"], &json["has_more"]), (&"friday".into(), &false.into()));

        let empty = serde_json::to_value(ModelList::new(&[], false)).expect("JSON");
        assert!(empty["first_id"].is_null() && empty["last_id"].is_null());
        assert!(names.model("friday", &[]).is_err(), "an agent that the caller may not see does not exist");
    }
}
