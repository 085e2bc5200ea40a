//! `network(x, 24)`: the prefix that contains an address, for grouping.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use arrow::array::{Array, AsArray, StringArray};
use arrow::datatypes::{DataType, UInt32Type};
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDFImpl, Signature, Volatility,
};

use super::address::{Family, as_addresses, family};
use super::{call_name, plan_error};

/// The function `network`.
#[derive(PartialEq, Eq, Hash, Debug)]
pub(super) struct Network(Signature);

impl Network {
    pub(super) fn new() -> Self {
        Self(Signature::any(2, Volatility::Immutable))
    }
}

/// Returns the constant prefix length, which is limited to `most`.
fn length(value: Option<&ColumnarValue>, most: u32) -> Result<u32> {
    let Some(ColumnarValue::Scalar(value)) = value else {
        return Err(plan_error("network: the prefix length must be a constant number"));
    };
    let number = value.to_string().parse().ok().filter(|len| *len <= most);
    number.ok_or_else(|| plan_error(format!("network: the prefix length must be 0 to {most}, not {value}")))
}

impl ScalarUDFImpl for Network {
    fn name(&self) -> &'static str {
        "network"
    }

    fn schema_name(&self, args: &[Expr]) -> Result<String> {
        call_name(self.name(), args)
    }

    fn signature(&self) -> &Signature {
        &self.0
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match family("network", &types[0])? {
            Family::Mac => Err(plan_error("network: Ethernet addresses have no prefixes")),
            _ => Ok(DataType::Utf8),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let addresses = as_addresses(&args.args[0].to_array(args.number_rows)?)?;
        let answer: StringArray = match addresses.data_type() {
            DataType::UInt32 => {
                let len = length(args.args.get(1), 32)?;
                let mask = u32::MAX.checked_shl(32 - len).unwrap_or(0);
                let rows = addresses.as_primitive::<UInt32Type>().iter();
                rows.map(|one| one.map(|one| format!("{}/{len}", Ipv4Addr::from(one & mask)))).collect()
            }
            _ => {
                let len = length(args.args.get(1), 128)?;
                let mask = u128::MAX.checked_shl(128 - len).unwrap_or(0);
                let number = |bytes: &[u8]| u128::from_be_bytes(bytes.try_into().expect("16 bytes"));
                let rows = addresses.as_fixed_size_binary().iter();
                rows.map(|one| one.map(|one| format!("{}/{len}", Ipv6Addr::from(number(one) & mask))))
                    .collect()
            }
        };
        Ok(ColumnarValue::Array(Arc::new(answer)))
    }
}
