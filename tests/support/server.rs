//! Real servers, one process each, that the tests start, kill, freeze and restart.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use rustix::process::{Pid, Signal, kill_process};

use super::clocks::Clocks;
use super::resp::Raw;

/// Which server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Redis,
    Valkey,
}

impl Kind {
    pub const ALL: [Self; 2] = [Self::Redis, Self::Valkey];

    /// Where its binary is. A missing server fails the test: a skipped test proves nothing.
    pub fn binary(self) -> PathBuf {
        let (variable, name) = match self {
            Self::Redis => ("REDIS_SERVER", "redis-server"),
            Self::Valkey => ("VALKEY_SERVER", "valkey-server"),
        };
        if let Some(path) = env::var_os(variable) {
            return path.into();
        }
        let fetched = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/servers");
        program(name, "PATH", [fetched]).unwrap_or_else(|| {
            panic!("no `{name}` found: run `make servers`, or install it, or set {variable} to its path")
        })
    }
}

/// Where a program is: in one of the directories that this variable names, or of these.
pub fn program(
    name: &str,
    variable: &str,
    others: impl IntoIterator<Item = PathBuf>,
) -> Option<PathBuf> {
    let named = env::var_os(variable).unwrap_or_default();
    let dirs = env::split_paths(&named).chain(others);
    let mut files = dirs.map(|dir| dir.join(name));
    files.find(|file| file.is_file())
}

/// Tells that servers cannot do what a test is about, which then shows something else. `every_server.sh` has that in
/// its table: nothing is left out unseen.
#[allow(clippy::print_stdout, reason = "it is for whoever reads the run")]
pub fn cannot(what: &str) {
    println!("\ncannot: {what}");
}

/// A running (or killed) server on 127.0.0.1, without persistence. It ends with this value.
#[derive(Debug)]
pub struct Server {
    kind: Kind,
    port: u16,
    dir: PathBuf,
    args: Vec<String>,
    tls: bool,
    clocks: Option<Clocks>,
    child: Option<Child>,
}

impl Server {
    /// Starts a server with further arguments, and waits until it answers.
    pub fn start(kind: Kind, args: &[&str]) -> Self {
        Self::start_in(new_dir(), kind, args, false, None)
    }

    /// Starts a server that speaks TLS only, with this certificate and key and, if given, one that asks its clients
    /// for certificates of this authority (all PEM).
    pub fn start_tls(kind: Kind, certificate: &str, key: &str, clients: Option<&str>) -> Self {
        let mut args = vec!["--tls-cert-file", "certificate", "--tls-key-file", "key"];
        args.extend([
            "--tls-auth-clients",
            if clients.is_some() { "yes" } else { "no" },
        ]);
        if clients.is_some() {
            args.extend(["--tls-ca-cert-file", "root"]);
        }
        let dir = new_dir();
        fs::write(dir.join("certificate"), certificate).unwrap();
        fs::write(dir.join("key"), key).unwrap();
        fs::write(dir.join("root"), clients.unwrap_or_default()).unwrap();
        Self::start_in(dir, kind, &args, true, None)
    }

    /// Starts a server whose clocks can be set.
    pub fn start_clocked(kind: Kind) -> Self {
        let dir = new_dir();
        let clocks = Clocks::new(dir.join("clocks"), Clocks::library(&dir));
        Self::start_in(dir, kind, &[], false, Some(clocks))
    }

    /// The clocks of a server that was [started](Self::start_clocked) with its own.
    pub fn clocks(&self) -> &Clocks {
        self.clocks.as_ref().unwrap()
    }

    /// Sets the wall clock of such a server so many seconds ahead.
    pub fn step_clock(&self, seconds: i64) {
        self.clocks().step(seconds);
    }

    /// Starts a replica of `master` with further arguments, and waits until it follows.
    pub fn replica_of(master: &Self, args: &[&str]) -> Self {
        let port = master.port.to_string();
        let mut all = vec!["--replicaof", "127.0.0.1", &port];
        // It would wait for others to follow at the same time.
        master.run("CONFIG SET repl-diskless-sync-delay 0");
        all.extend(args);
        let replica = Self::start(master.kind, &all);
        replica.wait_to_follow(master);
        replica
    }

