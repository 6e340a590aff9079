//! A program that a test stops, suspends and kills, and whose clocks it sets: this test binary again, in another role.

use std::env;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use rustix::time::ClockId;
use serde::Serialize;
use tokio::io::{AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

use super::part::PART;
use crate::support::PATIENCE;
use crate::support::clocks::{Clocks, shown};

/// A running program. It ends with this value.
pub(crate) struct Program {
    child: Child,
    input: ChildStdin,
    clocks: Clocks,
    /// Since when it is stopped.
    stopped: Option<Duration>,
    /// For how long its host was suspended in all.
    suspended: Duration,
}

impl Program {
    /// Starts the test of this name in the role that `part` tells of, and returns its output, too.
    pub(crate) fn start(
        test: &str,
        part: &impl Serialize,
        clocks: &Clocks,
    ) -> (Self, BufReader<ChildStdout>) {
        clocks.stood_still(Duration::ZERO);
        let mut child = Command::new(env::current_exe().unwrap())
            .args(["--exact", test, "--nocapture"])
            .env(PART, serde_json::to_string(part).unwrap())
            .envs(clocks.variables())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let input = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let program = Self {
            child,
            input,
            clocks: clocks.clone(),
            stopped: None,
            suspended: Duration::ZERO,
        };
        (program, output)
    }

    /// Writes a line to its input.
    pub(crate) async fn tell(&mut self, line: &str) {
        let line = format!("{line}\n");
        self.input.write_all(line.as_bytes()).await.unwrap();
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

    /// Ends it with SIGKILL.
    pub(crate) async fn kill(&mut self) {
        self.child.kill().await.unwrap();
    }

    /// Ends its input, and waits until it has ended by itself.
    pub(crate) async fn end(self) {
        let Self {
            mut child, input, ..
        } = self;
        drop(input);
        let ended = timeout(PATIENCE, child.wait()).await;
        let status = ended.expect("a program does not end").unwrap();
        assert!(status.success(), "a program has failed: {status}");
    }

    fn pid(&self) -> Pid {
        let pid = i32::try_from(self.child.id().unwrap()).unwrap();
        Pid::from_raw(pid).unwrap()
    }

    fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }
}
