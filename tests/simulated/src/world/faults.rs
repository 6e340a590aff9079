//! What each fault does.

use super::agenda::Event;
use super::fault::{Fault, Refusal};
use super::process::Running;
use super::state::State;
use super::topology::HostId;
use crate::server::Trouble;

/// After how long a server gives up a client whose machine is gone.
const DEAD_FOR_MS: u64 = 10_000;

impl State {
    /// Does something to the world.
    pub(super) fn apply(&mut self, fault: &Fault) {
        self.trace.note(None, fault);
        match *fault {
            Fault::Delay { .. }
            | Fault::Hold { .. }
            | Fault::Lose { .. }
            | Fault::Refuse { .. }
            | Fault::Break { .. }
            | Fault::DrainLate { .. }
            | Fault::Duplicate { .. }
            | Fault::Heal { .. } => self.apply_to_pair(fault),
            Fault::Pause { .. }
            | Fault::Resume { .. }
            | Fault::Block { .. }
            | Fault::Unblock { .. }
            | Fault::Kill { .. }
            | Fault::Start { .. }
            | Fault::ProcessRate { .. }
            | Fault::ProcessStep { .. }
            | Fault::Jitter { .. } => self.apply_to_process(fault),
            Fault::ReplicaLag { .. }
            | Fault::ReplicaCut { .. }
            | Fault::Promote { .. }
            | Fault::Demote { .. }
            | Fault::FreeBacklog { .. }
            | Fault::Opinion { .. }
            | Fault::Failover { .. }
            | Fault::Bus { .. }
            | Fault::Redirect { .. } => self.apply_to_group(fault),
            Fault::Suspend { ms } => {
                self.suspended += ms;
                for process in self.processes.values() {
                    process.clock.jump(ms);
                }
                for host in &self.hosts {
                    host.clock.jump(ms);
                }
            }
            Fault::HealAll => self.heal_all(),
            Fault::Crash { .. }
            | Fault::Freeze { .. }
            | Fault::Thaw { .. }
            | Fault::HostRate { .. }
            | Fault::HostStep { .. }
            | Fault::Evict { .. }
            | Fault::EvictionPolicy { .. }
            | Fault::OutOfMemory { .. }
            | Fault::Refuses { .. }
            | Fault::Flush { .. }
            | Fault::KillClients { .. }
            | Fault::FlushScripts { .. }
            | Fault::Scribble { .. } => self.apply_to_host(fault),
        }
    }

    fn apply_to_pair(&mut self, fault: &Fault) {
        let (place, host) = match *fault {
            Fault::Delay {
                process,
                host,
                min_ms,
                max_ms,
            } => {
                self.pair(process, host).delay = (min_ms.min(max_ms), max_ms);
                (process, host)
            }
            Fault::Hold { process, host, way } => {
                self.pair(process, host).hold(way);
                (process, host)
            }
            Fault::Lose { process, host, way } => {
                self.pair(process, host).lose(way);
                (process, host)
            }
            Fault::Refuse { process, host } => {
                self.pair(process, host).refused = true;
                (process, host)
            }
            Fault::DrainLate {
                process,
                host,
                late_ms,
            } => {
                self.pair(process, host).drain_late = late_ms;
                (process, host)
            }
            Fault::Duplicate {
                process,
                host,
                late_ms,
            } => {
                self.double(process, host, late_ms);
                (process, host)
            }
            Fault::Break { process, host } => {
                let of_pair = self
                    .connections_of(|known| known.process.place == process && known.host == host);
                of_pair.into_iter().for_each(|id| self.break_connection(id));
                (process, host)
            }
            Fault::Heal { process, host } => {
                self.pair(process, host).heal();
                self.double_no_more(process, host);
                (process, host)
            }
            _ => return,
        };
        self.stir(|known| known.process.place == place && known.host == host);
    }

