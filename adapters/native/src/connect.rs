//! AskPolicy an agent that speaks the native Agent API, and understanding what it says (Agent API, sections 2, 3 and 12).
//!
//! Not here: what the frames mean for the run. They are handed on as they were heard; the normalizer in
//! `interlingua_core` repairs whatever a real server does to them.

use interlingua_core::connector::{Ask, Connector, Ear, Question, Reader, Refusal, UpstreamAdapter};
use interlingua_core::filter::client_text;
use interlingua_core::heard::Heard;
use interlingua_core::model::{AgentRequest, Content, Message, MessageType};
use interlingua_core::pending::{Pending, approval_id};
use interlingua_core::tree::Node;
use interlingua_core::{Fault, FaultKind, Json, sse};
use serde::{Deserialize, Serialize};

/// Asks agents that speak the native Agent API.
#[derive(Clone, Copy, Debug)]
pub struct NativeUpstream;

/// What an operator may choose for a native upstream.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct UpstreamOptions {
    /// Where the agent is told to stop, by `POST` with `user_id` and `session_id`. The runtime has no such route of
    /// its own; closing the connection, which is always done, suffices there.
    pub stop_url: Option<String>,
}

impl UpstreamAdapter for NativeUpstream {
    const NAME: &'static str = "agent-api";
    type Options = UpstreamOptions;

    fn connect(url: &str, options: UpstreamOptions) -> Result<Box<dyn Connector>, String> {
        for url in std::iter::once(url).chain(options.stop_url.as_deref()) {
            if !url.starts_with("http://") && !url.starts_with("https://") {
                return Err(format!("\"{url}\" is no http or https URL"));
            }
        }
        Ok(Box::new(NativeConnector { url: url.to_owned(), stop_url: options.stop_url }))
    }
}

struct NativeConnector {
    url: String,
    stop_url: Option<String>,
}

impl Connector for NativeConnector {
    fn ask(&self, question: &Question<'_>) -> Result<(Ask, Box<dyn Reader>), Fault> {
        let completed = with_asked_approvals(question.request, question.answered);
        let body = json(completed.as_ref().unwrap_or(question.request))?;
        let headers = vec![("content-type", JSON.to_owned()), ("accept", format!("text/event-stream, {JSON}"))];
        Ok((Ask { method: "POST", url: self.url.clone(), headers, body }, Box::new(NativeReader)))
    }

    fn cancel(&self, question: &Question<'_>) -> Option<Ask> {
        #[derive(Serialize)]
        struct Stop<'a> {
            user_id: Option<&'a str>,
            session_id: Option<&'a str>,
        }
        let url = self.stop_url.clone()?;
        let AgentRequest { user_id, session_id, .. } = question.request;
        let body = json(&Stop { user_id: user_id.as_deref(), session_id: session_id.as_deref() }).ok()?;
        Some(Ask { method: "POST", url, headers: vec![("content-type", JSON.to_owned())], body })
    }

    fn warnings(&self) -> Vec<String> {
        let mut advice = Vec::new();
        if path(&self.url).is_empty() {
            advice.push(
                "url has no path: agents of the Agent API usually answer at \"/process\", and others with 404"
                    .to_owned(),
            );
        }
        if let Some(stop) = &self.stop_url
            && origin(stop) != origin(&self.url)
        {
            advice.push(
                "stop_url has another origin than url: the headers of this upstream are not sent there".to_owned(),
            );
        }
        advice
    }

    fn map_refusal(&self, refusal: &Refusal<'_>) -> Fault {
        let mut fault = refusal.fault();
        if refusal.is_about_the_request()
            && let Some(detail) = detail(refusal.body)
        {
            fault.message = format!("{}: {}", fault.message, client_text("", &detail));
        }
        fault
    }
}

const JSON: &str = "application/json";

