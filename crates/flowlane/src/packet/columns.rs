//! Packets as columns: an array for each field, as tables of analysts and databases have them.

use std::fmt;
use std::ops::Range;

use arrayvec::ArrayVec;

use super::fields::{Field, NAMED};
use super::key::FlowKey;
use crate::error::Error;

/// Values of a field, one for each packet.
#[derive(Clone, Copy)]
pub enum Values<'a> {
    /// Numbers of one byte.
    U8(&'a [u8]),
    /// Numbers of two bytes.
    U16(&'a [u16]),
    /// Numbers of four bytes.
    U32(&'a [u32]),
    /// Numbers of eight bytes.
    U64(&'a [u64]),
    /// Numbers of 1 to 16 bytes each (the second value), in network order, contiguous.
    Bytes(&'a [u8], usize),
    /// One number for all packets.
    One(u128),
}

impl fmt::Debug for Values<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self, self.len()) {
            (Self::One(value), _) => write!(f, "One({value:#x})"),
            (_, len) => write!(f, "{} of {} bytes", len.unwrap_or(0), self.bytes()),
        }
    }
}

impl Values<'_> {
    /// Number of values; `None` for one value that suits any number of packets.
    pub fn len(&self) -> Option<usize> {
        match self {
            Self::U8(values) => Some(values.len()),
            Self::U16(values) => Some(values.len()),
            Self::U32(values) => Some(values.len()),
            Self::U64(values) => Some(values.len()),
            Self::Bytes(bytes, each) => Some(bytes.len() / each.max(&1)),
            Self::One(_) => None,
        }
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == Some(0)
    }

    fn rows(self, rows: Range<usize>) -> Self {
        match self {
            Self::U8(values) => Self::U8(&values[rows]),
            Self::U16(values) => Self::U16(&values[rows]),
            Self::U32(values) => Self::U32(&values[rows]),
            Self::U64(values) => Self::U64(&values[rows]),
            Self::Bytes(bytes, each) => Self::Bytes(&bytes[rows.start * each..rows.end * each], each),
            Self::One(value) => Self::One(value),
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Self::U8(_) => 1,
            Self::U16(_) => 2,
            Self::U32(_) => 4,
            Self::U64(_) => 8,
            Self::Bytes(_, each) => *each,
            Self::One(_) => 16,
        }
    }

    /// One of them.
    fn at(&self, row: usize) -> u128 {
        match self {
            Self::U8(values) => values[row].into(),
            Self::U16(values) => values[row].into(),
            Self::U32(values) => values[row].into(),
            Self::U64(values) => values[row].into(),
            Self::Bytes(bytes, each) => number(&bytes[row * each..][..*each]),
            Self::One(value) => *value,
        }
    }

    /// The first that is larger.
    fn first_above(&self, most: u128) -> Option<usize> {
        // A loop without an end in the middle is a few instructions for many values.
        fn any<T: Copy + Ord>(values: &[T], most: T) -> bool {
            values.iter().fold(false, |any, value| any | (*value > most))
        }
        let has = match self {
            Self::U8(values) => u8::try_from(most).is_ok_and(|most| any(values, most)),
            Self::U16(values) => u16::try_from(most).is_ok_and(|most| any(values, most)),
            Self::U32(values) => u32::try_from(most).is_ok_and(|most| any(values, most)),
            Self::U64(values) => u64::try_from(most).is_ok_and(|most| any(values, most)),
            Self::Bytes(..) => true,
            Self::One(value) => *value > most,
        };
        let rows = 0..self.len().unwrap_or(1);
        if has { rows.into_iter().find(|row| self.at(*row) > most) } else { None }
    }
}

/// Bytes in network order.
fn number(bytes: &[u8]) -> u128 {
    bytes.iter().fold(0, |number, byte| number << 8 | u128::from(*byte))
}

/// A column that does not suit its field, or the others: an [`Input`](crate::ErrorKind::Input).
pub type ColumnError = Error;

