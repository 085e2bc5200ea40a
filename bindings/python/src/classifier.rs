//! Access lists.

use std::path::PathBuf;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use arrow_array::{ArrayRef, RecordBatch, UInt32Array};
use arrow_buffer::{BooleanBuffer, NullBuffer};
use arrow_schema::{DataType, Field as ArrowField};
use flowlane::{
    AccessList, ClassifierConfig, Field, FlowColumns, FlowMask, NONE, Priority, Rule, Values, read_rules,
};
use flowlane_arrow::{check_tags, check_width, ether_type, packets, packets_of};
use numpy::{IntoPyArray, PyArray1};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use pyo3_arrow::PyArray;
use pyo3_arrow::input::AnyRecordBatch;

use crate::columns::{Column, field};
use crate::error::{error, read_text};

/// Packets that are worth a thread.
const PACKETS_A_THREAD: usize = 1 << 16;

/// Rules, and the engine that looks packets up.
#[pyclass(module = "flowlane._flowlane", frozen)]
pub struct Classifier {
    list: RwLock<flowlane::Classifier>,
    /// The engine that was asked for.
    engine: String,
}

impl Classifier {
    fn build(text: &str, name: &str, engine: &str) -> PyResult<Self> {
        let rules = read_rules(text, name).map_err(error)?;
        Self::numbered((0..).zip(rules), engine)
    }

    fn numbered(rules: impl IntoIterator<Item = (u32, Rule)>, engine: &str) -> PyResult<Self> {
        let config = ClassifierConfig::new().engine(engine).map_err(error)?;
        let list = config.build_numbered(rules).map_err(error)?;
        Ok(Self { list: RwLock::new(list), engine: engine.to_owned() })
    }

    // A change is made whole or not at all: whoever panicked has left the list as it was.
    fn read(&self) -> RwLockReadGuard<'_, flowlane::Classifier> {
        self.list.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, flowlane::Classifier> {
        self.list.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// The rule of each packet, by up to so many threads.
    fn look_up(list: &AccessList, packets: &FlowColumns<'_>, threads: usize) -> Vec<u32> {
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
        // Rules that come meanwhile look at other columns.
        let list = self.read();
        let look_up = |packets: &FlowColumns<'_>| Self::look_up(&list, packets, threads);
        packets_of(batch, list.looked_at(), look_up).map_err(error)
    }
}

/// How many threads were asked for; all cores where nobody said.
fn threads(asked: Option<usize>) -> usize {
    asked
        .filter(|asked| *asked > 0)
        .unwrap_or_else(|| std::thread::available_parallelism().map_or(1, Into::into))
        .max(1)
}

#[pymethods]
impl Classifier {
    /// The rules of a file.
    #[staticmethod]
    fn from_file(py: Python<'_>, path: PathBuf, engine: &str) -> PyResult<Self> {
        py.detach(|| Self::build(&read_text(&path)?, &path.display().to_string(), engine))
    }

    /// The rules of a text.
    #[staticmethod]
    fn from_text(py: Python<'_>, text: &str, engine: &str) -> PyResult<Self> {
        py.detach(|| Self::build(text, "rules", engine))
    }

    /// Rules with their numbers: what [`state`](Self::state) says.
    #[staticmethod]
    fn from_numbered(
        py: Python<'_>,
        numbers: Vec<u32>,
        priorities: Vec<u32>,
        text: &str,
        engine: &str,
        next: u32,
    ) -> PyResult<Self> {
        py.detach(|| {
            let rules = read_rules(text, "rules").map_err(error)?.into_iter().zip(priorities);
            let rules = rules.map(|(rule, priority)| Rule { priority: Priority(priority), ..rule });
            let made = Self::numbered(numbers.into_iter().zip(rules), engine)?;
            // The numbers of rules that are gone are not given again.
            made.write().leave_out_below(next);
            Ok(made)
        })
    }

    /// The number of each packet's rule, or 2³² − 1: of columns of numpy by name.
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
        let len =
            len.ok_or_else(|| error("no column says how many packets there are; give one as an array"))?;
        let kind = ether_type(&fields).map_err(error)?;
        let packets = packets(len, kind, values.into_iter()).map_err(error)?;
        let found = py.detach(|| Self::look_up(&self.read(), &packets, threads(asked)));
        Ok(found.into_pyarray(py))
    }

