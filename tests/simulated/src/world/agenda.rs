//! What happens later in the world, by itself.

use super::fault::Fault;
use super::state::State;
use super::topology::HostId;
use crate::server::Packet;

#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    /// Something may arrive on one direction of a connection.
    Arrive(u64, usize),
    /// A connection breaks.
    Break(u64),
    /// A host that died is back, if this is the life that it is waiting for.
    Back(HostId, u32),
    /// A command of a server waits for this time.
    Tick(HostId),
    /// A server removes keys that have expired.
    Clean(HostId),
    /// What a master wrote may arrive at this replica.
    Replicate(HostId),
    /// A master learns that a replica has everything up to this offset.
    Acknowledge(HostId, u64),
    /// A replica tries to reach its master.
    Join(HostId),
    /// A server of a cluster tells the others what it knows.
    Beat(HostId),
    /// What another one told it arrives.
    Hear(HostId, Packet),
    /// What follows from the failover of this number, unless there was another in its group since.
    Follow(usize, u64, Fault),
}

impl State {
    /// Has something happen at a time.
    pub(super) fn plan(&mut self, at: u64, event: Event) {
        let number = self.next_event;
        self.next_event += 1;
        self.agenda.insert((at.max(self.now), number), event);
    }

    /// When something happens next.
    pub(super) fn next_event_at(&self) -> Option<u64> {
        self.agenda.first_key_value().map(|((at, _), _)| *at)
    }

    /// Does all that is due.
    pub(super) fn do_all_due(&mut self) {
        while let Some(first) = self.agenda.first_entry() {
            if first.key().0 > self.now {
                break;
            }
            match first.remove() {
                Event::Arrive(id, lane) => self.arrive(id, lane),
                Event::Break(id) => self.break_connection(id),
                Event::Back(host, life) => self.come_back(host, life),
                Event::Tick(host) => self.tick(host),
                Event::Clean(host) => self.clean(host),
                Event::Replicate(host) => self.replicate(host),
                Event::Acknowledge(host, offset) => self.acknowledged(host, offset),
                Event::Join(host) => self.join_if_needed(host),
                Event::Beat(host) => self.beat(host),
                Event::Hear(host, packet) => self.hear(host, &packet),
                Event::Follow(group, epoch, fault) => {
                    if self.failovers.get(&group) == Some(&epoch) {
                        self.apply(&fault);
                    }
                }
            }
        }
    }
}