/// A piece of a field in a word of the flow key.
#[derive(Clone, Copy, Debug)]
struct Piece<'a> {
    values: Values<'a>,
    /// The bits that it may have, before it is shifted.
    ones: u32,
    word: u8,
    /// The place of its lowest bit in the word.
    shift: u8,
    /// Bits of the field that are below it.
    below: u8,
}

/// Packets of which some fields are known, one column each; the others are 0.
///
/// ```
/// use flowlane::{Field, FlowColumns, Values};
///
/// let packets = FlowColumns::new(2)
///     .with(Field::EthType, Values::One(0x0800))?
///     .with(Field::TpDst, Values::U16(&[53, 80]))?;
/// assert_eq!(packets.key(1).get(Field::TpDst), 80);
/// let error = packets.with(Field::TpSrc, Values::U32(&[1, 70_000])).unwrap_err();
/// assert_eq!(error.to_string(), "column `tp_src`, row 1: 0x11170 does not fit into 16 bits; the largest value is 0xffff");
/// assert_eq!(error.row(), Some(1));
/// # Ok::<(), flowlane::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct FlowColumns<'a> {
    len: usize,
    // In place: a lookup of a burst allocates nothing.
    fields: ArrayVec<Field, FIELDS_MAX>,
    pieces: ArrayVec<Piece<'a>, PIECES_MAX>,
}

/// Each field once.
const FIELDS_MAX: usize = NAMED;

/// A piece for each word that a field is in: those of 128 bits are in four.
const PIECES_MAX: usize = FIELDS_MAX + 74;

impl<'a> FlowColumns<'a> {
    /// Columns of `len` packets of which no field is known yet.
    pub fn new(len: usize) -> Self {
        Self { len, fields: ArrayVec::new(), pieces: ArrayVec::new() }
    }

    /// Returns the packets with the values of a further field: see [`add`](Self::add).
    ///
    /// # Errors
    /// See [`add`](Self::add).
    pub fn with(mut self, field: Field, values: Values<'a>) -> Result<Self, Error> {
        self.add(field, values).map(|()| self)
    }

    /// Adds the values of a field. A type wider than the field will do where the values fit.
    ///
    /// # Errors
    /// [`Input`](crate::ErrorKind::Input): where there are not as many as packets, one does not fit, or the field is there already; nothing is added then.
    pub fn add(&mut self, field: Field, values: Values<'a>) -> Result<(), Error> {
        let info = field.info();
        let name = info.name;
        if let Values::Bytes(bytes, each) = values
            && (!(1..=16).contains(&each) || !bytes.len().is_multiple_of(each))
        {
            let bytes = bytes.len();
            return Err(Error::input(format!(
                "column `{name}`: {bytes} bytes are no values of {each} bytes each (1 to 16)"
            )));
        }
        if let Some(len) = values.len().filter(|len| *len != self.len) {
            let wanted = self.len;
            return Err(Error::input(format!(
                "column `{name}` has {len} rows, and others have {wanted}; give as many of each"
            )));
        }
        if self.fields.contains(&field) {
            return Err(Error::input(format!("column `{name}` is given twice")));
        }
        if 8 * values.bytes() > usize::from(info.width)
            && let Some(row) = values.first_above(info.ones())
        {
            let (value, bits) = (values.at(row), info.width);
            let most = info.ones();
            let wrong = format!(
                "column `{name}`, row {row}: {value:#x} does not fit into {bits} bits; the largest value is {most:#x}"
            );
            return Err(Error::input(wrong).at(row));
        }
        self.fields.push(field);
        let mut below = u32::from(info.width);
        self.pieces.extend(info.pieces().map(|(word, shift, width)| {
            below -= width;
            let (word, shift) = (word as u8, shift as u8);
            Piece { values, ones: u32::MAX >> (32 - width), word, shift, below: below as u8 }
        }));
        Ok(())
    }

    /// Number of packets.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns whether there is a column for this field.
    pub fn has(&self, field: Field) -> bool {
        self.fields.contains(&field)
    }

