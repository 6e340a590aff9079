//! A real Sentinel as a process.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{fs, thread};

use super::resp::Raw;
use super::server::{Kind, Server, free_port, new_dir};

/// A running Sentinel that decides alone and soon. It ends with this value.
#[derive(Debug)]
pub struct Sentinel {
    dir: PathBuf,
    port: u16,
    tls: bool,
    password: Option<String>,
    child: Child,
}

impl Sentinel {
    /// Watches `master` by the name `mymaster`, and waits until so many replicas of it are known.
    pub fn start(kind: Kind, master: &Server, replicas: usize) -> Self {
        Self::start_with(kind, master, replicas, None, "")
    }

    /// The same with a password that it wants.
    pub fn start_as(kind: Kind, master: &Server, password: &str) -> Self {
        let line = format!("requirepass {password}");
        Self::start_with(kind, master, 0, Some(password), &line)
    }

    /// The same with TLS on all sides: the certificate (for localhost), its key and the authority's are files.
    pub fn start_tls(
        kind: Kind,
        master: &Server,
        certificate: &Path,
        key: &Path,
        root: &Path,
    ) -> Self {
        let (certificate, key, root) = (certificate.display(), key.display(), root.display());
        let lines = format!(
            "tls-cert-file {certificate}\ntls-key-file {key}\ntls-ca-cert-file {root}\n\
            tls-replication yes\ntls-auth-clients no"
        );
        Self::start_with(kind, master, 0, None, &lines)
    }

    fn start_with(
        kind: Kind,
        master: &Server,
        replicas: usize,
        password: Option<&str>,
        more: &str,
    ) -> Self {
        for _ in 0..5 {
            let mut sentinel = Self::spawn(kind, master, password, more);
            if sentinel.knows(replicas) {
                return sentinel;
            }
        }
        panic!("the Sentinel does not start");
    }

    fn spawn(kind: Kind, master: &Server, password: Option<&str>, more: &str) -> Self {
        let (dir, port, master) = (new_dir(), free_port(), master.port());
        let tls = more.starts_with("tls");
        let (ports, host) = if tls {
            (format!("port 0\ntls-port {port}"), "localhost")
        } else {
            (format!("port {port}"), "127.0.0.1")
        };
        let config = format!(
            "{ports}\nbind 127.0.0.1\ndir {}\nunixsocket {}\nlogfile log\n\
            sentinel resolve-hostnames yes\nsentinel announce-hostnames yes\n{more}\n\
            sentinel monitor mymaster {host} {master} 1\n\
            sentinel down-after-milliseconds mymaster 300\n\
            sentinel failover-timeout mymaster 2000\n",
            dir.display(),
            dir.join("socket").display(),
        );
        let file = dir.join("sentinel.conf");
        fs::write(&file, config).unwrap();
        let child = Command::new(kind.binary())
            .arg(&file)
            .arg("--sentinel")
            .current_dir(&dir)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Self {
            dir,
            port,
            tls,
            password: password.map(str::to_owned),
            child,
        }
    }

    /// `redis://127.0.0.1:port`, or `rediss://localhost:port` for TLS.
    pub fn url(&self) -> String {
        let start = if self.tls {
            "rediss://localhost"
        } else {
            "redis://127.0.0.1"
        };
        format!("{start}:{}", self.port)
    }

    /// The port of the master that it tells now.
    pub fn master(&self) -> Option<u16> {
        let question = ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", "mymaster"];
        let answer = self.raw().ok()?.command(&question).ok()?;
        answer.lines().nth(1)?.parse().ok()
    }

    /// A connection past all nodes.
    pub fn raw(&self) -> std::io::Result<Raw> {
        let mut raw = Raw::connect(&self.dir.join("socket"))?;
        if let Some(password) = &self.password {
            raw.command(&["AUTH", password])?;
        }
        Ok(raw)
    }

    /// Waits until it sees the master and so many replicas of it; false if the process ends instead.
    fn knows(&mut self, replicas: usize) -> bool {
        let begin = Instant::now();
        while begin.elapsed() < super::PATIENCE {
            let seen = self.raw().and_then(|mut raw| {
                let master = raw.command(&["SENTINEL", "MASTER", "mymaster"])?;
                let replicas = raw.command(&["SENTINEL", "REPLICAS", "mymaster"])?;
                Ok((master, replicas))
            });
            if let Ok((master, list)) = seen
                && master.contains("flags\nmaster\n")
                && list.matches("master-link-status\nok").count() >= replicas
            {
                return true;
            }
            if self.child.try_wait().unwrap().is_some() {
                return false;
            }
            thread::sleep(Duration::from_millis(5));
        }
        false
    }
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        // Fails only if it is gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// How a Sentinel called `id` answers that says that the master is at `port` since so many failovers.
pub fn says(words: &[String], id: &str, host: &str, port: u16, epoch: u32) -> String {
    let bulk = |text: &str| format!("${}\r\n{text}\r\n", text.len());
    let (port, epoch) = (port.to_string(), epoch.to_string());
    match words.get(1).map(String::as_str) {
        Some("GET-MASTER-ADDR-BY-NAME") => format!("*2\r\n{}{}", bulk(host), bulk(&port)),
        Some("MASTER") => format!("*2\r\n{}{}", bulk("config-epoch"), bulk(&epoch)),
        Some("MYID") => bulk(id),
        _ => "+OK\r\n".to_owned(),
    }
}