/// What stands before the path of a URL, in lower case.
fn origin(url: &str) -> String {
    let from = url.find("://").map_or(0, |at| at + 3);
    let to = url[from..].find(['/', '?', '#']).map_or(url.len(), |at| from + at);
    url[..to].to_ascii_lowercase()
}

/// The path of a URL, without the slash it begins with.
fn path(url: &str) -> &str {
    let rest = &url[origin(url).len()..];
    rest.split(['?', '#']).next().unwrap_or_default().trim_start_matches('/')
}

fn json<T: Serialize>(value: &T) -> Result<Vec<u8>, Fault> {
    serde_json::to_vec(value).map_err(|error| {
        Fault::new(FaultKind::Internal, "the request cannot be written for the agent").with_detail(error)
    })
}

/// The request with the question in front of each answer to an approval, the form that native clients send and agents
/// expect (human-in-the-loop page, section 2). None if nothing has to be put there.
fn with_asked_approvals(request: &AgentRequest, answered: &[Pending]) -> Option<AgentRequest> {
    if answered.is_empty() {
        return None;
    }
    let ids = |message: &Message, id: fn(&Json) -> Option<String>| -> Vec<String> {
        message.content.iter().filter_map(Content::as_data).filter_map(id).collect()
    };
    let of_kind = |kind: MessageType| request.input.iter().filter(move |message| message.kind == kind);
    let mut asked: Vec<String> = of_kind(MessageType::McpApprovalRequest)
        .flat_map(|message| ids(message, |data| Pending::parse(data).map(|item| item.id)))
        .collect();
    let mut input = Vec::with_capacity(request.input.len() + answered.len());
    for message in &request.input {
        if message.kind == MessageType::McpApprovalResponse {
            for id in ids(message, approval_id) {
                let question = answered.iter().find(|item| item.id == id).and_then(|item| item.request.as_ref());
                if let Some(question) = question
                    && !asked.contains(&id)
                    && let Ok(question) = Message::parse(&Node::with_path("", question.raw()))
                {
                    input.push(question);
                    asked.push(id);
                }
            }
        }
        input.push(message.clone());
    }
    (input.len() > request.input.len()).then(|| AgentRequest { input: input.into(), ..request.clone() })
}

/// What `detail` says, a text or a list of `{loc, msg}` (Agent API, rule 12.12). Meant for clients, though not
/// always fit for them.
fn detail(body: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Body {
        detail: Json,
    }
    #[derive(Deserialize)]
    struct Entry {
        #[serde(default)]
        loc: Vec<Json>,
        msg: String,
    }
    let detail = serde_json::from_slice::<Body>(body).ok()?.detail;
    if let Some(text) = detail.decode::<String>() {
        return Some(text);
    }
    let entries: Vec<Entry> = detail.decode()?;
    let sentences = entries.into_iter().map(|entry| {
        let places = entry.loc.iter().map(|place| place.decode::<String>().unwrap_or_else(|| place.text().to_owned()));
        let places: Vec<String> = places.filter(|place| place != "body").collect();
        if places.is_empty() { entry.msg } else { format!("{}: {}", places.join("."), entry.msg) }
    });
    Some(sentences.collect::<Vec<_>>().join("; "))
}

/// Holds nothing: every frame speaks for itself.
struct NativeReader;

impl Reader for NativeReader {
    #[inline]
    fn read(&mut self, frame: sse::Frame<'_>, ear: &mut dyn Ear) -> Result<(), Fault> {
        match Heard::read(frame.data) {
            Some(heard) => ear.hear(&heard),
            // An event of its own kind without data, or the end mark of other servers, says nothing.
            None if frame.is_done() || frame.data.trim_ascii().is_empty() => Ok(()),
            None => Err(garbage(frame.data)),
        }
    }

