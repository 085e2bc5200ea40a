//! Rule lookups on columns.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, BooleanArray, DictionaryArray, UInt16Array, UInt32Array};
use arrow::buffer::{BooleanBuffer, NullBuffer};
use arrow::datatypes::{DataType, UInt32Type};
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDFImpl, Signature, TypeSignature, Volatility,
};
use flowlane::packet::Field;
use flowlane_arrow::{ArrowError, ether_type, with_columns};

use super::plan_error;
use super::rules::{ADDRESSES, RuleResult};
use crate::tables::RuleList;

/// No rule.
const NONE: u32 = flowlane::NONE;

/// A rule function with the columns that its rules inspect as arguments.
#[derive(Debug)]
pub(super) struct LookUp {
    result: RuleResult,
    /// Name as in the query, `matches('fw.flows')`, for EXPLAIN.
    name: String,
    list: Arc<RuleList>,
    /// Field of each argument.
    fields: Vec<Field>,
    /// Fields of all columns of the table.
    known: Vec<Field>,
    signature: Signature,
}

impl LookUp {
    pub(super) fn new(
        result: RuleResult,
        list: Arc<RuleList>,
        fields: Vec<Field>,
        known: Vec<Field>,
    ) -> Self {
        let any = match fields.len() {
            0 => TypeSignature::Nullary,
            n => TypeSignature::Any(n),
        };
        let name = format!("{}('{}')", result.name(), list.name);
        Self { result, name, list, fields, known, signature: Signature::new(any, Volatility::Immutable) }
    }

    /// Derives the EtherType from the presence of an address, if there is no column for it: packets without an address are
    /// of unknown type.
    fn ether_types(&self, arrays: &[ArrayRef]) -> Result<Option<ArrayRef>, ArrowError> {
        let Some(kind) = ether_type(&self.known)? else { return Ok(None) };
        let is_address = |field: &Field| ADDRESSES.contains(field);
        let mut addresses = self.fields.iter().zip(arrays).filter(|(field, _)| is_address(field));
        let Some((_, address)) = addresses.find(|(_, array)| array.null_count() > 0) else { return Ok(None) };
        let of = |row: usize| if address.is_valid(row) { kind as u16 } else { 0 };
        Ok(Some(Arc::new(UInt16Array::from_iter_values((0..address.len()).map(of)))))
    }

    /// Returns the rule number of each packet.
    fn rules(&self, args: &[ColumnarValue], rows: usize) -> Result<Vec<u32>> {
        let arrays = args.iter().map(|arg| arg.to_array(rows)).collect::<Result<Vec<ArrayRef>>>()?;
        let mut named = self.fields.iter().map(|field| field.info().name).zip(&arrays).collect::<Vec<_>>();
        let ether_types = self.ether_types(&arrays).map_err(plan_error)?;
        let mut known = self.known.clone();
        if let Some(ether_types) = &ether_types {
            named.push((Field::EthType.info().name, ether_types));
            known.push(Field::EthType);
        }
        let mut rules = vec![NONE; rows];
        with_columns(rows, &known, &named, self.list.classifier.looked_at(), |packets| {
            self.list.classifier.lookup_columns(packets, &mut rules);
        })
        .map_err(plan_error)?;
        Ok(rules)
    }
}

impl PartialEq for LookUp {
    fn eq(&self, other: &Self) -> bool {
        self.result == other.result
            && Arc::ptr_eq(&self.list, &other.list)
            && self.fields == other.fields
            && self.known == other.known
    }
}

impl Eq for LookUp {}

impl Hash for LookUp {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.result, Arc::as_ptr(&self.list), &self.fields).hash(state);
    }
}

impl ScalarUDFImpl for LookUp {
    fn name(&self) -> &str {
        &self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(self.result.data_type())
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rules = self.rules(&args.args, args.number_rows)?;
        let hits = BooleanBuffer::collect_bool(rules.len(), |row| rules[row] != NONE);
        let nulls = Some(NullBuffer::new(hits.clone())).filter(|nulls| nulls.null_count() > 0);
        let answer: ArrayRef = match self.result {
            RuleResult::Any => Arc::new(BooleanArray::new(hits, None)),
            RuleResult::Number => Arc::new(UInt32Array::new(rules.into(), nulls)),
            RuleResult::Priority => {
                let priority =
                    |rule: &u32| self.list.priorities.get(*rule as usize).copied().unwrap_or_default();
                let priorities: Vec<u32> = rules.iter().map(priority).collect();
                Arc::new(UInt32Array::new(priorities.into(), nulls))
            }
            RuleResult::Action => {
                let numbers = UInt32Array::new(rules.into(), nulls);
                Arc::new(DictionaryArray::<UInt32Type>::try_new(numbers, Arc::clone(&self.list.actions))?)
            }
        };
        debug_assert_eq!(answer.len(), args.number_rows);
        Ok(ColumnarValue::Array(answer))
    }
}
