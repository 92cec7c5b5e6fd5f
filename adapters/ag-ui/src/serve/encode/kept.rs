//! Events of agents that speak this protocol, passed on: state, activity, steps, subagents, and what applications add
//! (docs/protocols/ag-ui.md#state).
//!
//! Clients end a run at an event that breaks the protocol, so each is checked first: its fields, and that steps and
//! subagents begin before they end. Not here: which events are kept at all (the connector).

use std::collections::HashSet;

use interlingua_core::loss::{ContentKind, Losses};
use interlingua_core::{Extra, Json, Out};
use serde::Deserialize;
use serde_json::Value;

use super::super::events::Event;
use super::super::writer::Writer;

/// Maximum number of open steps and subagents.
const MAX_OPEN: usize = 256;

/// Steps and subagents that passed events have left open.
#[derive(Debug, Default)]
pub(super) struct OpenSteps {
    /// Open steps: the subagent, if it is one's, and the name.
    steps: Vec<(Option<String>, String)>,
    subagents: Vec<String>,
    /// Subagents that have ended: their ids name them for the whole run.
    ended: Vec<String>,
}

/// The data of a message with an event.
#[derive(Deserialize)]
struct EventData {
    protocol: String,
    event: Json,
}

impl OpenSteps {
    /// Passes an event on.
    pub(super) fn pass(&mut self, data: &Json, is_v1: bool, losses: &mut Losses, writer: &mut Writer, out: &mut Out) {
        let Some(kept) = data.decode::<EventData>() else { return };
        if kept.protocol != crate::NAME {
            let event = Event::Custom { name: "agentapi:protocol_event", value: data.clone() };
            return writer.event(&event, out);
        }
        let Some(fields) = kept.event.decode::<Extra>() else { return };
        let text = |name: &str| fields.get(name).and_then(Json::decode::<String>);
        let kind = text("type").unwrap_or_default();
        let Some(is_valid) = is_valid(&kind, &fields) else {
            // Clients do not read types that they do not know, but custom events.
            let name = format!("{}:{kind}", crate::NAME);
            return writer.event(&Event::Custom { name: &name, value: kept.event }, out);
        };
        if !is_valid {
            return losses.lost(ContentKind::ProtocolEvent, "the event is not as the protocol says");
        }
        if kind.starts_with("SUBAGENT_") && !is_v1 {
            return losses.lost(ContentKind::ProtocolEvent, "clients before 1.0 know no subagents");
        }
        if !self.track_order(&kind, &text) {
            return losses.lost(ContentKind::ProtocolEvent, "it ends what has not begun, or begins it twice");
        }
        writer.event(&cleaned(&fields), out);
    }

    fn track_order(&mut self, kind: &str, text: &impl Fn(&str) -> Option<String>) -> bool {
        match kind {
            "STEP_STARTED" | "STEP_FINISHED" => {
                let step = (text("subagentRunId"), text("stepName").unwrap_or_default());
                let place = self.steps.iter().position(|open| *open == step);
                match (kind, place) {
                    ("STEP_STARTED", None) if self.steps.len() < MAX_OPEN => self.steps.push(step),
                    ("STEP_FINISHED", Some(place)) => drop(self.steps.remove(place)),
                    _ => return false,
                }
            }
            "SUBAGENT_STARTED" => {
                let id = text("subagentRunId").unwrap_or_default();
                let count = self.subagents.len() + self.ended.len();
                if count >= MAX_OPEN || self.subagents.contains(&id) || self.ended.contains(&id) {
                    return false;
                }
                self.subagents.push(id);
            }
            "SUBAGENT_FINISHED" | "SUBAGENT_ERROR" => {
                let id = text("subagentRunId").unwrap_or_default();
                let Some(place) = self.subagents.iter().position(|open| *open == id) else { return false };
                self.ended.push(self.subagents.remove(place));
            }
            _ => {}
        }
        true
    }

    /// Ends the open steps and subagents, before the end of a run that has not failed.
    pub(super) fn close_all(&mut self, writer: &mut Writer, out: &mut Out) {
        for (subagent, name) in std::mem::take(&mut self.steps) {
            let subagent_run_id = subagent.as_deref();
            writer.event(&Event::StepFinished { step_name: &name, subagent_run_id }, out);
        }
        for id in std::mem::take(&mut self.subagents) {
            writer.event(&Event::SubagentFinished { subagent_run_id: &id }, out);
        }
    }
}

/// Whether an event has the fields of its type. `None`: events of this type are not passed on.
fn is_valid(kind: &str, fields: &Extra) -> Option<bool> {
    let has_text = |name: &str| fields.get(name).is_some_and(|value| value.text().starts_with('"'));
    let has_object = |name: &str| fields.get(name).is_some_and(Json::is_object);
    Some(match kind {
        "STATE_SNAPSHOT" => fields.get("snapshot").is_some(),
        "STATE_DELTA" => is_patch(fields.get("delta")),
        "STEP_STARTED" | "STEP_FINISHED" => has_text("stepName"),
        "ACTIVITY_SNAPSHOT" => has_text("messageId") && has_text("activityType") && has_object("content"),
        "ACTIVITY_DELTA" => has_text("messageId") && has_text("activityType") && is_patch(fields.get("patch")),
        "SUBAGENT_STARTED" => has_text("subagentRunId") && has_text("name"),
        "SUBAGENT_FINISHED" => has_text("subagentRunId"),
        "SUBAGENT_ERROR" => has_text("subagentRunId") && has_text("message"),
        "CUSTOM" => has_text("name") && fields.get("value").is_some(),
        "RAW" => fields.get("event").is_some(),
        "REASONING_ENCRYPTED_VALUE" => {
            let subtype: Option<String> = fields.get("subtype").and_then(Json::decode);
            matches!(subtype.as_deref(), Some("message" | "tool-call"))
                && has_text("entityId")
                && has_text("encryptedValue")
        }
        _ => return None,
    })
}

