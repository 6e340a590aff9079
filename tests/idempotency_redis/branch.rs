//! A process that serves requests, as the test sees it: this test binary again, in another part.

use std::net::SocketAddr;
use std::path::Path;

use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};
use tokio::time::timeout;

use crate::support::role::{Heard, Player};
use crate::*;

/// What a process tells its parent.
#[derive(Serialize, Deserialize)]
pub(crate) enum Said {
    /// It serves there.
    Serves(SocketAddr),
    /// It has come to where it is to be killed.
    Here,
}

/// Where a process stops, to be killed there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Point {
    /// It has the lock, and the handler has not begun.
    BeforeHandler,
    /// The handler has begun, and has had no effect.
    BeforeEffect,
    /// The handler has had its effect, and has no answer yet.
    AfterEffect,
    /// The answer is there, and its record is on no node.
    BeforeRecord,
    /// The record is on the first node alone.
    AfterOneNode,
    /// The handler has begun, and goes on after a moment.
    ToBeOvertaken,
    /// The answer is there, and goes to the nodes after a moment.
    RecordToBeOvertaken,
    /// The record is on its way to all nodes and a quorum has it; the client has no answer.
    AfterRecord,
}

/// What a process is told.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Part {
    pub(crate) process: u32,
    pub(crate) servers: Vec<String>,
    pub(crate) database: String,
    pub(crate) ttl: Duration,
    /// How many losses the quorum masks.
    pub(crate) masked: usize,
    /// How long a handler takes at most, in milliseconds.
    pub(crate) most_work: u64,
    pub(crate) stops_at: Option<Point>,
}

impl Part {
    pub(crate) fn new(process: u32, servers: &[Server], database: &Path, ttl: Duration) -> Self {
        Self {
            process,
            servers: servers.iter().map(Server::url).collect(),
            database: database.to_str().unwrap().to_owned(),
            ttl,
            masked: 0,
            most_work: 0,
            stops_at: None,
        }
    }
}

/// A process as its parent sees it. It ends with this value.
pub(crate) struct Branch {
    player: Player,
    heard: Heard,
    pub(crate) address: SocketAddr,
}

impl Branch {
    /// Starts a process, and waits until it serves.
    pub(crate) async fn start(part: &Part) -> Self {
        let (player, mut heard) = Player::start("process::plays_its_part", part, &[]);
        let Said::Serves(address) = hear(&mut heard).await else {
            panic!("it serves before it comes anywhere");
        };
        Self {
            player,
            heard,
            address,
        }
    }

    /// Waits until the process has come to where it stops, or once more.
    pub(crate) async fn stopped(&mut self) {
        assert!(matches!(hear(&mut self.heard).await, Said::Here));
    }

    /// Stops the process with SIGSTOP: it knows nothing of the time that passes.
    pub(crate) fn freeze(&self) {
        self.signal(Signal::STOP);
    }

    /// Lets a frozen process go on.
    pub(crate) fn thaw(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        let process = i32::try_from(self.player.child.id().unwrap()).unwrap();
        kill_process(Pid::from_raw(process).unwrap(), signal).unwrap();
    }

    /// Ends the process with SIGKILL.
    pub(crate) async fn kill(&mut self) {
        self.player.child.kill().await.unwrap();
    }
}

async fn hear(heard: &mut Heard) -> Said {
    let said = timeout(PATIENCE, heard.next()).await;
    let said = said.expect("waited in vain for a process");
    said.expect("the process has ended")
}
