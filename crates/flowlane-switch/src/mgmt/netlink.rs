//! A socket that hears of changes of the system (rtnetlink(7)).

use std::io::{self, ErrorKind};
use std::time::Duration;

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Bytes of the header of a message.
const HEADER: usize = 16;

/// The system's socket buffer for notices.
const BUFFER: usize = 8 << 20;

/// The longest wait for the system's answer.
const ANSWER_TIMEOUT: Duration = Duration::from_millis(500);

/// The error where it does not come.
const NO_ANSWER: &str = "the system does not answer";

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
        self.send(of, NLM_F_DUMP)
    }

    /// Sends a request with some flags.
    fn send(&self, of: RouteNetlinkMessage, flags: u16) -> io::Result<()> {
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST | flags;
        let mut request = NetlinkMessage::new(header, NetlinkPayload::from(of));
        request.finalize();
        let mut bytes = vec![0; request.buffer_len()];
        request.serialize(&mut bytes);
        self.0.send_to(&bytes, &SocketAddr::new(0, 0), 0).map(drop)
    }

    /// Makes a change, and waits until it is made.
    ///
    /// # Errors
    /// The system's, as an error number, or as the socket's.
    pub(super) fn change(&self, of: RouteNetlinkMessage, flags: u16) -> io::Result<()> {
        self.send(of, NLM_F_ACK | flags)?;
        while let Some(bytes) = self.receive(ANSWER_TIMEOUT)? {
            for message in messages(&bytes) {
                if let Ok(NetlinkPayload::Error(error)) = message {
                    let failed = error.code.map(|code| io::Error::from_raw_os_error(-code.get()));
                    return failed.map_or(Ok(()), Err);
                }
            }
        }
        Err(io::Error::other(NO_ANSWER))
    }

    /// Asks for all things of a kind, and does this with each.
    ///
    /// # Errors
    /// The system's, or as the socket's: some may be missing then.
    pub(super) fn for_each(
        &self,
        of: RouteNetlinkMessage,
        mut take: impl FnMut(RouteNetlinkMessage),
    ) -> io::Result<()> {
        self.ask_for_all(of)?;
        while let Some(bytes) = self.receive(ANSWER_TIMEOUT)? {
            for message in messages(&bytes) {
                match message {
                    Ok(NetlinkPayload::Done(_)) => return Ok(()),
                    Ok(NetlinkPayload::Error(error)) => {
                        let failed = error.code.map(|code| io::Error::from_raw_os_error(-code.get()));
                        return failed.map_or(Ok(()), Err);
                    }
                    Ok(NetlinkPayload::InnerMessage(one)) => take(one),
                    Ok(_) | Err(_) => {}
                }
            }
        }
        Err(io::Error::other(NO_ANSWER))
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
