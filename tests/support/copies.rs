//! What is done to servers by others: backups, failbacks, and looks at them.

use std::collections::HashMap;
use std::env;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use super::PATIENCE;
use super::server::Server;

impl Server {
    /// Takes over what `other` has, and becomes a master again: the same process, on the same connections, with another
    /// server's data.
    pub fn fail_back_from(&self, other: &Self) {
        other.run("CONFIG SET repl-diskless-sync-delay 0");
        let port = other.port().to_string();
        assert_eq!(self.command(&["REPLICAOF", "127.0.0.1", &port]), "OK");
        self.wait_to_follow(other);
        assert_eq!(self.run("REPLICAOF NO ONE"), "OK");
    }

    /// Begins a backup as operators make it: `redis-cli --rdb`, which speaks to every server.
    pub fn backup(&self) -> Child {
        let cli = env::var_os("REDIS_CLI").unwrap_or_else(|| "redis-cli".into());
        let mut command = Command::new(cli);
        command.args(["-p", &self.port().to_string(), "--rdb", "backup.rdb"]);
        let command = command.current_dir(self.dir()).stdin(Stdio::null());
        let started = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        started.expect(
            "no `redis-cli` found: install it with `redis-server`, or set REDIS_CLI to its path",
        )
    }

    /// Waits until the server was looked at `times` times over each of `connections` connections. Blocks.
    pub fn wait_for_looks(&self, connections: usize, times: usize) {
        let mut raw = self.raw();
        raw.command(&["MONITOR"]).unwrap();
        let mut seen = HashMap::new();
        let begin = Instant::now();
        while seen.values().filter(|count| **count >= times).count() < connections {
            assert!(begin.elapsed() < PATIENCE, "not looked at: {seen:?}");
            // `1700000000.000000 [0 127.0.0.1:50000] "INFO"`, or `[0 lua]`, or `[0 unix:socket]`.
            let line = raw.answer().unwrap();
            if let Some((from, "\"INFO\"")) = line.rsplit_once(' ')
                && from.contains(" 127.0.0.1:")
            {
                let client = from.split(' ').next_back().unwrap().to_owned();
                *seen.entry(client).or_insert(0) += 1;
            }
        }
    }
}
