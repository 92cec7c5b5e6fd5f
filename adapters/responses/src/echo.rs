//! The echo of a request: the settings that every response object repeats, and that the encoder needs. It is stored as
//! the labels of the run, so that a response can be written again after a restart.

use std::collections::BTreeMap;

use interlingua_core::{Extra, Json};
use serde::{Deserialize, Serialize};

/// Settings that a response repeats from its request. `None`: not in the request; the response has the default.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Echo {
    pub(crate) model: String,
    pub(crate) background: bool,
    pub(crate) store: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) instructions: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) previous_response_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) conversation: Option<String>,
    #[serde(skip_serializing_if = "Extra::is_empty")]
    pub(crate) metadata: Extra,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) tools: Vec<Json>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tool_choice: Option<Json>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) parallel_tool_calls: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) max_tool_calls: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) max_output_tokens: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) temperature: Option<Json>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) top_p: Option<Json>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) presence_penalty: Option<Json>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) frequency_penalty: Option<Json>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) top_logprobs: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) text: Option<Json>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reasoning: Option<Json>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) truncation: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) service_tier: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) safety_identifier: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) prompt_cache_key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) user: Option<String>,
}

impl Echo {
    /// Reads the labels of a run. A run that another protocol started has none and gets defaults.
    pub(crate) fn from_labels(labels: &Json, agent: &str) -> Self {
        labels.decode().unwrap_or_else(|| Self { model: agent.to_owned(), store: true, ..Self::default() })
    }

    /// The functions the client declared.
    pub(crate) fn declared(&self) -> DeclaredTools {
        DeclaredTools::from_tools(&self.tools)
    }
}

/// A function that the client declared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Function {
    /// Name within the namespace; the full name if there is no namespace.
    pub(crate) name: String,
    pub(crate) namespace: Option<String>,
    /// True if it takes free text instead of JSON.
    pub(crate) custom: bool,
}

/// The functions the client declared, by the flat name under which the agent sees them.
#[derive(Clone, Debug, Default)]
pub(crate) struct DeclaredTools(BTreeMap<String, Function>);

#[derive(Deserialize)]
struct Tool {
    #[serde(rename = "type", default)]
    kind: String,
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    tools: Vec<Json>,
}

impl DeclaredTools {
    /// Collects the functions among tools that are already validated.
    pub(crate) fn from_tools(tools: &[Json]) -> Self {
        let mut declared = Self::default();
        declared.add(tools, None);
        declared
    }

    fn add(&mut self, tools: &[Json], namespace: Option<&str>) {
        for tool in tools.iter().filter_map(Json::decode::<Tool>) {
            let Some(name) = tool.name else { continue };
            match tool.kind.as_str() {
                // Namespaces cannot be nested.
                "namespace" if namespace.is_none() => self.add(&tool.tools, Some(&name)),
                kind @ ("function" | "custom") => {
                    let flat_name = self.new_flat_name(namespace, &name);
                    let namespace = namespace.map(str::to_owned);
                    self.0.insert(flat_name, Function { name, namespace, custom: kind == "custom" });
                }
                _ => {}
            }
        }
    }

    /// Chooses the flat name of a function: its own name if that is free.
    fn new_flat_name(&self, namespace: Option<&str>, name: &str) -> String {
        match namespace {
            Some(namespace) if self.0.contains_key(name) => format!("{namespace}__{name}"),
            _ => name.to_owned(),
        }
    }

    /// The function with this flat name.
    pub(crate) fn get(&self, name: &str) -> Option<&Function> {
        self.0.get(name)
    }

    /// The flat name of a function. `None` if the client did not declare it.
    pub(crate) fn flat_name(&self, namespace: Option<&str>, name: &str) -> Option<String> {
        let long = namespace.map(|namespace| format!("{namespace}__{name}"));
        [Some(name.to_owned()), long].into_iter().flatten().find(|flat_name| {
            self.0.get(flat_name).is_some_and(|found| found.name == name && found.namespace.as_deref() == namespace)
        })
    }

    #[cfg(test)]
    fn iter(&self) -> impl Iterator<Item = (&str, &Function)> {
        self.0.iter().map(|(flat_name, function)| (flat_name.as_str(), function))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespaces_are_flattened_and_resolved_again() {
        let tools = [
            Json::parse(r#"{"type":"function","name":"find"}"#).expect("JSON"),
            Json::parse(r#"{"type":"namespace","name":"crm","tools":[{"type":"function","name":"find"},{"type":"custom","name":"run"}]}"#)
                .expect("JSON"),
            Json::parse(r#"{"type":"web_search"}"#).expect("JSON"),
        ];
        let declared = DeclaredTools::from_tools(&tools);
        assert_eq!(declared.iter().map(|(flat_name, _)| flat_name).collect::<Vec<_>>(), ["crm__find", "find", "run"]);
        assert_eq!(declared.flat_name(Some("crm"), "find").as_deref(), Some("crm__find"));
        assert_eq!(declared.flat_name(None, "find").as_deref(), Some("find"));
        assert_eq!(declared.flat_name(Some("crm"), "run").as_deref(), Some("run"));
        assert_eq!(declared.flat_name(None, "run"), None);

        let run = declared.get("run").expect("declared");
        assert!(run.custom && run.namespace.as_deref() == Some("crm"));
    }

    #[test]
    fn an_echo_survives_the_labels() {
        let echo = Echo {
            model: "m".into(),
            store: true,
            temperature: Json::parse("0.70"),
            tools: vec![Json::parse(r#"{"type":"x"}"#).expect("JSON")],
            ..Echo::default()
        };
        assert_eq!(Echo::from_labels(&Json::from_serialize(&echo), "agent"), echo);

        let other = Echo::from_labels(&Json::null(), "agent");
        assert!(other.store && other.model == "agent");
    }
}