    /// Whether this server, and all other replicas of `master`, have what that has.
    pub fn follows(&self, master: &Self) -> bool {
        let replication = self.run("INFO replication");
        replication.contains("master_link_status:up") && master.is_followed_by(self)
    }

    /// Waits until this server, and all other replicas of `master`, have what that has.
    pub fn wait_to_follow(&self, master: &Self) {
        let begin = Instant::now();
        while !self.follows(master) {
            assert!(
                begin.elapsed() < super::PATIENCE,
                "it does not follow: {}",
                self.log()
            );
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// A replica that is online may have to acknowledge something before it is sent the first command.
    fn is_followed_by(&self, replica: &Self) -> bool {
        let known = format!("port={},state=online", replica.port);
        let replicas = self.info("connected_slaves");
        let mut raw = self.raw();
        raw.command(&["PUBLISH", "nobody", "listens"]).unwrap();
        let acknowledged = raw.command(&["WAIT", &replicas, "100"]).unwrap();
        self.run("INFO replication").contains(&known) && acknowledged == replicas
    }

    /// A field of `INFO`.
    pub fn info(&self, field: &str) -> String {
        let text = self.run("INFO everything");
        let mut fields = text.lines().filter_map(|line| line.split_once(':'));
        let found = fields.find(|(name, _)| *name == field);
        found.unwrap().1.trim().to_owned()
    }

    /// Starts `count` servers at the same time.
    pub fn start_many(kind: Kind, count: usize) -> Vec<Self> {
        Self::start_many_with(kind, count, &[])
    }

    /// Starts `count` servers with further arguments at the same time.
    pub fn start_many_with(kind: Kind, count: usize, args: &[&str]) -> Vec<Self> {
        thread::scope(|scope| {
            let starts: Vec<_> = (0..count)
                .map(|_| scope.spawn(|| Self::start(kind, args)))
                .collect();
            starts
                .into_iter()
                .map(|start| start.join().unwrap())
                .collect()
        })
    }

    fn start_in(
        dir: PathBuf,
        kind: Kind,
        args: &[&str],
        tls: bool,
        clocks: Option<Clocks>,
    ) -> Self {
        let mut server = Self {
            kind,
            port: 0,
            dir,
            args: args.iter().map(|arg| (*arg).to_owned()).collect(),
            tls,
            clocks,
            child: None,
        };
        // A port that was free may be taken by the time the server binds it.
        for _ in 0..5 {
            server.port = server.new_port();
            server.spawn();
            if server.answers() {
                return server;
            }
            server.kill();
        }
        panic!("the server does not start: {}", server.log());
    }

    /// In a cluster there must be room for the port of its bus, ten thousand above.
    fn new_port(&self) -> u16 {
        let in_cluster = self.args.iter().any(|arg| arg == "--cluster-enabled");
        let mut ports = std::iter::repeat_with(free_port);
        ports.find(|port| !in_cluster || *port < 55_000).unwrap()
    }

    pub const fn is_running(&self) -> bool {
        self.child.is_some()
    }

    /// `redis://127.0.0.1:port`, or `rediss://localhost:port` for TLS.
    pub fn url(&self) -> String {
        if self.tls {
            format!("rediss://localhost:{}", self.port)
        } else {
            format!("redis://127.0.0.1:{}", self.port)
        }
    }

    /// `redis://user:password@127.0.0.1:port`.
    pub fn url_as(&self, user: &str, password: &str) -> String {
        format!("redis://{user}:{password}@127.0.0.1:{}", self.port)
    }

    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Every server listens there, too.
    pub fn socket(&self) -> PathBuf {
        self.file("socket")
    }

    /// A file of the server's.
    pub fn file(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Where its files are.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Ends the process with SIGKILL.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            // Fails only if it is gone already. SIGKILL ends a stopped process, too.
            let _ = child.kill();
            let _ = child.wait();
        }
        let _ = fs::remove_file(self.socket());
    }

    /// Stops the process with SIGSTOP: connections stay, answers do not come.
    pub fn freeze(&self) {
        self.signal(Signal::STOP);
    }

    /// Lets a frozen process go on.
    pub fn thaw(&self) {
        self.signal(Signal::CONT);
    }

    /// Starts the server again at its port, with what its files hold: nothing, unless its arguments say otherwise.
    pub fn restart(&mut self) {
        // While it was away, a client's connection may have got its port as the client's own, for a moment.
        for _ in 0..5 {
            self.kill();
            self.spawn();
            if self.answers() {
                return;
            }
            thread::sleep(Duration::from_millis(50));
        }
        panic!("no restart: {}", self.log());
    }

    /// A connection of its own, through the socket.
    pub fn raw(&self) -> Raw {
        Raw::connect(&self.socket()).unwrap()
    }

    /// Runs one command on a connection of its own, through the socket. See [`Raw::command`].
    pub fn command(&self, words: &[&str]) -> String {
        self.raw().command(words).unwrap()
    }

    /// Runs a command line without quotes.
    pub fn run(&self, line: &str) -> String {
        let words: Vec<&str> = line.split(' ').collect();
        self.command(&words)
    }

    /// How often each command ran since the statistics were reset, by its name as this server has it: `script|load`,
    /// or `script`, as before Redis 7.0.
    pub fn calls(&self) -> BTreeMap<String, u32> {
        let stats = self.run("INFO commandstats");
        let calls = stats.lines().filter_map(|line| {
            let (name, numbers) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
            let (calls, _) = numbers.split_once(',')?;
            Some((name.to_owned(), calls.parse().unwrap()))
        });
        calls.collect()
    }

    /// The locks on the server: all keys but those that are kept beside them.
    pub fn locks(&self) -> Vec<String> {
        let keys = self.run("KEYS *");
        let is_lock = |key: &&str| !key.split(':').next().unwrap().contains('!');
        keys.lines().filter(is_lock).map(str::to_owned).collect()
    }

    /// A connection that listens to `channel`.
    pub fn subscribe(&self, channel: &str) -> Raw {
        let mut raw = self.raw();
        raw.command(&["SUBSCRIBE", channel]).unwrap();
        raw
    }

    fn signal(&self, signal: Signal) {
        let child = self.child.as_ref().unwrap();
        kill_process(Pid::from_child(child), signal).unwrap();
    }

    fn spawn(&mut self) {
        let port = self.port.to_string();
        let (plain, tls) = if self.tls {
            ("0", Some(port.as_str()))
        } else {
            (port.as_str(), None)
        };
        let mut command = Command::new(self.kind.binary());
        command
            .args(["--bind", "127.0.0.1", "--port", plain])
            .args(["--save", "", "--appendonly", "no"])
            .args(["--unixsocket", "socket", "--logfile", "log"])
            .arg("--dir")
            .arg(&self.dir)
            .current_dir(&self.dir)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        if let Some(tls) = tls {
            command.args(["--tls-port", tls]);
        }
        if let Some(clocks) = &self.clocks {
            command.envs(clocks.variables());
        }
        self.child = Some(command.args(&self.args).spawn().unwrap());
    }

    /// Waits for the first answer; false if the process ends instead.
    fn answers(&mut self) -> bool {
        let begin = Instant::now();
        while begin.elapsed() < super::PATIENCE {
            if let Ok(mut raw) = Raw::connect(&self.socket())
                && let Ok(answer) = raw.command(&["PING"])
                && !answer.starts_with("-LOADING")
            {
                return true;
            }
            if self.child.as_mut().unwrap().try_wait().unwrap().is_some() {
                return false;
            }
            thread::sleep(Duration::from_millis(1));
        }
        false
    }

    fn log(&self) -> String {
        fs::read_to_string(self.dir.join("log")).unwrap_or_default()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
        let _ = fs::remove_dir_all(&self.dir);
    }
}

static COUNT: AtomicU32 = AtomicU32::new(0);

/// A fresh directory with a short path: a socket's path has at most 107 bytes.
pub fn new_dir() -> PathBuf {
    let dir = dir(COUNT.fetch_add(1, Ordering::Relaxed));
    fs::create_dir_all(&dir).unwrap();
    dir
}

fn dir(number: u32) -> PathBuf {
    env::temp_dir().join(format!("redlock-{}-{number}", std::process::id()))
}

/// The directories of the servers of this process, for whoever must clear up without the values at hand.
pub fn dirs() -> Vec<PathBuf> {
    let dirs = (0..COUNT.load(Ordering::Relaxed)).map(dir);
    dirs.filter(|dir| dir.exists()).collect()
}

/// A port that nobody listens on.
pub fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}
