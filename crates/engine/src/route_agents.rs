//! The agents of a route, and the ones that a caller may use. A lookup costs the same for one agent and for a thousand.

use std::collections::HashMap;
use std::sync::Arc;

use interlingua_callers::{Caller, Profile};
use interlingua_core::call::AgentCard;
use interlingua_core::{Fault, FaultKind};

/// The maximum number of agents that an error lists.
const MAX_LISTED: usize = 20;

/// The agents of a route that a caller may use. A clone shares the list.
#[derive(Clone)]
pub struct RouteAgents {
    all: Arc<AgentList>,
    rights: Rights,
}

struct AgentList {
    cards: Vec<Arc<AgentCard>>,
    positions: HashMap<String, usize>,
}

#[derive(Clone)]
enum Rights {
    All,
    Only(Arc<Profile>),
    None,
}

impl RouteAgents {
    /// The agents of a route, without restrictions.
    pub fn new(cards: Vec<Arc<AgentCard>>) -> Self {
        let positions = cards.iter().enumerate().map(|(position, card)| (card.name.clone(), position)).collect();
        Self { all: Arc::new(AgentList { cards, positions }), rights: Rights::All }
    }

    /// The agents of the route that a caller may use over a protocol.
    #[must_use]
    pub fn of_caller(&self, caller: &Caller, protocol: &str) -> Self {
        let profile = caller.profile();
        let rights = match () {
            () if !profile.has_protocol(protocol) => Rights::None,
            () if profile.has_all_agents() => Rights::All,
            () => Rights::Only(profile),
        };
        Self { all: Arc::clone(&self.all), rights }
    }

    /// The agents that the caller may use, in the order of the configuration.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<AgentCard>> {
        self.all.cards.iter().filter(|card| self.is_allowed(&card.name))
    }

    /// The only agent of the route, also if the caller may not use it. `None`: the route has several, or none.
    pub fn only(&self) -> Option<&Arc<AgentCard>> {
        match self.all.cards.as_slice() {
            [agent] => Some(agent),
            _ => None,
        }
    }

    /// True if the route has this agent, and the caller may use it.
    pub fn contains(&self, agent: &str) -> bool {
        self.all.positions.contains_key(agent) && self.is_allowed(agent)
    }

    /// Checks that the route has this agent, and that the caller may use it.
    ///
    /// # Errors
    /// [`FaultKind::Forbidden`] or [`FaultKind::NoSuchAgent`].
    pub fn check(&self, agent: &str) -> Result<(), Fault> {
        if !self.all.positions.contains_key(agent) {
            return Err(self.unknown(agent));
        }
        if self.is_allowed(agent) {
            return Ok(());
        }
        Err(Fault::new(FaultKind::Forbidden, format!("you may not use the agent '{agent}'")))
    }

    /// The error for an agent that the route does not have. It lists the agents that the caller may use.
    pub(crate) fn unknown(&self, agent: &str) -> Fault {
        let mut names: Vec<&str> = self.iter().map(|card| card.name.as_str()).take(MAX_LISTED + 1).collect();
        if names.len() > MAX_LISTED {
            names[MAX_LISTED] = "…";
        }
        let message = format!("no agent is called '{agent}': this route has {}", names.join(", "));
        Fault::new(FaultKind::NoSuchAgent, message)
    }

    fn is_allowed(&self, agent: &str) -> bool {
        match &self.rights {
            Rights::All => true,
            Rights::Only(profile) => profile.has_agent(agent),
            Rights::None => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agents(count: usize) -> RouteAgents {
        let card = |number: usize| Arc::new(AgentCard { name: format!("a{number}"), ..AgentCard::default() });
        RouteAgents::new((0..count).map(card).collect())
    }

    #[test]
    fn an_agent_is_found_by_its_name() {
        let agents = agents(3);
        assert!(agents.contains("a2") && !agents.contains("a3"));
        assert!(agents.check("a0").is_ok());
        let fault = agents.check("b").expect_err("unknown");
        let listed = "no agent is called 'b': this route has a0, a1, a2";
        assert_eq!((fault.kind, fault.message.as_str()), (FaultKind::NoSuchAgent, listed));
        assert!(agents.only().is_none());
        assert_eq!(self::agents(1).only().map(|agent| agent.name.as_str()), Some("a0"));
    }

    #[test]
    fn an_agent_without_a_right_is_not_listed() {
        let denied = RouteAgents { rights: Rights::None, ..agents(2) };
        assert!(!denied.contains("a0") && denied.iter().next().is_none());
        assert_eq!(denied.check("a0").expect_err("denied").kind, FaultKind::Forbidden);
        assert_eq!(denied.check("b").expect_err("unknown").kind, FaultKind::NoSuchAgent);
    }

    #[test]
    fn an_error_lists_some_of_many_agents() {
        let message = agents(1_000).unknown("b").message;
        assert!(message.ends_with("a18, a19, …"), "{message}");
    }
}
