//! Parses messages into the history and the new ones (docs/protocols/anthropic-messages.md#conversations).

use std::collections::{HashMap, HashSet};

use interlingua_adapter_kit::model_options::{OpenCalls, ReasoningInput};
use interlingua_core::answer::chat::Marker;
use interlingua_core::model::{Content, Message, MessageType, Role, Status, ToolCall};
use interlingua_core::tree::fields::text;
use interlingua_core::tree::{Kind, Node, Object};
use interlingua_core::{Extra, Fault, Json};

use super::tools::Tools;
use super::{Conversation, Orphan, blocks, unknown_word};
use crate::fault::missing;
use crate::judge::LastAnswer;
use crate::options::Options;

/// Blocks of users that carry nothing for an agent.
const OPAQUE: &[&str] = &["container_upload", "compaction", "fallback", "tool_reference", "context_management"];
/// The marks around text that Claude Code adds to a person's message.
const REMINDER: (&str, &str) = ("<system-reminder>", "</system-reminder>");

/// Parses the list. `is_continued`: it holds only what is new in a thread.
pub(super) fn parse(
    node: &Node<'_>,
    options: &Options,
    tools: &mut Tools,
    is_continued: bool,
) -> Result<Conversation, Fault> {
    let mut parser = Parser {
        options,
        tools,
        is_continued,
        all: Vec::new(),
        split: 0,
        is_assistant: false,
        said: String::new(),
        calls: HashMap::new(),
        open: HashSet::new(),
        new: New::default(),
        conversation: Conversation::default(),
    };
    let mut messages = node.array()?;
    match messages.next() {
        Some(first) => {
            parser.all.reserve_exact(1 + messages.remaining());
            parser.message(&first)?;
        }
        // After a pause there is nothing new.
        None if is_continued => {}
        None => return Err(node.invalid("at least one message is required")),
    }
    for message in messages {
        parser.message(&message)?;
    }
    parser.finish(node)
}

struct Parser<'o> {
    options: &'o Options,
    tools: &'o mut Tools,
    is_continued: bool,
    all: Vec<Message>,
    /// Where the new messages begin.
    split: usize,
    /// The latest message was the assistant's.
    is_assistant: bool,
    /// The texts of its latest turn.
    said: String,
    /// Names of all calls so far, by id.
    calls: HashMap<String, String>,
    /// Calls of its latest turn without a result.
    open: HashSet<String>,
    new: New,
    conversation: Conversation,
}

/// The messages after the assistant's latest turn.
#[derive(Debug, Default)]
struct New {
    words: Vec<String>,
    /// There is something else than words of one message.
    has_others: bool,
    users: usize,
}

impl New {
    fn begin_user(&mut self) {
        self.users += 1;
        if self.users > 1 {
            // Words of several messages answer nothing.
            self.words = Vec::new();
        }
    }

    fn add_words(&mut self, words: &str) {
        if self.users == 1 {
            self.words.push(words.to_owned());
        }
    }
}

