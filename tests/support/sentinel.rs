//! A real Sentinel as a process.

use std::path::PathBuf;
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
    password: Option<String>,
    child: Child,
}

impl Sentinel {
    /// Watches `master` by the name `mymaster`, and waits until so many replicas of it are known.
    pub fn start(kind: Kind, master: &Server, replicas: usize) -> Self {
        Self::start_as(kind, master, replicas, None)
    }

    /// The same with a password that it wants.
    pub fn start_as(kind: Kind, master: &Server, replicas: usize, password: Option<&str>) -> Self {
        for _ in 0..5 {
            let mut sentinel = Self::spawn(kind, master, password);
            if sentinel.knows(replicas) {
                return sentinel;
            }
        }
        panic!("the Sentinel does not start");
    }

    fn spawn(kind: Kind, master: &Server, password: Option<&str>) -> Self {
        let (dir, port) = (new_dir(), free_port());
        let more = password.map_or(String::new(), |word| format!("requirepass {word}"));
        let master = master.port();
        let config = format!(
            "port {port}\nbind 127.0.0.1\ndir {}\nunixsocket {}\nlogfile log\n\
            sentinel monitor mymaster 127.0.0.1 {master} 1\n\
            sentinel down-after-milliseconds mymaster 300\n\
            sentinel failover-timeout mymaster 2000\n{more}\n",
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
            password: password.map(str::to_owned),
            child,
        }
    }

    /// `redis://127.0.0.1:port`.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// The port of the master that it tells now.
    pub fn master(&self) -> Option<u16> {
        let question = ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", "mymaster"];
        let answer = self.raw().ok()?.command(&question).ok()?;
        answer.lines().nth(1)?.parse().ok()
    }

    fn raw(&self) -> std::io::Result<Raw> {
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
