//! Options that the protocols of model servers have in common: their clients send tools, formats and histories alike,
//! and their agents are sent fields that the operator names.
//!
//! Not here: the options of one protocol alone, and what the options do.

use interlingua_core::{choice, policy};

choice! {
    /// Whether reasoning in the client's history reaches the agent.
    ReasoningInput {
        /// Send it to the agent.
        #[default]
        Forward,
        /// Leave it out.
        Drop,
    }
}
choice! {
    /// The form in which the agent receives refusals in the client's history.
    RefusalInput {
        /// Refusals.
        #[default]
        Refusal,
        /// Text, for agents that do not support refusals.
        Text,
    }
}
choice! {
    /// The form of data in ordinary messages.
    DataDisplay {
        /// Text.
        #[default]
        Text,
        /// Hidden.
        Hide,
    }
}
choice! {
    /// Handling of tools that the client declares.
    ClientTools {
        /// Send them to the agent.
        #[default]
        Forward,
        /// Refuse the request.
        Refuse,
        /// Do not send them to the agent.
        Ignore,
    }
}
choice! {
    /// Whether a setting without effect is refused.
    IgnoreOrRefuse {
        /// Accept it.
        #[default]
        Ignore,
        /// Refuse the request.
        Refuse,
    }
}
choice! {
    /// Handling of the requested format of an answer.
    StructuredOutput {
        /// Send it to the agent, in the extra field `text`.
        #[default]
        Forward,
        /// Send it as a system message before the conversation.
        Instruct,
        /// Refuse the request.
        Refuse,
    }
}
choice! {
    /// Whether calls of the previous answer may stay unanswered.
    OpenCalls {
        /// They may.
        #[default]
        Allow,
        /// Refuse the request.
        Refuse,
    }
}
choice! {
    /// Handling of a run whose client disconnects.
    Disconnect {
        /// Cancel it.
        #[default]
        Cancel,
        /// Let it continue.
        Detach,
    }
}
choice! {
    /// Handling of a request for a session with an active run.
    Busy {
        /// Refuse it.
        #[default]
        Refuse,
        /// Let it wait.
        Queue,
    }
}

/// Checks options that name fields of requests: `fields` has the option and the name of each. `reserved`: the fields
/// that options must not set, because the connector writes them or because they change the form of the answer.
///
/// # Errors
/// A sentence for the operator.
pub fn check_fields<'a>(
    reserved: &[&str],
    fields: impl IntoIterator<Item = (&'static str, &'a String)>,
) -> Result<(), String> {
    match fields.into_iter().find(|(_, name)| name.is_empty() || reserved.contains(&name.as_str())) {
        Some((option, name)) if name.is_empty() => Err(format!("{option} must not contain an empty name")),
        Some((option, name)) => Err(format!("{option} must not name \"{name}\": the gateway reserves this field")),
        None => Ok(()),
    }
}

impl From<Busy> for policy::Busy {
    fn from(busy: Busy) -> Self {
        match busy {
            Busy::Refuse => Self::Refuse,
            Busy::Queue => Self::Queue,
        }
    }
}
