//! Agents that ask for approvals in the forms that frameworks have, with what each form says that its agent
//! understands.
//!
//! Not here: what an agent does that reads an answer without care.

use std::sync::Arc;

use interlingua_core::pending::Decision;
use interlingua_core_testkit::scenario::Call;
use serde_json::{Value, json};

use crate::ScriptedAgent;
use crate::a2a::A2a;
use crate::ag_kit::AgKit;
use crate::ag_ui::{self, AgUi, RunQuestions};
use crate::agent_api::AgentApi;
use crate::agentscope::Agentscope;
use crate::hitl::Hitl;
use crate::responses::Responses;

/// An agent that asks for approvals in one form.
pub struct Asker {
    /// Its protocol and the form.
    pub name: &'static str,
    /// The agent.
    pub agent: Arc<dyn ScriptedAgent>,
    /// Decisions besides accept and reject that the question itself offers.
    pub understands: &'static [Decision],
    /// The form of an edit has the flag of an acceptance beside the new arguments, because the question asks for both.
    pub edits_with_flag: bool,
    /// One turn may ask about several calls.
    pub asks_several: bool,
}

const NOTHING: &[Decision] = &[];
const EDIT: &[Decision] = &[Decision::Edit];
const RESPOND: &[Decision] = &[Decision::Respond];
const EDIT_RESPOND: &[Decision] = &[Decision::Edit, Decision::Respond];

/// Every form.
#[must_use]
pub fn askers() -> Vec<Asker> {
    [a2a(), ag_ui(), ag_kit(), others()].into_iter().flatten().collect()
}

/// An agent whose questions have the same ids in every session.
#[must_use]
pub fn numbering_asker() -> Asker {
    let agent = AgentApi { numbers_questions: true, ..AgentApi::default() };
    Asker { edits_with_flag: true, ..asker("agent-api, numbered questions", agent, EDIT_RESPOND) }
}

fn asker(name: &'static str, agent: impl ScriptedAgent, understands: &'static [Decision]) -> Asker {
    Asker { name, agent: Arc::new(agent), understands, edits_with_flag: false, asks_several: false }
}

fn a2a() -> Vec<Asker> {
    vec![
        Asker { asks_several: true, ..asker("a2a, a list of decisions", A2a::default(), EDIT_RESPOND) },
        Asker {
            asks_several: true,
            ..asker(
                "a2a, no list",
                A2a::asking(|id, call| {
                    json!({ "data": { "interrupt": {
                        "id": id, "kind": "approval", "name": call.tool, "arguments": ag_ui::arguments(call),
                    } } })
                }),
                NOTHING,
            )
        },
        asker(
            "a2a, no list and no id",
            A2a::asking(|_, call| {
                json!({ "data": { "interrupt": {
                    "kind": "approval", "name": call.tool, "arguments": ag_ui::arguments(call),
                } } })
            }),
            NOTHING,
        ),
        asker("a2a, ADK's confirmation", A2a::asking(confirmation), NOTHING),
    ]
}

/// Google ADK's confirmation: a call for its client.
fn confirmation(id: &str, call: &Call) -> Value {
    let original = json!({ "id": format!("{id}-original"), "name": call.tool, "args": ag_ui::arguments(call) });
    let data = json!({
        "id": id, "name": "adk_request_confirmation",
        "args": { "originalFunctionCall": original, "toolConfirmation": { "hint": "May I?", "confirmed": false } },
    });
    json!({ "data": data, "metadata": { "adk_type": "function_call", "adk_is_long_running": true } })
}

/// LangGraph's question about one action, with its allowed decisions. Null: the agent lists none.
fn action(call: &Call, config: &Value) -> Value {
    let mut payload =
        json!({ "action_request": { "action": call.tool, "args": ag_ui::arguments(call) }, "description": "May I?" });
    if config.is_object() {
        payload["config"] = config.clone();
    }
    payload
}

/// The allowed decisions: accept, edit, respond, ignore.
fn config(edits: bool) -> Value {
    json!({ "allow_accept": true, "allow_edit": edits, "allow_respond": edits, "allow_ignore": true })
}

fn each(calls: &[(String, Call)], payload: impl Fn(&Call) -> Value) -> RunQuestions {
    RunQuestions::Outcome(calls.iter().map(|(id, call)| ag_ui::interrupt_of(id, &payload(call))).collect())
}

