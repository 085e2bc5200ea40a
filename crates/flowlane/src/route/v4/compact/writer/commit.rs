//! The stores that make a change, in the order that readers need.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{AcqRel, Relaxed, Release};

use super::room::Piece;
use super::stage::Run;
use super::{Entry, Writer};
use crate::route::v4::compact::long;
use crate::route::v4::compact::table::SLOTS;

impl Writer {
    /// Makes the changes that are staged.
    ///
    /// Readers find each address's old next hop until one store, and the new one after it. A slot's long chunk is in the
    /// block's directory before its code says so, and stays there until its code says something else.
    pub(super) fn commit(&mut self) {
        if self.is_wide() && !self.table.is_wide.load(Relaxed) {
            self.table.is_wide.store(true, Release);
        }
        let mut leaving = Vec::new();
        let staged = std::mem::take(&mut self.staged);
        // New uses are counted before old ones are dropped: a next hop that stays never has a count of 0.
        staged.runs.iter().for_each(|run| self.name(run.after, run.len));
        staged.constants.iter().for_each(|(_, hop)| self.hops.name(*hop, SLOTS as u32));
        for (block, place) in &staged.early {
            self.set_directory(*block, *place, &mut leaving);
        }
        for (block, place, _) in &staged.owners {
            self.set_first_place(*block, *place);
        }
        for run in &staged.runs {
            let place = self.first_place(run.first >> 8) + run.first % SLOTS as u32;
            self.set(place, run.len, run.after);
            self.unname(run.before, run.len, &mut leaving);
        }
        let mut left: Vec<u16> = Vec::new();
        for (block, hop) in &staged.constants {
            left.extend(self.give_constant(*block, *hop, &mut leaving));
        }
        for (block, place) in &staged.late {
            self.set_directory(*block, *place, &mut leaving);
        }
        for (_, _, hop) in &staged.owners {
            self.room.leave_constant(*hop);
            left.push(*hop);
        }
        self.collapse(&staged.runs, &mut leaving);
        left.dedup();
        leaving.extend(left.into_iter().filter_map(|hop| self.room.drop_constant(hop)).map(Piece::Chunk));
        self.room.keep();
        let stamp = self.epochs.stamp();
        leaving.into_iter().for_each(|piece| self.room.retire(stamp, piece));
        self.staged = staged;
    }

    fn name(&mut self, entry: Entry, slots: u32) {
        match entry {
            Entry::Hop(hop) => self.hops.name(hop, slots),
            Entry::Long(chunk) => long::each_hop(&self.table.pool, chunk, |hop| self.hops.name(hop, 1)),
        }
    }

    fn unname(&mut self, entry: Entry, slots: u32, leaving: &mut Vec<Piece>) {
        match entry {
            Entry::Hop(hop) => self.hops.unname(hop, slots),
            Entry::Long(chunk) => {
                long::each_hop(&self.table.pool, chunk, |hop| self.hops.unname(hop, 1));
                leaving.push(Piece::Words(chunk));
            }
        }
    }

    fn set_directory(&self, block: u32, place: u32, leaving: &mut Vec<Piece>) {
        let directory: &AtomicU32 = &self.table.directories[block as usize];
        let before = directory.swap(place, AcqRel);
        leaving.extend((before != 0).then_some(Piece::Words(before)));
    }

    fn set_first_place(&self, block: u32, place: u32) {
        let direct = if self.is_wide() { &self.table.wide.direct } else { &self.table.narrow.direct };
        direct[block as usize].store(place, Release);
    }

    /// Makes a block have the constant chunk of `hop`, which is named already. Returns the next hop of the one it had.
    fn give_constant(&mut self, block: u32, hop: u16, leaving: &mut Vec<Piece>) -> Option<u16> {
        let (before, place) = (self.first_place(block), self.room.constant(hop));
        let was = self.constant_of(before);
        self.set_first_place(block, place.expect("it was staged"));
        self.room.join_constant(hop);
        if let Some(was) = was {
            self.hops.unname(was, SLOTS as u32);
            self.room.leave_constant(was);
            return Some(was);
        }
        let directory = self.table.directories[block as usize].load(Relaxed);
        for slot in 0..SLOTS as u32 {
            let entry = match self.hop_at(before + slot) {
                Some(hop) => Entry::Hop(hop),
                None => Entry::Long(long::chunk(&self.table.pool, directory, slot).expect("it is there")),
            };
            self.unname(entry, 1, leaving);
        }
        if directory != 0 {
            self.set_directory(block, 0, leaving);
        }
        leaving.push(Piece::Chunk(before));
        None
    }

    /// Blocks that have one next hop now give up the chunks of their own, where there is room for a constant one.
    fn collapse(&mut self, runs: &[Run], leaving: &mut Vec<Piece>) {
        for (at, run) in runs.iter().enumerate() {
            let block = run.first >> 8;
            if runs.get(at + 1).is_some_and(|next| next.first >> 8 == block) {
                continue;
            }
            let own = self.first_place(block);
            let Some(hop) = self.hop_at(own) else { continue };
            if !(1..SLOTS as u32).all(|slot| self.hop_at(own + slot) == Some(hop)) {
                continue;
            }
            if self.room.constant(hop).is_none() {
                // The block's own becomes the one that all such have.
                self.room.make_constant(hop, own);
                self.room.join_constant(hop);
                continue;
            }
            self.set_first_place(block, self.room.constant(hop).expect("there is one"));
            self.room.join_constant(hop);
            leaving.push(Piece::Chunk(own));
        }
    }
}
