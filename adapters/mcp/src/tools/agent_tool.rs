//! The tool of one agent: its settings, and the input of a run made of a call's arguments.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use interlingua_core::call::AgentCard;
use interlingua_core::capability::Media;
use interlingua_core::model::Message;
use interlingua_core::{Extra, Json};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use crate::options::{Options, Tasks, ToolOptions};
use crate::tools::declared::DeclaredArguments;
use crate::tools::definition::ToolTexts;
use crate::tools::names::{self, SESSION};
use crate::tools::tool_error::ToolError;
use crate::tools::{attachments, definition};

const MESSAGE: &str = "message";
const ATTACHMENTS: &str = "attachments";

/// Longest id of a session, in bytes.
const MAX_SESSION: usize = 512;

/// The tool of an agent.
#[derive(Debug)]
pub(crate) struct AgentTool {
    /// The tool's name.
    pub(crate) name: String,
    /// The agent's name in the configuration.
    pub(crate) agent: String,
    /// The title for people. `None`: the name alone.
    pub(crate) title: Option<String>,
    /// The description for models and people.
    pub(crate) description: String,
    /// The version of the agent. May be empty.
    pub(crate) version: String,
    /// The settings of the tool, with those of the route as defaults.
    pub(crate) settings: ToolSettings,
    /// The declared arguments. `None`: the tool takes a message.
    pub(crate) arguments: Option<DeclaredArguments>,
    /// The media that a call can attach.
    media: Media,
    definition: Value,
    plain_definition: Value,
}

/// The settings of a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ToolSettings {
    /// The use of tasks.
    pub(crate) tasks: Tasks,
    /// With [`Tasks::Auto`]: time after which a call is answered with a task.
    pub(crate) task_after: Duration,
    /// Time for questions before a call is answered with a task.
    pub(crate) ask_first: Duration,
}

/// The input of a run, made of the arguments of a call.
#[derive(Clone, Debug)]
pub(crate) struct ToolInput {
    /// The user's message.
    pub(crate) messages: Vec<Message>,
    /// The session that the call continues, 1 to 512 bytes. `None`: the arguments name none.
    pub(crate) session: Option<String>,
    /// Fields for the agent besides the input.
    pub(crate) extra: Extra,
}

impl AgentTool {
    /// Builds the tool of an agent.
    ///
    /// # Errors
    /// The problem with its name or its settings, for the operator.
    pub(super) fn new(agent: &AgentCard, options: &Options) -> Result<Self, String> {
        let none = ToolOptions::default();
        let own = options.tools.get(&agent.name).unwrap_or(&none);
        let subject = format!("the tool of agent '{}'", agent.name);
        let name = own.name.clone().unwrap_or_else(|| names::of_agent(&agent.name));
        names::check(&name, &format!("the name of {subject}:"))?;

        let settings = ToolSettings {
            tasks: own.tasks.unwrap_or(options.tasks),
            task_after: own.task_after.unwrap_or(options.task_after).0,
            ask_first: own.ask_first.unwrap_or(options.ask_first).0,
        };
        if settings.tasks == Tasks::Never && own.ask_first.is_some_and(|time| !time.0.is_zero()) {
            return Err(format!("{subject} has ask_first without tasks"));
        }

        let arguments = match (&own.arguments, &own.message) {
            (None, None) => None,
            (schema, message) => Some(DeclaredArguments::read(schema.as_ref(), message.as_deref()))
                .transpose()
                .map_err(|problem| format!("{subject}: {problem}"))?,
        };
        let has_attachments = options.attachments && arguments.is_none();
        let media = if has_attachments { agent.input_media } else { Media::NONE };

        let described = [own.description.as_deref(), Some(agent.description.as_str())];
        let description = described.into_iter().flatten().find(|text| !text.trim().is_empty());
        let description = description.map_or_else(|| format!("Asks the agent {}.", agent.name), str::to_owned);
        let definition = definition::agent(
            &ToolTexts {
                name: &name,
                title: own.title.as_deref(),
                description: &description,
                arguments: arguments.as_ref(),
                takes_attachments: media != Media::NONE,
                is_read_only: own.read_only,
            },
            options,
        );
        Ok(Self {
            name,
            agent: agent.name.clone(),
            title: own.title.clone(),
            description,
            version: agent.version.clone(),
            settings,
            arguments,
            media,
            plain_definition: definition::without_structure(&definition),
            definition,
        })
    }

