//! `matches`, `action`, `priority` and `flow`: which rule wins, by the columns at which rules look.
//!
//! A query names a file; which columns its rules look at is in no query. So each call is rewritten, once the query's tables
//! are known, into one that is given those columns.

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
use super::{called, refused, wrong};
use crate::tables::{RuleList, Tables};

/// What is asked of the rule that wins.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Asked {
    /// Its number.
    Number,
    /// What it does.
    Action,
    Priority,
    /// Whether there is one.
    Any,
}

impl Asked {
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

/// A function as queries write it: of a text alone.
#[derive(PartialEq, Eq, Hash, Debug)]
pub(super) struct RuleFunction {
    asked: Asked,
    signature: Signature,
}

impl RuleFunction {
    pub(super) fn new(asked: Asked) -> Self {
        let text = TypeSignature::String(1);
        Self { asked, signature: Signature::new(text, Volatility::Stable) }
    }
}

impl ScalarUDFImpl for RuleFunction {
    fn name(&self) -> &str {
        self.asked.name()
    }

    fn schema_name(&self, args: &[Expr]) -> Result<String> {
        called(self.name(), args)
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(self.asked.data_type())
    }

    fn invoke_with_args(&self, _: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let name = self.name();
        Err(wrong(format!("{name}: a text in quotes is wanted, and a table of packets behind FROM")))
    }
}

/// Gives functions of rules the columns at which their rules look.
#[derive(Debug)]
pub(super) struct ColumnsOfRules {
    tables: Arc<Tables>,
}

impl ColumnsOfRules {
    pub(super) fn new(tables: Arc<Tables>) -> Self {
        Self { tables }
    }
}

impl FunctionRewrite for ColumnsOfRules {
    fn name(&self) -> &'static str {
        "columns of rules"
    }

    fn rewrite(&self, expr: Expr, schema: &DFSchema, _: &ConfigOptions) -> Result<Transformed<Expr>> {
        let Expr::ScalarFunction(call) = &expr else { return Ok(Transformed::no(expr)) };
        let Some(RuleFunction { asked, .. }) = call.func.inner().downcast_ref() else {
            return Ok(Transformed::no(expr));
        };
        let [Expr::Literal(ScalarValue::Utf8(Some(text)) | ScalarValue::Utf8View(Some(text)), _)] =
            &call.args[..]
        else {
            return Err(wrong(format!("{}: a text in quotes is wanted", asked.name())));
        };
        let list = match asked {
            Asked::Any => self.tables.flow(text),
            _ => self.tables.rules(text),
        };
        let list = list.map_err(refused)?;
        let (columns, known) = columns(asked.name(), &list, schema)?;
        let (fields, columns): (Vec<Field>, Vec<Expr>) = columns.into_iter().unzip();
        let look_up = ScalarUDF::new_from_impl(LookUp::new(*asked, list, fields, known));
        Ok(Transformed::yes(Expr::ScalarFunction(ScalarFunction::new_udf(Arc::new(look_up), columns))))
    }
}

/// Fields that say of which family a packet is, where nothing else does.
pub(super) const ADDRESSES: [Field; 4] = [Field::Ipv4Src, Field::Ipv4Dst, Field::Ipv6Src, Field::Ipv6Dst];

/// Columns with the fields that they are.
type FieldColumns = Vec<(Field, Expr)>;

/// The columns at which rules look, and all fields that are known.
///
/// # Errors
/// Where a column is missing, or there are two of one.
fn columns(function: &str, list: &RuleList, schema: &DFSchema) -> Result<(FieldColumns, Vec<Field>)> {
    let mut all: FieldColumns = Vec::new();
    for (table, described) in schema.iter() {
        let Some(field) = Field::by_name(described.name()) else { continue };
        if all.iter().any(|(known, _)| *known == field) {
            return Err(wrong(format!(
                "{function}: there are two columns `{}`; ask one table, in parentheses behind FROM",
                described.name()
            )));
        }
        all.push((field, Expr::Column(Column::new(table.cloned(), described.name()))));
    }
    let known: Vec<Field> = all.iter().map(|(field, _)| *field).collect();
    // Captures know nothing of what a switch gives packets: it is 0.
    let is_of_captures =
        |field: Field| CaptureColumn::all().any(|column| column == CaptureColumn::Field(field));
    let missing = missing(&list.fields, list.classifier.looked_at(), &known).into_iter();
    let missing: Vec<&str> = missing.filter(|f| is_of_captures(*f)).map(|field| field.info().name).collect();
    if !missing.is_empty() {
        return Err(wrong(format!(
            "{function}: rules of `{}` look at columns that are not here: {}; select them in the query inside, or name \
             {function}(..) in SELECT where it is to be sorted by",
            list.name,
            missing.join(", ")
        )));
    }
    // Two fields may have one place: the rules' own, and what else says something of it where those are not there. Addresses say
    // of what family packets are, where no column does: of a null nothing is known.
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
