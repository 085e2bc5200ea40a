//! Memory that the kernel works on, too: buffers of frames, and rings that say who has which.
//!
//! A buffer is the kernel's from when its place is put into the fill or send ring until that comes back out of the receive or
//! completion ring; else it is ours. Each ring has one producer and one consumer, the kernel and us
//! (Documentation/networking/af_xdp.rst).

use std::io;
use std::marker::PhantomData;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};
use rustix::net::xdp::XdpRingOffset;

/// A mapping of this process, until it is dropped.
#[derive(Debug)]
struct Mapping {
    at: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping belongs to the owner of this value, and memory is the same on all threads.
unsafe impl Send for Mapping {}

impl Mapping {
    fn new(len: usize, of: Option<(BorrowedFd<'_>, u64)>) -> io::Result<Self> {
        let may = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::POPULATE;
        // SAFETY: the system chooses a place where nothing is.
        let at = unsafe {
            match of {
                Some((fd, offset)) => {
                    mmap(std::ptr::null_mut(), len, may, flags | MapFlags::SHARED, fd, offset)
                }
                None => mmap_anonymous(std::ptr::null_mut(), len, may, flags | MapFlags::PRIVATE),
            }
        }?;
        let at = NonNull::new(at.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { at, len })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this range was mapped, and no reference into it exists: references live no longer than this value.
        _ = unsafe { munmap(self.at.as_ptr().cast(), self.len) };
    }
}

/// Bytes of a buffer, of which the kernel keeps some in front of a frame for itself.
pub(super) const BUFFER: usize = 4096;

/// Buffers one behind the other, by their places in bytes.
#[derive(Debug)]
pub(super) struct Buffers(Mapping);

impl Buffers {
    pub(super) fn new(buffers: usize) -> io::Result<Self> {
        Ok(Self(Mapping::new(buffers * BUFFER, None)?))
    }

    pub(super) fn address(&self) -> u64 {
        self.0.at.as_ptr() as u64
    }

    pub(super) fn len(&self) -> usize {
        self.0.len
    }

    /// The bytes from a place on, in a buffer that is ours.
    ///
    /// # Panics
    /// Where they are not within the buffers.
    pub(super) fn bytes_mut(&mut self, place: u64, len: usize) -> &mut [u8] {
        let place = place as usize;
        assert!(place.checked_add(len).is_some_and(|end| end <= self.0.len), "{len} bytes at {place}");
        // SAFETY: within the mapping, as has just been seen; borrowed from this value, which has no other borrower; and the kernel does
        // not touch a buffer that is ours, which callers see to by the rings.
        unsafe { std::slice::from_raw_parts_mut(self.0.at.as_ptr().add(place), len) }
    }
}

/// A ring of plain values.
///
/// *Invariant*: `producer`, `consumer` and `flags` point to aligned words, and `values` to `mask + 1` values, within the mapping.
#[derive(Debug)]
struct Ring<T> {
    _mapping: Mapping,
    producer: NonNull<AtomicU32>,
    consumer: NonNull<AtomicU32>,
    flags: Option<NonNull<AtomicU32>>,
    values: NonNull<T>,
    mask: u32,
    kind: PhantomData<T>,
}

// SAFETY: all that it points to is in its own mapping, and values are plain.
unsafe impl<T: Send> Send for Ring<T> {}

impl<T: Copy> Ring<T> {
    fn in_mapping(mapping: Mapping, offsets: &XdpRingOffset, len: u32) -> io::Result<Self> {
        let end = offsets.desc as usize + len as usize * size_of::<T>();
        let words = [offsets.producer, offsets.consumer, offsets.flags.unwrap_or(0)];
        let within =
            end <= mapping.len && words.iter().all(|&at| at as usize + 4 <= mapping.len && at % 4 == 0);
        if !within || !len.is_power_of_two() || !(offsets.desc as usize).is_multiple_of(align_of::<T>()) {
            return Err(io::Error::other("the kernel describes a ring that is not in its mapping"));
        }
        // SAFETY: all these places are within the mapping, as has just been seen.
        unsafe {
            let word = |at: u64| mapping.at.add(at as usize).cast::<AtomicU32>();
            Ok(Self {
                producer: word(offsets.producer),
                consumer: word(offsets.consumer),
                flags: offsets.flags.map(word),
                values: mapping.at.add(offsets.desc as usize).cast(),
                mask: len - 1,
                kind: PhantomData,
                _mapping: mapping,
            })
        }
    }

