//! Arguments that the operator declares for a tool, and the message made of them.

use interlingua_core::Json;
use interlingua_core::answer::fits;
use serde_json::{Map, Value};

use crate::tools::names::SESSION;
use crate::tools::template::Template;
use crate::tools::tool_error::ToolError;

/// The declared arguments of a tool.
#[derive(Clone, Debug)]
pub(crate) struct DeclaredArguments {
    schema: Map<String, Value>,
    /// The schema as the check of arguments reads it.
    checked: Json,
    /// `None`: the message is the arguments as JSON.
    template: Option<Template>,
}

impl DeclaredArguments {
    /// Reads the options `arguments` and `message` of a tool. A message without arguments is the same for every call.
    ///
    /// # Errors
    /// The problem, for the operator.
    pub(super) fn read(schema: Option<&Map<String, Value>>, message: Option<&str>) -> Result<Self, String> {
        let schema = schema.cloned().unwrap_or_default();
        match schema.get("type") {
            None => {}
            Some(Value::String(name)) if name == "object" => {}
            Some(other) => return Err(format!("its arguments have the type {other}: it must be \"object\"")),
        }
        let none = Map::new();
        let properties = match schema.get("properties") {
            None => &none,
            Some(Value::Object(properties)) => properties,
            Some(_) => return Err("the properties of its arguments are no object".to_owned()),
        };
        if properties.contains_key(SESSION) {
            return Err(format!("it declares the argument '{SESSION}', which every tool has"));
        }
        if names_headers(&Value::Object(schema.clone())) {
            return Err("its arguments contain x-mcp-header, which is not supported".to_owned());
        }

        let template = message.map(Template::parse).transpose().map_err(|error| format!("its message: {error}"))?;
        if let Some(template) = &template
            && let Some(unknown) = template.arguments().find(|name| !properties.contains_key(*name))
        {
            return Err(format!("its message names the argument '{unknown}', which is not declared"));
        }
        Ok(Self { checked: Json::from_serialize(&schema), schema, template })
    }

    /// The schema as the operator wrote it.
    pub(super) fn schema(&self) -> &Map<String, Value> {
        &self.schema
    }

    /// The declared arguments with their schemas, by name.
    pub(crate) fn properties(&self) -> impl Iterator<Item = (&str, &Value)> {
        let properties = self.schema.get("properties").and_then(Value::as_object);
        properties.into_iter().flatten().map(|(name, schema)| (name.as_str(), schema))
    }

    /// The schema of an argument. `None`: it is not declared.
    pub(crate) fn property(&self, name: &str) -> Option<&Value> {
        self.schema.get("properties")?.get(name)
    }

    /// True if calls need the argument.
    pub(crate) fn requires(&self, name: &str) -> bool {
        let required = self.schema.get("required").and_then(Value::as_array);
        required.is_some_and(|required| required.iter().any(|one| one == name))
    }

    /// Checks the arguments of a call, without the session.
    ///
    /// # Errors
    /// The first argument that is missing or wrong.
    pub(super) fn check(&self, arguments: &Map<String, Value>) -> Result<(), ToolError> {
        let required = self.schema.get("required").and_then(Value::as_array);
        let mut required = required.into_iter().flatten().filter_map(Value::as_str);
        if let Some(missing) = required.find(|name| !arguments.contains_key(*name)) {
            return Err(ToolError::new("MISSING_PARAMETER", format!("the argument '{missing}' is missing")));
        }
        fits(&self.checked, &Json::from_serialize(arguments)).map_err(|mismatch| {
            let subject = match mismatch.path.as_str() {
                "" => "the arguments".to_owned(),
                path => format!("the argument '{path}'"),
            };
            ToolError::new("INVALID_PARAMETER", format!("{subject} must {}", mismatch.expected))
        })
    }

    /// The message for the agent.
    pub(crate) fn message(&self, arguments: &Map<String, Value>) -> String {
        match &self.template {
            Some(template) => template.fill(arguments),
            None => Json::from_serialize(arguments).text().to_owned(),
        }
    }
}

/// True if a schema asks for arguments as HTTP headers.
fn names_headers(schema: &Value) -> bool {
    match schema {
        Value::Object(fields) => fields.iter().any(|(name, value)| name == "x-mcp-header" || names_headers(value)),
        Value::Array(values) => values.iter().any(names_headers),
        _ => false,
    }
}
