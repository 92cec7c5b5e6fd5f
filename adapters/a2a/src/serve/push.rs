//! Push notification configs: set, get, list, delete, in three wire formats (docs/protocols/a2a.md#push-notifications).
//! They are stored as documents of the engine. Not here: the delivered notifications (`crate::serve::notifications`).

use interlingua_core::call::{Call, DocumentCall, Replaces, Reply, Target};
use interlingua_core::exchange::Next;
use interlingua_core::tree::{Kind, Node, Object};
use interlingua_core::{Fault, Json, Out, Request, RunId};
use serde::ser::{SerializeMap, Serializer};
use serde::{Deserialize, Serialize};

use super::params::{Params, task_id};
use super::{A2aExchange, OperationState};
use crate::Route;
use crate::dialect::{Dialect, Generation, Operation, WireFormat};
use crate::errors::{self, Problem};
use crate::wire::base64;
use crate::wire::read::{self, Faults};

/// Document collection of the configs.
pub(crate) const COLLECTION: &str = "a2a/push";

/// A push config operation in progress.
pub(super) struct PushOperation {
    task: RunId,
    action: Action,
    stage: Stage,
}

enum Action {
    Set(Box<Config>),
    Get(Option<String>),
    List { size: Option<usize>, offset: usize },
    Delete(String),
}

enum Stage {
    LoadingTask,
    /// Listing the task's configs.
    ListingConfigs,
    /// Storing or deleting the config.
    Writing,
}

/// A push config as stored.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Config {
    pub(crate) task: String,
    pub(crate) id: String,
    pub(crate) url: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) token: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) scheme: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) credentials: Option<String>,
    /// True if the receiver gets 0.3 bodies.
    #[serde(default, rename = "old")]
    pub(crate) v03: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tenant: Option<String>,
    /// True once the receiver failed too often; nothing more is sent to it.
    #[serde(default, rename = "given_up", skip_serializing_if = "std::ops::Not::not")]
    pub(crate) disabled: bool,
    /// Request paths of id and URL, for error messages.
    #[serde(skip)]
    paths: [String; 2],
    /// An unused id, in case the config needs one.
    #[serde(skip)]
    new_id: String,
    /// True if the client set no id.
    #[serde(skip)]
    is_unnamed: bool,
}

impl Config {
    /// Parses a config of either version. The id is empty if none was sent. `None`: errors are recorded in `faults`.
    pub(super) fn read(node: &Node<'_>, dialect: Dialect, request: &Request<'_>, faults: &mut Faults) -> Option<Self> {
        let outer = faults.record(node.object())?;
        // Partly migrated 1.0 clients still send the nested 0.3 format.
        let inner = match read::field(&outer, "pushNotificationConfig") {
            Some(inner) => Some(faults.record(inner.object())?),
            None => None,
        };

        let object = inner.as_ref().unwrap_or(&outer);
        let authentication = read::field(object, "authentication").map(|node| {
            let object = faults.record(node.object())?;
            Authentication::read(&object, dialect, faults)
        });
        let token = faults
            .record(read::non_empty(object, "token").and_then(|token| check_header_value(object, "token", token)));
        let id = faults.record(read::non_empty(object, "id"));
        let url = faults.record(read::required(object, "url"));
        // An invalid authentication is already recorded in `faults`.
        let authentication = match authentication {
            Some(read) => read?,
            None => None,
        };

        let (scheme, credentials) = authentication.map_or((None, None), |it| (Some(it.scheme), it.credentials));
        Some(Self {
            task: String::new(),
            id: id?.unwrap_or_default(),
            url: url?,
            token: token?,
            scheme,
            credentials,
            v03: dialect.is_v03(),
            tenant: None,
            disabled: false,
            paths: [object.path_of("id"), object.path_of("url")],
            new_id: request.new_id.to_string(),
            is_unnamed: false,
        })
    }

    /// Validates the id, and the URL as far as possible without DNS.
    pub(super) fn check(&self, route: &Route, faults: &mut Faults) {
        let [id, url] = &self.paths;
        if self.id.len() > 256 || self.id.chars().any(|character| character.is_control() || character == '/') {
            let message = "must have at most 256 bytes, no slashes and no control characters";
            faults.add(Fault::invalid(id, message));
        }

        if let Err(rejection) = route.options.push_policy().destination(&self.url) {
            faults.add(Fault::invalid(url, rejection.to_string()));
        }
    }

