//! The connections of a listener, of which only a number may be open.
//!
//! No peer locks others out. Where all slots are taken, a connection whose peer has not greeted yet makes room, first one of the
//! address that has most connections. If all have greeted, the address that has most gives one to an address that has fewer.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard};

use super::stream::Socket;

/// Maximum number of open connections of a listener.
const SLOTS: usize = 128;

/// The slots of a listener.
pub(super) struct Slots(Mutex<Open>);

#[derive(Default)]
struct Open {
    last: u64,
    /// By number: later connections have larger ones.
    all: BTreeMap<u64, Taken>,
}

struct Taken {
    /// None of a peer on this machine.
    peer: Option<IpAddr>,
    is_greeted: bool,
    socket: Socket,
}

/// A slot, free again when dropped.
pub(super) struct Slot {
    slots: Arc<Slots>,
    number: u64,
}

impl Slots {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self(Mutex::default()))
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Takes a slot for a connection; `None` where no other connection makes room.
    pub(super) fn take(self: &Arc<Self>, peer: Option<IpAddr>, socket: Socket) -> Option<Slot> {
        let mut open = self.lock();
        if open.all.len() >= SLOTS {
            let number = open.least_claim(peer)?;
            let closed = open.all.remove(&number);
            // Its thread notices.
            closed.inspect(|closed| closed.socket.close());
        }
        open.last += 1;
        let number = open.last;
        open.all.insert(number, Taken { peer, is_greeted: false, socket });
        Some(Slot { slots: self.clone(), number })
    }
}

impl Open {
    /// Chooses the connection that makes room for one of this peer.
    fn least_claim(&self, new: Option<IpAddr>) -> Option<u64> {
        let mut counts: BTreeMap<Option<IpAddr>, usize> = BTreeMap::new();
        self.all.values().for_each(|taken| *counts.entry(taken.peer).or_default() += 1);
        let count = |taken: &Taken| counts[&taken.peer];
        let waiting = self.all.iter().filter(|(_, taken)| !taken.is_greeted);
        // The oldest: its peer has had most time.
        let oldest = waiting.max_by_key(|(number, taken)| (count(taken), std::cmp::Reverse(**number)));
        oldest.map(|(number, _)| *number).or_else(|| {
            let (number, taken) = self.all.iter().max_by_key(|(number, taken)| (count(taken), **number))?;
            let own = counts.get(&new).copied().unwrap_or(0);
            (own + 1 < count(taken)).then_some(*number)
        })
    }
}

impl Slot {
    /// Records that the peer has greeted.
    pub(super) fn greeted(&self) {
        if let Some(taken) = self.slots.lock().all.get_mut(&self.number) {
            taken.is_greeted = true;
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.slots.lock().all.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    use super::*;

    fn take(slots: &Arc<Slots>, peer: u8) -> (Option<Slot>, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        theirs.set_nonblocking(true).unwrap();
        (slots.take(Some(IpAddr::from([10, 0, 0, peer])), Socket::Unix(ours)), theirs)
    }

    fn is_closed(mut theirs: &UnixStream) -> bool {
        matches!(theirs.read(&mut [0]), Ok(0))
    }

    #[test]
    fn connections_that_have_not_greeted_make_room() {
        let slots = Slots::new();
        let all: Vec<_> = (0..SLOTS).map(|n| take(&slots, if n < 2 { 2 } else { 1 })).collect();
        all.iter().take(5).for_each(|(slot, _)| slot.as_ref().unwrap().greeted());
        let new = take(&slots, 1);
        assert!(new.0.is_some());
        let closed: Vec<usize> = (0..SLOTS).filter(|n| is_closed(&all[*n].1)).collect();
        assert_eq!(closed, [5], "the oldest that has not greeted");
        assert_eq!(slots.lock().all.len(), SLOTS);
        drop((all, new));
        assert_eq!(slots.lock().all.len(), 0);
    }

    #[test]
    fn a_peer_with_all_slots_gives_half_of_them_to_another() {
        let slots = Slots::new();
        let all: Vec<_> = (0..SLOTS).map(|_| take(&slots, 1)).collect();
        all.iter().for_each(|(slot, _)| slot.as_ref().unwrap().greeted());
        assert!(take(&slots, 1).0.is_none(), "it has all");
        let mut others = Vec::new();
        while let (Some(slot), stream) = take(&slots, 2) {
            slot.greeted();
            others.push((slot, stream));
        }
        assert_eq!(others.len(), SLOTS / 2);
        assert!(others.iter().all(|(_, stream)| !is_closed(stream)));
        let closed: Vec<usize> = (0..SLOTS).filter(|n| is_closed(&all[*n].1)).collect();
        assert_eq!(closed, (SLOTS / 2..SLOTS).collect::<Vec<_>>(), "the newest");
    }
}
