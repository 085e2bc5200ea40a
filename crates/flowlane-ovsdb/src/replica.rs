//! The copy of a part of a database.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use crate::schema::{ColumnKind, Schema};
use crate::value::{Datum, MalformedValue, Uuid};

/// The columns of a row that are followed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Row {
    columns: BTreeMap<String, Datum>,
}

/// The value of a column that the server has not sent.
static EMPTY: Datum = Datum::Set(BTreeSet::new());

impl Row {
    /// The value of a column: the empty set where the schema lacks it, or the column has its default value.
    pub fn get(&self, column: &str) -> &Datum {
        self.columns.get(column).unwrap_or(&EMPTY)
    }
}

/// The form of a message's updates.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Form {
    /// Whole rows, before and after (RFC 7047, 4.1.6).
    Rows,
    /// Rows that are new, gone or different (ovsdb-server(7), 4.1.14).
    Differences,
}

/// Why updates cannot be applied.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UpdateError {
    /// They have another form than RFC 7047 says.
    #[error("updates are malformed")]
    Malformed,
    /// A row that is changed is not known.
    #[error("row {1} of {0}, which is changed, is not known")]
    UnknownRow(String, Uuid),
    /// A value is malformed.
    #[error(transparent)]
    Value(#[from] MalformedValue),
}

/// The copy: tables with their rows, as far as they are followed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Replica {
    tables: BTreeMap<String, BTreeMap<Uuid, Row>>,
    /// The transaction that the copy is of, where the server numbers them.
    pub(crate) last: Option<String>,
}

impl Replica {
    /// The rows of a table, in the order of their identifiers.
    pub fn rows(&self, table: &str) -> impl Iterator<Item = (Uuid, &Row)> {
        self.tables.get(table).into_iter().flatten().map(|(uuid, row)| (*uuid, row))
    }

    /// A row.
    pub fn row(&self, table: &str, uuid: Uuid) -> Option<&Row> {
        self.tables.get(table)?.get(&uuid)
    }

    /// Forgets all rows.
    pub(crate) fn clear(&mut self) {
        (self.tables, self.last) = (BTreeMap::new(), None);
    }

    /// Applies updates: of each table, rows by their identifiers.
    pub(crate) fn apply(&mut self, updates: &Value, form: Form, schema: &Schema) -> Result<(), UpdateError> {
        for (name, rows) in updates.as_object().ok_or(UpdateError::Malformed)? {
            for (uuid, update) in rows.as_object().ok_or(UpdateError::Malformed)? {
                let uuid = Uuid::read(uuid).ok_or(UpdateError::Malformed)?;
                let update = update.as_object().ok_or(UpdateError::Malformed)?;
                match form {
                    Form::Rows => self.apply_row(name, uuid, update)?,
                    Form::Differences => self.apply_difference(name, uuid, update, schema)?,
                }
            }
        }
        Ok(())
    }

    fn apply_row(&mut self, table: &str, uuid: Uuid, update: &Map<String, Value>) -> Result<(), UpdateError> {
        let rows = self.tables.entry(table.to_owned()).or_default();
        match update.get("new") {
            Some(new) => _ = rows.insert(uuid, read_row(new)?),
            None => _ = rows.remove(&uuid),
        }
        Ok(())
    }

    fn apply_difference(
        &mut self,
        table: &str,
        uuid: Uuid,
        update: &Map<String, Value>,
        schema: &Schema,
    ) -> Result<(), UpdateError> {
        let rows = self.tables.entry(table.to_owned()).or_default();
        for (what, row) in update {
            match &**what {
                "initial" | "insert" => _ = rows.insert(uuid, read_row(row)?),
                "delete" => _ = rows.remove(&uuid),
                "modify" => {
                    let unknown = || UpdateError::UnknownRow(table.to_owned(), uuid);
                    let known = rows.get_mut(&uuid).ok_or_else(unknown)?;
                    for (column, difference) in row.as_object().ok_or(UpdateError::Malformed)? {
                        let difference = Datum::read(difference)?;
                        let kind = schema.column(table, column);
                        change(known.columns.entry(column.clone()), difference, kind);
                    }
                }
                _ => return Err(UpdateError::Malformed),
            }
        }
        Ok(())
    }
}

fn change(
    entry: std::collections::btree_map::Entry<'_, String, Datum>,
    difference: Datum,
    kind: Option<ColumnKind>,
) {
    let of_default = match difference {
        Datum::Set(_) => Datum::empty(),
        Datum::Map(_) => Datum::map::<&str>([]),
    };
    let own = entry.or_insert(of_default);
    match kind {
        Some(ColumnKind::Scalar) | None => *own = difference,
        Some(ColumnKind::Set | ColumnKind::Map) => own.change(difference),
    }
}

fn read_row(row: &Value) -> Result<Row, UpdateError> {
    let columns = row.as_object().ok_or(UpdateError::Malformed)?;
    let columns = columns.iter().map(|(name, value)| Ok((name.clone(), Datum::read(value)?)));
    Ok(Row { columns: columns.collect::<Result<_, UpdateError>>()? })
}
