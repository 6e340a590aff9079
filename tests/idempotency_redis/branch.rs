//! A process that serves requests, as the test sees it: this test binary again, in another part.

use std::env;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

use crate::*;

/// Tells a process its part.
pub(crate) const PART: &str = "TOWER_REDLOCK_TEST_PART";
/// What begins a line to the parent: the test harness writes to the standard output, too.
pub(crate) const PORT: &str = "@port ";
pub(crate) const HERE: &str = "@here";

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
    pub(crate) most_work: usize,
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
    process: Child,
    // Its end is the end of the process, however this one ends.
    _input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
    pub(crate) address: SocketAddr,
}

impl Branch {
    /// Starts a process, and waits until it serves.
    pub(crate) async fn start(part: &Part) -> Self {
        let mut process = Command::new(env::current_exe().unwrap())
            .args(["--exact", "process::plays_its_part", "--nocapture"])
            .env(PART, serde_json::to_string(part).unwrap())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let input = process.stdin.take().unwrap();
        let output = BufReader::new(process.stdout.take().unwrap()).lines();
        let mut branch = Self {
            process,
            _input: input,
            output,
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
        };
        let port = branch.hear(PORT).await;
        branch.address.set_port(port.parse().unwrap());
        branch
    }

    /// Waits until the process has come to where it stops, or once more.
    pub(crate) async fn stopped(&mut self) {
        self.hear(HERE).await;
    }

    /// Waits for a line that goes on after `mark`, and returns how.
    async fn hear(&mut self, mark: &str) -> String {
        let heard = async {
            while let Some(line) = self.output.next_line().await.unwrap() {
                // The harness does not always end its lines.
                if let Some((_, rest)) = line.split_once(mark) {
                    return rest.to_owned();
                }
            }
            panic!("the process has ended");
        };
        timeout(PATIENCE, heard)
            .await
            .unwrap_or_else(|_| panic!("waited in vain: {mark}"))
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
        let process = i32::try_from(self.process.id().unwrap()).unwrap();
        kill_process(Pid::from_raw(process).unwrap(), signal).unwrap();
    }

    /// Ends the process with SIGKILL.
    pub(crate) async fn kill(&mut self) {
        self.process.kill().await.unwrap();
    }
}