    fn producer(&self) -> &AtomicU32 {
        // SAFETY: by the invariant.
        unsafe { self.producer.as_ref() }
    }

    fn consumer(&self) -> &AtomicU32 {
        // SAFETY: by the invariant.
        unsafe { self.consumer.as_ref() }
    }

    /// The place of the value of this number; numbers go round.
    fn value(&self, number: u32) -> NonNull<T> {
        // SAFETY: masked, it is one of the values, by the invariant.
        unsafe { self.values.add((number & self.mask) as usize) }
    }
}

/// A ring that we fill.
#[derive(Debug)]
pub(super) struct Filled<T> {
    ring: Ring<T>,
    /// Values that have been written; those up to the producer's number are the kernel's.
    written: u32,
    /// Of the consumer's number, when it was last looked at.
    consumed: u32,
}

impl<T: Copy> Filled<T> {
    /// Maps the ring of `len` values at `offset` of a socket.
    pub(super) fn of(
        socket: BorrowedFd<'_>,
        offset: u64,
        offsets: &XdpRingOffset,
        len: u32,
    ) -> io::Result<Self> {
        let bytes = offsets.desc as usize + len as usize * size_of::<T>();
        let ring = Ring::in_mapping(Mapping::new(bytes, Some((socket, offset)))?, offsets, len)?;
        Ok(Self { ring, written: 0, consumed: 0 })
    }

    /// Puts a value in, to be [published](Self::publish); says whether there was room.
    #[inline]
    pub(super) fn push(&mut self, value: T) -> bool {
        if self.written.wrapping_sub(self.consumed) > self.ring.mask {
            self.consumed = self.ring.consumer().load(Ordering::Acquire);
            if self.written.wrapping_sub(self.consumed) > self.ring.mask {
                return false;
            }
        }
        // SAFETY: the place is one of the ring's, and the kernel has consumed the value there.
        unsafe { self.ring.value(self.written).write(value) };
        self.written = self.written.wrapping_add(1);
        true
    }

    /// Publishes the values put in to the kernel.
    #[inline]
    pub(super) fn publish(&mut self) {
        self.ring.producer().store(self.written, Ordering::Release);
    }

    /// Returns the number of values that the kernel has not consumed.
    pub(super) fn untaken(&self) -> u32 {
        self.written.wrapping_sub(self.ring.consumer().load(Ordering::Acquire))
    }

    /// Returns the values that the kernel has not consumed, in order.
    pub(super) fn untaken_values(&self) -> impl Iterator<Item = T> {
        let left = self.untaken().min(self.ring.mask + 1);
        let first = self.written.wrapping_sub(left);
        // SAFETY: each place is one of the ring's and has been written, and the kernel only reads values of a ring that we fill.
        (0..left).map(move |n| unsafe { self.ring.value(first.wrapping_add(n)).read() })
    }

    /// Returns whether the kernel needs a wakeup to see new values.
    #[inline]
    pub(super) fn needs_wakeup(&self) -> bool {
        // SAFETY: by the ring's invariant.
        let flags = self.ring.flags.map(|flags| unsafe { flags.as_ref() }.load(Ordering::Relaxed));
        flags.is_none_or(|flags| flags & libc::XDP_RING_NEED_WAKEUP != 0)
    }
}

/// A ring that the kernel fills.
#[derive(Debug)]
pub(super) struct Drained<T> {
    ring: Ring<T>,
    taken: u32,
    /// Of the producer's number, when it was last looked at.
    produced: u32,
}

impl<T: Copy> Drained<T> {
    /// Maps the ring of `len` values at `offset` of a socket.
    pub(super) fn of(
        socket: BorrowedFd<'_>,
        offset: u64,
        offsets: &XdpRingOffset,
        len: u32,
    ) -> io::Result<Self> {
        let Filled { ring, .. } = Filled::of(socket, offset, offsets, len)?;
        Ok(Self { ring, taken: 0, produced: 0 })
    }

