//! Options of an agent behind this service.

use interlingua_core::duration::Period;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Options of an agent behind the human-in-the-loop agent service.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct UpstreamOptions {
    /// The value of `user_id`. The service has one session for each user.
    pub user: ServiceUser,
    /// The words for decisions.
    pub words: DecisionWords,
    /// After a broken connection: the first pause before the gateway requests the status of the run.
    pub poll_interval: Period,
    /// Maximum pause between two status requests.
    pub max_poll_interval: Period,
}

impl Default for UpstreamOptions {
    fn default() -> Self {
        Self {
            user: ServiceUser::default(),
            words: DecisionWords::default(),
            poll_interval: Period::seconds(1),
            max_poll_interval: Period::seconds(5),
        }
    }
}

/// The value of `user_id`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ServiceUser {
    /// The id of the gateway's session: each has a session of its own there.
    #[default]
    Session,
    /// The user's id: all sessions of a user are one conversation there.
    User,
}

/// The words for decisions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DecisionWords {
    /// `accept`, and `args` with the arguments or the text under `args`.
    #[default]
    Accept,
    /// `approve`, and `args` with `edited_args` or `message`: later variants of the service.
    Approve,
}

impl UpstreamOptions {
    pub(super) fn check(&self) -> Result<(), String> {
        if self.poll_interval.0.is_zero() || self.max_poll_interval.0 < self.poll_interval.0 {
            return Err("\"poll_interval\" is more than zero and at most \"max_poll_interval\"".into());
        }
        Ok(())
    }

    pub(super) fn warnings(&self) -> Vec<String> {
        let mixes = self.user == ServiceUser::User;
        let warning = "user = \"user\": all sessions of a user, and of anyone who names the same one, are one conversation \
                       at this agent\nleave it out: each session is a conversation of its own";
        mixes.then(|| warning.to_owned()).into_iter().collect()
    }
}
