//! Addresses in queries: conversion to text, prefix tests, and comparison with text.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, StringArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, UInt32Type};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::error::Result;
use datafusion::logical_expr::expr::{Between, InList};
use datafusion::logical_expr::expr_rewriter::FunctionRewrite;
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion::logical_expr::{
    BinaryExpr, ColumnarValue, Expr, ExprSchemable, Operator, ScalarFunctionArgs, ScalarUDFImpl, Signature,
    Volatility,
};
use flowlane::route::Prefix;
use flowlane::route::read::AnyPrefix;
use flowlane_arrow::FORM;

use super::{call_name, constant, plan_error};

/// Family of an address column.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Family {
    Ipv4,
    Ipv6,
    Mac,
}

impl Family {
    /// Returns the family for a column's metadata.
    fn by_form(form: &str) -> Option<Self> {
        match form {
            "ipv4" => Some(Self::Ipv4),
            "ipv6" => Some(Self::Ipv6),
            "mac" => Some(Self::Mac),
            _ => None,
        }
    }

    /// Returns the family for a column's type.
    fn by_type(data_type: &DataType) -> Option<Self> {
        match data_type {
            DataType::UInt32 => Some(Self::Ipv4),
            DataType::FixedSizeBinary(16) => Some(Self::Ipv6),
            DataType::FixedSizeBinary(6) => Some(Self::Mac),
            _ => None,
        }
    }

    /// Returns the family of an address column; `None` for other columns.
    pub(crate) fn of(field: &arrow::datatypes::Field) -> Option<Self> {
        let form = field.metadata().get(FORM).and_then(|form| Self::by_form(form))?;
        (Self::by_type(field.data_type()) == Some(form)).then_some(form)
    }

    /// Parses an address.
    fn read(self, text: &str) -> Option<ScalarValue> {
        match self {
            Self::Ipv4 => text.parse::<Ipv4Addr>().ok().map(|a| ScalarValue::UInt32(Some(a.into()))),
            Self::Ipv6 => {
                let address = text.parse::<Ipv6Addr>().ok()?;
                Some(ScalarValue::FixedSizeBinary(16, Some(address.octets().to_vec())))
            }
            Self::Mac => {
                let is_hexadecimal = |byte: &str| byte.bytes().all(|digit| digit.is_ascii_hexdigit());
                let bytes = text.split([':', '-']).map(|byte| match byte.len() {
                    1..=2 if is_hexadecimal(byte) => u8::from_str_radix(byte, 16).ok(),
                    _ => None,
                });
                let bytes = bytes.collect::<Option<Vec<u8>>>().filter(|bytes| bytes.len() == 6)?;
                Some(ScalarValue::FixedSizeBinary(6, Some(bytes)))
            }
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Ipv4 => "IPv4",
            Self::Ipv6 => "IPv6",
            Self::Mac => "Ethernet",
        }
    }
}

/// Formats addresses as text.
pub(crate) fn texts(family: Family, addresses: &ArrayRef) -> ArrayRef {
    let text = |row: usize| match family {
        Family::Ipv4 => Ipv4Addr::from(addresses.as_primitive::<UInt32Type>().value(row)).to_string(),
        _ => match addresses.as_fixed_size_binary().value(row) {
            bytes if bytes.len() == 16 => {
                Ipv6Addr::from(<[u8; 16]>::try_from(bytes).expect("16 bytes")).to_string()
            }
            bytes => bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(":"),
        },
    };
    let rows = (0..addresses.len()).map(|row| addresses.is_valid(row).then(|| text(row)));
    Arc::new(rows.collect::<StringArray>())
}

pub(super) fn family(function: &str, data_type: &DataType) -> Result<Family> {
    let computed = data_type.is_integer().then_some(Family::Ipv4);
    Family::by_type(data_type).or(computed).ok_or_else(|| {
        plan_error(format!(
            "{function}: {data_type} is not an address type; use a column such as nw_src, ipv6_dst or dl_src"
        ))
    })
}

