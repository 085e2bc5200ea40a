//! Layouts: the fields of a key, and their places in its words.

use super::entry::Condition;
use crate::isa::stores::stored_by_fours;
use crate::packet::fields::word;
use crate::packet::key::FlowKey;
use crate::rule::Match;

/// The form of conditions on a field.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FieldKind {
    /// One value, or any.
    Exact,
    /// A prefix of any length.
    Prefix,
    /// Any value under any mask.
    Ternary,
    /// A range, both ends included; at most 4 bytes.
    Range,
}

/// A field of the caller's records.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FieldSpec {
    /// The name that errors show.
    pub name: String,
    /// The offset in a record, in bytes. Fields are in network byte order.
    pub offset: usize,
    /// The length: 1 to 16 bytes.
    pub bytes: usize,
    /// The form of conditions on it.
    pub kind: FieldKind,
}

/// The comparison of a word with a condition; see [`Condition`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum WordKind {
    /// Value and mask.
    Ternary,
    /// One range.
    Range32,
    /// A range for each half.
    Range16,
}

/// A condition on a field.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Value {
    /// This value.
    Exact(u128),
    /// A value, and the number of its leading bits that count.
    Prefix(u128, u8),
    /// A value, and the bits of it that count.
    Masked(u128, u128),
    /// The first value and the last.
    Range(u128, u128),
}

/// The reasons why fields make no layout.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LayoutError {
    /// A field has an impossible width.
    #[error(
        "field `{name}` has {bytes} bytes; a field has 1 to 16, and a range field at most 4 (declare a longer one as prefix)"
    )]
    Width {
        /// The field.
        name: String,
        /// Its width.
        bytes: usize,
    },
    /// The fields need more words than the key has.
    #[error("the fields need {needed} words of 32 bits and the key has {words}; take a wider key")]
    Words {
        /// The words that the fields need.
        needed: usize,
        /// The words of the key.
        words: usize,
    },
}

/// The reasons why a value does not suit a field.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ValueError {
    /// There is no such field.
    #[error("there is no field number {0}")]
    Field(usize),
    /// It does not fit into the field.
    #[error("{value:#x} does not fit into field `{name}` of {bytes} bytes")]
    TooLarge {
        /// The field.
        name: String,
        /// Its width.
        bytes: usize,
        /// The value.
        value: u128,
    },
    /// The field is of a kind that has no such conditions.
    #[error("field `{name}` is declared {kind:?} and takes no condition {value:?}")]
    Kind {
        /// The field.
        name: String,
        /// How it was declared.
        kind: FieldKind,
        /// The condition.
        value: Value,
    },
    /// A range that holds nothing.
    #[error("the range {first}-{last} of field `{name}` is empty; write the smaller value first")]
    EmptyRange {
        /// The field.
        name: String,
        /// Its first value.
        first: u128,
        /// Its last.
        last: u128,
    },
    /// A match looks at a word that the layout does not have.
    #[error("the match looks at word {0} of the flow key, which the layout does not have")]
    NotInLayout(u8),
}

/// The part of a field in one word of the key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Piece {
    word: usize,
    /// The shift of its lowest bit in the word.
    shift: u32,
    /// The offset of its first byte in a record, and the number of its bytes.
    offset: usize,
    bytes: usize,
}

/// The words of a key and the fields in them.
///
/// Fields of 4 bytes and more take words of their own, most significant first; shorter pieces of one kind share
/// words. Words that no field needs are zero in every key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Layout<const W: usize> {
    kinds: [WordKind; W],
    fields: Vec<(FieldSpec, Vec<Piece>)>,
    /// In a layout over flow keys: the word of the flow key for each word.
    sources: Option<[u8; W]>,
    words: usize,
}

