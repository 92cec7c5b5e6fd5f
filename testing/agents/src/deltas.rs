//! Streams of text deltas, field by field as the recorded servers of each protocol write them: what benchmarks, the
//! count of allocations and the load rig read.
//!
//! Not here: how long reading them takes ([`crate::delta_cost`]), and answers of other kinds, which the agents write.

use std::fmt::Write as _;

/// The frames of an answer with one text, in one protocol.
///
/// In frames, `$TEXT` is the text of a delta in JSON without its quotes, `$ALL` the text of all deltas, `$N` the number
/// of the frame in its stream, and `$RUN` twelve digits that differ between runs.
struct Format {
    protocol: &'static str,
    /// Bodies of the answers to requests that come before the one for the stream.
    earlier: &'static [&'static str],
    begin: &'static [&'static str],
    delta: &'static str,
    end: &'static [&'static str],
    blank_line: &'static str,
}

/// The fields that all formats share.
const PLAIN: Format = Format { protocol: "", earlier: &[], begin: &[], delta: "", end: &[], blank_line: "\n\n" };

const AGENT_API: Format = Format {
    protocol: "agent-api",
    begin: &[
        r#"data: {"sequence_number":$N,"object":"response","status":"created","error":null,"id":"response_$RUN","created_at":1795167918,"completed_at":null,"output":null,"usage":null,"session_id":"s-$RUN"}"#,
        r#"data: {"sequence_number":$N,"object":"response","status":"in_progress","error":null,"id":"response_$RUN","created_at":1795167918,"completed_at":null,"output":null,"usage":null,"session_id":"s-$RUN"}"#,
        r#"data: {"sequence_number":$N,"object":"message","status":"in_progress","error":null,"id":"msg_b1a461889f20432eb294$RUN","type":"message","role":"assistant","content":null,"code":null,"message":null,"usage":null,"metadata":{}}"#,
    ],
    delta: r#"data: {"sequence_number":$N,"object":"content","status":"in_progress","error":null,"type":"text","index":0,"delta":true,"msg_id":"msg_b1a461889f20432eb294$RUN","text":"$TEXT"}"#,
    end: &[
        r#"data: {"sequence_number":$N,"object":"content","status":"completed","error":null,"type":"text","index":0,"delta":null,"msg_id":"msg_b1a461889f20432eb294$RUN","text":"$ALL"}"#,
        r#"data: {"sequence_number":$N,"object":"message","status":"completed","error":null,"id":"msg_b1a461889f20432eb294$RUN","type":"message","role":"assistant","content":[{"sequence_number":null,"object":"content","status":"completed","error":null,"type":"text","index":0,"delta":null,"msg_id":"msg_b1a461889f20432eb294$RUN","text":"$ALL"}],"code":null,"message":null,"usage":null,"metadata":{}}"#,
        r#"data: {"sequence_number":$N,"object":"response","status":"completed","error":null,"id":"response_$RUN","created_at":1795167918,"completed_at":1795167919,"output":[{"sequence_number":null,"object":"message","status":"completed","error":null,"id":"msg_b1a461889f20432eb294$RUN","type":"message","role":"assistant","content":[{"sequence_number":null,"object":"content","status":"completed","error":null,"type":"text","index":0,"delta":null,"msg_id":"msg_b1a461889f20432eb294$RUN","text":"$ALL"}],"code":null,"message":null,"usage":null,"metadata":{}}],"usage":null,"session_id":"s-$RUN"}"#,
    ],
    ..PLAIN
};

const A2A: Format = Format {
    protocol: "a2a",
    begin: &[
        r#"data: {"result": {"statusUpdate": {"taskId": "eddabd59-7db6-43a4-9cc3-$RUN", "contextId": "b1a46188-9f20-432e-b294-$RUN", "status": {"state": "TASK_STATE_WORKING"}}}, "id": 1, "jsonrpc": "2.0"}"#,
        r#"data: {"result": {"artifactUpdate": {"taskId": "eddabd59-7db6-43a4-9cc3-$RUN", "contextId": "b1a46188-9f20-432e-b294-$RUN", "artifact": {"artifactId": "answer", "parts": [{"text": "$TEXT"}]}}}, "id": 1, "jsonrpc": "2.0"}"#,
    ],
    delta: r#"data: {"result": {"artifactUpdate": {"taskId": "eddabd59-7db6-43a4-9cc3-$RUN", "contextId": "b1a46188-9f20-432e-b294-$RUN", "artifact": {"artifactId": "answer", "parts": [{"text": "$TEXT"}]}, "append": true}}, "id": 1, "jsonrpc": "2.0"}"#,
    end: &[
        r#"data: {"result": {"statusUpdate": {"taskId": "eddabd59-7db6-43a4-9cc3-$RUN", "contextId": "b1a46188-9f20-432e-b294-$RUN", "status": {"state": "TASK_STATE_COMPLETED"}}}, "id": 1, "jsonrpc": "2.0"}"#,
    ],
    blank_line: "\r\n\r\n",
    ..PLAIN
};

