//! The map of tunnel options: its changes, and what it says.

use flowlane::packet::fields::TUN_METADATA_COUNT;
use flowlane::tunnel::{MappedOption, OPTION_BYTES_MAX, OptionMap};
use flowlane_openflow::OPTIONS_MAX;
use flowlane_openflow::message::{TlvCommand, TlvMapping, TlvTable, TlvTableMod};

use crate::control::OptionMod;

/// The change that a message asks for.
pub(super) fn change(request: &TlvTableMod) -> OptionMod {
    let option = |one: &TlvMapping| {
        let &TlvMapping { class, kind, length, index } = one;
        (usize::from(index), MappedOption { class, kind, bytes: length })
    };
    let mappings = request.mappings.iter();
    match request.command {
        TlvCommand::Add => OptionMod::Add(mappings.map(option).collect()),
        TlvCommand::Delete => OptionMod::Delete(mappings.map(|one| usize::from(one.index)).collect()),
        TlvCommand::Clear => OptionMod::Clear,
    }
}

/// The map as a message.
pub(super) fn table(options: &OptionMap) -> TlvTable {
    let mapping = |(number, option): (usize, MappedOption)| {
        let MappedOption { class, kind, bytes } = option;
        TlvMapping { class, kind, length: bytes, index: number as u16 }
    };
    TlvTable {
        space_max: (TUN_METADATA_COUNT * OPTION_BYTES_MAX) as u32,
        fields_max: TUN_METADATA_COUNT as u16,
        mappings: options.iter().map(mapping).collect(),
    }
}

/// Bytes of each field in messages.
pub(super) fn bytes(options: &OptionMap) -> [u8; OPTIONS_MAX] {
    let mut all = [0; OPTIONS_MAX];
    options.iter().for_each(|(number, option)| all[number] = option.bytes);
    all
}
