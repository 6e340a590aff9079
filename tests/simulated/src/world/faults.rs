//! What each fault does.

use super::agenda::Event;
use super::fault::{Fault, Refusal};
use super::hosts::Host;
use super::network::Connection;
use super::process::{Process, Running};
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
            Fault::Delay { process, host, .. }
            | Fault::Hold { process, host, .. }
            | Fault::Lose { process, host, .. }
            | Fault::Refuse { process, host }
            | Fault::Break { process, host }
            | Fault::DrainLate { process, host, .. }
            | Fault::Duplicate { process, host, .. }
            | Fault::Heal { process, host } => self.apply_to_pair(process, host, fault),
            Fault::ReplicaLag { .. }
            | Fault::ReplicaCut { .. }
            | Fault::Promote { .. }
            | Fault::Demote { .. }
            | Fault::Opinion { .. }
            | Fault::Failover { .. }
            | Fault::Bus { .. } => self.apply_to_group(fault),

            Fault::Crash {
                host,
                memory,
                back_after_ms,
                silent,
            } => self.crash(host, memory, back_after_ms, silent),
            Fault::Freeze { host } => self.change_host(host, |it| it.is_frozen = it.is_up),
            Fault::Thaw { host } => self.thaw(host),
            Fault::HostRate { host, ppm } => self.change_host(host, |it| it.clock.set_rate(ppm)),
            Fault::HostStep { host, ms } => self.change_host(host, |it| it.clock.step(ms)),
            Fault::Evict { host, keys } => self.change_server(host, |it, date| {
                it.server().evict(keys as usize, date);
            }),
            Fault::EvictionPolicy { host, on, volatile } => {
                let policy = match (on, volatile) {
                    (true, false) => "allkeys-random",
                    (true, true) => "volatile-random",
                    (false, _) => "noeviction",
                };
                self.change_server(host, |it, _| it.server().set_policy(policy));
            }
            Fault::OutOfMemory { host, on } => {
                self.change_server(host, |it, _| it.server().trouble().out_of_memory = on);
            }
            Fault::Refuses { host, why, on } => self.change_server(host, |it, _| {
                let trouble = it.server().trouble();
                *match why {
                    Refusal::Busy => &mut trouble.busy,
                    Refusal::CannotSave => &mut trouble.cannot_save,
                    Refusal::NoScripts => &mut trouble.no_scripts,
                } = on;
            }),
            Fault::Flush { host } => self.change_server(host, |it, date| {
                // A replica takes no commands that write.
                if it.server().is_master() {
                    it.server().remove_all(date);
                }
            }),
            Fault::KillClients { host } => {
                self.change_server(host, |it, _| it.server().close_all())
            }
            Fault::FlushScripts { host } => {
                self.change_server(host, |it, _| it.server().forget_scripts());
            }
            Fault::Scribble { host, seed } => self.change_server(host, |it, _| it.scribble(seed)),

            Fault::Pause { process } => {
                self.change_process(process, |it| it.running = Running::Paused);
            }
            Fault::Resume { process } => self.let_go_on(process, Process::resume),
            Fault::Block { process } => self.change_process(process, |it| it.is_blocked = true),
            Fault::Unblock { process } => self.let_go_on(process, |it| it.is_blocked = false),
            Fault::Kill { process } => self.kill(process),
            Fault::Start { process } => self.to_start.push(process),
            Fault::ProcessRate { process, ppm } => {
                self.change_process(process, |it| it.clock.set_rate(ppm));
            }
            Fault::ProcessStep { process, ms } => {
                self.change_process(process, |it| it.clock.step(ms));
            }
            Fault::Jitter {
                process,
                permille,
                max_ms,
            } => self.change_process(process, |it| it.put_off = (permille, max_ms)),

            Fault::Suspend { ms } => {
                self.suspended += ms;
                let processes = self.processes.values().map(|process| &process.clock);
                let clocks = processes.chain(self.hosts.iter().map(|host| &host.clock));
                clocks.for_each(|clock| clock.jump(ms));
            }
            Fault::HealAll => self.heal_all(),
        }
    }

    fn apply_to_pair(&mut self, place: u32, host: HostId, fault: &Fault) {
        let of_pair = |known: &Connection| known.is_of(place, host);
        let pair = self.pair(place, host);
        match *fault {
            Fault::Delay { min_ms, max_ms, .. } => pair.delay = (min_ms.min(max_ms), max_ms),
            Fault::Hold { way, .. } => pair.hold(way),
            Fault::Lose { way, .. } => pair.lose(way),
            Fault::Refuse { .. } => pair.refused = true,
            Fault::DrainLate { late_ms, .. } => pair.drain_late = late_ms,
            Fault::Duplicate { late_ms, .. } => self.double(place, host, late_ms),
            Fault::Break { .. } => {
                for id in self.connections_of(of_pair) {
                    self.break_connection(id);
                }
            }
            _ => self.heal_pair(place, host),
        }
        self.stir(of_pair);
    }

    fn heal_pair(&mut self, place: u32, host: HostId) {
        self.pair(place, host).heal();
        self.double_no_more(place, host);
    }

    /// Does something to a host, and plans what follows.
    fn change_host(&mut self, id: HostId, change: impl FnOnce(&mut Host)) {
        change(self.host_mut(id));
        if self.host(id).is_server() {
            self.follow_up(id);
        }
    }

    /// Does something to a server at its date, and plans what follows. Sentinels have no keys, and a server that is
    /// down or stands still does nothing.
    fn change_server(&mut self, id: HostId, change: impl FnOnce(&mut Host, u64)) {
        if self.runs(id) && self.host(id).is_server() {
            let host = self.host_mut(id);
            let date = host.date();
            change(host, date);
            let outputs = host.server().take_outputs();
            self.emit(outputs);
            self.follow_up(id);
        }
    }

    /// Does something to the process that lives in a place.
    fn change_process(&mut self, place: u32, change: impl FnOnce(&mut Process)) {
        if let Some(process) = self.living_mut(place) {
            change(process);
        }
    }

    /// The same, after which the process may go on.
    fn let_go_on(&mut self, place: u32, change: impl FnOnce(&mut Process)) {
        if let Some(process) = self.living_mut(place) {
            change(process);
            let missed = process.missed();
            self.wakers.extend(missed);
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
            self.heal_pair(place, host);
        }
        self.bus.heal();
        // What is lost on a connection is noticed sooner or later; then a new one is made.
        for id in (0..self.hosts.len() as u32).map(HostId) {
            if !self.host(id).is_up {
                let life = self.host(id).life;
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
            self.let_go_on(place, |it| {
                it.clock.set_rate(0);
                (it.put_off, it.is_blocked) = ((0, 0), false);
                it.resume();
            });
        }
        self.stir(|_| true);
    }
}