    /// Assigns the config to a task, and sets an id if it has none.
    pub(super) fn for_task(mut self, task: RunId) -> Self {
        self.task = task.to_string();
        if self.id.is_empty() {
            self.is_unnamed = true;
            self.id = if self.v03 { "default".to_owned() } else { self.new_id.clone() };
        }
        self
    }

    /// Checks the limit of configs per task. A second config without an id gets a unique one.
    pub(super) fn check_room(mut self, known: &[(String, Json)], route: &Route) -> Result<Box<Self>, Fault> {
        let mut exists = known.iter().any(|(key, _)| *key == self.key());
        if exists && self.is_unnamed {
            self.id.clone_from(&self.new_id);
            exists = false;
        }

        if !exists && known.len() >= route.options.max_push_configs {
            let message = format!("a task has at most {} push configs", route.options.max_push_configs);
            return Err(errors::fault(Problem::UnsupportedOperation, message));
        }
        Ok(Box::new(self))
    }

    fn key(&self) -> String {
        format!("{}/{}", self.task, self.id)
    }
}

/// `authentication` of a config.
struct Authentication {
    scheme: String,
    credentials: Option<String>,
}

impl Authentication {
    /// `None`: errors are recorded in `faults`. `Some(None)`: an empty object, which means no authentication in 0.3.
    fn read(object: &Object<'_>, dialect: Dialect, faults: &mut Faults) -> Option<Option<Self>> {
        let scheme_or_none = read::non_empty(object, "scheme").and_then(|scheme| match scheme {
            Some(scheme) => Ok(Some(scheme)),
            // The first non-empty entry of the 0.3 list.
            None => Ok(read::strings(object, "schemes")?.into_iter().find(|scheme| !scheme.is_empty())),
        });
        let name = if dialect.is_v03() && !object.has("scheme") { "schemes" } else { "scheme" };
        let credentials = read::non_empty(object, "credentials");
        let credentials = faults.record(credentials.and_then(|text| check_header_value(object, "credentials", text)));
        if dialect.is_v03() && matches!((&scheme_or_none, &credentials), (Ok(None), Some(None))) {
            return Some(None);
        }

        let scheme = scheme_or_none.and_then(|scheme| {
            // 1.0 requires a scheme, since the header to send needs it.
            let scheme = scheme.ok_or_else(|| read::missing(object, name))?;
            let safe = scheme.bytes().all(|byte| byte.is_ascii_graphic());
            if safe { Ok(scheme) } else { Err(invalid_header_value(object, name)) }
        });

        let scheme = faults.record(scheme);
        Some(Some(Self { scheme: scheme?, credentials: credentials? }))
    }
}

/// Checks that a text may be used as a header value.
fn check_header_value(object: &Object<'_>, name: &str, text: Option<String>) -> Result<Option<String>, Fault> {
    let safe = text.as_ref().is_none_or(|text| text.bytes().all(|byte| (b' '..=b'~').contains(&byte)));
    if safe { Ok(text) } else { Err(invalid_header_value(object, name)) }
}

fn invalid_header_value(object: &Object<'_>, name: &str) -> Fault {
    Fault::invalid(object.path_of(name), "contains characters that are not allowed in a header")
}

/// A config in the wire format of a dialect (docs/protocols/a2a.md#data-model).
struct EncodedConfig<'a>(&'a Config, WireFormat);

impl Serialize for EncodedConfig<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Authentication<'a> {
            #[serde(skip_serializing_if = "Option::is_none")]
            scheme: Option<&'a str>,
            #[serde(skip_serializing_if = "Option::is_none")]
            schemes: Option<[&'a str; 1]>,
            #[serde(skip_serializing_if = "Option::is_none")]
            credentials: Option<&'a str>,
        }
        #[derive(Serialize)]
        struct Inner<'a> {
            id: &'a str,
            url: &'a str,
            #[serde(skip_serializing_if = "Option::is_none")]
            token: Option<&'a str>,
            #[serde(skip_serializing_if = "Option::is_none")]
            authentication: Option<Authentication<'a>>,
        }
        let Self(config, format) = *self;
        let is_v03 = format != WireFormat::V1;
        let scheme = config.scheme.as_deref();
        let authentication = (scheme.is_some() || config.credentials.is_some()).then(|| Authentication {
            scheme: scheme.filter(|_| !is_v03),
            schemes: scheme.filter(|_| is_v03).map(|scheme| [scheme]),
            credentials: config.credentials.as_deref(),
        });

        let inner = Inner { id: &config.id, url: &config.url, token: config.token.as_deref(), authentication };
        let mut map = serializer.serialize_map(None)?;

        match format {
            WireFormat::V1 => {
                map.serialize_entry("taskId", &config.task)?;
                map.serialize_entry("id", inner.id)?;
                map.serialize_entry("url", inner.url)?;
                if let Some(token) = inner.token {
                    map.serialize_entry("token", token)?;
                }
                if let Some(authentication) = &inner.authentication {
                    map.serialize_entry("authentication", authentication)?;
                }
                if let Some(tenant) = &config.tenant {
                    map.serialize_entry("tenant", tenant)?;
                }
            }
            WireFormat::V03 => {
                map.serialize_entry("taskId", &config.task)?;
                map.serialize_entry("pushNotificationConfig", &inner)?;
            }
            WireFormat::V03Rest => {
                let name = format!("tasks/{}/pushNotificationConfigs/{}", config.task, config.id);
                map.serialize_entry("name", &name)?;
                map.serialize_entry("pushNotificationConfig", &inner)?;
            }
        }
        map.end()
    }
}