/// Casts computed IPv4 addresses (`nw_src & 0xffffff00`), which are wider integers, to the type of address columns. Values
/// out of range become null.
pub(super) fn as_addresses(values: &ArrayRef) -> Result<ArrayRef> {
    match values.data_type().is_integer() {
        true => Ok(cast(values, &DataType::UInt32)?),
        false => Ok(Arc::clone(values)),
    }
}

/// `address(x)`: formats an address as text.
#[derive(PartialEq, Eq, Hash, Debug)]
pub(super) struct AddressText(Signature);

impl AddressText {
    pub(super) fn new() -> Self {
        Self(Signature::any(1, Volatility::Immutable))
    }
}

impl ScalarUDFImpl for AddressText {
    fn name(&self) -> &'static str {
        "address"
    }

    fn signature(&self) -> &Signature {
        &self.0
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        family("address", &types[0]).map(|_| DataType::Utf8)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let addresses = as_addresses(&args.args[0].to_array(args.number_rows)?)?;
        Ok(ColumnarValue::Array(texts(family("address", addresses.data_type())?, &addresses)))
    }
}

/// `in_prefix(x, '10.0.0.0/8')`: tests whether an address is in a prefix.
#[derive(PartialEq, Eq, Hash, Debug)]
pub(super) struct InPrefix(Signature);

impl InPrefix {
    pub(super) fn new() -> Self {
        Self(Signature::any(2, Volatility::Immutable))
    }
}

impl ScalarUDFImpl for InPrefix {
    fn name(&self) -> &'static str {
        "in_prefix"
    }

    fn schema_name(&self, args: &[Expr]) -> Result<String> {
        call_name(self.name(), args)
    }

    fn signature(&self) -> &Signature {
        &self.0
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match family("in_prefix", &types[0])? {
            Family::Mac => Err(plan_error("in_prefix: Ethernet addresses have no prefixes")),
            _ => Ok(DataType::Boolean),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let text = constant("in_prefix", args.args.get(1))?;
        let prefix: AnyPrefix = text.parse().map_err(|e| plan_error(format!("in_prefix: `{text}`: {e}")))?;
        let addresses = as_addresses(&args.args[0].to_array(args.number_rows)?)?;
        let answer: BooleanArray = match (prefix, addresses.data_type()) {
            (AnyPrefix::V4(prefix), DataType::UInt32) => {
                let is_in = |address: u32| Prefix::contains(prefix, address);
                BooleanArray::from_unary(addresses.as_primitive::<UInt32Type>(), is_in)
            }
            (AnyPrefix::V6(prefix), DataType::FixedSizeBinary(16)) => {
                let address = |bytes: &[u8]| u128::from_be_bytes(bytes.try_into().expect("16 bytes"));
                let rows = addresses.as_fixed_size_binary().iter();
                rows.map(|bytes| bytes.map(|bytes| prefix.contains(address(bytes)))).collect()
            }
            // Addresses of one family are never in prefixes of the other.
            _ => (0..addresses.len()).map(|row| addresses.is_valid(row).then_some(false)).collect(),
        };
        Ok(ColumnarValue::Array(Arc::new(answer)))
    }
}

/// Accepts hexadecimal numbers: `dl_type = 0x0800`, `tcp_flags & 0x02 > 0`.
#[derive(Debug)]
pub(super) struct HexadecimalNumbers;

impl ExprPlanner for HexadecimalNumbers {
    fn plan_binary_op(&self, expr: RawBinaryExpr, schema: &DFSchema) -> Result<PlannerResult<RawBinaryExpr>> {
        let is_number = |expr: &Expr| expr.get_type(schema).is_ok_and(|of| of.is_integer());
        let number = |expr: Expr| match &expr {
            Expr::Literal(ScalarValue::Binary(Some(bytes)), _) if (1..=8).contains(&bytes.len()) => {
                let value = bytes.iter().fold(0u64, |value, byte| value << 8 | u64::from(*byte));
                match i64::try_from(value) {
                    Ok(value) => Expr::Literal(ScalarValue::Int64(Some(value)), None),
                    Err(_) => Expr::Literal(ScalarValue::UInt64(Some(value)), None),
                }
            }
            _ => expr,
        };
        let RawBinaryExpr { op, left, right } = expr;
        let (left, right) = match (is_number(&left), is_number(&right)) {
            (true, _) => (left, number(right)),
            (_, true) => (number(left), right),
            _ => (left, right),
        };
        Ok(PlannerResult::Original(RawBinaryExpr { op, left, right }))
    }
}