    fn apply_to_host(&mut self, fault: &Fault) {
        let (Fault::Crash { host, .. }
        | Fault::Freeze { host }
        | Fault::Thaw { host }
        | Fault::HostRate { host, .. }
        | Fault::HostStep { host, .. }
        | Fault::Evict { host, .. }
        | Fault::EvictionPolicy { host, .. }
        | Fault::OutOfMemory { host, .. }
        | Fault::Refuses { host, .. }
        | Fault::Flush { host }
        | Fault::KillClients { host }
        | Fault::FlushScripts { host }
        | Fault::Scribble { host, .. }) = *fault
        else {
            return;
        };
        let date = self.host(host).date();
        let at = self.host_mut(host);
        match *fault {
            Fault::Crash {
                memory,
                back_after_ms,
                silent,
                ..
            } => return self.crash(host, memory, back_after_ms, silent),
            Fault::Freeze { .. } => at.is_frozen = at.is_up,
            Fault::Thaw { .. } => return self.thaw(host),
            Fault::HostRate { ppm, .. } => at.clock.set_rate(ppm),
            Fault::HostStep { ms, .. } => at.clock.step(ms),
            // Sentinels have no keys, and a server that is down or stands still does nothing.
            _ if !at.is_server() || !at.is_up || at.is_frozen => return,
            Fault::Evict { keys, .. } => {
                at.server().evict(keys as usize, date);
            }
            Fault::EvictionPolicy { on, volatile, .. } => {
                let policy = match (on, volatile) {
                    (true, false) => "allkeys-random",
                    (true, true) => "volatile-random",
                    (false, _) => "noeviction",
                };
                at.server().set_policy(policy);
            }
            Fault::OutOfMemory { on, .. } => at.server().trouble().out_of_memory = on,
            Fault::Refuses { why, on, .. } => {
                let trouble = at.server().trouble();
                *match why {
                    Refusal::Busy => &mut trouble.busy,
                    Refusal::CannotSave => &mut trouble.cannot_save,
                    Refusal::NoScripts => &mut trouble.no_scripts,
                } = on;
            }
            // A replica takes no commands that write.
            Fault::Flush { .. } if at.server().is_master() => at.server().remove_all(date),
            Fault::KillClients { .. } => {
                let outputs = at.server().close_all();
                self.emit(outputs);
            }
            Fault::FlushScripts { .. } => at.server().forget_scripts(),
            Fault::Scribble { seed, .. } => at.scribble(seed),
            _ => {}
        }
        if self.host(host).is_server() {
            self.follow_up(host);
        }
    }

    fn apply_to_process(&mut self, fault: &Fault) {
        match *fault {
            Fault::Pause { process } => {
                if let Some(process) = self.living_mut(process) {
                    process.running = Running::Paused;
                }
            }
            Fault::Resume { process } => {
                let wakers = self
                    .living_mut(process)
                    .map(super::process::Process::resume);
                self.wakers.extend(wakers.into_iter().flatten());
            }
            Fault::Block { process } => {
                if let Some(process) = self.living_mut(process) {
                    process.block();
                }
            }
            Fault::Unblock { process } => {
                let wakers = self
                    .living_mut(process)
                    .map(super::process::Process::unblock);
                self.wakers.extend(wakers.into_iter().flatten());
            }
            Fault::Kill { process } => self.kill(process),
            Fault::Start { process } => self.to_start.push(process),
            Fault::ProcessRate { process, ppm } => {
                if let Some(process) = self.living(process) {
                    process.clock.set_rate(ppm);
                }
            }
            Fault::ProcessStep { process, ms } => {
                if let Some(process) = self.living(process) {
                    process.clock.step(ms);
                }
            }
            Fault::Jitter {
                process,
                permille,
                max_ms,
            } => {
                if let Some(process) = self.living_mut(process) {
                    process.set_jitter(permille, max_ms);
                }
            }
            _ => {}
        }
    }

    /// A process dies. Its connections are cut at once: either its system ends them in order, or the machine is gone
    /// and what it sent may be lost.
    fn kill(&mut self, place: u32) {
        let Some(process) = self.living_mut(place) else {
            return;
        };
        let (id, with_machine) = (process.id, process.random.chance(1, 3));
        let wakers = process.kill();
        self.wakers.extend(wakers);
        self.trace.note(Some(id), "dies");
        for connection in self.connections_of(|known| known.process == id) {
            if let (true, Some(known)) = (with_machine, self.connections.get_mut(&connection)) {
                known.lose_all();
                self.plan(self.now + DEAD_FOR_MS, Event::Break(connection));
            }
            self.close(connection);
        }
    }

    fn heal_all(&mut self) {
        let pairs: Vec<(u32, HostId)> = self.pairs.keys().copied().collect();
        for (place, host) in pairs {
            self.pair(place, host).heal();
            self.double_no_more(place, host);
        }
        self.bus.heal();
        // What is lost on a connection is noticed sooner or later; then a new one is made.
        for id in (0..self.hosts.len() as u32).map(HostId) {
            if !self.host(id).is_up {
                let life = self.host_mut(id).life_now();
                self.come_back(id, life);
            }
            self.thaw(id);
            let host = self.host_mut(id);
            host.clock.set_rate(0);
            if host.is_server() {
                *host.server().trouble() = Trouble::default();
                host.server().set_policy("noeviction");
                self.heal_replica(id);
            }
        }
        self.restore_roles();
        let places: Vec<u32> = self.processes.keys().map(|id| id.place).collect();
        for place in places {
            if let Some(process) = self.living_mut(place) {
                process.clock.set_rate(0);
                process.set_jitter(0, 0);
                let wakers = [process.resume(), process.unblock()].concat();
                self.wakers.extend(wakers);
            }
        }
        self.stir(|_| true);
    }
}