    /// Takes the next value, where there is one.
    #[inline]
    pub(super) fn pop(&mut self) -> Option<T> {
        if self.taken == self.produced {
            self.produced = self.ring.producer().load(Ordering::Acquire);
            if self.taken == self.produced {
                return None;
            }
        }
        // SAFETY: the place is one of the ring's, and the kernel has written it before it published its number.
        let value = unsafe { self.ring.value(self.taken).read() };
        self.taken = self.taken.wrapping_add(1);
        Some(value)
    }

    /// Returns the number of values that can be taken.
    #[cfg(test)]
    pub(super) fn ready(&self) -> u32 {
        self.ring.producer().load(Ordering::Acquire).wrapping_sub(self.taken)
    }

    /// The kernel may use the places again of what has been taken.
    #[inline]
    pub(super) fn release(&mut self) {
        self.ring.consumer().store(self.taken, Ordering::Release);
    }
}

/// Both ends of a ring in plain memory, whose numbers begin just before they wrap. They are of one mapping: one of them must never be
/// dropped.
#[cfg(test)]
pub(super) fn ends<T: Copy>(len: u32) -> (Filled<T>, Drained<T>) {
    let offsets = XdpRingOffset { producer: 0, consumer: 64, desc: 128, flags: Some(4) };
    let mapping = Mapping::new(4096, None).unwrap();
    let same = Mapping { at: mapping.at, len: mapping.len };
    let filled = Ring::in_mapping(mapping, &offsets, len).unwrap();
    let drained = Ring::in_mapping(same, &offsets, len).unwrap();
    let start = u32::MAX - 2;
    filled.producer().store(start, Ordering::Relaxed);
    filled.consumer().store(start, Ordering::Relaxed);
    (
        Filled { ring: filled, written: start, consumed: start },
        Drained { ring: drained, taken: start, produced: start },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_put_into_a_ring_comes_out_in_order_and_numbers_go_round() {
        let (mut filled, mut drained) = ends::<u64>(8);
        let (mut put, mut got) = (0, 0);
        for round in 0..1000 {
            for _ in 0..round % 11 {
                // The other end frees places when it says so, and not before.
                if put - got < 8 {
                    assert!(filled.push(put), "{put}");
                    put += 1;
                } else {
                    assert!(!filled.push(put), "it is full");
                }
            }
            assert_eq!(drained.pop(), None, "nothing was published");
            filled.publish();
            for _ in 0..round % 5 {
                assert_eq!(drained.pop(), (got < put).then_some(got));
                got += u64::from(got < put);
            }
            while let Some(value) = drained.pop() {
                assert_eq!(value, got);
                got += 1;
            }
            drained.release();
            assert_eq!(filled.untaken(), 0);
        }
        assert!(put > 3000 && !filled.needs_wakeup());
        // Both are of one mapping.
        std::mem::forget(drained);
    }

    #[test]
    fn rings_that_are_not_in_their_mapping_are_refused_and_so_are_bytes_beyond_buffers() {
        let refused = |offsets: XdpRingOffset, len| {
            Ring::<u64>::in_mapping(Mapping::new(4096, None).unwrap(), &offsets, len).is_err()
        };
        let good = XdpRingOffset { producer: 0, consumer: 64, desc: 128, flags: None };
        assert!(!refused(good, 8) && !refused(good, 256));
        assert!(refused(good, 512) && refused(good, 7));
        assert!(refused(XdpRingOffset { consumer: 4094, ..good }, 8));
        assert!(refused(XdpRingOffset { producer: 2, ..good }, 8));
        assert!(refused(XdpRingOffset { desc: 4, ..good }, 8));
        let mut buffers = Buffers::new(2).unwrap();
        buffers.bytes_mut(4096, 4096).fill(7);
        assert_eq!(buffers.bytes_mut(8191, 1), [7]);
        assert!(std::panic::catch_unwind(move || buffers.bytes_mut(8191, 2).len()).is_err());
    }
}
