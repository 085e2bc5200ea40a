//! Properties: type, length and value, filled with zeros to a multiple of 8 (OpenFlow 1.4.1 7.1.1.3).

use crate::error::ErrorCode;
use crate::wire::{Reader, Writer};

/// Reads a property: its type, and a reader of its value without the padding. Where bytes are missing, the error is `missing`.
pub(crate) fn read<'a>(r: &mut Reader<'a>, missing: ErrorCode) -> Result<(u16, Reader<'a>), ErrorCode> {
    let all = r.rest();
    let mut head = Reader::new(all, missing);
    let (kind, length) = (head.u16()?, usize::from(head.u16()?));
    let value = all.get(4..length).ok_or(missing)?;
    r.skip(length.next_multiple_of(8)).map_err(|_| missing)?;
    Ok((kind, Reader::new(value, missing)))
}

/// Writes a property.
pub(crate) fn put(w: &mut Writer, kind: u16, value: impl FnOnce(&mut Writer)) {
    let start = w.len();
    w.u16(kind).u16(0);
    value(w);
    w.set_length(start + 2, start);
    w.pad(start, 8);
}
