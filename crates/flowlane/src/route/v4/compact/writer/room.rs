//! Allocation of chunks and words; and which chunks are *constant*: all blocks with one next hop share one.

use std::collections::VecDeque;

use crate::route::v4::compact::pool::{Blocks, LARGEST_WORDS, words_of_block};
use crate::route::v4::compact::table::{BLOCKS, SLOTS};

/// A piece of the table's memory, by where it begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Piece {
    Chunk(u32),
    Words(u32),
}

/// The chunk of blocks that have one next hop.
#[derive(Clone, Copy, Debug)]
struct Constant {
    place: u32,
    /// Blocks that have it; 0: there is none, or it is being staged.
    blocks: u32,
}

impl Constant {
    const NONE: Self = Self { place: u32::MAX, blocks: 0 };
}

#[derive(Debug)]
pub(super) struct Room {
    memory_max: usize,
    fixed_bytes: usize,
    /// True if codes have two bytes.
    pub(super) is_wide: bool,
    /// Chunks with codes of one byte that were left behind.
    left_bytes: usize,
    chunks_max: usize,
    /// Chunks from here on were never used.
    chunks_touched: usize,
    /// Places of chunks.
    free: Vec<u32>,
    blocks: Blocks,
    /// By index of a next hop.
    constants: Vec<Constant>,
    /// Taken out of the table, oldest first, each with its stamp.
    retired: VecDeque<(u64, Piece)>,
    /// Taken in the update under way, and the constant chunks among them.
    taken: Vec<Piece>,
    fresh: Vec<u16>,
    /// Bytes for which there was no room in it.
    missing: usize,
    /// How it was before.
    before: Before,
}

/// The state that a refused update must not change.
#[derive(Clone, Copy, Default, Debug)]
struct Before {
    is_wide: bool,
    left_bytes: usize,
    chunks_touched: usize,
    words_touched: usize,
}

impl Room {
    pub(super) fn new(memory_max: usize, fixed_bytes: usize, chunks_max: usize, blocks: Blocks) -> Self {
        Self {
            memory_max,
            fixed_bytes,
            is_wide: false,
            left_bytes: 0,
            chunks_max,
            // All blocks have the first, a constant one of next hop 0.
            chunks_touched: 1,
            free: Vec::new(),
            blocks,
            constants: vec![Constant { place: 0, blocks: BLOCKS as u32 }],
            retired: VecDeque::new(),
            taken: Vec::new(),
            fresh: Vec::new(),
            missing: 0,
            before: Before::default(),
        }
    }

    /// An update begins.
    pub(super) fn begin(&mut self) {
        self.before = Before {
            is_wide: self.is_wide,
            left_bytes: self.left_bytes,
            chunks_touched: self.chunks_touched,
            words_touched: self.blocks.words_touched(),
        };
    }

    /// Returns the bytes of the table, without memory that was never used.
    pub(super) fn table_bytes(&self) -> usize {
        let words = self.blocks.words_touched() * size_of::<u64>();
        self.fixed_bytes + self.left_bytes + self.chunks_touched * self.chunk_bytes() + words
    }

    /// Returns the bytes of the accounts.
    pub(super) fn own_bytes(&self) -> usize {
        self.blocks.own_bytes()
            + self.free.capacity() * size_of::<u32>()
            + self.constants.capacity() * size_of::<Constant>()
            + self.retired.capacity() * size_of::<(u64, Piece)>()
    }

    pub(super) fn memory_max(&self) -> usize {
        self.memory_max
    }

    /// Codes of all chunks that were ever used.
    pub(super) fn codes_touched(&self) -> usize {
        self.chunks_touched * SLOTS
    }

    /// Returns the bytes that the table would take more if codes had two bytes.
    pub(super) fn bytes_to_widen(&self) -> usize {
        BLOCKS * size_of::<u32>() + self.chunks_touched * SLOTS * size_of::<u16>()
    }

    pub(super) fn widen(&mut self) {
        self.left_bytes = BLOCKS * size_of::<u32>() + self.chunks_touched * SLOTS;
        self.is_wide = true;
    }

    fn chunk_bytes(&self) -> usize {
        if self.is_wide { SLOTS * size_of::<u16>() } else { SLOTS }
    }

    fn has_room(&self, bytes: usize) -> bool {
        self.table_bytes() + bytes <= self.memory_max
    }

    /// Allocates a chunk, and returns its place.
    pub(super) fn chunk(&mut self) -> Option<u32> {
        let place = match self.free.pop() {
            Some(place) => place,
            None if self.chunks_touched < self.chunks_max && self.has_room(self.chunk_bytes()) => {
                self.chunks_touched += 1;
                ((self.chunks_touched - 1) * SLOTS) as u32
            }
            None => return None,
        };
        self.taken.push(Piece::Chunk(place));
        Some(place)
    }

