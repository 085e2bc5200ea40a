//! Actions that write fields: `set_field`, `load`, `move`.

use super::super::ReadOptions;
use super::super::action::{Action, SetForm};
use super::super::error::{Fault, Token};
use super::known::Known;
use super::names::{self, Part, written};
use super::values;
use crate::packet::fields::{Field, Form, VLAN_PRESENT};

/// Sets all bits of a field by its own action.
pub(super) fn own(
    field: Field,
    form: SetForm,
    argument: Token<'_>,
    options: &ReadOptions<'_>,
) -> Result<Action, Fault> {
    let value = values::one(field.info(), argument, options)?;
    Ok(Action::SetField { field, value, mask: field.info().ones(), form, protocol: None })
}

/// `VALUE[/MASK]->FIELD`.
pub(super) fn set_field(
    argument: Token<'_>,
    options: &ReadOptions<'_>,
    known: &Known,
) -> Result<Action, Fault> {
    let Some((value, target)) = argument.split("->") else {
        return Err(argument.fault("`set_field:VALUE[/MASK]->FIELD` is expected"));
    };
    let (value, target) = (value.trim(), target.trim());
    if target.text.contains('[') {
        return Err(
            target.fault("set_field takes whole fields; write a mask, or `load:VALUE->FIELD[FIRST..LAST]`")
        );
    }
    let field = written(target, known)?;
    // OpenFlow's vlan_vid has a bit that says 'tag present'; setting the field always makes it so.
    if names::is_vid(target.text) {
        return vlan_vid(value);
    }
    let info = values::info_as(field, target.text);
    if info.form == Form::Tos && values::number(value.before("/"), 0xff)? & 3 != 0 {
        return Err(value.fault("the two low bits of the TOS are ECN's and stay; set nw_ecn"));
    }
    let (value, mask) = values::value_mask(&info, value, options)?;
    // By these names, a tag is added where there is none.
    let form = if target.text.starts_with("dl_vlan") { SetForm::Own } else { SetForm::SetField };
    assign(argument, field, (value, mask), form, known.protocol_of(field, target.text))
}

fn vlan_vid(token: Token<'_>) -> Result<Action, Fault> {
    let (value, mask) = token.split("/").unwrap_or((token, Token { text: "0x1fff", at: token.at }));
    let vid = values::number(value, 0x1fff)?;
    match values::number(mask, 0x1fff)? & 0xfff {
        0 => Err(mask.fault("the mask has no bit of the VID")),
        mask => {
            let (field, form) = (Field::VlanVid, SetForm::SetField);
            Ok(Action::SetField { field, value: vid & mask, mask, form, protocol: None })
        }
    }
}

/// Sets the field; a `vlan_tci` of 0 is no tag, as in Open vSwitch.
fn assign(
    token: Token<'_>,
    field: Field,
    (value, mask): (u128, u128),
    form: SetForm,
    protocol: Option<u8>,
) -> Result<Action, Fault> {
    let present = u128::from(VLAN_PRESENT);
    match (field, mask & present != 0 && value & present == 0) {
        (Field::VlanTci, true) if mask == field.info().ones() && value == 0 => Ok(Action::PopVlan),
        (Field::VlanTci, true) => {
            let problem = "a vlan_tci without the bit 0x1000 is no tag; write pop_vlan to remove the tag, or add 0x1000";
            Err(token.fault(problem))
        }
        _ => Ok(Action::SetField { field, value, mask, form, protocol }),
    }
}

/// `VALUE->FIELD[first..last]`.
pub(super) fn load(argument: Token<'_>, known: &Known) -> Result<Action, Fault> {
    let Some((value, target)) = argument.split("->") else {
        return Err(argument.fault("`load:VALUE->FIELD[FIRST..LAST]` is expected"));
    };
    let target = target.trim();
    written(target, known)?;
    let part = Part::read(target)?;
    let value = values::number(value.trim(), u128::MAX >> (128 - part.count))?;
    let Some(bits) = part.reference() else {
        return Err(target.fault("these bits of the TOS are ECN's; load them into nw_ecn"));
    };
    let protocol = known.protocol_of(part.field, target.text);
    assign(argument, part.field, (part.place(value, bits), bits.mask()), SetForm::Load, protocol)
}

/// `FIELD[first..last]->FIELD[first..last]`, or whole fields; both of one width.
pub(super) fn move_field(argument: Token<'_>, known: &Known) -> Result<Action, Fault> {
    let Some((from, to)) = argument.split("->") else {
        return Err(argument.fault("`move:FIELD->FIELD` is expected"));
    };
    let (from, to) = (from.trim(), to.trim());
    let (source, target) = (names::read_part(from, known)?, names::written_part(to, known)?);
    if source.bits() != target.bits() {
        return Err(argument.fault(format!(
            "move takes two fields, or parts of fields, of the same width; these have {} and {} bits",
            source.bits(),
            target.bits()
        )));
    }
    Ok(Action::Move { from: source, to: target })
}
