//! Sizes in the file, with their schema. Not here: the parser, which is `interlingua_core::size`.

use std::borrow::Cow;
use std::fmt;

use interlingua_core::size;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize, Serializer};

/// A size in the file, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(transparent)]
pub(super) struct Size(size::Size);

impl Size {
    pub(super) const fn kibibytes(number: u64) -> Self {
        Self(size::Size(number << 10))
    }

    pub(super) const fn mebibytes(number: u64) -> Self {
        Self(size::Size::mebibytes(number))
    }

    pub(super) fn bytes(self) -> usize {
        self.0.bytes()
    }
}

impl fmt::Display for Size {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

impl Serialize for Size {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl JsonSchema for Size {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Size".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "anyOf": [
                { "type": "string", "pattern": r"^\s*\d+\s*(B|KiB|MiB|GiB)?\s*$" },
                { "type": "integer", "minimum": 0 },
            ],
            "examples": ["64KiB", "8MiB", "1GiB", 65536],
        })
    }
}