impl<const W: usize> Layout<W> {
    /// Lays fields out.
    ///
    /// # Errors
    /// Where a width is not possible or the key too small.
    pub fn new(fields: &[FieldSpec]) -> Result<Self, LayoutError> {
        let mut words: Vec<(WordKind, u32)> = Vec::new();
        let mut placed = Vec::new();
        for field in fields {
            let bytes_max = if field.kind == FieldKind::Range { 4 } else { 16 };
            if !(1..=bytes_max).contains(&field.bytes) {
                return Err(LayoutError::Width { name: field.name.clone(), bytes: field.bytes });
            }
            let mut pieces = Vec::new();
            let mut at = 0;
            // The odd bytes come first, so that whole words follow.
            while at < field.bytes {
                let bytes = if (field.bytes - at).is_multiple_of(4) { 4 } else { (field.bytes - at) % 4 };
                let (word, shift) = place(&mut words, field.kind, bytes);
                pieces.push(Piece { word, shift, offset: field.offset + at, bytes });
                at += bytes;
            }
            placed.push((field.clone(), pieces));
        }
        if words.len() > W {
            return Err(LayoutError::Words { needed: words.len(), words: W });
        }
        let mut kinds = [WordKind::Ternary; W];
        words.iter().zip(&mut kinds).for_each(|((kind, _), k)| *k = *kind);
        Ok(Self { kinds, fields: placed, sources: None, words: words.len() })
    }

    /// Creates a layout of these words of a flow key; both ports are ranges.
    pub fn of_flow_words(sources: [u8; W]) -> Self {
        let kind = |w: u8| if usize::from(w) == word::PORTS { WordKind::Range16 } else { WordKind::Ternary };
        Self { kinds: sources.map(kind), fields: Vec::new(), sources: Some(sources), words: W }
    }

    /// Creates a layout of these words of a flow key, compared by these kinds; the ports may occur as ranges and
    /// as ternary. The rest of the key repeats the first word, and no condition looks at it.
    ///
    /// # Panics
    /// Where there are more words than the key has.
    pub fn of_words_as(words: &[(u8, WordKind)]) -> Self {
        assert!(words.len() <= W, "{} words do not fit a key of {W}", words.len());
        let first = words.first().map_or(0, |(word, _)| *word);
        let at = |i: usize| words.get(i).copied().unwrap_or((first, WordKind::Ternary));
        let all: [(u8, WordKind); W] = std::array::from_fn(at);
        let (kinds, sources) = (all.map(|(_, kind)| kind), all.map(|(word, _)| word));
        Self { kinds, fields: Vec::new(), sources: Some(sources), words: words.len() }
    }

    /// Returns the kind of each word.
    pub fn kinds(&self) -> &[WordKind; W] {
        &self.kinds
    }

    /// Returns the number of words that hold fields.
    pub fn words(&self) -> usize {
        self.words
    }

    /// Returns the fields.
    pub fn fields(&self) -> impl Iterator<Item = &FieldSpec> {
        self.fields.iter().map(|(field, _)| field)
    }

    /// Returns the bytes that a record must have.
    pub fn record_bytes(&self) -> usize {
        self.fields().map(|f| f.offset + f.bytes).max().unwrap_or(0)
    }

    /// Returns the key of a record; missing bytes count as zero.
    pub fn key(&self, record: &[u8]) -> [u32; W] {
        let mut key = [0; W];
        for piece in self.fields.iter().flat_map(|(_, pieces)| pieces) {
            let byte = |i: usize| u32::from(record.get(piece.offset + i).copied().unwrap_or(0));
            let value = (0..piece.bytes).fold(0, |value, i| value << 8 | byte(i));
            key[piece.word] |= value << piece.shift;
        }
        key
    }

    /// Returns the key of a packet, in a layout over flow keys.
    #[inline(always)]
    pub fn flow_key(&self, key: &FlowKey) -> [u32; W] {
        let of = |sources: [u8; W]| stored_by_fours(|w| key.word(sources[w].into()));
        self.sources.map_or([0; W], of)
    }