    /// Some of the packets.
    ///
    /// # Panics
    /// If the columns have fewer rows.
    #[must_use]
    pub fn rows(&self, rows: Range<usize>) -> Self {
        assert!(rows.end <= self.len, "rows {rows:?} of {}", self.len);
        let pieces =
            self.pieces.iter().map(|p| Piece { values: p.values.rows(rows.clone()), ..*p }).collect();
        Self { len: rows.len(), fields: self.fields.clone(), pieces }
    }

    /// The flow key of a packet.
    ///
    /// # Panics
    /// If the columns have fewer rows.
    pub fn key(&self, row: usize) -> FlowKey {
        assert!(row < self.len, "row {row} of {}", self.len);
        let mut key = FlowKey::zero();
        for piece in &self.pieces {
            let value = (piece.values.at(row) >> piece.below) as u32 & piece.ones;
            let word = usize::from(piece.word);
            key.set_word(word, key.word(word) | value << piece.shift);
        }
        key
    }

    /// The value of a word of the flow key if all packets have the same.
    pub(crate) fn constant(&self, word: usize) -> Option<u32> {
        let mut own = self.pieces.iter().filter(|piece| usize::from(piece.word) == word);
        own.try_fold(0, |sum, piece| match piece.values {
            Values::One(value) => Some(sum | ((value >> piece.below) as u32 & piece.ones) << piece.shift),
            _ => None,
        })
    }

    /// A word of the flow key of some packets.
    #[inline]
    pub(crate) fn word(&self, word: usize, rows: Range<usize>, out: &mut [u32]) {
        out.fill(0);
        for piece in self.pieces.iter().filter(|piece| usize::from(piece.word) == word) {
            piece.add(rows.clone(), out);
        }
    }
}

