//! Merging fragments of contents that are no text, by the rule of the runtime's builder (Agent API, section 6).

use serde_json::{Map, Value};

use crate::json::Json;
use crate::model::{Body, Content};

/// A content with a fragment merged into it.
pub(super) fn content(old: Content, fragment: Content) -> Content {
    let body = match (old.body, fragment.body) {
        (Body::Data(old), Body::Data(fragment)) => Body::Data(data(&old, &fragment)),
        (Body::Image(Some(old)), Body::Image(Some(fragment))) => {
            // Servers send a picture's address whole; pieces of one do not begin like an address.
            let whole = fragment.starts_with("data:") || fragment.contains("://");
            Body::Image(Some(if whole { fragment } else { old + &fragment }))
        }
        (old @ Body::Image(Some(_)), Body::Image(None)) => old,
        (_, fragment) => fragment,
    };
    Content { body, extra: if fragment.extra.is_empty() { old.extra } else { fragment.extra } }
}

/// Strings and lists are joined, numbers added, objects merged, all else replaced.
pub(crate) fn data(old: &Json, fragment: &Json) -> Json {
    match (old.read::<Map<String, Value>>(), fragment.read::<Map<String, Value>>()) {
        (Some(mut old), Some(fragment)) => {
            merge(&mut old, fragment);
            Json::of(&old)
        }
        _ => fragment.clone(),
    }
}

fn merge(old: &mut Map<String, Value>, fragment: Map<String, Value>) {
    for (name, new) in fragment {
        match (old.get_mut(&name), new) {
            (Some(Value::String(old)), Value::String(new)) => old.push_str(&new),
            (Some(Value::Array(old)), Value::Array(new)) => old.extend(new),
            (Some(Value::Object(old)), Value::Object(new)) => merge(old, new),
            (Some(slot @ Value::Number(_)), Value::Number(new)) => *slot = add(slot, &new),
            (Some(slot), new) => *slot = new,
            (None, new) => {
                old.insert(name, new);
            }
        }
    }
}

fn add(old: &Value, new: &serde_json::Number) -> Value {
    if let (Some(old), Some(new)) = (old.as_i64(), new.as_i64())
        && let Some(sum) = old.checked_add(new)
    {
        return sum.into();
    }
    match (old.as_f64(), new.as_f64()) {
        (Some(old), Some(new)) => serde_json::Number::from_f64(old + new).map_or(Value::Null, Value::Number),
        _ => Value::Number(new.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fragments_of_data_merge_like_the_builder_does() {
        let old = Json::parse(r#"{"s":"a","l":[1],"n":1,"o":{"x":"p"},"b":true}"#).expect("JSON");
        let fragment = Json::parse(r#"{"s":"b","l":[2],"n":2.5,"o":{"x":"q","y":1},"b":false,"new":null}"#).expect("JSON");
        let merged: Value = data(&old, &fragment).read().expect("an object");
        let wanted = serde_json::json!({"s":"ab","l":[1,2],"n":3.5,"o":{"x":"pq","y":1},"b":false,"new":null});
        assert_eq!(merged, wanted);
    }
}
