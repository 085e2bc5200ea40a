//! Access lists.

use std::path::PathBuf;

use arrow_array::{ArrayRef, RecordBatch, UInt32Array};
use arrow_buffer::{BooleanBuffer, NullBuffer};
use arrow_schema::{DataType, Field as ArrowField};
use flowlane::rule::ReadOptions;
use flowlane::rule::flow_syntax::read_changes;
use flowlane::{
    AclEngine, ClassifierBuilder, ClassifierSnapshot, Field, FlowColumns, NONE, Priority, Rule, Values,
    read_rules,
};
use flowlane_arrow::{SHARED_WORDS, check_tags, check_width, ether_type, missing, packets, packets_of};
use flowlane_capture::read_text;
use numpy::{IntoPyArray, PyArray1};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use pyo3_arrow::PyArray;
use pyo3_arrow::input::AnyRecordBatch;

use crate::columns::{Column, field};
use crate::error::{error, file_error};
use crate::shared::Shared;

/// Minimum number of packets per thread.
const PACKETS_A_THREAD: usize = 1 << 16;

/// An access list.
#[pyclass(module = "flowlane._flowlane", frozen)]
pub struct Classifier {
    list: Shared<flowlane::Classifier>,
    /// Requested engine.
    engine: String,
    /// OpenFlow table of the rules.
    table: u8,
}

impl Classifier {
    fn build(text: &str, name: &str, engine: &str, table: u8) -> PyResult<Self> {
        let rules = read_rules(text, name).map_err(error)?;
        let next = rules.len() as u32;
        let others = rules.iter().find(|rule| rule.table != table).map(|rule| rule.table);
        let own: Vec<(u32, Rule)> = (0..).zip(rules).filter(|(_, rule)| rule.table == table).collect();
        if let (true, Some(other)) = (own.is_empty(), others) {
            return Err(error(format!(
                "{name}: no rules for table {table}, but for table {other}; use table={other}"
            )));
        }
        Self::numbered(own, next, engine, table)
    }

    /// Creates a classifier of numbered rules; numbers below `next` are never assigned again.
    fn numbered(
        rules: impl IntoIterator<Item = (u32, Rule)>,
        next: u32,
        engine: &str,
        table: u8,
    ) -> PyResult<Self> {
        let builder = ClassifierBuilder::new().engine(engine.parse::<AclEngine>().map_err(error)?);
        let mut list = builder.build_numbered(rules).map_err(error)?;
        list.reserve_numbers_below(next);
        Ok(Self { list: Shared::new(list), engine: engine.to_owned(), table })
    }

    /// Looks up the rule of each packet with up to `threads` threads.
    fn look_up(list: &ClassifierSnapshot, packets: &FlowColumns<'_>, threads: usize) -> Vec<u32> {
        let mut found = vec![NONE; packets.len()];
        let threads = threads.min(packets.len() / PACKETS_A_THREAD).max(1);
        let share = packets.len().div_ceil(threads).max(1);
        std::thread::scope(|scope| {
            let mut shares = found.chunks_mut(share).enumerate();
            let own = shares.next();
            for (number, found) in shares {
                let packets = packets.rows(number * share..number * share + found.len());
                scope.spawn(move || list.lookup_columns(&packets, found));
            }
            if let Some((_, found)) = own {
                list.lookup_columns(&packets.rows(0..found.len()), found);
            }
        });
        found
    }

    fn look_up_batch(&self, batch: &RecordBatch, threads: usize) -> PyResult<Vec<u32>> {
        // Changes during the lookup could inspect other columns.
        let list = self.list.detached();
        let look_up = |packets: &FlowColumns<'_>| Self::look_up(list.list(), packets, threads);
        packets_of(batch, list.looked_at(), look_up).map_err(error)
    }
}

/// Returns the number of threads; all cores by default.
fn threads(asked: Option<usize>) -> usize {
    asked
        .filter(|asked| *asked > 0)
        .unwrap_or_else(|| std::thread::available_parallelism().map_or(1, Into::into))
        .max(1)
}

#[pymethods]
impl Classifier {
    /// Reads the rules of a file.
    #[staticmethod]
    fn from_file(py: Python<'_>, path: PathBuf, engine: &str, table: u8) -> PyResult<Self> {
        py.detach(|| {
            Self::build(
                &read_text(&path).map_err(|e| file_error(e.into()))?,
                &path.display().to_string(),
                engine,
                table,
            )
        })
    }

    /// Parses the rules of a text.
    #[staticmethod]
    fn from_text(py: Python<'_>, text: &str, engine: &str, table: u8) -> PyResult<Self> {
        py.detach(|| Self::build(text, "rules", engine, table))
    }

