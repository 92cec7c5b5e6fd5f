//! Tool names and call ids in the alphabet of model servers, mapped in both directions.
//!
//! Model servers refuse a request if a name or an id has other characters than letters, digits, `_` and `-`, or is too
//! long. The mapping depends on the request alone, so no state is kept between turns.
//!
//! Not here: ids that an agent's answer lacks ([`crate::turn_ids`]).

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

/// Limit of OpenAI, Azure, Gemini and most model servers, in bytes.
pub const MAX_NAME: usize = 64;
/// Limit of Responses and Anthropic Messages for the id of a call, in bytes.
pub const MAX_CALL_ID: usize = 64;

/// Maps the tool names of one request to names that the server accepts.
///
/// ```
/// use interlingua_adapter_kit::wire_names::{MAX_NAME, ToolNames};
///
/// let mut names = ToolNames::new(MAX_NAME);
/// assert_eq!(names.to_wire("get.weather"), "get_weather");
/// assert_eq!(names.to_wire("get weather"), "get_weather_2");
/// assert_eq!(names.to_wire("get.weather"), "get_weather");
///
/// let names = names.into_originals();
/// assert_eq!(names.original("get_weather_2"), "get weather");
/// assert_eq!(names.original("unknown"), "unknown");
/// ```
#[derive(Debug)]
pub struct ToolNames {
    max: usize,
    wire: HashMap<String, String>,
    taken: HashSet<String>,
}

impl ToolNames {
    /// A mapping to names of at most `max` bytes.
    #[must_use]
    pub fn new(max: usize) -> Self {
        Self { max, wire: HashMap::new(), taken: HashSet::new() }
    }

    /// Keeps a name unchanged, such as one that the operator configured.
    pub fn reserve(&mut self, name: &str) {
        self.taken.insert(name.to_owned());
        self.wire.insert(name.to_owned(), name.to_owned());
    }

    /// Reserves all names that need no change, so that no changed name collides with one of them.
    pub fn reserve_accepted<'n>(&mut self, names: impl IntoIterator<Item = &'n str>) {
        for name in names {
            if is_accepted(name, self.max) {
                self.reserve(name);
            }
        }
    }

    /// The name for the request.
    pub fn to_wire(&mut self, name: &str) -> String {
        if let Some(wire) = self.wire.get(name) {
            return wire.clone();
        }

        let wire = unique(name, self.max, &mut self.taken);
        self.wire.insert(name.to_owned(), wire.clone());
        wire
    }

    /// The reverse mapping, for reading the answer.
    #[must_use]
    pub fn into_originals(self) -> OriginalNames {
        let changed = self.wire.into_iter().filter(|(name, wire)| name != wire);
        OriginalNames(changed.map(|(name, wire)| (wire, name)).collect())
    }
}

/// Maps the names in an answer back to those of the client. Empty, and without allocation, if no name was changed.
#[derive(Clone, Debug, Default)]
pub struct OriginalNames(HashMap<String, String>);

impl OriginalNames {
    /// The client's name of a tool; a name that the request did not change is returned as it is.
    #[must_use]
    pub fn original<'n>(&'n self, wire: &'n str) -> &'n str {
        self.0.get(wire).map_or(wire, String::as_str)
    }

    /// The same for a name in an event.
    #[must_use]
    pub fn restore<'n>(&self, wire: Cow<'n, str>) -> Cow<'n, str> {
        match self.0.get(&*wire) {
            Some(original) => Cow::Owned(original.clone()),
            None => wire,
        }
    }
}

/// Maps the call ids of one conversation. Each call gets an id of its own, also if the conversation repeats one.
#[derive(Debug)]
pub struct WireIds {
    max: usize,
    taken: HashSet<String>,
}

impl WireIds {
    /// A mapping to ids of at most `max` bytes.
    #[must_use]
    pub fn new(max: usize) -> Self {
        Self { max, taken: HashSet::new() }
    }

    /// The id of the next call, for the call and for its output.
    pub fn to_wire(&mut self, id: &str) -> String {
        unique(id, self.max, &mut self.taken)
    }

    /// Uses an id unchanged: the server issued it and may derive data from it, such as a signature.
    pub fn keep(&mut self, id: &str) -> String {
        self.taken.insert(id.to_owned());
        id.to_owned()
    }
}

/// True for a name or an id that servers accept without a change.
#[must_use]
pub fn is_accepted(name: &str, max: usize) -> bool {
    (1..=max).contains(&name.len()) && name.chars().all(is_allowed)
}

const fn is_allowed(character: char) -> bool {
    character.is_ascii_alphanumeric() || matches!(character, '_' | '-')
}

/// A name in the allowed characters that no other name has.
fn unique(name: &str, max: usize, taken: &mut HashSet<String>) -> String {
    let replaced = name.chars().map(|character| if is_allowed(character) { character } else { '_' });
    let mut plain: String = replaced.take(max).collect();
    if plain.is_empty() {
        plain.push('_');
    }

    let mut made = plain.clone();
    let mut number = 1_u32;
    while !taken.insert(made.clone()) {
        number += 1;
        let suffix = format!("_{number}");
        plain.truncate(max - suffix.len());
        made = plain.clone() + &suffix;
    }
    made
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_mapped_to_allowed_characters_and_stay_distinct() {
        let mut names = ToolNames::new(MAX_NAME);
        names.reserve("web_search");
        names.reserve_accepted(["get_weather", "größe"]);
        let long = "x".repeat(200);
        let wire: Vec<String> = ["get.weather", "get weather", "plain", "web search", "", "get.weather", "größe"]
            .map(|name| names.to_wire(name))
            .into();
        assert_eq!(wire, ["get_weather_2", "get_weather_3", "plain", "web_search_2", "_", "get_weather_2", "gr__e"]);
        assert_eq!(names.to_wire(&long).len(), MAX_NAME);
        assert_eq!(names.to_wire(&(long.clone() + "y")).len(), MAX_NAME);

        let originals = names.into_originals();
        assert_eq!(originals.original("get_weather_3"), "get weather");
        assert_eq!(originals.original("get_weather"), "get_weather");
        assert_eq!(originals.original(&"x".repeat(MAX_NAME)), long);
        assert_eq!(originals.restore("gr__e".into()), "größe");
    }

    #[test]
    fn each_call_has_an_id_of_its_own() {
        let mut ids = WireIds::new(MAX_CALL_ID);
        let kept = ids.keep("functions.f:0");
        let wire: Vec<String> = ["a", "a", "fc:ä/1", &"y".repeat(64), &"y".repeat(65)].map(|id| ids.to_wire(id)).into();
        assert_eq!((kept.as_str(), &wire[..3]), ("functions.f:0", &["a", "a_2", "fc___1"].map(String::from)[..]));
        assert_eq!((wire[3].len(), wire[4].len()), (64, 64));
        assert!(wire[4].ends_with("y_2"), "{}", wire[4]);
    }
}
