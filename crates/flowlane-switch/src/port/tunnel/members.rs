//! The ports of an underlay: whose a datagram is, and the frames that wait for each.

use std::collections::HashMap;
use std::net::IpAddr;

use flowlane::packet::tunnel::erspan::ErspanHeader;
use flowlane::packet::tunnel::gre::Gre;
use flowlane::tunnel::TunnelKind;

use super::super::frame_queue::FrameQueue;
use super::socket::{Carrier, Datagram};
use crate::packet::Frames;
use crate::tunnel::PortTunnelSpec;

/// A port.
#[derive(Debug)]
struct Member {
    spec: PortTunnelSpec,
    waiting: FrameQueue,
    /// Frames for which there was no room.
    lost: u64,
}

/// Ports by number: that of one that is gone is used again.
#[derive(Debug)]
pub(super) struct Members {
    carrier: Carrier,
    all: Vec<Option<Member>>,
    /// The numbers of those with one other end, in the order in which they are asked whether a packet is theirs.
    by_remote: HashMap<IpAddr, Vec<usize>>,
    /// Those of any other end, likewise.
    of_any: Vec<usize>,
    /// Frames that wait, for whatever port.
    waiting: usize,
}

impl Members {
    /// None yet.
    pub(super) fn of(carrier: Carrier) -> Self {
        Self { carrier, all: Vec::new(), by_remote: HashMap::new(), of_any: Vec::new(), waiting: 0 }
    }

    /// The specifications of all.
    pub(super) fn specs(&self) -> impl Iterator<Item = &PortTunnelSpec> {
        self.all.iter().flatten().map(|member| &member.spec)
    }

    /// Adds a port; returns its number.
    pub(super) fn add(&mut self, spec: &PortTunnelSpec) -> usize {
        let free = self.all.iter().position(Option::is_none);
        let number = free.unwrap_or_else(|| {
            self.all.push(None);
            self.all.len() - 1
        });
        self.all[number] = Some(Member { spec: spec.clone(), waiting: FrameQueue::default(), lost: 0 });
        let Self { all, by_remote, of_any, .. } = self;
        let order = match spec.remote {
            Some(remote) => by_remote.entry(remote).or_default(),
            None => of_any,
        };
        let precedence = |number: &usize| all[*number].as_ref().map(|member| member.spec.precedence());
        let place = order.partition_point(|other| precedence(other) <= Some(spec.precedence()));
        order.insert(place, number);
        number
    }

    /// Removes a port with the frames that wait for it.
    pub(super) fn remove(&mut self, number: usize) {
        let Some(member) = self.all[number].take() else { return };
        self.waiting -= member.waiting.len();
        self.of_any.retain(|other| *other != number);
        if let Some(remote) = member.spec.remote
            && let Some(order) = self.by_remote.get_mut(&remote)
        {
            order.retain(|other| *other != number);
            if order.is_empty() {
                self.by_remote.remove(&remote);
            }
        }
    }

    /// Gives a datagram to the port whose it is. As without a switch, one of no port is dropped; one whose tunnel header is malformed
    /// goes to a port of its ends, which counts it.
    pub(super) fn deliver(&mut self, datagram: &Datagram<'_>) {
        let (kind, id) = match self.carrier {
            Carrier::Udp(_) => (None, vni(datagram.payload)),
            Carrier::Gre => kind_and_id(datagram.payload),
        };
        let (remote, local) = (datagram.remote.ip(), datagram.local);
        let spec = |number: &usize| self.all[*number].as_ref().map(|member| &member.spec);
        let takes = |number: &&usize| {
            spec(number).is_some_and(|spec| {
                kind.is_none_or(|kind| kind == spec.kind) && spec.takes(remote, local, id)
            })
        };
        let lists = [self.by_remote.get(&remote).map_or(&[][..], Vec::as_slice), &self.of_any];
        let first = lists.iter().filter_map(|order| order.iter().find(takes));
        let number = first.min_by_key(|number| spec(number).map(PortTunnelSpec::precedence)).copied();
        let Some(member) = number.and_then(|number| self.all[number].as_mut()) else { return };
        match member.waiting.next_frame() {
            Some(frame) => {
                datagram.fill(self.carrier, frame);
                self.waiting += 1;
            }
            None => member.lost += 1,
        }
    }

