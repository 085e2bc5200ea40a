//! The open connections of the control socket, and what they may hold: connections by peer, bytes of requests and of replies.
//!
//! No client locks others out. Where there are too many connections, the one is closed that has been silent for longest among those
//! of the process that has most. A small request or reply needs nothing but its connection; large ones share a [`Budget`], and are
//! refused where the budget is used up.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Maximum number of open connections.
pub(super) const CONNECTIONS_MAX: usize = 64;
/// Maximum length of a request in bytes: a bundle of a million short rules.
pub(super) const REQUEST_MAX: usize = 64 << 20;
/// The length in bytes up to which requests and replies need no budget.
pub(super) const SMALL: usize = 64 << 10;
/// A large request must be complete after this time.
const LARGE_REQUEST_TIME: Duration = Duration::from_secs(30);

/// Bytes that connections share.
pub(crate) struct Budget {
    left: Mutex<usize>,
    whole: usize,
}

/// Bytes taken from a budget, returned when dropped.
pub(crate) struct Taken {
    budget: Arc<Budget>,
    bytes: usize,
}

impl Budget {
    pub(crate) fn new(bytes: usize) -> Arc<Self> {
        Arc::new(Self { left: Mutex::new(bytes), whole: bytes })
    }

    /// Takes bytes, at most the whole budget; `None` where fewer are left.
    pub(crate) fn take(self: &Arc<Self>, bytes: usize) -> Option<Taken> {
        let mut taken = Taken { budget: self.clone(), bytes: 0 };
        taken.grow(bytes.min(self.whole)).then_some(taken)
    }
}

impl Taken {
    fn left(&self) -> MutexGuard<'_, usize> {
        self.budget.left.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes more; returns whether that much was left.
    pub(crate) fn grow(&mut self, bytes: usize) -> bool {
        let is_left = {
            let mut left = self.left();
            let is_left = *left >= bytes;
            *left -= if is_left { bytes } else { 0 };
            is_left
        };
        self.bytes += if is_left { bytes } else { 0 };
        is_left
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        *self.left() += self.bytes;
    }
}

/// A connection to a client.
pub(super) struct Connection {
    pub(super) stream: UnixStream,
    /// The client's process, as the system says; 0 where it does not.
    process: i32,
    activity: Mutex<Activity>,
}

#[derive(Clone, Copy)]
struct Activity {
    /// The connection is in a method of the switch.
    in_call: bool,
    /// When bytes last went through.
    last: Instant,
}

impl Connection {
    pub(super) fn new(stream: UnixStream, process: i32) -> Arc<Self> {
        let activity = Mutex::new(Activity { in_call: false, last: Instant::now() });
        Arc::new(Self { stream, process, activity })
    }

    pub(super) fn set_activity(&self, in_call: bool) {
        *self.activity.lock().unwrap_or_else(PoisonError::into_inner) =
            Activity { in_call, last: Instant::now() };
    }

    fn activity(&self) -> Activity {
        *self.activity.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the connection's thread, which reads or writes.
    pub(super) fn close(&self) {
        // The client may have closed it.
        _ = self.stream.shutdown(Shutdown::Both);
    }
}

/// The open connections.
#[derive(Default)]
pub(super) struct Connections {
    open: Mutex<Vec<Arc<Connection>>>,
}

impl Connections {
    fn open(&self) -> MutexGuard<'_, Vec<Arc<Connection>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a connection; returns false where all others are in methods of the switch.
    pub(super) fn add(&self, new: &Arc<Connection>) -> bool {
        let mut open = self.open();
        let is_room = open.len() < CONNECTIONS_MAX || close_one(&mut open);
        if is_room {
            open.push(new.clone());
        }
        is_room
    }

    /// Closes the connection that has least claim to be kept; returns whether there was one.
    pub(super) fn close_one(&self) -> bool {
        close_one(&mut self.open())
    }

    pub(super) fn remove(&self, ended: &Arc<Connection>) {
        self.open().retain(|one| !Arc::ptr_eq(one, ended));
    }