/// True if this is a JSON patch as its specification says.
fn is_patch(patch: Option<&Json>) -> bool {
    let Some(Value::Array(operations)) = patch.and_then(Json::decode) else { return false };
    operations.iter().all(|operation| {
        let is_pointer = |name: &str| {
            operation.get(name).and_then(Value::as_str).is_some_and(|path| path.is_empty() || path.starts_with('/'))
        };
        let has_value = operation.get("value").is_some();
        is_pointer("path")
            && match operation.get("op").and_then(Value::as_str) {
                Some("add" | "replace" | "test") => has_value,
                Some("remove") => true,
                Some("move" | "copy") => is_pointer("from"),
                _ => false,
            }
    })
}

/// An event without fields that clients refuse: `null` where a value is optional, and values of other types. Of fields
/// with one name the last counts, as it was checked; readers do not agree on which of them they take.
fn cleaned(fields: &Extra) -> Extra {
    let mut names = HashSet::new();
    let mut single: Vec<(&str, &Json)> = fields.iter().collect();
    single.reverse();
    single.retain(|(name, _)| names.insert(*name));
    single.reverse();

    let is_kept = |(name, value): &(&str, &Json)| match *name {
        // Any JSON, whose `null` is a value.
        "snapshot" | "value" => true,
        "timestamp" => value.decode::<u64>().is_some(),
        "metadata" => value.is_object(),
        "rawEvent" => !value.is_null(),
        _ => !value.is_null(),
    };
    single.into_iter().filter(is_kept).map(|(name, value)| (Box::<str>::from(name), value.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passed(events: &[&str], is_v1: bool) -> (Vec<Value>, u32) {
        let (mut kept, mut losses) = (OpenSteps::default(), Losses::new());
        let (mut writer, mut out) = (Writer::default(), Out::new());
        for event in events {
            let data = format!(r#"{{"protocol":"ag-ui","event":{event}}}"#);
            kept.pass(&Json::parse(&data).expect("JSON"), is_v1, &mut losses, &mut writer, &mut out);
        }
        kept.close_all(&mut writer, &mut out);
        let text = String::from_utf8(out.body.to_vec()).expect("UTF-8");
        let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
        let events = data.map(|data| serde_json::from_str(data).expect("JSON")).collect();
        (events, losses.as_slice().iter().map(|loss| loss.count).sum())
    }

    #[test]
    fn events_that_break_the_protocol_are_lost_and_not_passed() {
        let bad = [
            r#"{"type":"STATE_SNAPSHOT"}"#,
            r#"{"type":"STATE_DELTA","delta":{"n":1}}"#,
            r#"{"type":"STATE_DELTA","delta":[{"op":"add","path":"n","value":1}]}"#,
            r#"{"type":"STATE_DELTA","delta":[{"op":"replace","path":"/n"}]}"#,
            r#"{"type":"STATE_DELTA","delta":[{"op":"move","path":"/n"}]}"#,
            r#"{"type":"STEP_FINISHED","stepName":"never begun"}"#,
            r#"{"type":"STEP_STARTED","stepName":7}"#,
            r#"{"type":"ACTIVITY_SNAPSHOT","messageId":"a","activityType":"P","content":[]}"#,
            r#"{"type":"SUBAGENT_FINISHED","subagentRunId":"never begun"}"#,
            r#"{"type":"CUSTOM","name":"x"}"#,
            r#"{"type":"REASONING_ENCRYPTED_VALUE","subtype":"other","entityId":"a","encryptedValue":"b"}"#,
        ];
        assert_eq!(passed(&bad, true), (Vec::new(), 11));
    }

    #[test]
    fn of_fields_with_one_name_the_last_is_passed_on() {
        let twice = r#"{"type":"STEP_STARTED","stepName":"a","subagentRunId":"s","type":"CUSTOM","name":"n","value":1,"subagentRunId":null}"#;
        let data = format!(r#"{{"protocol":"ag-ui","event":{twice}}}"#);
        let (mut writer, mut out) = (Writer::default(), Out::new());
        OpenSteps::default().pass(&Json::parse(&data).expect("JSON"), true, &mut Losses::new(), &mut writer, &mut out);
        let text = String::from_utf8(out.body.to_vec()).expect("UTF-8");
        assert_eq!(text.trim(), r#"data: {"stepName":"a","type":"CUSTOM","name":"n","value":1}"#);
    }

    #[test]
    fn what_is_open_is_closed_and_nulls_are_left_out() {
        let events = [
            r#"{"type":"STEP_STARTED","stepName":"a","metadata":null,"timestamp":"noon","rawEvent":null}"#,
            r#"{"type":"STEP_STARTED","stepName":"a"}"#,
            r#"{"type":"STEP_STARTED","stepName":"a","subagentRunId":"s"}"#,
            r#"{"type":"SUBAGENT_STARTED","subagentRunId":"s","name":"n"}"#,
            r#"{"type":"STATE_SNAPSHOT","snapshot":null}"#,
            r#"{"type":"WEATHER","status":"sunny"}"#,
        ];
        let (new, losses) = passed(&events, true);
        let (old, more) = passed(&events, false);
        assert_eq!((losses, more), (1, 2));
        insta::assert_snapshot!(format!("{}\n{}", serde_json::json!(new), serde_json::json!(old)));
    }
}
