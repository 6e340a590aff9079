//! Other processes: this program once more, told by its arguments what to be, by its input what to do.
//!
//! They speak in lines. A process that loses its input ends itself, so none outlives the one that started it.

use std::io::BufRead;
use std::process::Stdio;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{ChildStdin, ChildStdout, Command};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use crate::support::resp::Raw;
use crate::support::server;

/// The first argument of a process that is not started by hand.
pub(crate) const MARK: &str = "as-a-child";

/// Another process, as its parent sees it. It is killed with this value.
pub(crate) struct Child {
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
    _process: tokio::process::Child,
}

impl Child {
    pub(crate) fn start(role: &[&str]) -> Self {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .arg(MARK)
            .args(role)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        Self {
            input: process.stdin.take().unwrap(),
            output: BufReader::new(process.stdout.take().unwrap()).lines(),
            _process: process,
        }
    }

    pub(crate) async fn say(&mut self, line: &str) {
        let line = format!("{line}\n");
        self.input.write_all(line.as_bytes()).await.unwrap();
    }

    /// The next line it says. Dropping the future loses nothing.
    pub(crate) async fn hear(&mut self) -> String {
        let line = self.output.next_line().await.unwrap();
        line.expect("a child process ended early; what it printed above says why")
    }

    /// Waits until it says `word`, and nothing before.
    pub(crate) async fn expect(&mut self, word: &str) {
        assert_eq!(self.hear().await, word);
    }
}

/// What the parent says, as a child hears it. Ends the process when the parent is gone.
pub(crate) fn orders() -> UnboundedReceiver<String> {
    let (send, orders) = unbounded_channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines() {
            let Ok(line) = line else { break };
            if send.send(line).is_err() {
                return;
            }
        }
        #[allow(clippy::exit, reason = "nobody is left to talk to")]
        std::process::exit(0);
    });
    orders
}

/// On SIGINT and SIGTERM, ends the servers that this process has started. A panic ends them by itself, and other
/// processes end because their input does.
pub(crate) fn clear_up_when_told_to_end() {
    std::thread::spawn(|| {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let mut interrupt = signal(SignalKind::interrupt()).unwrap();
            let mut terminate = signal(SignalKind::terminate()).unwrap();
            tokio::select! {
                biased;
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
        });
        for dir in server::dirs() {
            if let Ok(mut raw) = Raw::connect(&dir.join("socket")) {
                // Its answer is that the connection ends.
                let _ = raw.command(&["SHUTDOWN", "NOSAVE"]);
            }
            let _ = std::fs::remove_dir_all(dir);
        }
        #[allow(clippy::exit, reason = "what the signal asked for")]
        std::process::exit(130);
    });
}