    pub(super) fn close_all(&self) {
        self.open().drain(..).for_each(|connection| connection.close());
    }
}

fn close_one(open: &mut Vec<Arc<Connection>>) -> bool {
    let of_peers: Vec<(i32, Activity)> = open.iter().map(|one| (one.process, one.activity())).collect();
    let Some(place) = least_claim(&of_peers) else { return false };
    open.swap_remove(place).close();
    true
}

/// Chooses the connection to close: of the process with most connections, the one that has been silent for longest, unless it is in
/// a method of the switch.
fn least_claim(connections: &[(i32, Activity)]) -> Option<usize> {
    let mut by_process: BTreeMap<i32, usize> = BTreeMap::new();
    connections.iter().for_each(|(process, _)| *by_process.entry(*process).or_default() += 1);
    let idle = connections.iter().enumerate().filter(|(_, (_, activity))| !activity.in_call);
    let claim = |&(_, (process, activity)): &(usize, &(i32, Activity))| {
        (std::cmp::Reverse(by_process[process]), activity.last)
    };
    idle.min_by_key(claim).map(|(place, _)| place)
}

/// Why a request was not read.
#[derive(Debug)]
pub(super) enum NotRead {
    /// The client has disconnected, or was silent for too long within a large request.
    Ended,
    /// It is longer than [`REQUEST_MAX`].
    TooLong,
    /// Other large requests use the budget.
    Busy,
}

/// The bytes that a client has sent and no request has used yet.
pub(super) struct Requests<'a> {
    connection: &'a Connection,
    budget: &'a Arc<Budget>,
    bytes: Vec<u8>,
    /// The budget of `bytes` beyond [`SMALL`].
    taken: Option<Taken>,
    /// Bytes that were searched for the end of a line.
    searched: usize,
}

impl<'a> Requests<'a> {
    pub(super) fn new(connection: &'a Connection, budget: &'a Arc<Budget>) -> Self {
        Self { connection, budget, bytes: Vec::new(), taken: None, searched: 0 }
    }

    /// Reads the next line, without its end; and what it has taken of the budget.
    pub(super) fn next(&mut self) -> Result<(Vec<u8>, Option<Taken>), NotRead> {
        let mut deadline: Option<Instant> = None;
        loop {
            let end = self.bytes[self.searched..].iter().position(|byte| *byte == b'\n');
            if let Some(end) = end.map(|at| at + self.searched) {
                let rest = self.bytes.split_off(end + 1);
                let mut line = std::mem::replace(&mut self.bytes, rest);
                line.truncate(end);
                self.searched = 0;
                return Ok((line, self.taken.take()));
            }
            self.searched = self.bytes.len();
            if self.bytes.len() == self.bytes.capacity() {
                self.make_room()?;
            }
            if self.bytes.capacity() > SMALL && deadline.is_none() {
                deadline = Some(Instant::now() + LARGE_REQUEST_TIME);
            }
            self.read(deadline).map_err(|_| NotRead::Ended)?;
        }
    }

    /// Doubles the room for bytes.
    fn make_room(&mut self) -> Result<(), NotRead> {
        let old = self.bytes.capacity();
        if old > REQUEST_MAX {
            return Err(NotRead::TooLong);
        }
        // A byte more than the longest request.
        let new = (2 * old).clamp(SMALL / 16, REQUEST_MAX + 1);
        if new > SMALL {
            let more = new - old.max(SMALL);
            let has_room = match &mut self.taken {
                Some(taken) => taken.grow(more),
                None => {
                    self.taken = self.budget.take(more);
                    self.taken.is_some()
                }
            };
            if !has_room {
                return Err(NotRead::Busy);
            }
        }
        self.bytes.reserve_exact(new - self.bytes.len());
        Ok(())
    }