const AG_KIT: Format =
    Format { protocol: "ag-kit", delta: r#"data: {"type":"text","content":"$TEXT"}"#, end: &["data: [DONE]"], ..PLAIN };

const AG_UI: Format = Format {
    protocol: "ag-ui",
    begin: &[
        r#"data: {"type":"RUN_STARTED","threadId":"t-$RUN","runId":"r-$RUN"}"#,
        r#"data: {"type":"TEXT_MESSAGE_START","messageId":"3f30a8e6-a67d-4cfa-bcd0-$RUN","role":"assistant"}"#,
    ],
    delta: r#"data: {"type":"TEXT_MESSAGE_CONTENT","messageId":"3f30a8e6-a67d-4cfa-bcd0-$RUN","delta":"$TEXT"}"#,
    end: &[
        r#"data: {"type":"TEXT_MESSAGE_END","messageId":"3f30a8e6-a67d-4cfa-bcd0-$RUN"}"#,
        r#"data: {"type":"RUN_FINISHED","threadId":"t-$RUN","runId":"r-$RUN"}"#,
    ],
    ..PLAIN
};

const AGENTSCOPE: Format = Format {
    protocol: "agentscope",
    earlier: &[r#"{"session_id":"s1"}"#, r#"{"status":"started"}"#],
    begin: &[
        r#"data: {"id": "e56653ac9b94424fa3c5$RUN", "created_at": "2026-11-23T00:23:54.385343", "metadata": {}, "type": "REPLY_START", "session_id": "s1", "reply_id": "0afab602e7994bfda6a3$RUN", "name": "scripted", "role": "assistant"}"#,
        r#"data: {"id": "5559e94ef6ab4689a747$RUN", "created_at": "2026-11-23T00:23:54.385343", "metadata": {}, "type": "TEXT_BLOCK_START", "reply_id": "0afab602e7994bfda6a3$RUN", "block_id": "9f6344d80bf24276b5e1$RUN"}"#,
    ],
    delta: r#"data: {"id": "859d884795fe4ff8884a55d4f195$N", "created_at": "2026-11-23T00:23:54.385343", "metadata": {}, "type": "TEXT_BLOCK_DELTA", "reply_id": "0afab602e7994bfda6a3$RUN", "block_id": "9f6344d80bf24276b5e1$RUN", "delta": "$TEXT"}"#,
    end: &[
        r#"data: {"id": "bc06527803614044aa62$RUN", "created_at": "2026-11-23T00:23:54.385343", "metadata": {}, "type": "TEXT_BLOCK_END", "reply_id": "0afab602e7994bfda6a3$RUN", "block_id": "9f6344d80bf24276b5e1$RUN", "text": null}"#,
        r#"data: {"id": "a191d3ee3b524844816f$RUN", "created_at": "2026-11-23T00:23:54.385343", "metadata": {}, "type": "REPLY_END", "session_id": "s1", "reply_id": "0afab602e7994bfda6a3$RUN", "finished_reason": "completed"}"#,
    ],
    ..PLAIN
};

const ANTHROPIC_MESSAGES: Format = Format {
    protocol: "anthropic-messages",
    begin: &[
        "event: message_start\n\
         data: {\"type\":\"message_start\",\"message\":{\"id\":\"msg_$RUN\",\"type\":\"message\",\"role\":\"assistant\",\"content\":[],\"usage\":{\"input_tokens\":7,\"output_tokens\":1}}}",
        "event: content_block_start\n\
         data: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}",
    ],
    delta: "event: content_block_delta\n\
            data: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"$TEXT\"}}",
    end: &[
        "event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":0}",
        "event: message_delta\n\
         data: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\",\"stop_sequence\":null},\"usage\":{\"output_tokens\":20}}",
        "event: message_stop\ndata: {\"type\":\"message_stop\"}",
    ],
    ..PLAIN
};

const CHAT_COMPLETIONS: Format = Format {
    protocol: "chat-completions",
    begin: &[
        r#"data: {"id":"chatcmpl-$RUN","object":"chat.completion.chunk","created":1795167918,"model":"m","system_fingerprint":"fp_1","choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]}"#,
    ],
    delta: r#"data: {"id":"chatcmpl-$RUN","object":"chat.completion.chunk","created":1795167918,"model":"m","system_fingerprint":"fp_1","choices":[{"index":0,"delta":{"content":"$TEXT"},"logprobs":null,"finish_reason":null}]}"#,
    end: &[
        r#"data: {"id":"chatcmpl-$RUN","object":"chat.completion.chunk","created":1795167918,"model":"m","system_fingerprint":"fp_1","choices":[{"index":0,"delta":{},"logprobs":null,"finish_reason":"stop"}]}"#,
        "data: [DONE]",
    ],
    ..PLAIN
};

const RESPONSES: Format = Format {
    protocol: "responses",
    begin: &[
        "event: response.created\n\
         data: {\"type\":\"response.created\",\"sequence_number\":$N,\"response\":{\"id\":\"resp_$RUN\",\"object\":\"response\",\"created_at\":1795167918,\"status\":\"in_progress\",\"output\":[]}}",
        "event: response.output_item.added\n\
         data: {\"type\":\"response.output_item.added\",\"sequence_number\":$N,\"output_index\":0,\"item\":{\"id\":\"msg_b1a461889f20432eb294$RUN\",\"type\":\"message\",\"status\":\"in_progress\",\"role\":\"assistant\",\"content\":[]}}",
        "event: response.content_part.added\n\
         data: {\"type\":\"response.content_part.added\",\"sequence_number\":$N,\"item_id\":\"msg_b1a461889f20432eb294$RUN\",\"output_index\":0,\"content_index\":0,\"part\":{\"type\":\"output_text\",\"text\":\"\",\"annotations\":[]}}",
    ],
    delta: "event: response.output_text.delta\n\
            data: {\"type\":\"response.output_text.delta\",\"sequence_number\":$N,\"item_id\":\"msg_b1a461889f20432eb294$RUN\",\"output_index\":0,\"content_index\":0,\"delta\":\"$TEXT\",\"logprobs\":[]}",
    end: &[
        "event: response.output_text.done\n\
         data: {\"type\":\"response.output_text.done\",\"sequence_number\":$N,\"item_id\":\"msg_b1a461889f20432eb294$RUN\",\"output_index\":0,\"content_index\":0,\"text\":\"$ALL\",\"logprobs\":[]}",
        "event: response.output_item.done\n\
         data: {\"type\":\"response.output_item.done\",\"sequence_number\":$N,\"output_index\":0,\"item\":{\"id\":\"msg_b1a461889f20432eb294$RUN\",\"type\":\"message\",\"status\":\"completed\",\"role\":\"assistant\",\"content\":[{\"type\":\"output_text\",\"text\":\"$ALL\",\"annotations\":[]}]}}",
        "event: response.completed\n\
         data: {\"type\":\"response.completed\",\"sequence_number\":$N,\"response\":{\"id\":\"resp_$RUN\",\"object\":\"response\",\"created_at\":1795167918,\"status\":\"completed\",\"output\":[{\"id\":\"msg_b1a461889f20432eb294$RUN\",\"type\":\"message\",\"status\":\"completed\",\"role\":\"assistant\",\"content\":[{\"type\":\"output_text\",\"text\":\"$ALL\",\"annotations\":[]}]}]}}",
    ],
    ..PLAIN
};

/// Every protocol whose answers come in deltas. The human-in-the-loop service answers with whole messages.
const FORMATS: &[Format] =
    &[AGENT_API, A2A, AG_KIT, AG_UI, AGENTSCOPE, ANTHROPIC_MESSAGES, CHAT_COMPLETIONS, RESPONSES];

/// The streams of one protocol in which every delta has the same text.
pub struct Deltas {
    earlier: &'static [&'static str],
    begin: Vec<Template>,
    delta: Template,
    end: Vec<Template>,
    /// In JSON, without its quotes.
    text: String,
}