/// The call that stores a config.
pub(super) fn put_call(config: &Config) -> Call {
    Call::Document(DocumentCall::Put {
        collection: COLLECTION.to_owned(),
        key: config.key(),
        value: Json::from_serialize(config),
        replaces: Replaces::Anything,
    })
}

/// The call that lists all configs of a task.
pub(super) fn list_call(task: RunId) -> Call {
    Call::Document(DocumentCall::List { collection: COLLECTION.to_owned(), prefix: format!("{task}/") })
}

impl A2aExchange {
    pub(super) fn start_push(
        &mut self,
        operation: Operation,
        params: &Params<'_>,
        request: &Request<'_>,
    ) -> Result<Call, Fault> {
        let dialect = self.writer.dialect;
        // In JSON-RPC 0.3 `id` is the task, except when a config is set. Over REST both are in the path.
        let task_field =
            if dialect.wire_format() == WireFormat::V03 && operation != Operation::SetPush { "id" } else { "taskId" };
        let config_field = if dialect.is_v03() { "pushNotificationConfigId" } else { "id" };

        let (config, named_task) = match operation {
            Operation::SetPush => {
                let (config, task) = self.read_set(params, request)?;
                (Some(config), task)
            }
            _ => (None, None),
        };

        let task = match params.path("id").map(str::to_owned).or(named_task) {
            Some(task) => task,
            None => params.required("id", task_field)?,
        };
        let task = self.set_task(task);

        let action = match operation {
            Operation::SetPush => {
                let mut config = config.ok_or_else(Fault::unexpected_reply)?;
                let mut faults = Faults::default();
                config.check(&self.route, &mut faults);
                faults.check()?;
                config.tenant.clone_from(&self.tenant);
                Action::Set(Box::new(config))
            }
            Operation::GetPush if dialect.wire_format() == WireFormat::V03 => Action::Get(params.text(config_field)?),
            Operation::GetPush => Action::Get(Some(params.required("config", config_field)?)),
            Operation::DeletePush => Action::Delete(params.required("config", config_field)?),
            _ => {
                let size = params.integer("pageSize")?.filter(|size| *size != 0);
                let size = size.map(usize::try_from).transpose();
                let size = size.map_err(|_| Fault::invalid("pageSize", "must not be negative"))?;
                let offset = params.text("pageToken")?.map_or(Ok(0), |token| parse_offset(&token))?;
                Action::List { size, offset }
            }
        };

        let task = task_id(&task)?;
        self.state = OperationState::Push(PushOperation { task, action, stage: Stage::LoadingTask });
        Ok(Call::Fetch(Target::Run(task)))
    }

    /// Parses the config of a create call in any of its formats (docs/protocols/a2a.md#reading-requests), and the task
    /// it names.
    fn read_set(&self, params: &Params<'_>, request: &Request<'_>) -> Result<(Config, Option<String>), Fault> {
        let outer = &params.object;
        let dialect = self.writer.dialect;
        let wrapped = outer.get("config").filter(|node| node.kind() == Kind::Object);
        let (node, object) = match &wrapped {
            Some(node) => (node.clone(), Some(node.object()?)),
            None => (params.node.clone(), None),
        };
        let object = object.as_ref().unwrap_or(outer);
        let mut faults = Faults::default();

        let config = Config::read(&node, dialect, request, &mut faults);
        faults.check()?;
        let mut config = config.ok_or_else(Fault::unexpected_reply)?;

        let name = read::non_empty(object, "name")?;
        let in_name = name.as_deref().and_then(|name| {
            let mut segments = name.split('/').skip_while(|segment| *segment != "tasks").skip(1);
            let task = segments.next()?;
            Some((task.to_owned(), segments.nth(1).unwrap_or("").to_owned()))
        });
        if config.id.is_empty() {
            let named = read::non_empty(outer, "configId")?;
            config.paths[0] = if named.is_some() { outer.path_of("configId") } else { object.path_of("name") };
            config.id = named.or_else(|| in_name.as_ref().map(|(_, id)| id.clone())).unwrap_or_default();
        }

        let parent = read::non_empty(outer, "parent")?;
        let parent = parent.and_then(|parent| parent.strip_prefix("tasks/").map(str::to_owned));
        let task = read::non_empty(outer, "taskId")?.or(parent).or(in_name.map(|(task, _)| task));

        Ok((config, task))
    }