impl Parser<'_> {
    fn message(&mut self, node: &Node<'_>) -> Result<(), Fault> {
        let object = node.object()?;
        let role = object.get("role").ok_or_else(|| missing(object.path_of("role")))?;
        let content = object.get("content").ok_or_else(|| missing(object.path_of("content")))?;
        if !matches!(content.kind(), Kind::String | Kind::Array) {
            return Err(content.wrong_type("a string or a list of blocks"));
        }
        match role.string()?.as_ref() {
            "user" => {
                self.is_assistant = false;
                self.user(&content)
            }
            "assistant" => self.assistant(&content),
            "system" => {
                self.is_assistant = false;
                self.system(&content)
            }
            other => Err(unknown_word(&role, "role", other, &["user", "assistant", "system"])),
        }
    }

    fn user(&mut self, content: &Node<'_>) -> Result<(), Fault> {
        self.new.begin_user();
        let mut said = Vec::new();
        if content.kind() == Kind::String {
            let words = content.string()?;
            self.new.add_words(&words);
            if !words.is_empty() {
                said = vec![Content::text(words)];
            }
        } else {
            for block in content.array()? {
                self.user_block(&block, &mut said)?;
            }
        }
        if !said.is_empty() {
            // Most messages have one content: no room for more.
            said.shrink_to_fit();
            self.all.push(Message::new(MessageType::Message, Some(Role::User), said));
        }
        Ok(())
    }

    fn user_block(&mut self, node: &Node<'_>, said: &mut Vec<Content>) -> Result<(), Fault> {
        let block = node.object()?;
        let kind = block.get("type").ok_or_else(|| missing(block.path_of("type")))?;
        match kind.string()?.as_ref() {
            "text" => {
                let words = blocks::required(&block, "text")?;
                let is_reminder = words.trim_start().starts_with(REMINDER.0) && words.trim_end().ends_with(REMINDER.1);
                if !is_reminder {
                    self.new.add_words(&words);
                }
                said.extend((!words.is_empty()).then(|| Content::text(words)));
                return Ok(());
            }
            "tool_result" => self.result(&block)?,
            "image" => said.push(blocks::image(&block)?),
            "document" => said.extend(blocks::document(&block)?),
            "search_result" => said.push(blocks::search_result(&block)?),
            word if OPAQUE.contains(&word) => self.conversation.opaque += 1,
            other => {
                let known = ["text", "image", "document", "search_result", "tool_result"];
                return Err(unknown_word(&kind, "type", other, &known));
            }
        }
        self.new.has_others = true;
        Ok(())
    }

    /// The result of a call. Results precede the user's text.
    fn result(&mut self, block: &Object<'_>) -> Result<(), Fault> {
        let call_id = blocks::required(block, "tool_use_id")?;
        let is_error = block.boolean("is_error")?.unwrap_or(false);
        let content = block.get("content");
        let mut output = blocks::output(content.as_ref())?;
        for name in content.as_ref().map(blocks::references).transpose()?.unwrap_or_default() {
            self.tools.load(&name);
        }
        if is_error && self.options.error_prefix {
            output.insert_str(0, "Error: ");
        }

        let mut data = Extra::new();
        data.push("call_id", Json::from_serialize(&call_id));
        match self.calls.get(&call_id) {
            Some(name) => data.push("name", Json::from_serialize(name)),
            None => {
                let path = block.path_of("tool_use_id");
                self.conversation.orphans.push(Orphan { call_id: call_id.clone(), output: output.clone(), path });
            }
        }
        data.push("output", Json::from_serialize(&output));
        if is_error {
            data.push("is_error", Json::from_serialize(&true));
        }
        self.open.remove(&call_id);
        self.all.push(Message::new(MessageType::FunctionCallOutput, Some(Role::Tool), vec![Content::data(&data)]));
        Ok(())
    }

    fn system(&mut self, content: &Node<'_>) -> Result<(), Fault> {
        let mut said = Vec::new();
        if content.kind() == Kind::String {
            said.push(Content::text(content.string()?));
        } else {
            for node in content.array()? {
                let block = node.object()?;
                match block.string("type")?.as_deref() {
                    Some("tool_addition") => self.tools.addition(&block, self.options)?,
                    Some("tool_removal") => self.tools.removal(&block)?,
                    _ => said.push(Content::text(blocks::required_text(&block)?)),
                }
            }
        }
        said.retain(|content| content.as_text().is_some_and(|text| !text.is_empty()));
        said.shrink_to_fit();
        if !said.is_empty() {
            self.all.push(Message::new(MessageType::Message, Some(Role::System), said));
        }
        Ok(())
    }

    fn assistant(&mut self, content: &Node<'_>) -> Result<(), Fault> {
        if !self.is_assistant {
            self.is_assistant = true;
            self.conversation.last = Some(LastAnswer::default());
            self.said.clear();
            self.open.clear();
        }
        if content.kind() == Kind::String {
            self.assistant_text(&content.string()?);
        } else {
            for block in content.array()? {
                self.assistant_block(&block)?;
            }
        }

        // The messages so far are history.
        self.split = self.all.len();
        self.new = New::default();
        self.conversation.orphans.clear();
        Ok(())
    }

    fn assistant_text(&mut self, words: &str) {
        if words.is_empty() {
            return;
        }
        if let Some(last) = &mut self.conversation.last {
            last.add_text(words);
        }
        self.said.push_str(words);
        self.said.push('\n');
        self.all.push(Message::assistant(words));
    }

    fn assistant_block(&mut self, node: &Node<'_>) -> Result<(), Fault> {
        let block = node.object()?;
        let kind = block.get("type").ok_or_else(|| missing(block.path_of("type")))?;
        match kind.string()?.as_ref() {
            "text" => self.assistant_text(&blocks::required(&block, "text")?),
            "thinking" => {
                let thought = text(&block, "thinking")?.unwrap_or_default();
                let signature = text(&block, "signature")?.filter(|signature| !signature.is_empty());
                self.thought(thought, "signature", signature);
            }
            "redacted_thinking" => {
                let data = blocks::required(&block, "data")?;
                self.thought(String::new(), "redacted", Some(data));
            }
            "tool_use" => self.call(&block, MessageType::FunctionCall)?,
            "server_tool_use" => self.call(&block, MessageType::PluginCall)?,
            "mcp_tool_use" => self.call(&block, MessageType::McpCall)?,
            "mcp_tool_result" => self.own_output(&block, MessageType::McpCallOutput)?,
            word if word.ends_with("_tool_result") => self.own_output(&block, MessageType::PluginCallOutput)?,
            _ => self.conversation.opaque += 1,
        }
        Ok(())
    }

    /// A thought, with what only its author can read.
    fn thought(&mut self, thought: String, field: &str, value: Option<String>) {
        let is_dropped = self.options.reasoning_input == ReasoningInput::Drop;
        if is_dropped || (thought.is_empty() && value.is_none()) {
            return;
        }
        let content = (!thought.is_empty()).then(|| Content::text(thought));
        let mut message = Message::new(MessageType::Reasoning, Some(Role::Assistant), content.into_iter().collect());
        if let Some(value) = value {
            let metadata: Extra = [(field, Json::from_serialize(&value))].into_iter().collect();
            message.metadata = Some(Json::from_serialize(&metadata));
        }
        self.all.push(message);
    }

    fn call(&mut self, block: &Object<'_>, kind: MessageType) -> Result<(), Fault> {
        let call_id = blocks::required(block, "id")?;
        let name = blocks::required(block, "name")?;
        let (input, arguments) = blocks::arguments(block)?;
        if kind == MessageType::FunctionCall {
            if let Some(last) = &mut self.conversation.last {
                last.add_call(&call_id, &name, &input);
            }
            self.open.insert(call_id.clone());
        }
        self.calls.insert(call_id.clone(), name.clone());
        let call = ToolCall { call_id, name, arguments, server_label: text(block, "server_name")? };
        self.all.push(Message::new(kind, Some(Role::Assistant), vec![Content::data(&call)]));
        Ok(())
    }

    /// The output of a tool that the agent ran.
    fn own_output(&mut self, block: &Object<'_>, kind: MessageType) -> Result<(), Fault> {
        let call_id = blocks::required(block, "tool_use_id")?;
        let mut data = Extra::new();
        data.push("call_id", Json::from_serialize(&call_id));
        if let Some(name) = self.calls.get(&call_id) {
            data.push("name", Json::from_serialize(name));
        }
        data.push("output", Json::from_serialize(&blocks::output(block.get("content").as_ref())?));
        let mut message = Message::new(kind, Some(Role::Tool), vec![Content::data(&data)]);
        if block.boolean("is_error")?.unwrap_or(false) {
            message.status = Some(Status::Failed);
        }
        self.all.push(message);
        Ok(())
    }

    fn finish(self, node: &Node<'_>) -> Result<Conversation, Fault> {
        let Self { options, is_continued, mut all, split, said, open, new, mut conversation, .. } = self;
        if options.open_calls == OpenCalls::Refuse
            && split < all.len()
            && let Some(id) = open.iter().min()
        {
            return Err(node.invalid(format!("the call '{id}' has no result in the message after it")));
        }

        // A list that is not split is moved: `split_off` would allocate another one of its size.
        let mut input = if split == 0 { std::mem::take(&mut all) } else { all.split_off(split) };
        if !is_continued {
            // They are answers to what an earlier answer asked, if to anything.
            let orphans: HashSet<&str> = conversation.orphans.iter().map(|orphan| orphan.call_id.as_str()).collect();
            if !orphans.is_empty() {
                input.retain(|message| !message.outputs().any(|output| orphans.contains(output.call_id.as_str())));
            }
        }

        let words = new.words.join("\n");
        let is_words = new.users == 1 && !new.has_others && !words.trim().is_empty();
        conversation.words = is_words.then_some(words);
        conversation.in_words =
            Marker::find(&said).zip(conversation.words.as_deref()).map(|(marker, words)| marker.answer(words));
        conversation.history = all;
        conversation.input = input;
        Ok(conversation)
    }
}
