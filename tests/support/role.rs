//! This test binary once more, as a process of its own: a test starts it in a role, and hears of it by lines.

use std::env;
use std::path::Path;
use std::process::Stdio;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

use super::PATIENCE;

/// The variable that tells a process its role.
const ROLE: &str = "TOWER_REDLOCK_TEST_ROLE";
/// What begins a line to the parent: the test harness writes to the standard output, too.
const SAID: &str = "@said ";

/// The role of this process, if a test has started it for one.
pub fn role<T: DeserializeOwned>() -> Option<T> {
    let role = env::var(ROLE).ok()?;
    Some(serde_json::from_str(&role).unwrap())
}

/// Tells the parent something.
#[allow(clippy::print_stdout, reason = "it is how a process tells something")]
pub fn say(what: &impl Serialize) {
    println!("\n{SAID}{}", serde_json::to_string(what).unwrap());
}

/// The lines that the parent writes, in the process.
pub fn orders() -> Lines<BufReader<tokio::io::Stdin>> {
    BufReader::new(tokio::io::stdin()).lines()
}

/// A process in a role, as its parent sees it. It is killed with this value.
#[derive(Debug)]
pub struct Player {
    pub child: Child,
    input: ChildStdin,
}

/// What a process says.
#[derive(Debug)]
pub struct Heard(Lines<BufReader<ChildStdout>>);

impl Player {
    /// Starts the test of this name in a role, with further variables.
    pub fn start(test: &str, role: &impl Serialize, variables: &[(&str, &Path)]) -> (Self, Heard) {
        let mut child = Command::new(env::current_exe().unwrap())
            .args(["--exact", test, "--nocapture"])
            .env(ROLE, serde_json::to_string(role).unwrap())
            .envs(variables.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let input = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap()).lines();
        (Self { child, input }, Heard(output))
    }

    /// Writes a line to its input.
    pub async fn tell(&mut self, line: &str) {
        let line = format!("{line}\n");
        self.input.write_all(line.as_bytes()).await.unwrap();
    }

    /// Ends its input, and waits until it has ended by itself.
    pub async fn end(self) {
        let Self { mut child, input } = self;
        drop(input);
        let ended = timeout(PATIENCE, child.wait()).await;
        let status = ended.expect("a process does not end").unwrap();
        assert!(status.success(), "a process has failed: {status}");
    }
}

impl Heard {
    /// What it says next; nothing if it has ended.
    pub async fn next<T: DeserializeOwned>(&mut self) -> Option<T> {
        loop {
            let line = self.0.next_line().await.unwrap()?;
            // The harness does not always end its lines.
            if let Some((_, said)) = line.split_once(SAID) {
                return Some(serde_json::from_str(said).unwrap());
            }
        }
    }
}