    /// Returns the words of the flow key, in a layout over flow keys.
    pub fn sources(&self) -> Option<&[u8; W]> {
        self.sources.as_ref()
    }

    /// Builds the condition with these values for these fields (by position); other fields are wild. Of several values
    /// for one field the last counts.
    ///
    /// # Errors
    /// Where a value does not suit its field.
    pub fn condition(&self, values: &[(usize, Value)]) -> Result<Condition<W>, ValueError> {
        let mut out = Condition::any(&self.kinds);
        for &(number, value) in values {
            let (field, pieces) = self.fields.get(number).ok_or(ValueError::Field(number))?;
            let (low, high) = ends(field, value)?;
            let mut bits_below = 8 * field.bytes as u32;
            for piece in pieces {
                let bits = 8 * piece.bytes as u32;
                bits_below -= bits;
                let ones = (u64::MAX >> (64 - bits)) as u32;
                let part = |of: u128| ((of >> bits_below) as u32 & ones) << piece.shift;
                // A range fills its half word, even where the field is narrower.
                let lane = match self.kinds[piece.word] {
                    WordKind::Ternary => ones,
                    WordKind::Range16 => 0xffff,
                    WordKind::Range32 => u32::MAX,
                };
                let keep = !(lane << piece.shift);
                out.low[piece.word] = out.low[piece.word] & keep | part(low);
                out.high[piece.word] = out.high[piece.word] & keep | part(high);
            }
        }
        Ok(out)
    }

    /// Builds the condition of a match, in a layout over flow keys.
    ///
    /// # Errors
    /// Where the match looks at a word that the layout does not have, or at ports under a mask that is no prefix.
    pub fn flow_condition(&self, matches: &Match) -> Result<Condition<W>, ValueError> {
        let mut out = Condition::any(&self.kinds);
        let sources = || self.sources.iter().flatten().zip(&self.kinds).take(self.words);
        let ranges = |w: u8| sources().position(|(s, kind)| *s == w && *kind == WordKind::Range16);
        let ternary = |w: u8| sources().position(|(s, kind)| *s == w && *kind == WordKind::Ternary);
        let contiguous = |mask: u32| (!mask as u16).wrapping_add(1) & !mask as u16 == 0;
        for masked in matches.words() {
            let prefixes = contiguous(masked.mask) && contiguous(masked.mask >> 16);
            if let Some(w) = ranges(masked.word).filter(|_| prefixes) {
                (out.low[w], out.high[w]) = (masked.value, masked.value | !masked.mask);
            } else {
                let w = ternary(masked.word).ok_or(ValueError::NotInLayout(masked.word))?;
                (out.low[w], out.high[w]) = (masked.value, masked.mask);
            }
        }
        for (range, shift) in [(matches.tp_src_range(), 16), (matches.tp_dst_range(), 0)] {
            let Some(range) = range else { continue };
            let w = ranges(word::PORTS as u8).ok_or(ValueError::NotInLayout(word::PORTS as u8))?;
            let keep = !(0xffff << shift);
            out.low[w] = out.low[w] & keep | u32::from(range.low()) << shift;
            out.high[w] = out.high[w] & keep | u32::from(range.high()) << shift;
        }
        Ok(out)
    }
}

impl Layout<4> {
    /// Creates the layout of the IPv4 5-tuple in a flow key: ports, protocol (with TOS, TTL and fragment bits), source,
    /// destination.
    pub fn ipv4_five_tuple() -> Self {
        Self::of_flow_words(std::array::from_fn(|i| (word::PORTS + i) as u8))
    }
}

impl Layout<10> {
    /// Creates the layout of the IPv6 5-tuple in a flow key: source, destination, ports, protocol.
    pub fn ipv6_five_tuple() -> Self {
        Self::of_flow_words(std::array::from_fn(|i| (word::IPV6_SRC + i) as u8))
    }

