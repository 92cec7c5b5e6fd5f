//! Push notification configs: set, get, list, delete, in three spellings (sections 5, 6, 7 and 11). They are documents
//! of the engine's; what is delivered is in `crate::push`.

use interlingua_core::call::{Call, DocumentCall, Reply, Target};
use interlingua_core::exchange::Next;
use interlingua_core::tree::{Kind, Node, Object};
use interlingua_core::{Fault, Json, Out, Request, RunId};
use serde::ser::{SerializeMap, Serializer};
use serde::{Deserialize, Serialize};

use super::params::{Params, task_id};
use super::{Doing, Serve};
use crate::Route;
use crate::dialect::{Dialect, Form, Generation, Operation};
use crate::errors::{self, Problem};
use crate::wire::base64;
use crate::wire::read::{self, Faults};

/// The collection the configs are kept in.
pub(crate) const COLLECTION: &str = "a2a/push";

/// What is done with a config, and how far it is.
pub(super) struct Pushing {
    task: RunId,
    wants: Wants,
    step: Step,
}

enum Wants {
    Set(Box<Config>),
    Get(Option<String>),
    List { size: Option<usize>, offset: usize },
    Delete(String),
}

enum Step {
    /// Is the task there?
    Looking,
    /// Which configs are there?
    Listing,
    /// It is being written or removed.
    Changing,
}

/// A config, as it is kept.
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
    /// Whose bodies the receiver gets: those of 0.3?
    #[serde(default)]
    pub(crate) old: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tenant: Option<String>,
    /// Its receiver failed too often, and is told nothing more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) given_up: bool,
    /// Where in the request its id and its URL stand, for complaints.
    #[serde(skip)]
    places: [String; 2],
    /// An id nobody has used, for the case that one is needed.
    #[serde(skip)]
    fresh: String,
    /// Its client gave it no id.
    #[serde(skip)]
    unnamed: bool,
}

impl Config {
    /// Reads a config of either generation. Its id is empty if none was told. None: what is wrong is among the faults.
    pub(super) fn read(node: &Node<'_>, dialect: Dialect, request: &Request<'_>, faults: &mut Faults) -> Option<Self> {
        let outer = faults.take(node.object())?;
        // Half-migrated clients send the nested form.
        let inner = match read::field(&outer, "pushNotificationConfig") {
            Some(inner) => Some(faults.take(inner.object())?),
            None => None,
        };
        let object = inner.as_ref().unwrap_or(&outer);
        let authentication = read::field(object, "authentication").map(|node| {
            let object = faults.take(node.object())?;
            Authentication::read(&object, dialect, faults)
        });
        let token = faults.take(read::filled(object, "token").and_then(|token| header_safe(object, "token", token)));
        let id = faults.take(read::filled(object, "id"));
        let url = faults.take(read::required(object, "url"));
        // One that is there and faulty is among the faults already.
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
            old: dialect.is_old(),
            tenant: None,
            given_up: false,
            places: [object.path_of("id"), object.path_of("url")],
            fresh: request.fresh.to_string(),
            unnamed: false,
        })
    }

    /// Judges its id, and what can be judged of its URL without resolving a name.
    pub(super) fn check(&self, route: &Route, faults: &mut Faults) {
        let [id, url] = &self.places;
        if self.id.len() > 256 || self.id.chars().any(|letter| letter.is_control() || letter == '/') {
            let message = "must have at most 256 characters, no slashes and no control characters";
            faults.add(Fault::invalid(id, message));
        }
        if let Err(refused) = route.options.push_policy().destination(&self.url) {
            faults.add(Fault::invalid(url, refused.to_string()));
        }
    }

    /// The config of this task, with an id.
    pub(super) fn on(mut self, task: RunId) -> Self {
        self.task = task.to_string();
        if self.id.is_empty() {
            self.unnamed = true;
            self.id = if self.old { "default".to_owned() } else { self.fresh.clone() };
        }
        self
    }

    /// The config beside those that are known already: a second one without id gets one of its own.
    pub(super) fn among(mut self, known: &[(String, Json)], route: &Route) -> Result<Box<Self>, Fault> {
        let mut taken = known.iter().any(|(key, _)| *key == self.key());
        if taken && self.unnamed {
            self.id.clone_from(&self.fresh);
            taken = false;
        }
        if !taken && known.len() >= route.options.max_push_configs {
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
    /// None inside: the object says nothing, which in 0.3 is no authentication.
    fn read(object: &Object<'_>, dialect: Dialect, faults: &mut Faults) -> Option<Option<Self>> {
        let told = read::filled(object, "scheme").and_then(|scheme| match scheme {
            Some(scheme) => Ok(Some(scheme)),
            // The first of 0.3's list that says something.
            None => Ok(read::strings(object, "schemes")?.into_iter().find(|scheme| !scheme.is_empty())),
        });
        let name = if dialect.is_old() && !object.has("scheme") { "schemes" } else { "scheme" };
        let credentials = read::filled(object, "credentials");
        let credentials = faults.take(credentials.and_then(|text| header_safe(object, "credentials", text)));
        if dialect.is_old() && matches!((&told, &credentials), (Ok(None), Some(None))) {
            return Some(None);
        }
        let scheme = told.and_then(|scheme| {
            // 1.0 has no config without one: there would be nothing to show, and nothing to send.
            let scheme = scheme.ok_or_else(|| read::missing(object, name))?;
            let safe = scheme.bytes().all(|byte| byte.is_ascii_graphic());
            if safe { Ok(scheme) } else { Err(unsafe_in_headers(object, name)) }
        });
        let scheme = faults.take(scheme);
        Some(Some(Self { scheme: scheme?, credentials: credentials? }))
    }
}

/// A text that will be the value of a header, judged.
fn header_safe(object: &Object<'_>, name: &str, text: Option<String>) -> Result<Option<String>, Fault> {
    let safe = text.as_ref().is_none_or(|text| text.bytes().all(|byte| (b' '..=b'~').contains(&byte)));
    if safe { Ok(text) } else { Err(unsafe_in_headers(object, name)) }
}

fn unsafe_in_headers(object: &Object<'_>, name: &str) -> Fault {
    Fault::invalid(object.path_of(name), "holds characters that a header may not hold")
}

/// A config in the spelling of a dialect (section 5).
struct Spelled<'a>(&'a Config, Form);

