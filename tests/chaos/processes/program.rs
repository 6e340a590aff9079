//! A program that a test stops, suspends and kills, and whose clocks it sets.

use std::time::Duration;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use rustix::time::ClockId;
use serde::Serialize;

use crate::support::clocks::{Clocks, shown};
use crate::support::role::{Heard, Player};

/// A running program. It ends with this value.
pub(crate) struct Program {
    pub(crate) player: Player,
    clocks: Clocks,
    /// Since when it is stopped.
    stopped: Option<Duration>,
    /// For how long its host was suspended in all.
    suspended: Duration,
}

impl Program {
    /// Starts the test of this name in the role that `part` tells of.
    pub(crate) fn start(test: &str, part: &impl Serialize, clocks: &Clocks) -> (Self, Heard) {
        clocks.stood_still(Duration::ZERO);
        let (player, heard) = Player::start(test, part, &clocks.variables());
        let program = Self {
            player,
            clocks: clocks.clone(),
            stopped: None,
            suspended: Duration::ZERO,
        };
        (program, heard)
    }

    /// Stops it with SIGSTOP, and waits until it stands.
    pub(crate) fn stop(&mut self) {
        self.signal(Signal::STOP);
        // If it has ended instead, whoever waits for its end says so.
        let options = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        waitid(WaitId::Pid(self.pid()), options).unwrap();
        self.stopped = Some(shown(ClockId::Monotonic));
    }

    /// Lets it go on as after a pause: all of its clocks have gone on.
    pub(crate) fn go_on(&mut self) {
        self.stopped = None;
        self.signal(Signal::CONT);
    }

    /// Lets it go on as if its host had been suspended meanwhile.
    pub(crate) fn wake(&mut self) {
        let stopped = self.stopped.take().unwrap();
        self.suspended += shown(ClockId::Monotonic) - stopped;
        self.clocks.stood_still(self.suspended);
        self.signal(Signal::CONT);
    }

    fn pid(&self) -> Pid {
        let pid = i32::try_from(self.player.child.id().unwrap()).unwrap();
        Pid::from_raw(pid).unwrap()
    }

    fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }
}