/// A question with a schema of its answer, in the protocol's own form.
fn with_schema(calls: &[(String, Call)], schema: &Value) -> RunQuestions {
    let interrupt = |(id, call): &(String, Call)| {
        let message = format!("May I {} {}?", call.tool, call.whole());
        json!({ "id": id, "reason": "confirmation", "message": message, "responseSchema": schema })
    };
    RunQuestions::Outcome(calls.iter().map(interrupt).collect())
}

fn ag_ui() -> Vec<Asker> {
    let agent = |interrupts| AgUi { interrupts, ..AgUi::default() };
    vec![
        Asker { asks_several: true, ..asker("ag-ui, a review of each action", AgUi::default(), EDIT) },
        Asker {
            asks_several: true,
            ..asker(
                "ag-ui, one review of all actions",
                agent(|calls| {
                    let requests: Vec<Value> = calls
                        .iter()
                        .map(|(_, call)| json!({ "name": call.tool, "args": ag_ui::arguments(call) }))
                        .collect();
                    let configs: Vec<Value> = calls
                        .iter()
                        .map(|(_, call)| {
                            json!({
                                "action_name": call.tool, "allowed_decisions": ["approve", "edit", "reject"],
                            })
                        })
                        .collect();
                    let review = json!({ "action_requests": requests, "review_configs": configs });
                    RunQuestions::Outcome(vec![ag_ui::interrupt_of(&calls[0].0, &review)])
                }),
                EDIT,
            )
        },
        Asker {
            asks_several: true,
            ..asker(
                "ag-ui, an action without a config",
                agent(|calls| each(calls, |call| action(call, &Value::Null))),
                NOTHING,
            )
        },
        asker(
            "ag-ui, an action with a config",
            agent(|calls| each(calls, |call| action(call, &config(true)))),
            EDIT_RESPOND,
        ),
        asker(
            "ag-ui, an action that may be ignored",
            agent(|calls| each(calls, |call| action(call, &config(false)))),
            NOTHING,
        ),
        asker(
            "ag-ui, an event without a config",
            agent(|calls| RunQuestions::Event(action(&calls[0].1, &Value::Null))),
            NOTHING,
        ),
        asker(
            "ag-ui, a schema with a flag",
            agent(|calls| {
                let schema = json!({
                    "type": "object", "properties": { "approved": { "type": "boolean" } }, "required": ["approved"],
                });
                with_schema(calls, &schema)
            }),
            NOTHING,
        ),
        Asker {
            edits_with_flag: true,
            ..asker(
                "ag-ui, a schema with a flag and arguments",
                agent(|calls| {
                    let schema = json!({
                        "type": "object", "required": ["approved"],
                        "properties": { "approved": { "type": "boolean" }, "editedArgs": { "type": "object" } },
                    });
                    with_schema(calls, &schema)
                }),
                EDIT,
            )
        },
    ]
}

fn ag_kit() -> Vec<Asker> {
    let agent = |approval| AgKit { approval };
    vec![
        asker("ag-kit, an action with a config", AgKit::default(), EDIT_RESPOND),
        asker("ag-kit, an action without a config", agent(|call| action(call, &Value::Null)), NOTHING),
        asker("ag-kit, an action that may be ignored", agent(|call| action(call, &config(false))), NOTHING),
    ]
}

fn others() -> Vec<Asker> {
    let agent_api = |extension, settings| AgentApi { extension, settings, ..AgentApi::default() };
    vec![
        Asker {
            edits_with_flag: true,
            asks_several: true,
            ..asker("agent-api, a list of decisions", AgentApi::default(), EDIT_RESPOND)
        },
        Asker {
            edits_with_flag: true,
            ..asker(
                "agent-api, no list",
                agent_api(Some(|| json!({ "kind": "approval" })), "approval_extension = true"),
                EDIT_RESPOND,
            )
        },
        Asker { asks_several: true, ..asker("agent-api, plain", agent_api(None, ""), RESPOND) },
        Asker { edits_with_flag: true, asks_several: true, ..asker("agentscope", Agentscope::default(), EDIT) },
        asker("hitl, no config", Hitl::default(), EDIT_RESPOND),
        asker(
            "hitl, a config",
            Hitl::new(|call| {
                let mut data = action(call, &config(true));
                data["interrupt_type"] = json!("unknown");
                data
            }),
            EDIT_RESPOND,
        ),
        Asker { asks_several: true, ..asker("responses", Responses::default(), NOTHING) },
    ]
}
