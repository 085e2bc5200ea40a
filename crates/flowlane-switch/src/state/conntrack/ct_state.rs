//! Bits of `ct_state`, as in Open vSwitch.

/// The connection is not kept yet, or has not been answered.
pub const NEW: u32 = 0x01;
/// Packets have been seen in both directions.
pub const ESTABLISHED: u32 = 0x02;
/// The packet is an error about another connection.
pub const RELATED: u32 = 0x04;
/// The packet goes in the direction of replies.
pub const REPLY: u32 = 0x08;
/// The packet could not be assigned to a connection.
pub const INVALID: u32 = 0x10;
/// The packet has met `ct`.
pub const TRACKED: u32 = 0x20;
/// Its source has been translated.
pub const SOURCE_TRANSLATED: u32 = 0x40;
/// Its destination has been translated.
pub const DESTINATION_TRANSLATED: u32 = 0x80;

pub(super) const TRANSLATED: u32 = SOURCE_TRANSLATED | DESTINATION_TRANSLATED;

/// The names of the bits, from bit 0 on.
const NAMES: [&str; 8] = ["new", "est", "rel", "rpl", "inv", "trk", "snat", "dnat"];

/// Reads the names of bits, with commas or bars between them.
///
/// # Errors
/// The name that there is not.
pub fn read(text: &str) -> Result<u32, String> {
    let names = text.split([',', '|']).map(str::trim).filter(|name| !name.is_empty());
    names.map(bit).try_fold(0, |bits, bit| Ok(bits | bit?))
}

fn bit(name: &str) -> Result<u32, String> {
    let place = NAMES.iter().position(|known| *known == name);
    let unknown = || format!("there is no ct_state `{name}`; there are {}", NAMES.join(", "));
    place.map(|place| 1 << place).ok_or_else(unknown)
}