/// Accepts addresses as text in comparisons: `nw_src = '10.0.0.1'`, `dl_dst IN ('ff:ff:ff:ff:ff:ff')`.
#[derive(Debug)]
pub(super) struct AddressLiterals;

impl AddressLiterals {
    /// Returns the family and name of an address column.
    fn family(expr: &Expr, schema: &DFSchema) -> Option<(Family, String)> {
        let Expr::Column(column) = expr else { return None };
        let at = schema.maybe_index_of_column(column)?;
        Family::of(schema.field(at)).map(|family| (family, column.name.clone()))
    }

    /// Converts a text literal to an address.
    fn literal(expr: Expr, (family, name): &(Family, String)) -> Result<Expr> {
        let text = match &expr {
            Expr::Literal(
                ScalarValue::Utf8(Some(text))
                | ScalarValue::Utf8View(Some(text))
                | ScalarValue::LargeUtf8(Some(text)),
                _,
            ) => text.clone(),
            _ => return Ok(expr),
        };
        let value = family.read(&text).ok_or_else(|| {
            let hint = if text.contains('/') { "; use in_prefix(column, 'prefix') for prefixes" } else { "" };
            plan_error(format!(
                "`{name}` is compared with '{text}', which is not an {} address{hint}",
                family.name()
            ))
        })?;
        Ok(Expr::Literal(value, None))
    }
}

fn is_comparison(op: Operator) -> bool {
    use Operator::{Eq, Gt, GtEq, IsDistinctFrom, IsNotDistinctFrom, Lt, LtEq, NotEq};
    matches!(op, Eq | NotEq | Lt | LtEq | Gt | GtEq | IsDistinctFrom | IsNotDistinctFrom)
}

impl FunctionRewrite for AddressLiterals {
    fn name(&self) -> &'static str {
        "addresses as text"
    }

    fn rewrite(&self, expr: Expr, schema: &DFSchema, _: &ConfigOptions) -> Result<Transformed<Expr>> {
        Ok(match expr {
            Expr::BinaryExpr(BinaryExpr { left, op, right }) if is_comparison(op) => {
                let (of_left, of_right) = (Self::family(&left, schema), Self::family(&right, schema));
                match (of_left, of_right) {
                    (Some(own), None) => {
                        let right = Box::new(Self::literal(*right, &own)?);
                        Transformed::yes(Expr::BinaryExpr(BinaryExpr { left, op, right }))
                    }
                    (None, Some(own)) => {
                        let left = Box::new(Self::literal(*left, &own)?);
                        Transformed::yes(Expr::BinaryExpr(BinaryExpr { left, op, right }))
                    }
                    _ => Transformed::no(Expr::BinaryExpr(BinaryExpr { left, op, right })),
                }
            }
            Expr::InList(InList { expr, list, negated }) => match Self::family(&expr, schema) {
                Some(own) => {
                    let list = list.into_iter().map(|one| Self::literal(one, &own)).collect::<Result<_>>()?;
                    Transformed::yes(Expr::InList(InList { expr, list, negated }))
                }
                None => Transformed::no(Expr::InList(InList { expr, list, negated })),
            },
            Expr::Between(Between { expr, negated, low, high }) => match Self::family(&expr, schema) {
                Some(own) => {
                    let (low, high) = (Self::literal(*low, &own)?.into(), Self::literal(*high, &own)?.into());
                    Transformed::yes(Expr::Between(Between { expr, negated, low, high }))
                }
                None => Transformed::no(Expr::Between(Between { expr, negated, low, high })),
            },
            other => Transformed::no(other),
        })
    }
}