/// A frame with places for what differs from run to run, taken apart once: the load rig writes millions.
struct Template(Vec<Part>);

enum Part {
    Fixed(String),
    All,
    Number,
    Run,
}

/// The protocols that have [`deltas`].
pub fn protocols() -> impl Iterator<Item = &'static str> {
    FORMATS.iter().map(|format| format.protocol)
}

/// The streams of a protocol. `None`: its answers do not come in deltas.
#[must_use]
pub fn deltas(protocol: &str, text: &str) -> Option<Deltas> {
    let format = FORMATS.iter().find(|format| format.protocol == protocol)?;
    let quoted = serde_json::Value::from(text).to_string();
    let text = quoted[1..quoted.len() - 1].to_owned();
    let template = |frame: &&str| Template::new(&format!("{frame}{}", format.blank_line), &text);
    Some(Deltas {
        earlier: format.earlier,
        begin: format.begin.iter().map(template).collect(),
        delta: template(&format.delta),
        end: format.end.iter().map(template).collect(),
        text,
    })
}

impl Deltas {
    /// Bodies of the answers to requests that come before the one for the stream.
    #[must_use]
    pub const fn earlier(&self) -> &'static [&'static str] {
        self.earlier
    }

    /// The frames before the first delta.
    #[must_use]
    pub fn begin(&self, run: u64) -> Vec<String> {
        self.begin.iter().zip(0..).map(|(frame, number)| frame.write(run, number, "")).collect()
    }

    /// The frame of one delta. `number`: counted from 0.
    #[must_use]
    pub fn delta(&self, run: u64, number: usize) -> String {
        self.delta.write(run, self.begin.len() + number, "")
    }

    /// The frames after the last delta.
    #[must_use]
    pub fn end(&self, run: u64, deltas: usize) -> Vec<String> {
        let all = self.text.repeat(deltas);
        let numbers = self.begin.len() + deltas..;
        self.end.iter().zip(numbers).map(|(frame, number)| frame.write(run, number, &all)).collect()
    }

    /// The number of frames beside the deltas.
    #[must_use]
    pub fn others(&self) -> usize {
        self.begin.len() + self.end.len()
    }

    /// The start of a stream with this number of deltas: all frames except its end.
    #[must_use]
    pub fn stream(&self, deltas: usize) -> Vec<u8> {
        let mut stream = self.begin(1).concat();
        for number in 0..deltas {
            stream.push_str(&self.delta(1, number));
        }
        stream.into_bytes()
    }
}

