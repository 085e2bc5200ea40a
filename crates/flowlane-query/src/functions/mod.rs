//! SQL functions for packets: rules, routes, addresses.
//!
//! | function | result |
//! |---|---|
//! | `matches('rules.txt')` | number of the matching rule in its file, from 0; null without a match |
//! | `action('rules.txt')` | actions of that rule |
//! | `priority('rules.txt')` | priority of that rule |
//! | `flow('tcp,tp_dst=443')` | true if the packet matches this flow |
//! | `route('routes.txt', nw_dst)` | next hop of an address; null without a route |
//! | `via('routes.txt', nw_dst)` | name of that next hop in the file |
//! | `in_prefix(nw_src, '10.0.0.0/8')` | true if the address is in the prefix |
//! | `address(nw_src)` | the address as text |
//! | `network(nw_src, 24)` | the prefix of this length that contains the address, as text |

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

/// Registers the functions in a session.
pub(crate) fn register(session: &SessionContext, tables: &Arc<Tables>) -> Result<()> {
    for result in rules::RuleResult::ALL {
        session.register_udf(ScalarUDF::new_from_impl(rules::RuleFunction::new(result)));
    }
    for result in [route::HopResult::Number, route::HopResult::Name] {
        session.register_udf(ScalarUDF::new_from_impl(route::Route::new(result, Arc::clone(tables))));
    }
    session.register_udf(ScalarUDF::new_from_impl(address::InPrefix::new()));
    session.register_udf(ScalarUDF::new_from_impl(address::AddressText::new()));
    session.register_udf(ScalarUDF::new_from_impl(network::Network::new()));
    let state = session.state_ref();
    let mut state = state.write();
    state.register_expr_planner(Arc::new(address::HexadecimalNumbers))?;
    state.register_function_rewrite(Arc::new(rules::RuleColumns::new(Arc::clone(tables))))?;
    state.register_function_rewrite(Arc::new(address::AddressLiterals))
}

/// Returns the column name of a function call, with text literals as in the query.
fn call_name(function: &str, args: &[Expr]) -> Result<String> {
    let args = args.iter().map(|arg| match arg {
        Expr::Literal(ScalarValue::Utf8(Some(text)), _) => format!("'{text}'"),
        other => other.schema_name().to_string(),
    });
    Ok(format!("{function}({})", args.collect::<Vec<_>>().join(", ")))
}

/// Creates a planning error.
fn plan_error(what: impl std::fmt::Display) -> DataFusionError {
    DataFusionError::Plan(what.to_string())
}

fn refused(error: QueryError) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}

/// Returns the text of a constant argument.
fn constant<'a>(function: &str, value: Option<&'a ColumnarValue>) -> Result<&'a str> {
    match value {
        Some(ColumnarValue::Scalar(
            ScalarValue::Utf8(Some(text))
            | ScalarValue::Utf8View(Some(text))
            | ScalarValue::LargeUtf8(Some(text)),
        )) => Ok(text),
        _ => Err(plan_error(format!("{function}: expected a text constant in quotes"))),
    }
}
