//! The send queue of a packet socket.

use std::io::{self, IoSlice};
use std::mem::zeroed;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::net::{SendAncillaryBuffer, SendFlags};

use super::udp_gso::GsoBatch;
use super::{BATCH, SHORT};
use crate::packet::{Frame, Offload, Queue};
use crate::port::interface::{set_option, set_queue};
use crate::port::offload::VNET_HEADER;

/// Send buffer of a socket whose frames go through queues: some thousand frames each (txqueuelen) in some queues.
const ROOM_OF_QUEUES: libc::c_int = 64 << 20;

/// Queued frames, one behind the other, each behind its virtio-net header.
#[derive(Default)]
pub(super) struct Outgoing {
    bytes: Vec<u8>,
    /// Where each ends, and how many frames it is.
    ends: Vec<(usize, usize)>,
    /// The last, where others may be appended to it.
    batch: Option<GsoBatch>,
    /// The queue that the socket's frames go through, those in `bytes` too.
    queue: Queue,
    /// The socket has room for the frames of several queues.
    has_room: bool,
    /// The kernel does not support UDP segmentation.
    is_single: bool,
    /// Frames rejected by the system since `take_dropped` was last called.
    dropped: u64,
}

impl Outgoing {
    /// Returns the number of frames rejected by the system since the last call.
    pub(super) fn take_dropped(&mut self) -> u64 {
        std::mem::take(&mut self.dropped)
    }

    /// Queues a frame, or flushes the queue and sends it.
    #[inline]
    pub(super) fn put(&mut self, socket: &OwnedFd, frame: &Frame) {
        if frame.queue != self.queue {
            self.change_queue(socket, frame.queue);
        }
        if frame.len() > SHORT {
            self.flush(socket);
            self.dropped += u64::from(!send(socket, &Offload::header(frame.offload), frame.bytes()));
        } else if !self.append(frame) {
            if self.ends.len() == BATCH {
                self.flush(socket);
            }
            self.push(frame);
        }
    }

    /// Sends the queued frames, then lets the socket's next frames go through another queue. Where the system refuses that, they go
    /// through the former one.
    #[cold]
    fn change_queue(&mut self, socket: &OwnedFd, queue: Queue) {
        self.flush(socket);
        if !std::mem::replace(&mut self.has_room, true) {
            // A queue that waits must not take the room of the others. Where that is refused, it does.
            _ = set_option(socket, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &ROOM_OF_QUEUES);
        }
        _ = set_queue(socket, queue);
        self.queue = queue;
    }

    /// Forgets the queue of another socket.
    pub(super) fn restart(&mut self) {
        (self.queue, self.has_room) = (Queue::NONE, false);
    }

    /// Appends a frame to the last one if the kernel can segment them again; returns whether it did.
    #[inline]
    fn append(&mut self, frame: &Frame) -> bool {
        let (Some(batch), Some((end, frames))) = (&mut self.batch, self.ends.last_mut()) else {
            return false;
        };
        let is_next = batch.append(&mut self.bytes, frame);
        if is_next {
            (*end, *frames) = (self.bytes.len(), *frames + 1);
        }
        is_next
    }

    #[inline]
    fn push(&mut self, frame: &Frame) {
        self.close();
        self.batch = if self.is_single { None } else { GsoBatch::of(frame, self.bytes.len()) };
        self.bytes.extend_from_slice(&Offload::header(frame.offload));
        self.bytes.extend_from_slice(frame.bytes());
        self.ends.push((self.bytes.len(), 1));
    }

    /// Finishes the last message: nothing more is appended.
    fn close(&mut self) {
        if let Some(batch) = self.batch.take() {
            batch.close(&mut self.bytes);
        }
    }

    /// Sends the queued frames. Frames that the system rejects are dropped.
    pub(super) fn flush(&mut self, socket: &OwnedFd) {
        self.close();
        let Self { bytes, ends, is_single, dropped, .. } = self;
        if ends.is_empty() {
            return;
        }
        // SAFETY: all-zero bytes are valid iovecs and mmsghdrs.
        let (mut parts, mut messages) = unsafe { zeroed::<([libc::iovec; BATCH], [libc::mmsghdr; BATCH])>() };
        let mut from = 0;
        for (i, &(end, _)) in ends.iter().enumerate() {
            let frame = &bytes[from..end];
            from = end;
            parts[i] = libc::iovec { iov_base: frame.as_ptr().cast_mut().cast(), iov_len: frame.len() };
            messages[i].msg_hdr.msg_iov = &raw mut parts[i];
            messages[i].msg_hdr.msg_iovlen = 1;
        }
        let mut at = 0;
        while at < ends.len() {
            let left = &mut messages[at..ends.len()];
            // SAFETY: each message points to its part, those to frames within `bytes`, all alive during the call;
            // sendmmsg only reads frames, and the count is that of the messages.
            let sent = unsafe {
                let (socket, flags) = (socket.as_raw_fd(), libc::MSG_DONTWAIT as _);
                libc::sendmmsg(socket, left.as_mut_ptr(), left.len() as _, flags)
            };
            // It stops at the first that it does not take, and says why when that is the first of a call.
            match usize::try_from(sent) {
                Ok(sent) if sent > 0 => at += sent,
                _ => {
                    let begin = at.checked_sub(1).map_or(0, |before| ends[before].0);
                    let (end, frames) = ends[at];
                    // A kernel before Linux 6.2.
                    let is_refused =
                        frames > 1 && io::Error::last_os_error().raw_os_error() == Some(libc::EINVAL);
                    *is_single |= is_refused;
                    *dropped += match is_refused {
                        true => send_apart(socket, &bytes[begin..end]),
                        false => frames as u64,
                    };
                    at += 1;
                }
            }
        }
        bytes.clear();
        ends.clear();
    }
}

/// Sends a frame behind its header; returns whether the system accepted it.
fn send(socket: &OwnedFd, header: &[u8], frame: &[u8]) -> bool {
    let parts = [IoSlice::new(header), IoSlice::new(frame)];
    rustix::net::sendmsg(socket, &parts, &mut SendAncillaryBuffer::default(), SendFlags::DONTWAIT).is_ok()
}

/// Sends a GSO batch frame by frame, for kernels without UDP segmentation. Returns the number of frames dropped.
#[cold]
fn send_apart(socket: &OwnedFd, message: &[u8]) -> u64 {
    let Some((header, frame)) = message.split_first_chunk::<VNET_HEADER>() else { return 0 };
    let mut lost = 0;
    if let Some(left) = Offload::read(header) {
        let nothing_left = Offload::header(None);
        left.finish(&mut frame.to_vec(), |piece| lost += u64::from(!send(socket, &nothing_left, piece)));
    }
    lost
}
