//! The names of tools: those that all hosts and all APIs of models accept.

/// The longest name, in bytes. APIs of models refuse longer ones.
pub(crate) const MAX_NAME: usize = 64;

/// The argument of every tool of an agent that names the conversation to continue.
pub(crate) const SESSION: &str = "session";

/// The name of an agent's tool: characters that a tool's name cannot have become `_`.
pub(super) fn of_agent(agent: &str) -> String {
    agent.chars().map(|character| if is_allowed(character) { character } else { '_' }).collect()
}

/// Checks a name. `label` says whose name it is.
///
/// # Errors
/// The problem, for the operator.
pub(super) fn check(name: &str, label: &str) -> Result<(), String> {
    if name.is_empty() {
        return Err(format!("{label} is empty"));
    }
    if let Some(wrong) = name.chars().find(|character| !is_allowed(*character)) {
        return Err(format!("{label} '{name}' contains '{wrong}': letters, digits, '_' and '-' are allowed"));
    }
    if name.len() > MAX_NAME {
        return Err(format!("{label} '{name}' is too long: {} characters, {MAX_NAME} are allowed", name.len()));
    }
    Ok(())
}

const fn is_allowed(character: char) -> bool {
    character.is_ascii_alphanumeric() || matches!(character, '_' | '-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agents_get_names_that_hosts_accept() {
        for (agent, name) in [("helper", "helper"), ("a.b c", "a_b_c"), ("Ärger/1", "_rger_1"), ("x-y_Z9", "x-y_Z9")] {
            assert_eq!(of_agent(agent), name);
            assert_eq!(check(name, "the tool"), Ok(()));
        }
    }

    #[test]
    fn names_that_hosts_refuse_are_refused() {
        assert_eq!(check(&"a".repeat(64), "the tool"), Ok(()));
        for (name, problem) in
            [("", "is empty"), ("a.b", "contains '.'"), ("ä", "contains 'ä'"), (&*"a".repeat(65), "is too long: 65")]
        {
            let error = check(name, "the tool").expect_err(name);
            assert!(error.starts_with("the tool ") && error.contains(problem), "{error}");
        }
    }
}
