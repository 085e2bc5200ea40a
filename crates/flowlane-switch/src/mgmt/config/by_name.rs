//! Enums of other crates in a configuration, by the names that their crates give them.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, de};
use strum::VariantArray;

/// A variant of an enum that has names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ByName<T>(pub T);

/// Finds the variant of a name.
pub(super) fn find<T: Copy, E: de::Error>(name: &str, names: &[(&str, T)]) -> Result<T, E> {
    let found = names.iter().find(|(known, _)| *known == name);
    found.map(|(_, variant)| *variant).ok_or_else(|| {
        // As serde says it for enums that it derives.
        let known: Vec<String> = names.iter().map(|(name, _)| format!("`{name}`")).collect();
        E::custom(format!("unknown variant `{name}`, expected one of {}", known.join(", ")))
    })
}

/// The schema of a string that is one of these names.
pub(super) fn schema(names: &[&str]) -> Schema {
    json_schema!({ "type": "string", "enum": names })
}

impl<'de, T: VariantArray + Copy + Into<&'static str>> Deserialize<'de> for ByName<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let names: Vec<(&str, T)> = T::VARIANTS.iter().map(|&variant| (variant.into(), variant)).collect();
        find(&String::deserialize(deserializer)?, &names).map(Self)
    }
}

impl<T: VariantArray + Copy + Into<&'static str>> JsonSchema for ByName<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        std::any::type_name::<T>().into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let names: Vec<&str> = T::VARIANTS.iter().map(|&variant| variant.into()).collect();
        schema(&names)
    }
}