    pub(super) fn continue_push(
        &mut self,
        mut operation: PushOperation,
        reply: Reply<'_>,
        out: &mut Out,
    ) -> Result<Next, Fault> {
        let format = self.writer.dialect.wire_format();
        let stage = std::mem::replace(&mut operation.stage, Stage::Writing);

        let next = match (stage, reply, &mut operation.action) {
            (Stage::LoadingTask, Reply::Run(view), action) => {
                self.check_visible(view)?;
                let task = operation.task;
                match action {
                    Action::Delete(id) => Call::Document(DocumentCall::Delete {
                        collection: COLLECTION.to_owned(),
                        key: format!("{task}/{id}"),
                    }),
                    Action::Set(_) | Action::Get(_) | Action::List { .. } => {
                        operation.stage = Stage::ListingConfigs;
                        list_call(task)
                    }
                }
            }
            (Stage::ListingConfigs, Reply::Documents(known), Action::Set(config)) => {
                let complete = config.as_ref().clone().for_task(operation.task).check_room(known, &self.route)?;
                let call = put_call(&complete);
                *config = complete;
                call
            }
            (Stage::ListingConfigs, Reply::Documents(known), Action::Get(id)) => {
                let mut configs = known.iter().filter_map(|(_, json)| json.decode::<Config>());
                let found = configs.find(|config| id.as_ref().is_none_or(|id| *id == config.id));
                let found = found.ok_or_else(|| errors::fault(Problem::TaskNotFound, "no such push config"))?;
                self.writer.result(&EncodedConfig(&found, format), out);
                return Ok(Next::Done);
            }
            (Stage::ListingConfigs, Reply::Documents(known), Action::List { size, offset }) => {
                let configs: Vec<Config> = known.iter().filter_map(|(_, json)| json.decode()).collect();
                self.write_configs(&configs, *size, *offset, out);
                return Ok(Next::Done);
            }
            (Stage::Writing, _, Action::Set(config)) => {
                self.writer.result(&EncodedConfig(config, format), out);
                return Ok(Next::Done);
            }
            (Stage::Writing, _, Action::Delete(_)) => {
                let answer = if format == WireFormat::V03 {
                    Json::null()
                } else {
                    Json::from_serialize(&interlingua_core::Extra::new())
                };
                self.writer.result(&answer, out);
                return Ok(Next::Done);
            }
            _ => return Err(Fault::unexpected_reply()),
        };

        self.state = OperationState::Push(operation);
        Ok(Next::Call(next))
    }

    fn write_configs(&self, configs: &[Config], size: Option<usize>, offset: usize, out: &mut Out) {
        let format = self.writer.dialect.wire_format();
        let rest = configs.get(offset..).unwrap_or(&[]);
        let page = size.map_or(rest, |size| &rest[..size.min(rest.len())]);
        let encoded: Vec<EncodedConfig<'_>> = page.iter().map(|config| EncodedConfig(config, format)).collect();

        if self.writer.dialect.generation == Generation::V03 && self.writer.dialect.is_rpc() {
            self.writer.result(&encoded, out);
            return;
        }
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Answer<'a> {
            configs: Vec<EncodedConfig<'a>>,
            next_page_token: String,
        }

        let end = offset + page.len();
        let more = end < configs.len();
        let next_page_token = if more { base64::encode_url(end.to_string().as_bytes()) } else { String::new() };
        self.writer.result(&Answer { configs: encoded, next_page_token }, out);
    }
}

fn parse_offset(token: &str) -> Result<usize, Fault> {
    let read = || String::from_utf8(base64::decode(token)?).ok()?.parse().ok();
    read().ok_or_else(|| Fault::invalid("pageToken", "is not a valid page token"))
}
