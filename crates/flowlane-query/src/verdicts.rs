//! Verdicts of `flowlane classify` as a columnar file.

use std::io::Write;
use std::sync::Arc;

use arrow::array::{ArrayRef, DictionaryArray, RecordBatch, StringArray, UInt32Array, UInt64Array};
use arrow::buffer::{BooleanBuffer, NullBuffer};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, UInt32Type};

use crate::write::Writer;
use crate::{Format, QueryError};

/// Priorities and actions of a list's rules, by number.
pub struct Rules {
    priorities: Vec<u32>,
    actions: ArrayRef,
}

impl Rules {
    /// Creates a list from each rule's priority and actions.
    pub fn new<'a>(rules: impl Iterator<Item = (u32, &'a str)>) -> Self {
        let (priorities, actions): (Vec<u32>, Vec<&str>) = rules.unzip();
        Self { priorities, actions: Arc::new(StringArray::from(actions)) }
    }
}

/// A file with one row per packet: its number, and the rule, priority and action of each list, which are null without a
/// match.
pub struct VerdictFile {
    schema: SchemaRef,
    lists: Vec<Rules>,
    writer: Writer<Box<dyn Write + Send>>,
}

impl VerdictFile {
    /// Rule number of packets without a match.
    pub const NONE: u32 = u32::MAX;

    /// Creates a file for verdicts by these lists.
    ///
    /// # Errors
    /// If writing fails.
    pub fn new(format: Format, lists: Vec<Rules>, sink: Box<dyn Write + Send>) -> Result<Self, QueryError> {
        let action = DataType::Dictionary(DataType::UInt32.into(), DataType::Utf8.into());
        let mut fields = vec![Field::new("packet", DataType::UInt64, false)];
        for number in 1..=lists.len() {
            let name = |what: &str| if number == 1 { what.to_owned() } else { format!("{what}{number}") };
            fields.push(Field::new(name("rule"), DataType::UInt32, true));
            fields.push(Field::new(name("priority"), DataType::UInt32, true));
            fields.push(Field::new(name("action"), action.clone(), true));
        }
        let schema = Arc::new(Schema::new(fields));
        let writer = Writer::new(format, &schema, sink)?;
        Ok(Self { schema, lists, writer })
    }

    /// Adds the verdicts of consecutive packets, the first of which has the number `first`: for each packet one rule per
    /// list, or [`NONE`](Self::NONE).
    ///
    /// # Errors
    /// If writing fails.
    ///
    /// # Panics
    /// If a rule number is out of range.
    pub fn add(&mut self, first: u64, rules: &[u32]) -> Result<(), QueryError> {
        let each = self.lists.len().max(1);
        let packets = (rules.len() / each) as u64;
        let mut columns: Vec<ArrayRef> =
            vec![Arc::new(UInt64Array::from_iter_values(first..first + packets))];
        for (number, list) in self.lists.iter().enumerate() {
            let own: Vec<u32> = rules.iter().skip(number).step_by(each).copied().collect();
            let hits = BooleanBuffer::collect_bool(own.len(), |row| own[row] != Self::NONE);
            let nulls = Some(NullBuffer::new(hits)).filter(|nulls| nulls.null_count() > 0);
            let priority = |rule: &u32| if *rule == Self::NONE { 0 } else { list.priorities[*rule as usize] };
            let priorities: Vec<u32> = own.iter().map(priority).collect();
            let numbers = UInt32Array::new(own.into(), nulls.clone());
            columns.push(Arc::new(numbers.clone()));
            columns.push(Arc::new(UInt32Array::new(priorities.into(), nulls)));
            let actions = DictionaryArray::<UInt32Type>::try_new(numbers, Arc::clone(&list.actions));
            columns.push(Arc::new(actions.expect("every rule has an action")));
        }
        let batch = RecordBatch::try_new(Arc::clone(&self.schema), columns);
        self.writer.write(&batch.expect("columns are of their types and as long as each other"))
    }

    /// Completes the file.
    ///
    /// # Errors
    /// If writing fails.
    pub fn finish(self) -> Result<(), QueryError> {
        self.writer.finish()
    }
}
