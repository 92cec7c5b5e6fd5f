//! Values that only the agent that made them can read, such as signatures and encrypted reasoning.
//!
//! They stay in the metadata of their message, beside the name of their author, and go back to that author alone:
//! another agent refuses them, or reads them wrongly. Not here: what each protocol keeps (its connector).

use serde::Deserialize;

use crate::json::{Extra, Json};
use crate::model::Message;

/// The field of a message's metadata that names the author.
pub const ORIGIN: &str = "origin";

/// The author's name: the protocol and the agent's name in the configuration. Clients see it, so it has no host.
#[must_use]
pub fn origin(protocol: &str, agent: &str) -> String {
    format!("{protocol}/{agent}")
}

/// Whether the opaque values in a message's metadata may go to this author. Values without an author, which a client
/// brought itself, may.
#[must_use]
pub fn may_return(metadata: Option<&Json>, origin: &str) -> bool {
    #[derive(Deserialize)]
    struct Author {
        #[serde(default)]
        origin: Option<String>,
    }

    let author: Option<Author> = metadata.and_then(Json::decode);
    author.and_then(|author| author.origin).is_none_or(|author| author == origin)
}

/// True if a message's metadata names this author.
#[must_use]
pub fn is_author(message: &Message, origin: &str) -> bool {
    let metadata: Option<Extra> = message.metadata.as_ref().and_then(Json::decode);
    let author = metadata.and_then(|metadata| metadata.get(ORIGIN)?.decode::<String>());
    author.is_some_and(|author| author == origin)
}

/// Like [`may_return`], for a message.
#[must_use]
pub fn of_message_may_return(message: &Message, origin: &str) -> bool {
    may_return(message.metadata.as_ref(), origin)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opaque_values_go_back_to_their_author_alone() {
        let own = origin("ag-ui", "travel");
        let may = |metadata: &str| may_return(Json::parse(metadata).as_ref(), &own);
        assert!(may(r#"{"origin":"ag-ui/travel","signature":"x"}"#));
        assert!(!may(r#"{"origin":"ag-ui/other","signature":"x"}"#));
        assert!(may(r#"{"signature":"x"}"#) && may("[]") && may_return(None, &own));
    }
}
