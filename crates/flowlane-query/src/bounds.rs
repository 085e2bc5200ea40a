//! Conditions on time and length, evaluated before a packet is parsed.

use std::fmt;

use datafusion::common::ScalarValue;
use datafusion::logical_expr::{BinaryExpr, Expr, Operator};
use flowlane_arrow::Column;
use flowlane_capture::Packet;

/// An inclusive range of values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Range {
    first: i128,
    last: i128,
}

impl Range {
    const ALL: Self = Self { first: i128::MIN, last: i128::MAX };

    fn narrow(&mut self, other: Self) {
        self.first = self.first.max(other.first);
        self.last = self.last.min(other.last);
    }

    fn has(self, value: i128) -> bool {
        (self.first..=self.last).contains(&value)
    }
}

/// Conditions evaluated before a packet is parsed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Bounds {
    time: Range,
    captured: Range,
    length: Range,
}

impl Bounds {
    /// No condition.
    pub(crate) const NONE: Self = Self { time: Range::ALL, captured: Range::ALL, length: Range::ALL };

    /// Combines conditions, all of which must be [supported](is_supported).
    pub(crate) fn of(conditions: &[Expr]) -> Self {
        let mut bounds = Self::NONE;
        for (column, range) in conditions.iter().filter_map(range) {
            match column {
                Column::Time => bounds.time.narrow(range),
                Column::Captured => bounds.captured.narrow(range),
                _ => bounds.length.narrow(range),
            }
        }
        bounds
    }

    /// Returns the restricted columns with their ranges.
    fn result(&self) -> impl Iterator<Item = (Column, Range)> {
        let all =
            [(Column::Time, self.time), (Column::Captured, self.captured), (Column::Length, self.length)];
        all.into_iter().filter(|(_, range)| *range != Range::ALL)
    }

    #[inline]
    pub(crate) fn matches(&self, packet: &Packet<'_>) -> bool {
        *self == Self::NONE
            || self.time.has(packet.time_ns.min(i64::MAX as u64).into())
                && self.captured.has(packet.bytes.len() as i128)
                && self.length.has(packet.len.into())
    }
}

impl fmt::Display for Bounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (column, range) in self.result() {
            let name = column.name();
            match range {
                Range { first, last } if first == last => write!(f, ", {name} = {first}")?,
                Range { first: i128::MIN, last } => write!(f, ", {name} <= {last}")?,
                Range { first, last: i128::MAX } => write!(f, ", {name} >= {first}")?,
                Range { first, last } => write!(f, ", {first} <= {name} <= {last}")?,
            }
        }
        Ok(())
    }
}

/// Returns whether [`Bounds`] evaluate a condition exactly.
pub(crate) fn is_supported(condition: &Expr) -> bool {
    range(condition).is_some()
}

/// Returns the column that a condition restricts, and the range.
fn range(condition: &Expr) -> Option<(Column, Range)> {
    match condition {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => match (&**left, &**right) {
            (Expr::Column(column), Expr::Literal(value, _)) => compared(column.name(), *op, value),
            (Expr::Literal(value, _), Expr::Column(column)) => compared(column.name(), op.swap()?, value),
            _ => None,
        },
        Expr::Between(between) if !between.negated => {
            let (Expr::Column(column), Expr::Literal(low, _), Expr::Literal(high, _)) =
                (&*between.expr, &*between.low, &*between.high)
            else {
                return None;
            };
            let (column, mut range) = compared(column.name(), Operator::GtEq, low)?;
            range.narrow(compared(column.name(), Operator::LtEq, high)?.1);
            Some((column, range))
        }
        _ => None,
    }
}

fn compared(name: &str, op: Operator, value: &ScalarValue) -> Option<(Column, Range)> {
    let column = [Column::Time, Column::Captured, Column::Length].into_iter().find(|c| c.name() == name)?;
    let value: i128 = match (column, value) {
        (Column::Time, ScalarValue::TimestampNanosecond(Some(value), _)) => (*value).into(),
        (Column::Captured | Column::Length, ScalarValue::UInt32(Some(value))) => (*value).into(),
        (Column::Captured | Column::Length, ScalarValue::Int64(Some(value))) => (*value).into(),
        _ => return None,
    };
    let (first, last) = match op {
        Operator::Eq => (value, value),
        Operator::Lt => (i128::MIN, value - 1),
        Operator::LtEq => (i128::MIN, value),
        Operator::Gt => (value + 1, i128::MAX),
        Operator::GtEq => (value, i128::MAX),
        _ => return None,
    };
    Some((column, Range { first, last }))
}