    fn read_body(&mut self, body: &[u8], ear: &mut dyn Ear) -> Result<(), Fault> {
        let heard = Heard::read(body).ok_or_else(|| garbage(body))?;
        // What is neither a response nor a complaint is somebody else's JSON.
        let is_answer = heard.object.as_deref() == Some("response");
        let is_complaint = heard.error.is_some() || (heard.code.is_some() && heard.message.is_some());
        if is_answer || is_complaint {
            return ear.hear(&heard);
        }
        match detail(body) {
            Some(detail) => {
                let message = format!("the agent refused the request: {}", client_text("", &detail));
                Err(Fault::new(FaultKind::UpstreamRefused, message).with_detail(detail))
            }
            None => Err(garbage(body)),
        }
    }
}

fn garbage(data: &[u8]) -> Fault {
    let beginning = String::from_utf8_lossy(&data[..data.len().min(500)]).into_owned();
    Fault::new(FaultKind::UpstreamGarbage, "the agent's answer could not be understood").with_detail(beginning)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connector(stop_url: Option<&str>) -> Box<dyn Connector> {
        let options = UpstreamOptions { stop_url: stop_url.map(str::to_owned) };
        NativeUpstream::connect("http://agent/process", options).expect("an http URL")
    }

    fn asked(request: &AgentRequest, answered: &[Pending]) -> String {
        let question = Question { request, memory: &Json::null(), answered };
        let (ask, _) = connector(None).ask(&question).expect("it can be put");
        String::from_utf8(ask.body).expect("JSON")
    }

    #[derive(Default)]
    struct Frames(usize);
    impl Ear for Frames {
        fn hear(&mut self, _: &Heard<'_>) -> Result<(), Fault> {
            self.0 += 1;
            Ok(())
        }
    }

    #[test]
    fn a_request_goes_upstream_with_everything_in_it() {
        let body =
            br#"{"input":[{"role":"user","content":"hi","x":[1]}],"session_id":"s","temperature":0.5,"biz":{"a": 1}}"#;
        let request = AgentRequest::parse(&Node::parse_object(body).expect("JSON")).expect("a request");
        assert_eq!(
            asked(&request, &[]),
            r#"{"input":[{"type":"message","role":"user","content":[{"type":"text","text":"hi"}],"x":[1]}],"stream":true,"session_id":"s","temperature":0.5,"biz":{"a": 1}}"#
        );
    }

    #[test]
    fn the_question_goes_in_front_of_its_answer_once() {
        let answer = r#"{"type":"mcp_approval_response","role":"user","content":[{"type":"data","data":{"approve":true,"approval_request_id":"a1"}}]}"#;
        let question = r#"{"id":"m1","type":"mcp_approval_request","role":"assistant","content":[{"type":"data","data":{"id":"a1","name":"rm"}}]}"#;
        let mut item = Pending::parse(&Json::parse(r#"{"id":"a1","name":"rm"}"#).expect("JSON")).expect("an id");
        item.request = Json::parse(question);
        for given in [format!("[{answer}]"), format!("[{question},{answer}]")] {
            let body = format!(r#"{{"input":{given}}}"#);
            let request = AgentRequest::parse(&Node::parse_object(body.as_bytes()).expect("JSON")).expect("a request");
            let asked = asked(&request, std::slice::from_ref(&item));
            assert!(asked.starts_with(&format!(r#"{{"input":[{question},{answer}]"#)), "{asked}");
        }
    }

    #[test]
    fn an_agent_with_a_stop_route_is_told_to_stop() {
        let request =
            AgentRequest { session_id: Some("s".into()), user_id: Some("u".into()), ..AgentRequest::default() };
        let question = Question { request: &request, memory: &Json::null(), answered: &[] };
        assert_eq!(connector(None).cancel(&question), None);
        let ask = connector(Some("http://agent/stop")).cancel(&question).expect("it has the route");
        assert_eq!((ask.method, ask.url.as_str()), ("POST", "http://agent/stop"));
        assert_eq!(ask.body, br#"{"user_id":"u","session_id":"s"}"#);
    }

    #[test]
    fn a_refusal_says_what_the_agent_meant_for_clients() {
        for (status, body, message) in [
            (
                422,
                r#"{"detail":[{"type":"missing","loc":["body","input",0,"content"],"msg":"Field required"}]}"#,
                "the agent refused the request: input.0.content: Field required",
            ),
            (429, r#"{"detail":"one at a time"}"#, "the agent is rate limited: one at a time"),
            (404, r#"{"detail":"Not Found"}"#, "the agent has nothing at the URL that the gateway asks"),
            (415, r#"{"detail":"no such type"}"#, "the agent refused the request"),
            (307, "", "the agent redirects elsewhere, and redirects are not followed"),
            (500, r#"{"detail":"ValueError: secret"}"#, "the agent refused the request"),
            (401, r#"{"detail":"bad token abc"}"#, "the agent refused the gateway's credentials"),
            (422, "<html>", "the agent refused the request"),
        ] {
            let fault = connector(None).map_refusal(&Refusal { status, body: body.as_bytes(), retry_after: None });
            assert_eq!((fault.message.as_str(), fault.upstream_status), (message, Some(status)));
            assert_eq!(fault.detail.as_deref(), Some(body), "the log gets all of it");
        }
    }

    #[test]
    fn what_is_no_frame_is_passed_over_or_refused() {
        let mut ear = Frames::default();
        let mut read = |data: &[u8]| NativeReader.read(sse::Frame { data, ..sse::Frame::default() }, &mut ear);
        for data in [b"[DONE]".as_slice(), b"", b" ", b"{\"object\":\"message\"}"] {
            read(data).expect("nothing wrong with it");
        }
        for data in [b"<html>".as_slice(), b"[1]", b"\"x\"", b"{\"a\":", b"\xff"] {
            assert_eq!(read(data).expect_err("garbage").kind, FaultKind::UpstreamGarbage);
        }
        assert_eq!(ear.0, 1);
    }

    #[test]
    fn a_whole_answer_is_a_response_or_a_complaint() {
        let mut ear = Frames::default();
        NativeReader.read_body(br#"{"object":"response","status":"completed"}"#, &mut ear).expect("a response");
        NativeReader.read_body(br#"{"error":"Task is already in RUNNING state."}"#, &mut ear).expect("a complaint");
        assert_eq!(ear.0, 2);
        let refused = NativeReader.read_body(br#"{"detail":"no"}"#, &mut ear).expect_err("a refusal");
        assert_eq!(refused.kind, FaultKind::UpstreamRefused);
        for body in [b"{}".as_slice(), b"[]", b"hello"] {
            let garbage = NativeReader.read_body(body, &mut ear).expect_err("garbage");
            assert_eq!(garbage.kind, FaultKind::UpstreamGarbage);
        }
    }

    #[test]
    fn an_operator_is_told_of_urls_that_are_hardly_meant_so() {
        let advice = |url: &str, stop: Option<&str>| {
            let options = UpstreamOptions { stop_url: stop.map(str::to_owned) };
            NativeUpstream::connect(url, options).expect("a URL").warnings()
        };
        assert_eq!(advice("http://agent:8090/process", Some("http://AGENT:8090/stop")), Vec::<String>::new());
        for url in ["http://agent:8090", "http://agent:8090/", "http://agent:8090/?a=b"] {
            assert!(advice(url, None)[0].contains("no path"), "{url}");
        }
        for stop in ["http://other:8090/stop", "https://agent:8090/stop", "http://agent/stop"] {
            assert!(advice("http://agent:8090/process", Some(stop))[0].contains("another origin"), "{stop}");
        }
    }

    #[test]
    fn a_url_that_is_none_is_refused() {
        assert!(NativeUpstream::connect("ftp://agent", UpstreamOptions::default()).is_err());
        let options = UpstreamOptions { stop_url: Some("stop".into()) };
        assert!(NativeUpstream::connect("http://agent", options).is_err());
    }
}