impl Template {
    fn new(frame: &str, text: &str) -> Self {
        let mut parts = Vec::new();
        for (place, piece) in frame.split('$').enumerate() {
            let (part, rest) = if place == 0 {
                (None, piece)
            } else if let Some(rest) = piece.strip_prefix("TEXT") {
                (Some(Part::Fixed(text.to_owned())), rest)
            } else if let Some(rest) = piece.strip_prefix("ALL") {
                (Some(Part::All), rest)
            } else if let Some(rest) = piece.strip_prefix("RUN") {
                (Some(Part::Run), rest)
            } else {
                let rest = piece.strip_prefix('N').expect("nothing else is written with a dollar");
                (Some(Part::Number), rest)
            };
            parts.extend(part);
            parts.push(Part::Fixed(rest.to_owned()));
        }
        Self(parts)
    }

    fn write(&self, run: u64, number: usize, all: &str) -> String {
        let mut frame = String::with_capacity(512 + all.len());
        for part in &self.0 {
            match part {
                Part::Fixed(text) => frame.push_str(text),
                Part::All => frame.push_str(all),
                Part::Number => write!(frame, "{number}").expect("a string takes everything"),
                Part::Run => write!(frame, "{run:012}").expect("a string takes everything"),
            }
        }
        frame
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(frame: &str) -> &str {
        frame.lines().find_map(|line| line.strip_prefix("data: ")).expect("a frame has data")
    }

    #[test]
    fn every_frame_is_json_with_the_requested_text() {
        let text = "say \"yes\", $ALL of you";
        for protocol in protocols() {
            let deltas = deltas(protocol, text).expect("it has some");
            let frames = [deltas.begin(7), vec![deltas.delta(7, 0), deltas.delta(7, 1)], deltas.end(7, 2)].concat();
            assert_eq!(frames.len(), deltas.others() + 2, "{protocol}");
            for (number, frame) in frames.iter().enumerate() {
                assert!(frame.ends_with("\n\n") || frame.ends_with("\r\n\r\n"), "{frame}");
                if data(frame) == "[DONE]" {
                    continue;
                }
                let value: serde_json::Value = serde_json::from_str(data(frame)).expect(frame);
                let counted = value.get("sequence_number").is_none_or(|said| said.as_u64() == Some(number as u64));
                assert!(counted, "{frame}");
                assert!(!frame.contains("$RUN") && !frame.contains("$N") && !frame.contains("$TEXT"), "{frame}");
            }
            let quoted = serde_json::Value::from(text).to_string();
            assert!(data(&deltas.delta(7, 0)).contains(&quoted), "{protocol}");
        }
    }

    #[test]
    fn every_agent_but_one_writes_deltas() {
        let mut others: Vec<&str> = crate::all().iter().map(|agent| agent.protocol()).collect();
        others.retain(|protocol| deltas(protocol, "a").is_none());
        assert_eq!(others, ["hitl"]);
    }
}
