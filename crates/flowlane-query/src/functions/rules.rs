//! `matches`, `action`, `priority` and `flow`: classification by the columns that the rules inspect.
//!
//! A query names the file of rules, but not the columns that the rules inspect. Therefore, once the query's tables are
//! known, each call is rewritten to take those columns as arguments.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, DFSchema, ScalarValue};
use datafusion::error::Result;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::expr_rewriter::FunctionRewrite;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TypeSignature, Volatility,
};
use flowlane::{Field, FlowMask};
use flowlane_arrow::{Column as CaptureColumn, ether_type, missing};

use super::lookup::LookUp;
use super::{call_name, plan_error, refused};
use crate::tables::{RuleList, Tables};

/// Result of a rule function.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum RuleResult {
    /// Number of the rule.
    Number,
    /// Actions of the rule.
    Action,
    Priority,
    /// True if a rule matches.
    Any,
}

impl RuleResult {
    pub(super) const ALL: [Self; 4] = [Self::Number, Self::Action, Self::Priority, Self::Any];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Number => "matches",
            Self::Action => "action",
            Self::Priority => "priority",
            Self::Any => "flow",
        }
    }

    pub(super) fn data_type(self) -> DataType {
        match self {
            Self::Number | Self::Priority => DataType::UInt32,
            Self::Action => DataType::Dictionary(DataType::UInt32.into(), DataType::Utf8.into()),
            Self::Any => DataType::Boolean,
        }
    }
}

/// A rule function as written in queries, with a text argument.
#[derive(PartialEq, Eq, Hash, Debug)]
pub(super) struct RuleFunction {
    result: RuleResult,
    signature: Signature,
}

impl RuleFunction {
    pub(super) fn new(result: RuleResult) -> Self {
        let text = TypeSignature::String(1);
        Self { result, signature: Signature::new(text, Volatility::Stable) }
    }
}

impl ScalarUDFImpl for RuleFunction {
    fn name(&self) -> &str {
        self.result.name()
    }

    fn schema_name(&self, args: &[Expr]) -> Result<String> {
        call_name(self.name(), args)
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(self.result.data_type())
    }

    fn invoke_with_args(&self, _: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let name = self.name();
        Err(plan_error(format!("{name}: expected a text in quotes, and a table of packets after FROM")))
    }
}

/// Rewrites rule functions to take the columns that their rules inspect.
#[derive(Debug)]
pub(super) struct RuleColumns {
    tables: Arc<Tables>,
}

impl RuleColumns {
    pub(super) fn new(tables: Arc<Tables>) -> Self {
        Self { tables }
    }
}

impl FunctionRewrite for RuleColumns {
    fn name(&self) -> &'static str {
        "columns of rules"
    }

    fn rewrite(&self, expr: Expr, schema: &DFSchema, _: &ConfigOptions) -> Result<Transformed<Expr>> {
        let Expr::ScalarFunction(call) = &expr else { return Ok(Transformed::no(expr)) };
        let Some(RuleFunction { result, .. }) = call.func.inner().downcast_ref() else {
            return Ok(Transformed::no(expr));
        };
        let [Expr::Literal(ScalarValue::Utf8(Some(text)) | ScalarValue::Utf8View(Some(text)), _)] =
            &call.args[..]
        else {
            return Err(plan_error(format!("{}: expected a text in quotes", result.name())));
        };
        let list = match result {
            RuleResult::Any => self.tables.flow(text),
            _ => self.tables.rules(text),
        };
        let list = list.map_err(refused)?;
        let (columns, known) = columns(result.name(), &list, schema)?;
        let (fields, columns): (Vec<Field>, Vec<Expr>) = columns.into_iter().unzip();
        let look_up = ScalarUDF::new_from_impl(LookUp::new(*result, list, fields, known));
        Ok(Transformed::yes(Expr::ScalarFunction(ScalarFunction::new_udf(Arc::new(look_up), columns))))
    }
}

/// Fields that imply the EtherType if there is no column for it.
pub(super) const ADDRESSES: [Field; 4] = [Field::Ipv4Src, Field::Ipv4Dst, Field::Ipv6Src, Field::Ipv6Dst];

/// Columns with their fields.
type FieldColumns = Vec<(Field, Expr)>;

/// Returns the columns that the rules inspect, and the fields of all columns.
///
/// # Errors
/// If a column is missing or ambiguous.
fn columns(function: &str, list: &RuleList, schema: &DFSchema) -> Result<(FieldColumns, Vec<Field>)> {
    let mut all: FieldColumns = Vec::new();
    for (table, column) in schema.iter() {
        let Some(field) = Field::by_name(column.name()) else { continue };
        if all.iter().any(|(known, _)| *known == field) {
            return Err(plan_error(format!(
                "{function}: the column `{}` is ambiguous; use a subquery over one table after FROM",
                column.name()
            )));
        }
        all.push((field, Expr::Column(Column::new(table.cloned(), column.name()))));
    }
    let known: Vec<Field> = all.iter().map(|(field, _)| *field).collect();
    // Fields that only a switch sets are 0 in captures.
    let is_of_captures =
        |field: Field| CaptureColumn::all().any(|column| column == CaptureColumn::Field(field));
    let missing = missing(&list.fields, list.classifier.looked_at(), &known).into_iter();
    let missing: Vec<&str> = missing.filter(|f| is_of_captures(*f)).map(|field| field.info().name).collect();
    if !missing.is_empty() {
        return Err(plan_error(format!(
            "{function}: rules of `{}` inspect columns that are missing here: {}; select them in the subquery, or add \
             {function}(..) to SELECT to sort by it",
            list.name,
            missing.join(", ")
        )));
    }
    // Fields may share key words: keep the rules' own columns and, for missing ones, overlapping columns. Address columns
    // imply the EtherType if there is no column for it; null implies nothing.
    let is_family = ether_type(&known).is_ok_and(|kind| kind.is_some());
    let is_wanted = |field: Field| {
        list.fields.contains(&field)
            || is_family && ADDRESSES.contains(&field)
            || list.fields.iter().any(|own| !known.contains(own) && overlap(*own, field))
    };
    all.retain(|(field, _)| is_wanted(*field));
    Ok((all, known))
}

fn bits(field: Field) -> FlowMask {
    let mut mask = FlowMask::zero();
    mask.add_field(field);
    mask
}

fn overlap(a: Field, b: Field) -> bool {
    let (a, b) = (bits(a), bits(b));
    a.present_words().any(|w| a.word(w) & b.word(w) != 0)
}
