//! The schema of a database, as far as a client needs it.

use std::collections::BTreeMap;

use serde_json::Value;

/// How a column's differences are to be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ColumnKind {
    /// At most one value: a difference is the new value.
    Scalar,
    /// A set of several.
    Set,
    /// A map.
    Map,
}

/// The tables of a database with their columns.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Schema {
    tables: BTreeMap<String, BTreeMap<String, ColumnKind>>,
}

impl Schema {
    /// Reads the answer to `get_schema`; `None` where it is none.
    pub(crate) fn read(schema: &Value) -> Option<Self> {
        let mut tables = BTreeMap::new();
        for (name, table) in schema.get("tables")?.as_object()? {
            let columns = table.get("columns")?.as_object()?;
            let kind = |column: &Value| kind_of(column.get("type").unwrap_or(&Value::Null));
            tables.insert(
                name.clone(),
                columns.iter().map(|(name, column)| (name.clone(), kind(column))).collect(),
            );
        }
        Some(Self { tables })
    }

    /// Returns whether there is a table.
    pub fn has_table(&self, table: &str) -> bool {
        self.tables.contains_key(table)
    }

    /// The kind of a column, if it is there.
    pub fn column(&self, table: &str, column: &str) -> Option<ColumnKind> {
        self.tables.get(table)?.get(column).copied()
    }
}

fn kind_of(of: &Value) -> ColumnKind {
    let max = of.get("max");
    match max.and_then(Value::as_u64).unwrap_or(1) {
        _ if of.get("value").is_some() => ColumnKind::Map,
        1 if max.is_none_or(Value::is_u64) => ColumnKind::Scalar,
        _ => ColumnKind::Set,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn columns_are_of_the_kind_that_their_type_says() {
        let uuids = json!({ "key": { "type": "uuid" }, "min": 0, "max": "unlimited" });
        let schema = json!({ "tables": { "Bridge": { "columns": {
            "name": { "type": "string" },
            "tag": { "type": { "key": "integer", "min": 0, "max": 1 } },
            "pair": { "type": { "key": "integer", "max": 2 } },
            "ports": { "type": uuids },
            "other_config": { "type": { "key": "string", "value": "string", "min": 0, "max": "unlimited" } },
        } } } });
        let schema = Schema::read(&schema).unwrap();
        let kinds = ["name", "tag", "pair", "ports", "other_config", "absent"]
            .map(|name| schema.column("Bridge", name));
        use ColumnKind::{Map, Scalar, Set};
        assert_eq!(kinds, [Some(Scalar), Some(Scalar), Some(Set), Some(Set), Some(Map), None]);
        assert!(schema.has_table("Bridge") && !schema.has_table("Port"));
        assert_eq!(Schema::read(&json!({})), None);
    }
}
