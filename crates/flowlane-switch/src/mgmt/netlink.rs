//! A socket that hears of changes of the system (rtnetlink(7)).

use std::io::{self, ErrorKind};
use std::time::Duration;

use netlink_packet_core::{NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Bytes of the header of a message.
const HEADER: usize = 16;

/// The system's socket buffer for notices.
const BUFFER: usize = 8 << 20;

/// The socket.
pub(super) struct Netlink(Socket);

/// A message of a datagram: an error is one that is not understood, with its kind.
pub(super) type Message = Result<NetlinkPayload<RouteNetlinkMessage>, u16>;

impl Netlink {
    /// Hears of changes of some groups (RTNLGRP).
    ///
    /// # Errors
    /// Where the system gives no socket.
    pub(super) fn of(groups: &[u32]) -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        // A smaller one is no reason not to start.
        _ = socket.set_rx_buf_sz(BUFFER);
        groups.iter().try_for_each(|group| socket.add_membership(*group))?;
        socket.set_non_blocking(true)?;
        Ok(Self(socket))
    }

    /// Asks for all things of a kind.
    ///
    /// # Errors
    /// As the socket's.
    pub(super) fn ask_for_all(&self, of: RouteNetlinkMessage) -> io::Result<()> {
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST | NLM_F_DUMP;
        let mut request = NetlinkMessage::new(header, NetlinkPayload::from(of));
        request.finalize();
        let mut bytes = vec![0; request.buffer_len()];
        request.serialize(&mut bytes);
        self.0.send_to(&bytes, &SocketAddr::new(0, 0), 0).map(drop)
    }

    /// Waits for a datagram, for some time.
    ///
    /// # Errors
    /// As the socket's: notices may be lost then.
    pub(super) fn receive(&self, wait: Duration) -> io::Result<Option<Vec<u8>>> {
        if !self.is_readable(wait)? {
            return Ok(None);
        }
        match self.0.recv_from_full() {
            Ok((bytes, _)) => Ok(Some(bytes)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn is_readable(&self, wait: Duration) -> io::Result<bool> {
        let mut waited_for = [PollFd::new(&self.0, PollFlags::IN)];
        let timeout = Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: i64::from(wait.subsec_nanos()) };
        match poll(&mut waited_for, Some(&timeout)) {
            Ok(ready) => Ok(ready > 0),
            Err(rustix::io::Errno::INTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

/// The messages of a datagram.
pub(super) fn messages(mut bytes: &[u8]) -> impl Iterator<Item = Message> + '_ {
    std::iter::from_fn(move || {
        if bytes.is_empty() {
            return None;
        }
        let message = NetlinkMessage::<RouteNetlinkMessage>::deserialize(bytes);
        // Each begins at a multiple of 4 bytes.
        let &[a, b, c, d, e, f] = bytes.first_chunk().unwrap_or(&[0; 6]);
        let (len, kind) = (u32::from_ne_bytes([a, b, c, d]) as usize, u16::from_ne_bytes([e, f]));
        bytes = bytes.get(len.next_multiple_of(4).max(HEADER)..).unwrap_or_default();
        Some(message.map(|message| message.payload).map_err(|_| kind))
    })
}