    /// Creates the layout of the twelve fields of OpenFlow 1.0 in a packed record of 35 bytes, in its order: in_port, dl_src, dl_dst,
    /// dl_type, dl_vlan, dl_vlan_pcp, nw_src, nw_dst, nw_proto, nw_tos, tp_src, tp_dst. The tenth word is 0.
    pub fn openflow_12() -> Self {
        use FieldKind::{Range, Ternary};
        let fields = [
            ("in_port", 4, Ternary),
            ("dl_src", 6, Ternary),
            ("dl_dst", 6, Ternary),
            ("dl_type", 2, Ternary),
            ("dl_vlan", 2, Ternary),
            ("dl_vlan_pcp", 1, Ternary),
            ("nw_src", 4, Ternary),
            ("nw_dst", 4, Ternary),
            ("nw_proto", 1, Ternary),
            ("nw_tos", 1, Ternary),
            ("tp_src", 2, Range),
            ("tp_dst", 2, Range),
        ];
        let mut offset = 0;
        let specs = fields.map(|(name, bytes, kind)| {
            offset += bytes;
            FieldSpec { name: name.to_owned(), offset: offset - bytes, bytes, kind }
        });
        Self::new(&specs).expect("twelve fields of 35 bytes fill nine words")
    }
}

/// Finds room for a piece, and returns its word and its shift there.
fn place(words: &mut Vec<(WordKind, u32)>, kind: FieldKind, bytes: usize) -> (usize, u32) {
    let word_kind = match kind {
        FieldKind::Range if bytes <= 2 => WordKind::Range16,
        FieldKind::Range => WordKind::Range32,
        _ => WordKind::Ternary,
    };
    let bits = match word_kind {
        WordKind::Range16 => 16,
        WordKind::Range32 => 32,
        WordKind::Ternary => 8 * bytes as u32,
    };
    if let Some(w) = words.iter().position(|(k, used)| *k == word_kind && used + bits <= 32) {
        words[w].1 += bits;
        return (w, 32 - words[w].1);
    }
    words.push((word_kind, bits));
    (words.len() - 1, 32 - bits)
}

/// Returns value and mask, or first and last.
fn ends(field: &FieldSpec, value: Value) -> Result<(u128, u128), ValueError> {
    let ones = u128::MAX >> (128 - 8 * field.bytes as u32);
    let fit = |value: u128| match value > ones {
        true => Err(ValueError::TooLarge { name: field.name.clone(), bytes: field.bytes, value }),
        false => Ok(value),
    };
    let refused = || ValueError::Kind { name: field.name.clone(), kind: field.kind, value };
    let (value, mask) = match value {
        Value::Range(first, last) if field.kind == FieldKind::Range => {
            if first > last {
                return Err(ValueError::EmptyRange { name: field.name.clone(), first, last });
            }
            return Ok((fit(first)?, fit(last)?));
        }
        Value::Range(..) => return Err(refused()),
        Value::Exact(value) => (fit(value)?, ones),
        Value::Prefix(value, len) => {
            let host_bits = (8 * field.bytes as u32).checked_sub(u32::from(len)).ok_or_else(refused)?;
            (fit(value)?, ones & !(1u128.checked_shl(host_bits).unwrap_or(0).wrapping_sub(1)))
        }
        Value::Masked(value, mask) => (fit(value)?, fit(mask)?),
    };
    let is_prefix = (ones & !mask).wrapping_add(1) & (ones & !mask) == 0;
    let allowed = match field.kind {
        FieldKind::Exact => mask == ones || mask == 0,
        FieldKind::Prefix | FieldKind::Range => is_prefix,
        FieldKind::Ternary => true,
    };
    match field.kind {
        _ if !allowed => Err(refused()),
        FieldKind::Range => Ok((value & mask, value & mask | ones & !mask)),
        _ => Ok((value & mask, mask)),
    }
}
