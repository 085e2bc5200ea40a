//! What queries ask of packets beside SQL: rules, routes, addresses.
//!
//! | function | what |
//! |---|---|
//! | `matches('rules.txt')` | the number of the rule that wins, from 0 in its file; null where none does |
//! | `action('rules.txt')` | what that rule does |
//! | `priority('rules.txt')` | its priority |
//! | `flow('tcp,tp_dst=443')` | whether the packet is of such a flow |
//! | `route('routes.txt', nw_dst)` | the next hop of an address; null where there is none |
//! | `via('routes.txt', nw_dst)` | what the routes call that next hop |
//! | `in_prefix(nw_src, '10.0.0.0/8')` | whether an address is in a prefix |
//! | `address(nw_src)` | an address as text |
//! | `network(nw_src, 24)` | the prefix of that length that an address is in, as text |

pub(crate) mod address;
mod lookup;
mod network;
mod route;
mod rules;

use std::sync::Arc;

use datafusion::common::ScalarValue;
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::registry::FunctionRegistry;
use datafusion::logical_expr::{ColumnarValue, Expr, ScalarUDF};
use datafusion::prelude::SessionContext;

use crate::QueryError;
use crate::tables::Tables;

/// Gives a session these functions.
pub(crate) fn register(session: &SessionContext, tables: &Arc<Tables>) -> Result<()> {
    for asked in rules::Asked::ALL {
        session.register_udf(ScalarUDF::new_from_impl(rules::RuleFunction::new(asked)));
    }
    for said in [route::Said::Number, route::Said::Name] {
        session.register_udf(ScalarUDF::new_from_impl(route::Route::new(said, Arc::clone(tables))));
    }
    session.register_udf(ScalarUDF::new_from_impl(address::InPrefix::new()));
    session.register_udf(ScalarUDF::new_from_impl(address::AddressText::new()));
    session.register_udf(ScalarUDF::new_from_impl(network::Network::new()));
    let state = session.state_ref();
    let mut state = state.write();
    state.register_expr_planner(Arc::new(address::HexadecimalNumbers))?;
    state.register_function_rewrite(Arc::new(rules::ColumnsOfRules::new(Arc::clone(tables))))?;
    state.register_function_rewrite(Arc::new(address::WrittenAddresses))
}

/// What a column is called that a function gives: texts as queries have them, and not as the engine does.
fn called(function: &str, args: &[Expr]) -> Result<String> {
    let args = args.iter().map(|arg| match arg {
        Expr::Literal(ScalarValue::Utf8(Some(text)), _) => format!("'{text}'"),
        other => other.schema_name().to_string(),
    });
    Ok(format!("{function}({})", args.collect::<Vec<_>>().join(", ")))
}

/// An error of a plan.
fn wrong(what: impl std::fmt::Display) -> DataFusionError {
    DataFusionError::Plan(what.to_string())
}

fn refused(error: QueryError) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}

/// The text of an argument that is one.
fn constant<'a>(function: &str, value: Option<&'a ColumnarValue>) -> Result<&'a str> {
    match value {
        Some(ColumnarValue::Scalar(
            ScalarValue::Utf8(Some(text))
            | ScalarValue::Utf8View(Some(text))
            | ScalarValue::LargeUtf8(Some(text)),
        )) => Ok(text),
        _ => Err(wrong(format!("{function}: a text in quotes is wanted, the same for all rows"))),
    }
}