impl Serialize for Spelled<'_> {
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
        let Self(config, form) = *self;
        let old = form != Form::V1;
        let scheme = config.scheme.as_deref();
        let authentication = (scheme.is_some() || config.credentials.is_some()).then(|| Authentication {
            scheme: scheme.filter(|_| !old),
            schemes: scheme.filter(|_| old).map(|scheme| [scheme]),
            credentials: config.credentials.as_deref(),
        });
        let inner = Inner { id: &config.id, url: &config.url, token: config.token.as_deref(), authentication };
        let mut map = serializer.serialize_map(None)?;
        match form {
            Form::V1 => {
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
            Form::V03 => {
                map.serialize_entry("taskId", &config.task)?;
                map.serialize_entry("pushNotificationConfig", &inner)?;
            }
            Form::V03Rest => {
                let name = format!("tasks/{}/pushNotificationConfigs/{}", config.task, config.id);
                map.serialize_entry("name", &name)?;
                map.serialize_entry("pushNotificationConfig", &inner)?;
            }
        }
        map.end()
    }
}

/// Writes a config down.
pub(super) fn put(config: &Config) -> Call {
    Call::Document(DocumentCall::Put {
        collection: COLLECTION.to_owned(),
        key: config.key(),
        value: Json::from_serialize(config),
    })
}

/// All configs of a task.
pub(super) fn list(task: RunId) -> Call {
    Call::Document(DocumentCall::List { collection: COLLECTION.to_owned(), prefix: format!("{task}/") })
}

impl Serve {
    pub(super) fn push(
        &mut self,
        operation: Operation,
        params: &Params<'_>,
        request: &Request<'_>,
    ) -> Result<Call, Fault> {
        let dialect = self.write.dialect;
        // Over JSON-RPC 0.3 `id` is the task, except where a config is set; over REST both stand in the path.
        let task_field = if dialect.form() == Form::V03 && operation != Operation::SetPush { "id" } else { "taskId" };
        let config_field = if dialect.is_old() { "pushNotificationConfigId" } else { "id" };
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
        let task = self.subject(task);
        let wants = match operation {
            Operation::SetPush => {
                let mut config = config.ok_or_else(super::write::unexpected)?;
                let mut faults = Faults::default();
                config.check(&self.route, &mut faults);
                faults.check()?;
                config.tenant.clone_from(&self.tenant);
                Wants::Set(Box::new(config))
            }
            Operation::GetPush if dialect.form() == Form::V03 => Wants::Get(params.text(config_field)?),
            Operation::GetPush => Wants::Get(Some(params.required("config", config_field)?)),
            Operation::DeletePush => Wants::Delete(params.required("config", config_field)?),
            _ => {
                let size = params.integer("pageSize")?.filter(|size| *size != 0);
                let size = size.map(usize::try_from).transpose();
                let size = size.map_err(|_| Fault::invalid("pageSize", "must not be negative"))?;
                let offset = params.text("pageToken")?.map_or(Ok(0), |token| read_offset(&token))?;
                Wants::List { size, offset }
            }
        };
        let task = task_id(&task)?;
        self.doing = Doing::Push(Pushing { task, wants, step: Step::Looking });
        Ok(Call::Fetch(Target::Run(task)))
    }