    /// Allocates words, and returns the first.
    pub(super) fn words(&mut self, words: usize) -> Option<u32> {
        let may_extend = self.has_room(LARGEST_WORDS * size_of::<u64>());
        let place = self.blocks.take(words, may_extend)?;
        self.taken.push(Piece::Words(place));
        Some(place)
    }

    /// Notes that there was no room for a chunk, or for words.
    pub(super) fn lacks(&mut self, words: Option<usize>) {
        self.missing += words.map_or(self.chunk_bytes(), |words| words_of_block(words) * size_of::<u64>());
    }

    /// Returns the bytes for which there was no room since this was asked before.
    pub(super) fn missing(&mut self) -> usize {
        std::mem::take(&mut self.missing)
    }

    /// Returns the constant chunk of a next hop, where there is one.
    pub(super) fn constant(&self, hop: u16) -> Option<u32> {
        let constant = self.constants.get(usize::from(hop))?;
        Some(constant.place).filter(|place| *place != Constant::NONE.place)
    }

    /// Makes the chunk there, which is taken, the constant one of a next hop.
    pub(super) fn make_constant(&mut self, hop: u16, place: u32) {
        if self.constants.len() <= usize::from(hop) {
            self.constants.resize(usize::from(hop) + 1, Constant::NONE);
        }
        self.constants[usize::from(hop)] = Constant { place, blocks: 0 };
        self.fresh.push(hop);
    }

    /// One more block has the constant chunk.
    pub(super) fn join_constant(&mut self, hop: u16) {
        self.constants[usize::from(hop)].blocks += 1;
    }

    /// One block fewer has the constant chunk.
    pub(super) fn leave_constant(&mut self, hop: u16) {
        self.constants[usize::from(hop)].blocks -= 1;
    }

    /// Forgets the constant chunk of this next hop where no block has it. Returns its place then.
    pub(super) fn drop_constant(&mut self, hop: u16) -> Option<u32> {
        let constant = &mut self.constants[usize::from(hop)];
        let place =
            (constant.blocks == 0 && constant.place != Constant::NONE.place).then_some(constant.place);
        if place.is_some() {
            *constant = Constant::NONE;
        }
        place
    }

    /// The update was made: what it took is the table's.
    pub(super) fn keep(&mut self) {
        self.taken.clear();
        self.fresh.clear();
    }

    /// Rolls back an update: frees its memory, and marks memory that was never used before as unused again.
    pub(super) fn give_back(&mut self) {
        let Before { is_wide, left_bytes, chunks_touched, words_touched } = self.before;
        self.fresh.drain(..).for_each(|hop| self.constants[usize::from(hop)] = Constant::NONE);
        let is_old =
            |piece: &Piece| !matches!(piece, Piece::Chunk(at) if *at as usize / SLOTS >= chunks_touched);
        for piece in std::mem::take(&mut self.taken).into_iter().filter(is_old) {
            self.give(piece);
        }
        self.blocks.untouch(words_touched);
        (self.is_wide, self.left_bytes, self.chunks_touched) = (is_wide, left_bytes, chunks_touched);
    }

    fn give(&mut self, piece: Piece) {
        match piece {
            Piece::Chunk(place) => self.free.push(place),
            Piece::Words(place) => self.blocks.give(place),
        }
    }

    /// Readers that began before this stamp may still see the piece.
    pub(super) fn retire(&mut self, stamp: u64, piece: Piece) {
        self.retired.push_back((stamp, piece));
    }

    /// Chunks that blocks have, and pieces of words.
    #[cfg(test)]
    pub(super) fn taken_and_not_retired(&self) -> (usize, usize) {
        let is_chunk = |(_, piece): &&(u64, Piece)| matches!(piece, Piece::Chunk(_));
        let chunks_retired = self.retired.iter().filter(is_chunk).count();
        let words_retired = self.retired.len() - chunks_retired;
        (self.chunks_touched - self.free.len() - chunks_retired, self.blocks.pieces_taken() - words_retired)
    }

    /// How many pieces would become free if readers went on.
    pub(super) fn waiting(&self) -> usize {
        self.retired.len()
    }

    /// Takes back what no reader can see any more.
    pub(super) fn reclaim(&mut self, oldest: u64) {
        while let Some((_, piece)) = self.retired.pop_front_if(|(stamp, _)| *stamp < oldest) {
            self.give(piece);
        }
    }
}
