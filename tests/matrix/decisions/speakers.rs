//! Clients that answer: each writes a decision in every form that its protocol has for it.
//!
//! Written from the protocols' own texts. Not here: the forms (`forms`), what the decisions are (`cases`), and the rest
//! of each protocol (`testing/clients`).

use interlingua_core_testkit::scenario::ClientAct;
use interlingua_testing_clients::{Open, Request, ScriptedClient, Talk, repeated_call};
use serde_json::{Value, json};

use super::forms::Form;

/// The form in which a client receives questions and answers them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AskForm {
    AgentApi,
    Responses,
    /// In words, with all of the conversation in each request.
    ChatWords,
    /// By calls of a function that the client declares.
    ChatCalls,
    MessagesWords,
    MessagesCalls,
    A2a,
    AgKit,
    AgUi,
    Hitl,
    /// By repeating the call with what a form was answered with.
    Mcp,
}

/// A client and its way.
pub(super) struct Speaker {
    pub(super) way: AskForm,
    pub(super) client: Box<dyn ScriptedClient>,
}

/// Every client that can be asked, in each of its ways.
pub(super) fn speakers() -> Vec<Speaker> {
    let find = |protocol: &str| {
        let found = interlingua_testing_clients::all().into_iter().find(|client| client.protocol() == protocol);
        found.expect("a client")
    };
    let variant = |name: &str| {
        let found = interlingua_testing_clients::variants().into_iter().find(|(known, _)| *known == name);
        found.expect("a variant").1
    };
    [
        (AskForm::AgentApi, find("agent-api")),
        (AskForm::Responses, find("responses")),
        (AskForm::ChatWords, find("chat-completions")),
        (AskForm::ChatCalls, find("chat-completions")),
        (AskForm::MessagesWords, variant("anthropic-messages as a whole and in words")),
        (AskForm::MessagesCalls, find("anthropic-messages")),
        (AskForm::A2a, find("a2a")),
        (AskForm::AgKit, find("ag-kit")),
        (AskForm::AgUi, find("ag-ui")),
        (AskForm::Hitl, find("hitl")),
        (AskForm::Mcp, find("mcp")),
    ]
    .into_iter()
    .map(|(way, client)| Speaker { way, client })
    .collect()
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).expect("JSON")
}

impl Speaker {
    /// Its name in messages of the test.
    pub(super) fn name(&self) -> String {
        format!("{:?}", self.way)
    }

    /// The request that makes the agent ask.
    pub(super) fn ask(&self, talk: &mut Talk) -> Request {
        let request = self.client.request(&[ClientAct::Say("order")], talk);
        if self.way != AskForm::ChatCalls {
            return request;
        }
        let mut body = json(&request.body);
        body["tools"] = declared();
        Request { body: body.to_string(), ..request }
    }

    /// The request with these answers, each to one of the open items.
    pub(super) fn answer(&self, answers: &[(&Open, &Form)], talk: &mut Talk) -> Request {
        match self.way {
            AskForm::AgentApi => {
                let input: Vec<Value> = answers.iter().map(|(open, form)| native_message(open, form)).collect();
                let body = json!({ "session_id": talk.session, "input": input });
                Request::post(format!("/agents/{}/process", talk.agent), &body)
            }
            AskForm::Responses => {
                let input: Vec<Value> = answers.iter().map(|(open, form)| item(open, form)).collect();
                let body = json!({
                    "model": talk.agent, "stream": true, "previous_response_id": talk.last, "input": input,
                });
                Request::post("/v1/responses".to_owned(), &body)
            }
            AskForm::ChatWords | AskForm::ChatCalls => {
                talk.said.extend(answers.iter().map(|(open, form)| match form {
                    Form::Words(words) => json!({ "role": "user", "content": words }),
                    Form::Payload(payload) => {
                        json!({ "role": "tool", "tool_call_id": open.id, "content": payload.to_string() })
                    }
                    other => panic!("no word for {other:?}"),
                }));
                let request = self.client.request(&[], talk);
                let mut body = json(&request.body);
                if self.way == AskForm::ChatCalls {
                    body["tools"] = declared();
                }
                Request { body: body.to_string(), ..request }
            }
            AskForm::MessagesWords | AskForm::MessagesCalls => {
                let blocks: Vec<Value> = answers
                    .iter()
                    .map(|(open, form)| match form {
                        Form::Words(words) => json!({ "type": "text", "text": words }),
                        Form::Payload(payload) => {
                            json!({ "type": "tool_result", "tool_use_id": open.id, "content": payload.to_string() })
                        }
                        other => panic!("no word for {other:?}"),
                    })
                    .collect();
                let request = self.client.request(&[], talk);
                // The client said nothing: this is what it says.
                let last = talk.said.last_mut().expect("a message");
                last["content"] = json!(blocks);
                let mut body = json(&request.body);
                body["messages"] = json!(talk.said);
                Request { body: body.to_string(), ..request }
            }
            AskForm::A2a => {
                let parts: Vec<Value> = answers
                    .iter()
                    .map(|(open, form)| match form {
                        Form::Words(words) => json!({ "text": words }),
                        Form::Payload(payload) => {
                            let mut data = payload.clone();
                            data["interrupt_id"] = json!(open.id);
                            json!({ "data": data })
                        }
                        other => panic!("no word for {other:?}"),
                    })
                    .collect();
                let message = json!({
                    "messageId": format!("answer-{}-{}", talk.session, talk.mark.turn), "role": "ROLE_USER",
                    "contextId": talk.session, "taskId": talk.last, "parts": parts,
                });
                let call = json!({
                    "jsonrpc": "2.0", "id": 1, "method": "SendStreamingMessage", "params": { "message": message },
                });
                Request::post(format!("/a2a/{}", talk.agent), &call).header("a2a-version", "1.0")
            }
            AskForm::AgKit => {
                let [(open, form)] = answers else { panic!("one interrupt is answered") };
                let mut body = json!({ "conversationId": talk.session });
                match form {
                    Form::Words(words) => body["messages"] = json!([{ "role": "user", "content": words }]),
                    Form::Payload(payload) => body["resume"] = json!({ "interruptId": open.id, "payload": payload }),
                    other => panic!("no word for {other:?}"),
                }
                Request::post(format!("/kit/{}/send-message", talk.agent), &body)
            }
            AskForm::AgUi => self.run(answers, talk),
            AskForm::Hitl => {
                let [(_, Form::Resume(word, args))] = answers else { panic!("one question is answered") };
                let body = json!({
                    "user_id": talk.session, "session_id": talk.session, "response_type": word, "args": args,
                });
                Request::post(format!("/hitl/{}/agent/resume", talk.agent), &body)
            }
            AskForm::Mcp => {
                let responses: Value = answers
                    .iter()
                    .map(|(open, form)| match form {
                        Form::Elicited(answer) => (open.id.clone(), answer.clone()),
                        other => panic!("no word for {other:?}"),
                    })
                    .collect();
                repeated_call(talk, &responses)
            }
        }
    }

