//! `encap` and `decap`.

use super::super::super::action::{Action, EncapsulateHeader};
use super::super::super::error::{Fault, Token};
use super::super::{commas, key_value, number, split, values};

/// The most bytes of a TLV of NSH.
const TLV_MAX: usize = 127;

/// `ethernet`, `mpls`, `mpls_mc`, `nsh` or `nsh(md_type=2,tlv(CLASS,TYPE,BYTES))`.
pub(super) fn encapsulate(argument: Token<'_>) -> Result<Action, Fault> {
    let (name, inside) = key_value(argument)?;
    let header = match (name.text, inside) {
        ("ethernet", None) => EncapsulateHeader::Ethernet,
        ("mpls", None) => EncapsulateHeader::Mpls,
        ("mpls_mc", None) => EncapsulateHeader::MplsMulticast,
        ("nsh", inside) => nsh(inside)?,
        _ => {
            let problem =
                "the number of a tunnel is expected, or a header: ethernet, mpls, mpls_mc or nsh(md_type=1)";
            return Err(argument.fault(problem));
        }
    };
    Ok(Action::EncapsulateHeader(header))
}

fn nsh(inside: Option<Token<'_>>) -> Result<EncapsulateHeader, Fault> {
    let (mut metadata_type, mut tlvs) = (0, Vec::new());
    let parts = match inside {
        Some(inside) => split(inside)?,
        None => Vec::new(),
    };
    for part in parts {
        match key_value(part)? {
            (key, Some(value)) if key.text == "md_type" => {
                metadata_type =
                    values::number(value, 2).ok().filter(|kind| *kind > 0).ok_or_else(|| {
                        value.fault("the type of NSH's metadata is 1 (four fields) or 2 (TLVs)")
                    })? as u8;
            }
            (key, Some(value)) if key.text == "tlv" && metadata_type == 2 => tlvs.push(tlv(value)?),
            (key, _) if key.text == "tlv" => {
                return Err(part.fault("only metadata of type 2 has TLVs; write `md_type=2` in front"));
            }
            (key, _) => return Err(key.fault("md_type or tlv is expected")),
        }
    }
    Ok(EncapsulateHeader::Nsh { metadata_type, tlvs })
}

/// `CLASS,TYPE,0xBYTES`.
fn tlv(token: Token<'_>) -> Result<(u16, u8, Vec<u8>), Fault> {
    let parts = commas(token);
    let [class, kind, value] = parts[..] else {
        return Err(token.fault("`tlv(CLASS,TYPE,0xBYTES)` is expected"));
    };
    let (class, kind) = (values::number(class, 0xffff)? as u16, values::number(kind, 0xff)? as u8);
    let digits = value.text.strip_prefix("0x").unwrap_or("");
    if digits.is_empty() || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return Err(value.fault("bytes are expected, as 0x12ab"));
    }
    // A digit that is left over is dropped, as in Open vSwitch.
    let bytes: Vec<u8> = digits
        .as_bytes()
        .chunks_exact(2)
        .filter_map(|two| u8::from_str_radix(std::str::from_utf8(two).ok()?, 16).ok())
        .collect();
    match bytes.len() {
        0..=TLV_MAX => Ok((class, kind, bytes)),
        _ => Err(value.fault(format!("a TLV has at most {TLV_MAX} bytes"))),
    }
}

/// `packet_type(ns=SPACE,type=TYPE)`.
pub(super) fn decapsulate(argument: Token<'_>) -> Result<Action, Fault> {
    let expected = || argument.fault("`decap()` or `decap(packet_type(ns=SPACE,type=TYPE))` is expected");
    let (name, inside) = key_value(argument)?;
    let inside = inside.filter(|_| name.text == "packet_type").ok_or_else(expected)?;
    let (mut space, mut kind) = (None, None);
    for part in split(inside)? {
        let (key, value) = key_value(part)?;
        match key.text {
            "ns" => space = Some(number(key, value, 0xffff)? as u16),
            "type" => kind = Some(number(key, value, 0xffff)? as u16),
            _ => return Err(key.fault("ns or type is expected")),
        }
    }
    space.zip(kind).map(|kind| Action::Decapsulate(Some(kind))).ok_or_else(expected)
}
