//! Options that the protocols of model servers have in common: their clients send tools, formats and histories alike.
//!
//! Not here: the options of one protocol alone, and what the options do.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::policy;

macro_rules! choice {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema, Serialize)]
        #[serde(rename_all = "snake_case")]
        pub enum $name { $($(#[$vdoc])* $variant),+ }
    };
}

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
    /// How data in ordinary messages is shown.
    DataDisplay {
        /// As text.
        #[default]
        Text,
        /// Hidden.
        Hide,
    }
}
choice! {
    /// How tools that the client declares are handled.
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
    /// How the wanted format of an answer is handled.
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
    /// What happens to a run when its client disconnects.
    Disconnect {
        /// Cancel it.
        #[default]
        Cancel,
        /// Let it continue.
        Detach,
    }
}
choice! {
    /// What happens to a request for a session that has an active run.
    Busy {
        /// Refuse it.
        #[default]
        Refuse,
        /// Let it wait.
        Queue,
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