    /// The config of a create call, in whatever shape it comes (section 7), and the task it names.
    fn read_set(&self, params: &Params<'_>, request: &Request<'_>) -> Result<(Config, Option<String>), Fault> {
        let outer = &params.object;
        let dialect = self.write.dialect;
        let wrapped = outer.get("config").filter(|node| node.kind() == Kind::Object);
        let (node, object) = match &wrapped {
            Some(node) => (node.clone(), Some(node.object()?)),
            None => (params.node.clone(), None),
        };
        let object = object.as_ref().unwrap_or(outer);
        let mut faults = Faults::default();
        let config = Config::read(&node, dialect, request, &mut faults);
        faults.check()?;
        let mut config = config.ok_or_else(super::write::unexpected)?;
        let name = read::filled(object, "name")?;
        let in_name = name.as_deref().and_then(|name| {
            let mut segments = name.split('/').skip_while(|segment| *segment != "tasks").skip(1);
            let task = segments.next()?;
            Some((task.to_owned(), segments.nth(1).unwrap_or("").to_owned()))
        });
        if config.id.is_empty() {
            let told = read::filled(outer, "configId")?;
            config.places[0] = if told.is_some() { outer.path_of("configId") } else { object.path_of("name") };
            config.id = told.or_else(|| in_name.as_ref().map(|(_, id)| id.clone())).unwrap_or_default();
        }
        let parent = read::filled(outer, "parent")?;
        let parent = parent.and_then(|parent| parent.strip_prefix("tasks/").map(str::to_owned));
        let task = read::filled(outer, "taskId")?.or(parent).or(in_name.map(|(task, _)| task));
        Ok((config, task))
    }

    pub(super) fn pushed(&mut self, mut pushing: Pushing, reply: Reply<'_>, out: &mut Out) -> Result<Next, Fault> {
        let form = self.write.dialect.form();
        let step = std::mem::replace(&mut pushing.step, Step::Changing);
        let next = match (step, reply, &mut pushing.wants) {
            (Step::Looking, Reply::Run(view), wants) => {
                self.visible(view)?;
                let task = pushing.task;
                match wants {
                    Wants::Delete(id) => Call::Document(DocumentCall::Delete {
                        collection: COLLECTION.to_owned(),
                        key: format!("{task}/{id}"),
                    }),
                    Wants::Set(_) | Wants::Get(_) | Wants::List { .. } => {
                        pushing.step = Step::Listing;
                        list(task)
                    }
                }
            }
            (Step::Listing, Reply::Documents(known), Wants::Set(config)) => {
                let complete = config.as_ref().clone().on(pushing.task).among(known, &self.route)?;
                let call = put(&complete);
                *config = complete;
                call
            }
            (Step::Listing, Reply::Documents(known), Wants::Get(id)) => {
                let mut configs = known.iter().filter_map(|(_, json)| json.decode::<Config>());
                let found = configs.find(|config| id.as_ref().is_none_or(|id| *id == config.id));
                let found = found.ok_or_else(|| errors::fault(Problem::TaskNotFound, "no such push config"))?;
                self.write.result(&Spelled(&found, form), out);
                return Ok(Next::Done);
            }
            (Step::Listing, Reply::Documents(known), Wants::List { size, offset }) => {
                let configs: Vec<Config> = known.iter().filter_map(|(_, json)| json.decode()).collect();
                self.write_configs(&configs, *size, *offset, out);
                return Ok(Next::Done);
            }
            (Step::Changing, _, Wants::Set(config)) => {
                self.write.result(&Spelled(config, form), out);
                return Ok(Next::Done);
            }
            (Step::Changing, _, Wants::Delete(_)) => {
                let answer = if form == Form::V03 {
                    Json::null()
                } else {
                    Json::from_serialize(&interlingua_core::Extra::new())
                };
                self.write.result(&answer, out);
                return Ok(Next::Done);
            }
            _ => return Err(super::write::unexpected()),
        };
        self.doing = Doing::Push(pushing);
        Ok(Next::Call(next))
    }

    fn write_configs(&self, configs: &[Config], size: Option<usize>, offset: usize, out: &mut Out) {
        let form = self.write.dialect.form();
        let rest = configs.get(offset..).unwrap_or(&[]);
        let page = size.map_or(rest, |size| &rest[..size.min(rest.len())]);
        let spelled: Vec<Spelled<'_>> = page.iter().map(|config| Spelled(config, form)).collect();
        if self.write.dialect.generation == Generation::V03 && self.write.dialect.is_rpc() {
            self.write.result(&spelled, out);
            return;
        }
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Answer<'a> {
            configs: Vec<Spelled<'a>>,
            next_page_token: String,
        }
        let end = offset + page.len();
        let more = end < configs.len();
        let next_page_token = if more { base64::url(end.to_string().as_bytes()) } else { String::new() };
        self.write.result(&Answer { configs: spelled, next_page_token }, out);
    }
}

fn read_offset(token: &str) -> Result<usize, Fault> {
    let read = || String::from_utf8(base64::bytes(token)?).ok()?.parse().ok();
    read().ok_or_else(|| Fault::invalid("pageToken", "is no token of a page"))
}