    /// Restores a classifier from its [`state`](Self::state).
    #[staticmethod]
    fn from_numbered(
        py: Python<'_>,
        numbers: Vec<u32>,
        priorities: Vec<u32>,
        text: &str,
        engine: &str,
        next: u32,
        table: u8,
    ) -> PyResult<Self> {
        py.detach(|| {
            // As changes, none of which takes the place of another: rules of several priorities have the same match here.
            let added = read_changes(text, "rules", &ReadOptions::default()).map_err(error)?;
            if [numbers.len(), priorities.len()] != [added.len(); 2] {
                return Err(error("the rules of a pickled classifier are not all there"));
            }
            let rules = added.into_iter().zip(priorities);
            let rules = rules.map(|(add, priority)| Rule { priority: Priority(priority), ..add.rule });
            Self::numbered(numbers.into_iter().zip(rules), next, engine, table)
        })
    }

    /// Classifies numpy columns; returns the rule number of each packet, or 2³² − 1.
    fn classify_numpy<'py>(
        &self,
        py: Python<'py>,
        columns: &Bound<'py, PyDict>,
        asked: Option<usize>,
    ) -> PyResult<Bound<'py, PyArray1<u32>>> {
        let named: Vec<(String, Column<'py>)> = columns
            .iter()
            .map(|(name, values)| {
                let name: String = name.extract()?;
                let column = Column::new(&name, &values)?;
                Ok((name, column))
            })
            .collect::<PyResult<_>>()?;
        let values: Vec<(Field, Values<'_>)> =
            named.iter().map(|(name, c)| Ok((field(name)?, c.values(name)?))).collect::<PyResult<_>>()?;
        let fields: Vec<Field> = values.iter().map(|(field, _)| *field).collect();
        check_tags(&fields).map_err(error)?;
        for ((name, _), (field, values)) in named.iter().zip(&values) {
            if let Values::Bytes(_, each) = values {
                check_width(name, *field, *each).map_err(error)?;
            }
        }
        let len = values.iter().find_map(|(_, values)| values.len());
        let len = len.ok_or_else(|| error("all columns are scalars; give at least one array"))?;
        let kind = ether_type(&fields).map_err(error)?;
        let packets = packets(len, kind, values.into_iter()).map_err(error)?;
        let found = self.list.read(py, |list| Self::look_up(list.list(), &packets, threads(asked)));
        Ok(found.into_pyarray(py))
    }

    /// Classifies objects with the Arrow PyCapsule interface; returns the rule number of each packet, or null, and the
    /// [missing](Self::missing) fields.
    fn classify_arrow(
        &self,
        py: Python<'_>,
        batches: AnyRecordBatch,
        asked: Option<usize>,
    ) -> PyResult<(PyArray, Vec<&'static str>)> {
        let reader = batches.into_reader()?;
        let names = reader.schema().fields().iter().map(|described| described.name().clone()).collect();
        let missing = self.missing(py, names, true);
        let found = py.detach(|| {
            let mut all: Vec<u32> = Vec::new();
            for batch in reader {
                let found = self.look_up_batch(&batch.map_err(error)?, threads(asked))?;
                if all.is_empty() { all = found } else { all.extend(found) }
            }
            Ok::<_, PyErr>(all)
        })?;
        let hits = BooleanBuffer::collect_bool(found.len(), |row| found[row] != NONE);
        let array =
            UInt32Array::new(found.into(), Some(NullBuffer::new(hits)).filter(|n| n.null_count() > 0));
        let described = ArrowField::new("rule", DataType::UInt32, true);
        let array =
            PyArray::try_new(std::sync::Arc::new(array) as ArrayRef, described.into()).map_err(error)?;
        Ok((array, missing))
    }

    /// Explains the lookup of one packet.
    fn explain_packet<'py>(
        &self,
        py: Python<'py>,
        packet: &Bound<'py, PyDict>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let mut values = Vec::new();
        for (name, value) in packet {
            let name: String = name.extract()?;
            let value: u128 =
                value.extract().map_err(|_| error(format!("`{name}` must be a non-negative integer")))?;
            values.push((field(&name)?, Values::One(value)));
        }
        let known: Vec<Field> = values.iter().map(|(field, _)| *field).collect();
        let kind = ether_type(&known).map_err(error)?;
        let key = packets(1, kind, values.into_iter()).map_err(error)?.key(0);
        let explained = self.list.read(py, |list| list.explain(&key));
        let out = PyDict::new(py);
        out.set_item("rule", explained.rule)?;
        out.set_item("next_rule", explained.next_rule)?;
        out.set_item("engine", explained.engine)?;
        out.set_item("variant", explained.variant)?;
        out.set_item("nodes", explained.nodes)?;
        out.set_item("rules", explained.rules)?;
        let looked_at = PyDict::new(py);
        for info in Field::all() {
            let mask = explained.depends_on.get(info.field);
            if mask != 0 {
                looked_at.set_item(info.name, mask)?;
            }
        }
        out.set_item("depends_on", looked_at)?;
        Ok(out)
    }

    /// Adds the rules of a text, all or none; returns their numbers.
    fn insert_text(&self, py: Python<'_>, text: &str) -> PyResult<Vec<u32>> {
        let rules = py.detach(|| read_rules(text, "rules").map_err(error))?;
        if let Some(rule) = rules.iter().find(|rule| rule.table != self.table) {
            let (other, own) = (rule.table, self.table);
            return Err(error(format!(
                "rules for table {other}; this classifier is for table {own}, nothing was inserted"
            )));
        }
        self.list.write(py, |list| list.insert_all(rules).map(Iterator::collect).map_err(error))
    }

    /// Removes a rule; returns whether it existed.
    fn remove(&self, py: Python<'_>, rule: u32) -> bool {
        self.list.write(py, |list| list.remove(rule).is_some())
    }

    /// Returns a rule as text.
    fn rule(&self, py: Python<'_>, number: u32) -> PyResult<String> {
        let rule = self.list.read(py, |list| list.rule(number).map(ToString::to_string));
        rule.ok_or_else(|| pyo3::exceptions::PyKeyError::new_err(format!("there is no rule {number}")))
    }

    /// Returns the numbers of all rules, ascending.
    fn numbers(&self, py: Python<'_>) -> Vec<u32> {
        self.list.read(py, |list| list.rules().map(|(number, _)| number).collect())
    }

    /// Returns the fields that the rules inspect.
    #[getter]
    fn fields(&self, py: Python<'_>) -> Vec<&'static str> {
        self.list.read(py, |list| list.fields().into_iter().map(|field| field.info().name).collect())
    }

    /// Returns the engine that holds the rules, and its variant.
    #[getter]
    fn engine(&self, py: Python<'_>) -> (&'static str, &'static str) {
        self.list.read(py, |list| (list.engine(), list.variant()))
    }

    /// Returns the size of the tables in bytes.
    #[getter]
    fn table_bytes(&self, py: Python<'_>) -> usize {
        self.list.read(py, |list| list.table_bytes())
    }

    fn __len__(&self, py: Python<'_>) -> usize {
        self.list.read(py, |list| list.len())
    }

    /// Returns the fields that the rules inspect and that these columns lack. A column of IPv4 addresses without nulls also
    /// determines the ARP addresses in the same key words.
    fn missing(&self, py: Python<'_>, names: Vec<String>, has_nulls: bool) -> Vec<&'static str> {
        let mut known: Vec<Field> = names.iter().filter_map(|name| field(name).ok()).collect();
        if !has_nulls {
            let other = |(ip, arp): &(Field, Field)| match (known.contains(ip), known.contains(arp)) {
                (true, _) => Some(*arp),
                (_, true) => Some(*ip),
                _ => None,
            };
            let others: Vec<Field> = SHARED_WORDS.iter().filter_map(other).collect();
            known.extend(others);
        }
        let missing = |list: &flowlane::Classifier| missing(&list.fields(), list.looked_at(), &known);
        self.list.read(py, missing).into_iter().map(|field| field.info().name).collect()
    }

    /// Returns whether a rule of this number exists.
    fn has(&self, py: Python<'_>, rule: u32) -> bool {
        self.list.read(py, |list| list.rule(rule).is_some())
    }

    /// Returns the arguments of [`from_numbered`](Self::from_numbered).
    fn state(&self, py: Python<'_>) -> (Vec<u32>, Vec<u32>, String, String, u32, u8) {
        // Separate priorities: those of ClassBench filters may exceed the limit of the flow syntax.
        let plain = |rule: &Rule| Rule { priority: Priority(1), ..rule.clone() }.to_string() + "\n";
        self.list.read(py, |list| {
            let numbers = list.rules().map(|(number, _)| number).collect();
            let priorities = list.rules().map(|(_, rule)| rule.priority.0).collect();
            let text = list.rules().map(|(_, rule)| plain(rule)).collect();
            (numbers, priorities, text, self.engine.clone(), list.next_number(), self.table)
        })
    }
}