    /// Reads some bytes into the room that is there.
    fn read(&mut self, deadline: Option<Instant>) -> io::Result<()> {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        if left == Some(Duration::ZERO) {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.connection.stream.set_read_timeout(left)?;
        let room = (self.bytes.capacity() - self.bytes.len()).min(SMALL);
        let before = self.bytes.len();
        self.bytes.resize(before + room, 0);
        let read = loop {
            match (&self.connection.stream).read(&mut self.bytes[before..]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => break other,
            }
        };
        self.bytes.truncate(before + read.as_ref().map_or(0, |read| *read));
        self.connection.set_activity(false);
        match read? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn the_longest_silent_connection_of_the_largest_peer_is_closed_first() {
        let begun = Instant::now();
        let at = |process, seconds, in_call| {
            (process, Activity { in_call, last: begun + Duration::from_secs(seconds) })
        };
        let mut all =
            vec![at(1, 0, false), at(2, 5, false), at(2, 3, false), at(2, 1, true), at(3, 9, false)];
        assert_eq!(least_claim(&all), Some(2));
        all[2].1.in_call = true;
        assert_eq!(least_claim(&all), Some(1));
        all[1].1.in_call = true;
        assert_eq!(least_claim(&all), Some(0));
        all.iter_mut().for_each(|(_, activity)| activity.in_call = true);
        assert_eq!(least_claim(&all), None);
    }

    #[test]
    fn silent_connections_do_not_lock_others_out() {
        let connections = Connections::default();
        let mut clients = Vec::new();
        let mut add = |process| {
            let (client, server) = UnixStream::pair().unwrap();
            let connection = Connection::new(server, process);
            assert!(connections.add(&connection));
            clients.push(client);
            connection
        };
        let other = add(1);
        (0..1000).for_each(|_| drop(add(2)));
        assert_eq!(connections.open().len(), CONNECTIONS_MAX);
        assert!(connections.open().iter().any(|one| Arc::ptr_eq(one, &other)));
        connections.remove(&other);
        assert_eq!(connections.open().len(), CONNECTIONS_MAX - 1);
    }

    /// Feeds bytes from a thread; returns the lines, and why reading ended.
    fn read_all(bytes: Vec<u8>, budget: &Arc<Budget>) -> (Vec<usize>, NotRead) {
        let (mut client, server) = UnixStream::pair().unwrap();
        let writing = std::thread::spawn(move || client.write_all(&bytes));
        let connection = Connection::new(server, 0);
        let mut requests = Requests::new(&connection, budget);
        let mut lines = Vec::new();
        let ended = loop {
            match requests.next() {
                Ok((line, _taken)) => lines.push(line.len()),
                Err(ended) => break ended,
            }
        };
        connection.close();
        _ = writing.join();
        (lines, ended)
    }

    #[test]
    fn long_lines_take_from_the_budget_and_give_back() {
        let budget = Budget::new(1 << 20);
        let mut bytes = Vec::new();
        for len in [0, 1, SMALL - 1, SMALL, 300_000, 7, 300_000] {
            bytes.extend(std::iter::repeat_n(b'x', len));
            bytes.push(b'\n');
        }
        let (lines, ended) = read_all(bytes, &budget);
        assert_eq!(lines, [0, 1, SMALL - 1, SMALL, 300_000, 7, 300_000]);
        assert!(matches!(ended, NotRead::Ended));
        assert_eq!(*budget.left.lock().unwrap(), 1 << 20);
        // More than is left.
        let (lines, ended) = read_all(vec![b'x'; 3 << 20], &budget);
        assert!(lines.is_empty() && matches!(ended, NotRead::Busy), "{ended:?}");
        assert_eq!(*budget.left.lock().unwrap(), 1 << 20);
        let half = budget.take(1 << 19).unwrap();
        assert!(budget.take((1 << 19) + 1).is_none());
        // More than the whole is taken as the whole.
        drop(half);
        assert!(budget.take(usize::MAX).is_some());
    }

    #[test]
    fn a_line_without_an_end_is_too_long() {
        let (lines, ended) = read_all(vec![b'x'; REQUEST_MAX + 2], &Budget::new(2 * REQUEST_MAX));
        assert!(lines.is_empty() && matches!(ended, NotRead::TooLong), "{ended:?}");
    }
}
