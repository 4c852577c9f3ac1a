//! Who reaches whom, and how long it takes.
//!
//! Left out: bandwidth, and connections that were open before a cut and resume after it within their
//! timeouts: here what is sent into a cut is lost, and asked for again.

use super::World;
use super::queue::{Micros, PodId};

/// The most pods that are ever there, those that nobody knows of any more included.
pub const MOST: usize = 8;

/// The state of the network.
#[derive(Debug)]
pub struct Network {
    /// Until when nothing of the first reaches the second.
    cut: [[Micros; MOST]; MOST],
    /// Many packets are lost until then.
    pub lossy: Micros,
}

impl Default for Network {
    fn default() -> Network {
        Network { cut: [[0; MOST]; MOST], lossy: 0 }
    }
}

impl Network {
    /// Nothing of one reaches the other until then.
    pub fn cut(&mut self, from: PodId, to: PodId, until: Micros) {
        self.cut[from][to] = self.cut[from][to].max(until);
    }

    /// All ways are open.
    pub fn heal(&mut self) {
        *self = Network::default();
    }
}

impl World {
    /// Whether a packet of one reaches the machine of the other now.
    pub(super) fn reaches(&mut self, from: PodId, to: PodId) -> bool {
        let open = self.is_open(from, to);
        open && !(self.now < self.network.lossy && self.chance.per_mille(300))
    }

    /// Whether the way is open, but for chance.
    pub(super) fn is_open(&self, from: PodId, to: PodId) -> bool {
        from == to
            || self.now >= self.network.cut[from][to] && self.pods[to].powered && self.pods[from].powered
    }

    /// How long a packet takes.
    pub(super) fn way(&mut self) -> Micros {
        let slow = self.now < self.network.lossy && self.chance.per_mille(200);
        if slow { self.chance.of(20_000..400_000) } else { self.chance.of(100..2_000) }
    }
}
