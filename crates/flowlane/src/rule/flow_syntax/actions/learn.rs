//! `learn`.

use super::super::super::action::{Action, Learn, LearnSource, LearnSpec};
use super::super::super::error::{Fault, Token};
use super::super::super::{Match, Priority, ReadOptions};
use super::super::known::Known;
use super::super::names::{self, Part, read_part, written_part};
use super::super::{key_value, number, split, values};
use crate::packet::FieldRef;
use crate::packet::fields::Field;

/// The match of the rule that is learned, as far as it has constants.
pub(in super::super) fn learned(specs: &[LearnSpec]) -> Match {
    let mut matches = Match::any();
    for spec in specs {
        if let LearnSpec::Match { to, from: LearnSource::Value(value) } = spec {
            matches.set_masked(to.field(), to.place(*value & to.ones()), to.mask());
        }
    }
    matches
}

/// The arguments of `learn`; `known` is known of the packets that are learned from.
pub(super) fn learn(argument: Token<'_>, options: &ReadOptions<'_>, known: &Known) -> Result<Action, Fault> {
    let mut out = Learn {
        idle_timeout_s: 0,
        hard_timeout_s: 0,
        priority: Priority::DEFAULT.0 as u16,
        table: 1,
        cookie: 0,
        fin_idle_timeout_s: 0,
        fin_hard_timeout_s: 0,
        send_flow_removed: false,
        delete_learned: false,
        limit: 0,
        result: None,
        specs: Vec::new(),
    };
    for part in split(argument)? {
        let (key, value) = key_value(part)?;
        let seconds = || number(key, value, 0xffff).map(|seconds| seconds as u16);
        match key.text {
            "table" => {
                out.table = number(key, value, 254)? as u8;
                (options.check_table)(out.table).map_err(|problem| value.unwrap_or(key).fault(problem))?;
            }
            "priority" => out.priority = number(key, value, 0xffff)? as u16,
            "idle_timeout" => out.idle_timeout_s = seconds()?,
            "hard_timeout" => out.hard_timeout_s = seconds()?,
            "fin_idle_timeout" => out.fin_idle_timeout_s = seconds()?,
            "fin_hard_timeout" => out.fin_hard_timeout_s = seconds()?,
            "cookie" => out.cookie = number(key, value, u64::MAX)?,
            "limit" => out.limit = number(key, value, u32::MAX.into())? as u32,
            "send_flow_rem" => out.send_flow_removed = true,
            "delete_learned" => out.delete_learned = true,
            "result_dst" => {
                let bit = value.ok_or_else(|| key.fault("`result_dst=FIELD[BIT]` is expected"))?;
                let to = written_part(bit, known)?;
                if to.bits() != 1 {
                    return Err(bit.fault("the result is one bit; write which, as in `reg0[0]`"));
                }
                out.result = Some(to);
            }
            _ => {
                let spec = spec(key, value, &out.specs, options, known)?;
                out.specs.push(spec);
            }
        }
    }
    Ok(Action::Learn(Box::new(out)))
}

/// `FIELD`, `FIELD=FIELD`, `FIELD=VALUE`, `load:VALUE->FIELD`, `load:FIELD->FIELD` or `output:FIELD`.
fn spec(
    key: Token<'_>,
    value: Option<Token<'_>>,
    before: &[LearnSpec],
    options: &ReadOptions<'_>,
    known: &Known,
) -> Result<LearnSpec, Fault> {
    match (key.text, value) {
        ("load", Some(value)) => {
            let Some((from, to)) = value.split("->") else {
                return Err(value.fault("`load:VALUE->FIELD` or `load:FIELD->FIELD` is expected"));
            };
            let (from, to) = (from.trim(), to.trim());
            // It is set for packets of the learned rule, perhaps with their connection.
            let learned = Known::of(&learned(before));
            let field = names::field_named(to.before("["))?;
            let learned = if field.is_set_with_connection() { learned.into_connection() } else { learned };
            let target = written_part(to, &learned)?;
            let from = match is_number(from) {
                true => LearnSource::Value(constant(from, &Part::read(to)?, target)?),
                false => LearnSource::Field(of_width(from, known, target)?),
            };
            Ok(LearnSpec::Load { to: target, from })
        }
        ("output", Some(value)) => read_part(value, known).map(LearnSpec::Output),
        _ => {
            if names::by_name(key.before("[").text).is_none() && names::absent(key.before("[").text).is_none()
            {
                return Err(key.fault("the name of a field is expected, or an argument of learn, as table"));
            }
            if let Some(vid) = value.filter(|value| names::is_vid(key.text) && is_number(*value)) {
                // With the bit that says that there is a tag.
                let to = FieldRef::new(Field::VlanTci, 0, 13).unwrap_or(Field::VlanTci.into());
                let from = LearnSource::Value(values::number(vid, to.ones())?);
                return Ok(LearnSpec::Match { to, from });
            }
            let part = Part::read(key)?;
            let to = names::learned_part(key, &Known::of(&learned(before)))?;
            let from = match value {
                None => LearnSource::Field(of_width(key, known, to)?),
                Some(value) if is_field(value) => LearnSource::Field(of_width(value, known, to)?),
                Some(value) if part.is_whole => {
                    let info = values::info_as(to.field(), key.before("[").text);
                    LearnSource::Value(to.extract(values::one(&info, value, options)?))
                }
                Some(value) => LearnSource::Value(constant(value, &part, to)?),
            };
            Ok(LearnSpec::Match { to, from })
        }
    }
}

fn is_number(token: Token<'_>) -> bool {
    token.text.starts_with(|c: char| c.is_ascii_digit())
}

fn is_field(token: Token<'_>) -> bool {
    !values::is_reserved_port(token.text) && names::by_name(token.before("[").text).is_some()
}

/// A value of some bits, as they are written.
fn constant(token: Token<'_>, part: &Part, bits: FieldRef) -> Result<u128, Fault> {
    let value = values::number(token, u128::MAX >> (128 - part.count))?;
    Ok(bits.extract(part.place(value, bits)))
}

/// A part of a field as wide as another, of the packets that are learned from.
fn of_width(token: Token<'_>, known: &Known, to: FieldRef) -> Result<FieldRef, Fault> {
    let from = read_part(token, known)?;
    match from.bits() == to.bits() {
        true => Ok(from),
        false => Err(token.fault(format!("this has {} bits, where {} are learned", from.bits(), to.bits()))),
    }
}
