//! The interconnect: a mesh of tiles with row-first routing.
//!
//! A message reserves the links of its path when it is sent, in the order of sending. A link is busy for as long as
//! the message's flits take; the head proceeds after the cycles of a hop.

use crate::config::MeshConfig;
use crate::event::Ps;

/// Flits of a request.
pub const REQUEST_FLITS: u64 = 1;
/// Flits of a line with its header.
pub const LINE_FLITS: u64 = 3;

/// The state of the links.
#[derive(Clone, Debug)]
pub struct Mesh {
    columns: u32,
    hop_ps: Ps,
    busy_ps: Ps,
    /// The end of the reservation of each tile's links to the east, west, south and north.
    links: Vec<[Ps; 4]>,
    /// Flits carried by each link.
    carried: Vec<[u64; 4]>,
    flits: u64,
    waited_ps: Ps,
}

impl Mesh {
    /// Creates a mesh of idle links.
    pub fn new(config: &MeshConfig, cycle_ps: Ps) -> Self {
        Self {
            columns: config.columns,
            hop_ps: config.hop_cycles * cycle_ps,
            busy_ps: config.link_busy_cycles * cycle_ps,
            links: vec![[0; 4]; (config.columns * config.rows) as usize],
            carried: vec![[0; 4]; (config.columns * config.rows) as usize],
            flits: 0,
            waited_ps: 0,
        }
    }

    /// Returns the hops between two tiles.
    pub fn hops(&self, from: u32, to: u32) -> u32 {
        let place = |tile: u32| (tile % self.columns, tile / self.columns);
        let ((x, y), (to_x, to_y)) = (place(from), place(to));
        x.abs_diff(to_x) + y.abs_diff(to_y)
    }

    /// Sends a message and returns its arrival time.
    pub fn send(&mut self, from: u32, to: u32, flits: u64, at: Ps) -> Ps {
        let (mut tile, mut time) = (from, at);
        while tile != to {
            let (x, to_x) = (tile % self.columns, to % self.columns);
            let (link, next) = match () {
                () if x < to_x => (0, tile + 1),
                () if x > to_x => (1, tile - 1),
                () if tile < to => (2, tile + self.columns),
                () => (3, tile - self.columns),
            };
            let free = &mut self.links[tile as usize][link];
            self.waited_ps += free.saturating_sub(time);
            time = time.max(*free);
            *free = time + flits * self.busy_ps;
            time += self.hop_ps;
            self.flits += flits;
            self.carried[tile as usize][link] += flits;
            tile = next;
        }
        time
    }

    /// Returns the busy time of the busiest link.
    pub fn busiest_ps(&self) -> Ps {
        self.carried.iter().flatten().max().map_or(0, |flits| flits * self.busy_ps)
    }

    /// Returns flits times hops so far, and the time that messages waited for links.
    pub fn load(&self) -> (u64, Ps) {
        (self.flits, self.waited_ps)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mesh(columns: u32, rows: u32) -> Mesh {
        Mesh::new(&MeshConfig { columns, rows, hop_cycles: 2, link_busy_cycles: 1 }, 100)
    }

    #[test]
    fn the_mean_distance_is_that_of_the_formula() {
        // (n² - 1) / 3n along each side, over all pairs of tiles, including a tile and itself.
        for n in [2u32, 4, 6, 8] {
            let mesh = mesh(n, n);
            let pairs = (0..n * n).flat_map(|a| (0..n * n).map(move |b| (a, b)));
            let total: u64 = pairs.map(|(a, b)| u64::from(mesh.hops(a, b))).sum();
            let tiles = u64::from(n).pow(4);
            assert_eq!(total * 3 * u64::from(n), tiles * 2 * (u64::from(n) * u64::from(n) - 1), "{n}");
        }
        // 2.5 in the paper's mesh.
        let mesh = mesh(4, 4);
        let total: u32 = (0..256).map(|pair| mesh.hops(pair / 16, pair % 16)).sum();
        assert_eq!(total, 640);
    }

    #[test]
    fn a_message_takes_its_hops_and_waits_for_busy_links() {
        let mut mesh = mesh(4, 4);
        assert_eq!(mesh.send(0, 15, LINE_FLITS, 1000), 1000 + 6 * 200);
        // A second message on the same path waits for three flits on the first link only, and follows from then on.
        assert_eq!(mesh.send(0, 15, REQUEST_FLITS, 1000), 1000 + 6 * 200 + 300);
        assert_eq!(mesh.send(5, 5, REQUEST_FLITS, 7), 7);
        assert_eq!(mesh.load(), (24, 300));
    }
}