    /// A run of AG-UI.
    fn run(&self, answers: &[(&Open, &Form)], talk: &mut Talk) -> Request {
        let mut resume = Vec::new();
        let mut command = None;
        for (open, form) in answers {
            match form {
                Form::Words(words) => talk
                    .said
                    .push(json!({ "id": format!("words-{}", talk.mark.turn), "role": "user", "content": words })),
                Form::Entry(entry) => {
                    let mut entry = entry.clone();
                    entry["interruptId"] = json!(open.id);
                    resume.push(entry);
                }
                Form::Command(payload) => command = Some(payload.clone()),
                other => panic!("no word for {other:?}"),
            }
        }
        let request = self.client.request(&[], talk);
        let mut body = json(&request.body);
        if !resume.is_empty() {
            body["resume"] = json!(resume);
        }
        if let Some(command) = command {
            body["forwardedProps"] = json!({ "command": { "resume": command } });
        }
        Request { body: body.to_string(), ..request }
    }
}

/// The functions by which a client of Chat Completions can be asked.
fn declared() -> Value {
    let function =
        |name: &str| json!({ "type": "function", "function": { "name": name, "parameters": { "type": "object" } } });
    json!([function("request_approval"), function("request_input")])
}

fn native_message(open: &Open, form: &Form) -> Value {
    match form {
        Form::Words(words) => {
            json!({ "type": "message", "role": "user", "content": [{ "type": "text", "text": words }] })
        }
        Form::Native(data) => {
            let mut data = data.clone();
            data["approval_request_id"] = json!(open.id);
            data["id"] = json!(open.id);
            json!({ "type": "mcp_approval_response", "role": "user", "content": [{ "type": "data", "data": data }] })
        }
        other => panic!("no word for {other:?}"),
    }
}

fn item(open: &Open, form: &Form) -> Value {
    match form {
        Form::Words(words) => json!({ "type": "message", "role": "user", "content": words }),
        Form::Item(item) => {
            let mut item = item.clone();
            let id = if item["type"] == "function_call_output" { "call_id" } else { "approval_request_id" };
            item[id] = json!(open.id);
            item
        }
        other => panic!("no word for {other:?}"),
    }
}

/// An acceptance and a rejection for two calls in one request. `None`: the client answers one call at a time.
pub(super) fn accept_and_reject(way: AskForm) -> Option<(Form, Form)> {
    let payload = |accepts: bool| json!({ "decision": if accepts { "accept" } else { "reject" } });
    Some(match way {
        AskForm::AgentApi => (Form::Native(json!({ "approve": true })), Form::Native(json!({ "approve": false }))),
        AskForm::Responses => {
            let item = |approve| Form::Item(json!({ "type": "mcp_approval_response", "approve": approve }));
            (item(true), item(false))
        }
        AskForm::ChatCalls | AskForm::MessagesCalls | AskForm::A2a => {
            (Form::Payload(payload(true)), Form::Payload(payload(false)))
        }
        AskForm::AgUi => {
            let entry = |approved| Form::Entry(json!({ "status": "resolved", "payload": { "approved": approved } }));
            (entry(true), entry(false))
        }
        AskForm::Mcp => {
            let accepted = json!({ "action": "accept", "content": { "decision": "accept" } });
            (Form::Elicited(accepted), Form::Elicited(json!({ "action": "decline" })))
        }
        // Asked about one call at a time.
        AskForm::ChatWords | AskForm::MessagesWords | AskForm::AgKit | AskForm::Hitl => return None,
    })
}
