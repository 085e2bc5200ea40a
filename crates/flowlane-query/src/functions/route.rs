//! `route` and `via`: the next hop of an address, as number and as name.

use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, StringBuilder, UInt32Array};
use arrow::buffer::{BooleanBuffer, NullBuffer};
use arrow::datatypes::{DataType, UInt32Type};
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDFImpl, Signature, Volatility,
};
use flowlane::{NONE, RouteTable};

use super::{call_name, constant, plan_error, refused};
use crate::tables::Tables;

/// Result of a route function.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum HopResult {
    /// Number of the next hop.
    Number,
    /// Name of the next hop in the file, such as an address and a device.
    Name,
}

/// The functions `route` and `via`.
#[derive(Debug)]
pub(super) struct Route {
    result: HopResult,
    tables: Arc<Tables>,
    signature: Signature,
}

impl Route {
    pub(super) fn new(result: HopResult, tables: Arc<Tables>) -> Self {
        Self { result, tables, signature: Signature::any(2, Volatility::Stable) }
    }
}

impl PartialEq for Route {
    fn eq(&self, other: &Self) -> bool {
        self.result == other.result && Arc::ptr_eq(&self.tables, &other.tables)
    }
}

impl Eq for Route {}

impl Hash for Route {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.result, Arc::as_ptr(&self.tables)).hash(state);
    }
}

/// Looks up the next hop of each address.
fn next_hops(routes: &RouteTable, addresses: &ArrayRef) -> Result<Vec<u32>> {
    let mut found = vec![NONE; addresses.len()];
    match addresses.data_type() {
        DataType::UInt32 => routes.lookup_v4(addresses.as_primitive::<UInt32Type>().values(), &mut found),
        DataType::FixedSizeBinary(16) => {
            // The buffer is contiguous, including nulls.
            let addresses = addresses.as_fixed_size_binary();
            routes.lookup_v6(addresses.value_data()[..16 * addresses.len()].as_chunks().0, &mut found);
        }
        other => {
            return Err(plan_error(format!(
                "route: {other} is not an address type; use a column such as nw_dst or ipv6_dst"
            )));
        }
    }
    Ok(found)
}

impl ScalarUDFImpl for Route {
    fn name(&self) -> &'static str {
        match self.result {
            HopResult::Number => "route",
            HopResult::Name => "via",
        }
    }

    fn schema_name(&self, args: &[Expr]) -> Result<String> {
        call_name(self.name(), args)
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match &types[1] {
            DataType::UInt32 | DataType::FixedSizeBinary(16) => Ok(match self.result {
                HopResult::Number => DataType::UInt32,
                HopResult::Name => DataType::Utf8,
            }),
            other => Err(plan_error(format!(
                "{}: {other} is not an address type; use a column such as nw_dst or ipv6_dst",
                self.name()
            ))),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let file = constant(self.name(), args.args.first())?;
        let routes = self.tables.routes(file).map_err(refused)?;
        let addresses = args.args[1].to_array(args.number_rows)?;
        let found = next_hops(&routes.table, &addresses)?;
        let has = |row: usize| found[row] != NONE && addresses.is_valid(row);
        Ok(ColumnarValue::Array(match self.result {
            HopResult::Number => {
                let nulls = NullBuffer::new(BooleanBuffer::collect_bool(found.len(), has));
                let nulls = Some(nulls).filter(|nulls| nulls.null_count() > 0);
                Arc::new(UInt32Array::new(found.into(), nulls))
            }
            HopResult::Name => {
                let mut names = HashMap::new();
                let mut text = StringBuilder::new();
                for (row, next_hop) in found.iter().enumerate() {
                    let name = names.entry(*next_hop).or_insert_with(|| routes.name(*next_hop));
                    text.append_option(has(row).then_some(name));
                }
                Arc::new(text.finish())
            }
        }))
    }
}