    /// The number of each packet's rule, or null: of anything with the Arrow PyCapsule interface. And what is [missing](Self::missing).
    fn classify_arrow(
        &self,
        py: Python<'_>,
        batches: AnyRecordBatch,
        asked: Option<usize>,
    ) -> PyResult<(PyArray, Vec<&'static str>)> {
        let reader = batches.into_reader()?;
        let names = reader.schema().fields().iter().map(|described| described.name().clone()).collect();
        let missing = self.missing(names);
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

    /// How the answer for one packet comes about.
    fn explain_packet<'py>(
        &self,
        py: Python<'py>,
        packet: &Bound<'py, PyDict>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let mut values = Vec::new();
        for (name, value) in packet {
            let name: String = name.extract()?;
            let value: u128 = value
                .extract()
                .map_err(|_| error(format!("`{name}` of one packet is a number that is not negative")))?;
            values.push((field(&name)?, Values::One(value)));
        }
        let known: Vec<Field> = values.iter().map(|(field, _)| *field).collect();
        let kind = ether_type(&known).map_err(error)?;
        let key = packets(1, kind, values.into_iter()).map_err(error)?.key(0);
        let told = self.read().explain(&key);
        let out = PyDict::new(py);
        out.set_item("rule", told.rule)?;
        out.set_item("next_rule", told.next_rule)?;
        out.set_item("engine", told.engine)?;
        out.set_item("variant", told.variant)?;
        out.set_item("nodes", told.nodes)?;
        out.set_item("rules", told.rules)?;
        let looked_at = PyDict::new(py);
        for info in Field::all() {
            let mask = told.depends_on.get(info.field);
            if mask != 0 {
                looked_at.set_item(info.name, mask)?;
            }
        }
        out.set_item("depends_on", looked_at)?;
        Ok(out)
    }

    /// Adds the rules of a text, all or none of them; their numbers.
    fn insert_text(&self, py: Python<'_>, text: &str) -> PyResult<Vec<u32>> {
        py.detach(|| {
            let rules = read_rules(text, "rules").map_err(error)?;
            self.write().insert_all(rules).map(Iterator::collect).map_err(error)
        })
    }

    /// Removes a rule; says whether it was there.
    fn remove(&self, py: Python<'_>, rule: u32) -> bool {
        py.detach(|| self.write().remove(rule).is_some())
    }

    /// A rule as text.
    fn rule(&self, number: u32) -> PyResult<String> {
        let list = self.read();
        let rule = list.rule(number).map(ToString::to_string);
        rule.ok_or_else(|| pyo3::exceptions::PyKeyError::new_err(format!("there is no rule {number}")))
    }

    /// The numbers of all rules, ascending.
    fn numbers(&self) -> Vec<u32> {
        self.read().rules().map(|(number, _)| number).collect()
    }

    /// The fields that any rule looks at.
    #[getter]
    fn fields(&self) -> Vec<&'static str> {
        self.read().fields().into_iter().map(|field| field.info().name).collect()
    }

    /// The engine that has the rules, and its variant.
    #[getter]
    fn engine(&self) -> (&'static str, &'static str) {
        let list = self.read();
        (list.engine(), list.variant())
    }

    /// Bytes of the tables.
    #[getter]
    fn table_bytes(&self) -> usize {
        self.read().table_bytes()
    }

    fn __len__(&self) -> usize {
        self.read().len()
    }

    /// The fields that any rule looks at, and of which these columns say nothing.
    fn missing(&self, names: Vec<String>) -> Vec<&'static str> {
        let list = self.read();
        let mut known = FlowMask::zero();
        let fields: Vec<Field> = names.iter().filter_map(|name| field(name).ok()).collect();
        fields.iter().for_each(|field| known.add_field(*field));
        if ether_type(&fields).is_ok_and(|kind| kind.is_some()) {
            known.add_field(Field::EthType);
        }
        let mut missing = Vec::new();
        for field in list.fields() {
            // Fields may share a place.
            if list.looked_at().get(field) & !known.get(field) != 0 {
                missing.push(field.info().name);
                known.add_field(field);
            }
        }
        missing
    }

    /// Whether there is a rule of this number.
    fn has(&self, rule: u32) -> bool {
        self.read().rule(rule).is_some()
    }

    /// What [`from_numbered`](Self::from_numbered) makes it again from.
    fn state(&self) -> (Vec<u32>, Vec<u32>, String, String, u32) {
        let list = self.read();
        // Priorities apart: filters' may be larger than those of the language.
        let plain = |rule: &Rule| Rule { priority: Priority(1), ..rule.clone() }.to_string() + "\n";
        let numbers = list.rules().map(|(number, _)| number).collect();
        let priorities = list.rules().map(|(_, rule)| rule.priority.0).collect();
        let text = list.rules().map(|(_, rule)| plain(rule)).collect();
        (numbers, priorities, text, self.engine.clone(), list.next_number())
    }
}
