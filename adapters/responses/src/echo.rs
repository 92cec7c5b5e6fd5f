//! The echo of a request: what every response object repeats of it, and what an encoder has to know of it. It travels
//! with the run as its labels, so that a response can be told again after a restart.

use std::collections::BTreeMap;

use interlingua_core::{Extra, Json};
use serde::{Deserialize, Serialize};

/// What a response repeats of its request. What is None stood not in the request and has its default in the response.
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
    /// What a run's labels say; for runs begun over other protocols, what can be said all the same.
    pub(crate) fn of(labels: &Json, agent: &str) -> Self {
        labels.decode().unwrap_or_else(|| Self { model: agent.to_owned(), store: true, ..Self::default() })
    }

    /// The functions the client declared.
    pub(crate) fn declared(&self) -> Declared {
        Declared::of(&self.tools)
    }
}

/// What a client declared under a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Function {
    /// The name in its namespace, which is the whole name where there is none.
    pub(crate) name: String,
    /// The namespace it stands in.
    pub(crate) namespace: Option<String>,
    /// Takes free text, not JSON.
    pub(crate) custom: bool,
}

/// The functions a client declared, by the name agents know them by.
#[derive(Clone, Debug, Default)]
pub(crate) struct Declared(BTreeMap<String, Function>);

#[derive(Deserialize)]
struct Tool {
    #[serde(rename = "type", default)]
    kind: String,
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    tools: Vec<Json>,
}

impl Declared {
    /// Reads checked tools.
    pub(crate) fn of(tools: &[Json]) -> Self {
        let mut declared = Self::default();
        declared.add(tools, None);
        declared
    }

    fn add(&mut self, tools: &[Json], namespace: Option<&str>) {
        for tool in tools.iter().filter_map(Json::decode::<Tool>) {
            let Some(name) = tool.name else { continue };
            match tool.kind.as_str() {
                // Namespaces do not nest.
                "namespace" if namespace.is_none() => self.add(&tool.tools, Some(&name)),
                kind @ ("function" | "custom") => {
                    let known = self.flat(namespace, &name);
                    let namespace = namespace.map(str::to_owned);
                    self.0.insert(known, Function { name, namespace, custom: kind == "custom" });
                }
                _ => {}
            }
        }
    }

    /// The name agents know a function by: its own, where that is free.
    fn flat(&self, namespace: Option<&str>, name: &str) -> String {
        match namespace {
            Some(namespace) if self.0.contains_key(name) => format!("{namespace}__{name}"),
            _ => name.to_owned(),
        }
    }

    /// What was declared under a name agents use.
    pub(crate) fn get(&self, name: &str) -> Option<&Function> {
        self.0.get(name)
    }

    /// The name agents use for a function of a client's. None if the client declared no such function.
    pub(crate) fn known_as(&self, namespace: Option<&str>, name: &str) -> Option<String> {
        let long = namespace.map(|namespace| format!("{namespace}__{name}"));
        [Some(name.to_owned()), long].into_iter().flatten().find(|known| {
            self.0.get(known).is_some_and(|found| found.name == name && found.namespace.as_deref() == namespace)
        })
    }

    /// All of them, by the name agents use.
    #[cfg(test)]
    fn iter(&self) -> impl Iterator<Item = (&str, &Function)> {
        self.0.iter().map(|(known, function)| (known.as_str(), function))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespaces_are_flattened_and_found_again() {
        let tools = [
            Json::parse(r#"{"type":"function","name":"find"}"#).expect("JSON"),
            Json::parse(r#"{"type":"namespace","name":"crm","tools":[{"type":"function","name":"find"},{"type":"custom","name":"run"}]}"#)
                .expect("JSON"),
            Json::parse(r#"{"type":"web_search"}"#).expect("JSON"),
        ];
        let declared = Declared::of(&tools);
        assert_eq!(declared.iter().map(|(known, _)| known).collect::<Vec<_>>(), ["crm__find", "find", "run"]);
        assert_eq!(declared.known_as(Some("crm"), "find").as_deref(), Some("crm__find"));
        assert_eq!(declared.known_as(None, "find").as_deref(), Some("find"));
        assert_eq!(declared.known_as(Some("crm"), "run").as_deref(), Some("run"));
        assert_eq!(declared.known_as(None, "run"), None);
        let run = declared.get("run").expect("declared");
        assert!(run.custom && run.namespace.as_deref() == Some("crm"));
    }

    #[test]
    fn what_the_labels_hold_comes_back() {
        let echo = Echo {
            model: "m".into(),
            store: true,
            temperature: Json::parse("0.70"),
            tools: vec![Json::parse(r#"{"type":"x"}"#).expect("JSON")],
            ..Echo::default()
        };
        assert_eq!(Echo::of(&Json::from_serialize(&echo), "agent"), echo);
        let foreign = Echo::of(&Json::null(), "agent");
        assert!(foreign.store && foreign.model == "agent");
    }
}