    /// Moves frames that wait for a port to a burst.
    pub(super) fn take(&mut self, number: usize, frames: &mut Frames) {
        if let Some(member) = &mut self.all[number] {
            self.waiting -= member.waiting.take(frames);
        }
    }

    /// Takes the number of frames that a port has lost.
    pub(super) fn take_lost(&mut self, number: usize) -> u64 {
        self.all[number].as_mut().map_or(0, |member| std::mem::take(&mut member.lost))
    }

    /// Returns whether frames wait for any port.
    pub(super) fn is_waiting(&self) -> bool {
        self.waiting > 0
    }
}

/// Returns the protocol of a GRE packet, and its key or session, as far as the headers are well-formed.
fn kind_and_id(payload: &[u8]) -> (Option<TunnelKind>, Option<u32>) {
    match Gre::read(payload) {
        Ok(header) if header.is_erspan() => {
            let id = ErspanHeader::read(payload).ok().map(|header| header.session);
            (Some(TunnelKind::Erspan), id)
        }
        Ok(header) => (Some(TunnelKind::Gre), Some(header.key.unwrap_or(0))),
        Err(_) => (None, None),
    }
}

/// The VNI of VXLAN and GENEVE; both have it in the same place.
fn vni(payload: &[u8]) -> Option<u32> {
    let &[a, b, c] = payload.get(4..)?.first_chunk()?;
    Some(u32::from_be_bytes([0, a, b, c]))
}

#[cfg(test)]
mod tests {
    use flowlane::tunnel::TunnelKind;

    use super::*;

    #[test]
    fn a_datagram_is_of_the_port_that_open_vswitch_would_give_it_to() {
        let spec = |remote: &str, options: &[(&str, &str)]| {
            PortTunnelSpec::parse(TunnelKind::Geneve, remote, options).unwrap()
        };
        let mut members = Members::of(Carrier::Udp(6081));
        let numbers: Vec<usize> = [
            spec("flow", &[("key", "flow")]),
            spec("192.0.2.7", &[("key", "flow")]),
            spec("flow", &[("key", "7")]),
            spec("192.0.2.7", &[("key", "flow"), ("local", "192.0.2.1")]),
            spec("192.0.2.7", &[("key", "7")]),
        ]
        .iter()
        .map(|spec| members.add(spec))
        .collect();
        let taker = |members: &mut Members, remote: &str, local: &str, id: u8| {
            let payload = [0, 0, 0x65, 0x58, 0, 0, id, 0];
            let remote = format!("{remote}:9").parse().unwrap();
            members.deliver(&Datagram {
                remote,
                local: local.parse().unwrap(),
                tos: 0,
                ttl: 9,
                payload: &payload,
            });
            let mut frames = Frames::new(4);
            let all = 0..members.all.len();
            let found = all.into_iter().find(|number| {
                members.take(*number, &mut frames);
                !frames.is_empty()
            });
            assert!(!members.is_waiting());
            found
        };
        assert_eq!(taker(&mut members, "192.0.2.7", "192.0.2.1", 7), Some(numbers[4]));
        assert_eq!(taker(&mut members, "192.0.2.8", "192.0.2.1", 7), Some(numbers[2]));
        assert_eq!(taker(&mut members, "192.0.2.7", "192.0.2.1", 8), Some(numbers[3]));
        assert_eq!(taker(&mut members, "192.0.2.7", "192.0.2.2", 8), Some(numbers[1]));
        assert_eq!(taker(&mut members, "[::7]", "::1", 8), Some(numbers[0]));
        // The number of a port that is gone is used again, and not its packets' way.
        members.remove(numbers[4]);
        assert_eq!(taker(&mut members, "192.0.2.7", "192.0.2.1", 7), Some(numbers[2]));
        numbers[..4].iter().for_each(|number| members.remove(*number));
        assert_eq!(taker(&mut members, "192.0.2.7", "192.0.2.1", 7), None);
        assert!(members.by_remote.is_empty() && members.of_any.is_empty());
        assert_eq!(members.add(&spec("flow", &[])), 0);
    }
}
