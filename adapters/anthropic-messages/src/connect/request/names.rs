//! Names that the protocol allows for tools and calls: letters, digits, `_` and `-`. Others are written with `_` and made
//! unique. The same input gives the same names, so nothing has to be remembered from turn to turn.

use std::collections::{HashMap, HashSet};

/// Names of tools may be so long.
const MAX_NAME: usize = 128;
/// Ids of calls may be so long.
const MAX_ID: usize = 64;

/// The names of tools as they are sent.
#[derive(Debug, Default)]
pub(super) struct ToolNames {
    sent: HashMap<String, String>,
    taken: HashSet<String>,
}

impl ToolNames {
    /// A name that goes out as it is.
    pub(super) fn reserve(&mut self, name: &str) {
        self.taken.insert(name.to_owned());
        self.sent.insert(name.to_owned(), name.to_owned());
    }

    /// How a tool is named in the request.
    pub(super) fn send(&mut self, name: &str) -> String {
        if let Some(sent) = self.sent.get(name) {
            return sent.clone();
        }
        let sent = unique(name, MAX_NAME, &mut self.taken);
        self.sent.insert(name.to_owned(), sent.clone());
        sent
    }

    /// The names of those that are sent under another one, by that one.
    pub(super) fn into_changed(self) -> HashMap<String, String> {
        self.sent.into_iter().filter(|(name, sent)| name != sent).map(|(name, sent)| (sent, name)).collect()
    }
}

/// The ids of calls as they are sent: each call has its own, whatever the conversation calls it.
#[derive(Debug, Default)]
pub(super) struct CallIds {
    taken: HashSet<String>,
}

impl CallIds {
    /// The id of the next call, and of its result.
    pub(super) fn send(&mut self, id: &str) -> String {
        unique(id, MAX_ID, &mut self.taken)
    }
}

/// A name in the characters that are allowed, which no other has.
fn unique(name: &str, max: usize, taken: &mut HashSet<String>) -> String {
    let allowed = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '_' | '-') { c } else { '_' };
    let mut plain: String = name.chars().map(allowed).take(max).collect();
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
    fn names_are_written_with_what_is_allowed_and_stay_apart() {
        let mut names = ToolNames::default();
        names.reserve("web_search");
        let long = "x".repeat(200);
        let sent: Vec<String> = ["get.weather", "get weather", "plain", "web search", "", "get.weather"]
            .map(|name| names.send(name))
            .into();
        assert_eq!(sent, ["get_weather", "get_weather_2", "plain", "web_search_2", "_", "get_weather"]);
        assert_eq!(names.send(&long).len(), MAX_NAME);
        let changed = names.into_changed();
        assert_eq!(changed.get("get_weather_2").map(String::as_str), Some("get weather"));
        assert_eq!(changed.get("plain"), None);
    }

    #[test]
    fn each_call_has_an_id_of_its_own() {
        let mut ids = CallIds::default();
        let sent: Vec<String> = ["a", "a", "fc:ä/1", &"y".repeat(64), &"y".repeat(65)].map(|id| ids.send(id)).into();
        assert_eq!(&sent[..3], ["a", "a_2", "fc___1"]);
        assert_eq!((sent[3].len(), sent[4].len()), (64, 64));
        assert!(sent[4].ends_with("y_2"), "{}", sent[4]);
    }
}