impl Piece<'_> {
    fn add(&self, rows: Range<usize>, out: &mut [u32]) {
        let Self { shift, below, ones, .. } = *self;
        match self.values {
            // They have no bits for the upper parts of a field.
            Values::U8(_) | Values::U16(_) | Values::U32(_) if below >= 32 => {}
            Values::U8(values) => self.add_numbers(&values[rows], out),
            Values::U16(values) => self.add_numbers(&values[rows], out),
            Values::U32(values) => self.add_numbers(&values[rows], out),
            Values::U64(values) => out.iter_mut().zip(&values[rows]).for_each(|(out, value)| {
                *out |= (value.checked_shr(below.into()).unwrap_or(0) as u32 & ones) << shift;
            }),
            Values::Bytes(bytes, each) => {
                let own = bytes[rows.start * each..rows.end * each].chunks_exact(each);
                match usize::from(below / 8) {
                    // A word of the values as it lies there.
                    below if shift == 0 && ones == u32::MAX && each >= below + 4 => {
                        let at = each - below - 4;
                        out.iter_mut().zip(own).for_each(|(out, value)| {
                            *out |= u32::from_be_bytes(*value[at..].first_chunk().expect("four bytes"));
                        });
                    }
                    _ => out.iter_mut().zip(own).for_each(|(out, value)| {
                        *out |= ((number(value) >> self.below) as u32 & ones) << shift;
                    }),
                }
            }
            Values::One(value) => {
                let value = ((value >> below) as u32 & ones) << shift;
                out.iter_mut().for_each(|out| *out |= value);
            }
        }
    }

    #[inline(always)]
    fn add_numbers<T: Copy + Into<u32>>(&self, values: &[T], out: &mut [u32]) {
        let Self { shift, below, ones, .. } = *self;
        out.iter_mut()
            .zip(values)
            .for_each(|(out, value)| *out |= ((*value).into() >> below & ones) << shift);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::Random;

    #[test]
    fn words_are_those_of_keys_whatever_type_a_column_has() {
        let mut r = Random::new(5);
        let rows = 37;
        for info in Field::named() {
            let width = u32::from(info.width);
            let mut draw = |bits: u32| {
                let value = u128::from(r.bits()) << 64 | u128::from(r.bits());
                value & (u128::MAX >> (128 - bits.min(width)))
            };
            let of = |bits: u32, draw: &mut dyn FnMut(u32) -> u128| -> Vec<u128> {
                (0..rows).map(|_| draw(bits)).collect()
            };
            let [u8s, u16s, u32s, u64s, wide] = [8, 16, 32, 64, 128].map(|bits| of(bits, &mut draw));
            let a: Vec<u8> = u8s.iter().map(|v| *v as u8).collect();
            let b: Vec<u16> = u16s.iter().map(|v| *v as u16).collect();
            let c: Vec<u32> = u32s.iter().map(|v| *v as u32).collect();
            let d: Vec<u64> = u64s.iter().map(|v| *v as u64).collect();
            let each = usize::from(info.width).div_ceil(8);
            let e: Vec<u8> = wide.iter().flat_map(|v| v.to_be_bytes()[16 - each..].to_vec()).collect();
            let f: Vec<u8> = wide.iter().flat_map(|v| v.to_be_bytes()).collect();
            let one = wide[0];
            let cases = [
                (Values::U8(&a), &u8s),
                (Values::U16(&b), &u16s),
                (Values::U32(&c), &u32s),
                (Values::U64(&d), &u64s),
                (Values::Bytes(&e, each), &wide),
                (Values::Bytes(&f, 16), &wide),
                (Values::One(one), &vec![one; rows]),
            ];
            for (values, wanted) in cases {
                let columns = FlowColumns::new(rows).with(info.field, values).unwrap();
                assert!(columns.rows(5..rows).key(1) == columns.key(6));
                let mut words = [0; super::super::key::WORDS];
                for (row, value) in wanted.iter().enumerate() {
                    let mut key = FlowKey::zero();
                    key.set(info.field, *value);
                    assert!(columns.key(row) == key, "{} {values:?} {row}", info.name);
                    for (w, word) in words.iter_mut().enumerate() {
                        columns.word(w, row..row + 1, std::slice::from_mut(word));
                        assert_eq!(*word, key.word(w), "{} {values:?}, row {row}, word {w}", info.name);
                        assert!(columns.constant(w).is_none_or(|constant| constant == *word));
                    }
                }
            }
        }
    }

    #[test]
    fn all_fields_at_once_have_room() {
        let all = || Field::named().iter().map(|info| info.field);
        let add = |columns: FlowColumns<'static>, field| columns.with(field, Values::One(0)).unwrap();
        let columns = all().fold(FlowColumns::new(1), add);
        assert!(all().all(|field| columns.has(field)));
        assert_eq!(columns.pieces.len(), PIECES_MAX, "as many as there is room for");
    }

    #[test]
    fn what_does_not_fit_is_named() {
        let columns = FlowColumns::new(3);
        let said = |field, values| columns.clone().with(field, values).unwrap_err().to_string();
        assert_eq!(
            said(Field::TpDst, Values::U16(&[1, 2])),
            "column `tp_dst` has 2 rows, and others have 3; give as many of each"
        );
        assert_eq!(
            said(Field::NwProto, Values::U64(&[6, 17, 256])),
            "column `nw_proto`, row 2: 0x100 does not fit into 8 bits; the largest value is 0xff"
        );
        assert!(said(Field::Ipv4Src, Values::Bytes(&[0; 13], 4)).contains("13 bytes are no values of 4"));
        assert!(said(Field::IpEcn, Values::U8(&[0, 1, 4])).contains("row 2: 0x4 does not fit into 2 bits"));
        assert!(said(Field::Ipv4Src, Values::One(1 << 32)).contains("does not fit into 32 bits"));
        let twice = columns.with(Field::TpDst, Values::One(1)).unwrap();
        let twice = twice.with(Field::TpDst, Values::One(2)).unwrap_err();
        assert_eq!(twice.to_string(), "column `tp_dst` is given twice");
    }
}
