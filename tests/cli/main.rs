//! The program `redlock` as operators run it: each command, its output, its exit codes and what it leaves on the
//! servers.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a panic is how a test fails, in its helpers too"
)]

#[path = "../support/mod.rs"]
mod support;

mod arguments;
mod locks;
mod nodes;
mod rehearsal;
mod run;
mod terminal;

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use support::server::{Kind, Server, new_dir};
use tower_redlock::{LockGuard, LockManager, Settings};

const PASSWORD: &str = "hunter2-of-the-nodes";

/// Three servers with a password, and the settings of their service in a file.
struct Fleet {
    servers: Vec<Server>,
    dir: PathBuf,
}

impl Fleet {
    fn start() -> Self {
        let fleet = Self::of(3);
        fleet.write("3s", "3s");
        fleet
    }

    /// Servers without settings.
    fn of(servers: usize) -> Self {
        Self {
            servers: Server::start_many_with(Kind::Redis, servers, &["--requirepass", PASSWORD]),
            dir: new_dir(),
        }
    }

    /// Writes the settings for the servers as they are now. The names of nodes do not tell their addresses.
    fn write(&self, ttl: &str, max_ttl: &str) {
        let nodes = self.servers.iter().enumerate();
        let nodes =
            nodes.map(|(n, server)| format!("{{name = \"n{n}\", url = {:?}}}", server.url()));
        let nodes = nodes.collect::<Vec<_>>().join(", ");
        let text = format!(
            "nodes = [{nodes}]\npassword = {PASSWORD:?}\nttl = {ttl:?}\nmax_ttl = {max_ttl:?}\nnode_timeout = \"500ms\"\n"
        );
        fs::write(self.file(), text).unwrap();
    }

    /// The same, and the servers are in use.
    async fn started() -> (Self, LockManager) {
        let fleet = Self::start();
        let locks = fleet.settings().bootstrap(true).connect().await.unwrap();
        (fleet, locks)
    }

    fn file(&self) -> PathBuf {
        self.dir.join("locks.toml")
    }

    fn settings(&self) -> Settings {
        let text = fs::read_to_string(self.file()).unwrap();
        let settings: Settings = toml::from_str(&text).unwrap();
        settings.instance("service@1")
    }

    /// The program, with the settings of the service.
    fn redlock(&self, arguments: &[&str]) -> Command {
        let mut command = redlock(arguments);
        command.env("REDLOCK_CONFIG", self.file());
        command.env("REDLOCK_INSTANCE", "operator@2");
        command
    }

    /// Runs it to its end, with the arguments of a line without quotes.
    async fn run(&self, line: &str) -> Ended {
        ended(self.redlock(&words(line))).await
    }

    /// Runs a command, of a line without quotes, on a server past its nodes.
    fn ask(&self, server: usize, line: &str) -> String {
        let mut raw = self.servers[server].raw();
        raw.command(&["AUTH", PASSWORD]).unwrap();
        raw.command(&words(line)).unwrap()
    }

    /// How many servers have the lock of this key.
    fn holding(&self, key: &str) -> usize {
        let exists = format!("EXISTS lk:{key}");
        let servers = 0..self.servers.len();
        servers
            .filter(|server| self.ask(*server, &exists) == "1")
            .count()
    }

    /// All that is on the servers, but what tells how long it lives.
    fn content(&self) -> Vec<BTreeMap<String, String>> {
        let of_server = |server| {
            let keys = self.ask(server, "KEYS *");
            let keys = keys.lines().filter(|key| !key.is_empty());
            let dump = |key: &str| (key.to_owned(), self.ask(server, &format!("HGETALL {key}")));
            keys.map(dump).collect()
        };
        (0..self.servers.len()).map(of_server).collect()
    }

    /// The owner tokens of a key, which nobody may see.
    fn tokens(&self, key: &str) -> Vec<String> {
        let get = format!("GET lk:{key}");
        let values = (0..self.servers.len()).map(|server| self.ask(server, &get));
        let values: Vec<String> = values.collect();
        let tokens = values
            .iter()
            .flat_map(|value| value.split(' '))
            .filter(|word| word.len() >= 40);
        tokens.map(|token| token[..40].to_owned()).collect()
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}

fn words(line: &str) -> Vec<&str> {
    line.split(' ').collect()
}

/// The program, without settings, a terminal or colours.
fn redlock(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_redlock"));
    command.args(arguments).stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("REDLOCK_") {
            command.env_remove(name);
        }
    }
    command
}

/// How a run of the program has ended.
#[derive(Debug)]
struct Ended {
    code: i32,
    out: String,
    err: String,
}

impl Ended {
    #[track_caller]
    fn with(self, code: i32) -> Self {
        assert_eq!(self.code, code, "{self:#?}");
        self
    }

    #[track_caller]
    fn begins(&self, text: &str) -> &Self {
        assert!(self.out.starts_with(text), "no `{text}`: {self:#?}");
        self
    }

    #[track_caller]
    fn shows(&self, text: &str) -> &Self {
        assert!(self.out.contains(text), "no `{text}`: {self:#?}");
        self
    }

    #[track_caller]
    fn hides(&self, text: &str) -> &Self {
        assert!(
            !self.out.contains(text) && !self.err.contains(text),
            "`{text}`: {self:#?}"
        );
        self
    }

    #[track_caller]
    fn complains(&self, text: &str) -> &Self {
        assert!(self.err.contains(text), "no `{text}`: {self:#?}");
        self
    }

    fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.out).unwrap()
    }
}

/// Waits for its end. No run may print a password or an escape.
async fn ended(mut command: Command) -> Ended {
    let output = tokio::task::spawn_blocking(move || command.output().unwrap());
    told(output.await.unwrap())
}

fn told(output: Output) -> Ended {
    let ended = Ended {
        code: output.status.code().unwrap_or(-1),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    };
    for text in [&ended.out, &ended.err] {
        assert!(!text.contains(PASSWORD), "{text}");
        assert!(!text.contains('\x1b'), "{text:?}");
    }
    ended
}

/// A lock of the service on all three servers.
async fn held(fleet: &Fleet, locks: &LockManager, key: &str) -> LockGuard {
    let guard = locks.try_acquire(key).await.unwrap();
    support::eventually("everywhere", || fleet.holding(key) == 3).await;
    guard
}