    /// The definition in lists. `has_structure`: the revision has titles and output schemas.
    pub(super) fn definition(&self, has_structure: bool) -> &Value {
        if has_structure { &self.definition } else { &self.plain_definition }
    }

    /// Checks the arguments of a call, and makes the input of a run of them. `null` is the same as no arguments.
    ///
    /// # Errors
    /// The first problem, for the model.
    pub(crate) fn input(&self, arguments: &Value) -> Result<ToolInput, ToolError> {
        let mut arguments = match arguments {
            Value::Null => Map::new(),
            Value::Object(arguments) => arguments.clone(),
            _ => return Err(ToolError::new("PARAMETER_VALIDATION", "the arguments must be an object")),
        };
        let session = arguments.remove(SESSION);
        match &self.arguments {
            Some(declared) => {
                declared.check(&arguments)?;
                let text = declared.message(&arguments);
                if text.trim().is_empty() {
                    return Err(ToolError::new("MISSING_PARAMETER", "the arguments make an empty message"));
                }
                let mut extra = Extra::new();
                extra.push("arguments", Json::from_serialize(&arguments));
                Ok(ToolInput { messages: vec![Message::user(text)], session: read_session(session)?, extra })
            }
            None => {
                let message = self.message(&arguments)?;
                Ok(ToolInput { messages: vec![message], session: read_session(session)?, extra: Extra::new() })
            }
        }
    }

    /// The user's message of a call without declared arguments.
    fn message(&self, arguments: &Map<String, Value>) -> Result<Message, ToolError> {
        let text = match arguments.get(MESSAGE) {
            Some(Value::String(text)) if !text.trim().is_empty() => text,
            Some(Value::String(_)) => return Err(ToolError::new("MISSING_PARAMETER", "message is blank")),
            Some(_) => return Err(ToolError::new("MISSING_PARAMETER", "message must be a string")),
            None => return Err(ToolError::new("MISSING_PARAMETER", "message is missing")),
        };
        let known: &[&str] = if self.media == Media::NONE { &[MESSAGE] } else { &[MESSAGE, ATTACHMENTS] };
        if let Some(unknown) = arguments.keys().find(|name| !known.contains(&name.as_str())) {
            let message = format!("unknown argument '{unknown}': {} takes {}, {SESSION}", self.name, known.join(", "));
            return Err(ToolError::new("INVALID_PARAMETER", message));
        }
        let mut message = Message::user(text);
        if let Some(attachments) = arguments.get(ATTACHMENTS) {
            message.content.extend(attachments::read(attachments, self.media)?);
        }
        Ok(message)
    }

    /// A digest of the tool's name and of the arguments of a call: the same however the arguments are written, and
    /// another one for any other call.
    pub(crate) fn digest(&self, arguments: &Value) -> String {
        let mut text = String::new();
        write_canonical(&Value::String(self.name.clone()), &mut text);
        match arguments {
            // Calls may leave out empty arguments.
            Value::Null => text.push_str("{}"),
            arguments => write_canonical(arguments, &mut text),
        }
        URL_SAFE_NO_PAD.encode(Sha256::digest(text))
    }
}

fn read_session(session: Option<Value>) -> Result<Option<String>, ToolError> {
    match session {
        None => Ok(None),
        Some(Value::String(session)) => {
            // Models repeat the whole line of a result.
            let id = session.trim().strip_prefix("[session ").and_then(|rest| rest.strip_suffix(']'));
            let id = id.unwrap_or(&session);
            if id.is_empty() || id.len() > MAX_SESSION {
                return Err(ToolError::no_such_session());
            }
            Ok(Some(id.to_owned()))
        }
        Some(_) => Err(ToolError::new("PARAMETER_VALIDATION", "session must be a string")),
    }
}

/// Writes a value as JSON with sorted fields, whatever order the parser keeps.
fn write_canonical(value: &Value, text: &mut String) {
    match value {
        Value::Array(values) => {
            text.push('[');
            for value in values {
                write_canonical(value, text);
                text.push(',');
            }
            text.push(']');
        }
        Value::Object(fields) => {
            let mut fields: Vec<(&String, &Value)> = fields.iter().collect();
            fields.sort_by_key(|(name, _)| *name);
            text.push('{');
            for (name, value) in fields {
                write_canonical(&Value::String(name.clone()), text);
                text.push(':');
                write_canonical(value, text);
                text.push(',');
            }
            text.push('}');
        }
        plain => text.push_str(&plain.to_string()),
    }
}
