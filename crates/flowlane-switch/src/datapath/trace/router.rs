//! What the router would do with the packet of a trace.

use super::Tracer;
use crate::datapath::router::{Leaving, NO_PORT, forward, leave, leaves_by_any_port};
use crate::datapath::walk::AfterStep;
use crate::ruleset::Routing;
use crate::state::router::{Interface, Reason, has_right_header, text_of};

impl Tracer<'_> {
    /// Says what the router would do with the packet; nothing is sent, and nothing waits.
    pub(super) fn route(&mut self, routing: Routing) -> AfterStep {
        let Some(router) = self.worker.egress.router.clone() else { return AfterStep::End };
        if !has_right_header(self.packet.frame.bytes(), &self.packet.headers) {
            self.tell("router", "dropped", "the checksum of its header is wrong");
            return AfterStep::End;
        }
        let (interface, via) = match routing {
            Routing::Receive => {
                self.tell("router", "taken", "it is for the router itself");
                return AfterStep::End;
            }
            Routing::Refuse(reason) => return self.refuse(reason),
            Routing::ReversePath => {
                self.tell("router", "dropped", "the routes do not lead back to its source");
                return AfterStep::End;
            }
            Routing::Forward { interface, via } => (interface, via),
        };
        let packet = &mut *self.packet;
        let way = |name| router.known_way(name);
        let parts = (&packet.frame, &packet.headers, &packet.key);
        match leave(&router, (interface, via), parts, packet.now_ns, way) {
            Leaving::By(way) => {
                forward(&mut packet.frame, &packet.headers, way);
                let Interface { name, link, .. } = &router.interfaces()[usize::from(interface)];
                if leaves_by_any_port(*link, packet.place) {
                    packet.source = Some(NO_PORT);
                }
                let mac = text_of(way.destination);
                self.tell("router", format!("leaves by {name}, to {mac}"), "its TTL is one less");
                AfterStep::Next
            }
            Leaving::Waits(name) => {
                let why = format!("{} is not known yet, and is asked for", name.address);
                self.tell("router", "waits for its neighbour", why);
                AfterStep::End
            }
            Leaving::Cut(mtu) => {
                let why = format!("no more than {mtu} bytes leave there");
                self.tell("router", "cut into fragments, which go on by themselves", why);
                AfterStep::End
            }
            Leaving::StaysOnLink => {
                let why =
                    "it came to all stations of its link, or from an address of the link alone or of no host";
                self.tell("router", "dropped", why);
                AfterStep::End
            }
            Leaving::Refused(reason) => self.refuse(reason),
        }
    }

    fn refuse(&mut self, reason: Reason) -> AfterStep {
        let why = match reason {
            Reason::Expired => "its TTL has expired".to_owned(),
            Reason::NoRoute => "there is no route".to_owned(),
            Reason::Prohibited => "a route forbids it".to_owned(),
            Reason::NoNeighbour => "the neighbour does not answer".to_owned(),
            Reason::TooLong(mtu) => format!("no more than {mtu} bytes leave there, and it must not be cut"),
            Reason::NoProtocol | Reason::NoPort => "it is for the router itself".to_owned(),
        };
        self.tell("router", "dropped, with an ICMP error", why);
        AfterStep::End
    }
}
