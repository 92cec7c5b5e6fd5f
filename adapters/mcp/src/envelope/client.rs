//! The abilities that a client declares: when its session begins, or in each request since revision 2026-07-28.

use serde_json::{Value, json};

use super::rpc_error::{MISSING_CAPABILITY, RpcError};
use crate::forms::Modes;
use crate::revision::Revision;

/// The extension by which calls are answered with tasks.
pub(crate) const TASKS_EXTENSION: &str = "io.modelcontextprotocol/tasks";

/// The abilities of a client, as far as the gateway uses them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ClientAbilities {
    /// The forms in which the client can be asked.
    pub(crate) modes: Modes,
    /// True if calls may be answered with tasks.
    pub(crate) tasks: bool,
}

impl ClientAbilities {
    /// Reads the declared capabilities.
    pub(crate) fn read(capabilities: &Value, revision: Revision) -> Self {
        let modes = Modes::of(capabilities).within(revision);
        let extension = capabilities.get("extensions").and_then(|extensions| extensions.get(TASKS_EXTENSION));
        Self { modes, tasks: revision.is_modern() && extension.is_some_and(Value::is_object) }
    }
}

/// The error of a request that needs the tasks extension, which its client does not declare.
pub(crate) fn missing_tasks() -> RpcError {
    let data = json!({ "requiredCapabilities": { "extensions": { TASKS_EXTENSION: {} } } });
    RpcError::bad(MISSING_CAPABILITY, "the client has to declare the extension for tasks").with_data(data)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn modes(elicitation: Value, revision: Revision) -> (bool, bool) {
        let modes = ClientAbilities::read(&json!({ "elicitation": elicitation }), revision).modes;
        (modes.form, modes.url)
    }

    #[test]
    fn an_empty_declaration_means_forms() {
        assert_eq!(modes(json!({}), Revision::July2026), (true, false));
        assert_eq!(modes(json!({ "form": {}, "url": {} }), Revision::November2025), (true, true));
        assert_eq!(modes(json!({ "url": {} }), Revision::July2026), (false, true));
        assert_eq!(modes(json!({ "url": {} }), Revision::June2025), (true, false));
        assert_eq!(modes(json!({}), Revision::March2025), (false, false));
        assert_eq!(modes(json!(null), Revision::July2026), (false, false));
    }

    #[test]
    fn tasks_are_an_extension_of_the_newest_revision() {
        let declared = json!({ "extensions": { TASKS_EXTENSION: {} } });
        assert!(ClientAbilities::read(&declared, Revision::July2026).tasks);
        assert!(!ClientAbilities::read(&declared, Revision::November2025).tasks);
        assert!(!ClientAbilities::read(&json!({ "tasks": {} }), Revision::July2026).tasks);
    }
}
