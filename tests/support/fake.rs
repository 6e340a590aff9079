//! Servers that are none: they answer what the test tells them to, and a proxy that can hold traffic back.

use std::sync::Arc;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// What a sound server tells of itself.
pub const INFO: &str = "redis_version:7.0.15\r\nrun_id:fake\r\nrole:master\r\nmaster_replid2:0000\r\nsecond_repl_offset:-1\r\nmaxmemory_policy:noeviction\r\ncluster_enabled:0\r\n";

/// The answers of a server that passes every check, by the first word of the command.
pub fn sound(words: &[String]) -> String {
    match words[0].as_str() {
        "HELLO" => "%1\r\n+server\r\n+redis\r\n".to_owned(),
        "INFO" => format!("${}\r\n{INFO}\r\n", INFO.len()),
        "SCRIPT" => "+hash\r\n".to_owned(),
        "PING" => "+PONG\r\n".to_owned(),
        _ => "+OK\r\n".to_owned(),
    }
}

/// Whether these words ask which commands the user may not run. Such a question belongs to the connecting.
pub fn asks_for_rights(words: &[String]) -> bool {
    words.iter().any(|word| word == "lk!rights")
}

/// A server whose every answer is made by a closure from the words of the command, but for the one about
/// [rights](asks_for_rights). Ends with this value.
#[derive(Debug)]
pub struct Fake {
    port: u16,
    _task: JoinSet<()>,
}

impl Fake {
    pub async fn start(answer: impl Fn(&[String]) -> String + Send + Sync + 'static) -> Self {
        Self::start_for_users(move |_, words| answer(words)).await
    }

    /// The same for one that tells its clients apart: the closure is told the user, too, who may be nobody.
    pub async fn start_for_users(
        answer: impl Fn(&str, &[String]) -> String + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let answer = Arc::new(answer);
        let mut task = JoinSet::new();
        task.spawn(async move {
            let mut served = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let answer = Arc::clone(&answer);
                served.spawn(async move {
                    let (read, mut write) = stream.into_split();
                    let mut read = BufReader::new(read);
                    let mut user = String::new();
                    while let Some(words) = command(&mut read).await {
                        let text = |word: &Vec<u8>| String::from_utf8_lossy(word).into_owned();
                        let words: Vec<String> = words.iter().map(text).collect();
                        let given = words.iter().skip_while(|word| *word != "AUTH").nth(1);
                        given
                            .into_iter()
                            .for_each(|name| name.clone_into(&mut user));
                        let answer = match asks_for_rights(&words) {
                            true => "*0\r\n".to_owned(),
                            false => answer(&user, &words),
                        };
                        if write.write_all(answer.as_bytes()).await.is_err() {
                            return;
                        }
                    }
                });
            }
        });
        Self { port, _task: task }
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    pub fn url_as(&self, user: &str) -> String {
        format!("redis://{user}:x@127.0.0.1:{}", self.port)
    }
}

/// Reads the words of one command.
pub(super) async fn command(read: &mut BufReader<OwnedReadHalf>) -> Option<Vec<Vec<u8>>> {
    let count = length(read).await?;
    let mut words = Vec::new();
    for _ in 0..count {
        let mut word = vec![0; length(read).await? + 2];
        read.read_exact(&mut word).await.ok()?;
        word.truncate(word.len() - 2);
        words.push(word);
    }
    Some(words)
}

async fn length(read: &mut BufReader<OwnedReadHalf>) -> Option<usize> {
    let mut line = String::new();
    read.read_line(&mut line).await.ok()?;
    line.trim_end().get(1..)?.parse().ok()
}

/// A proxy in front of a server. What clients send can be held back on the connections that exist at that time.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    held: watch::Sender<bool>,
    _task: JoinSet<()>,
}

impl Proxy {
    pub async fn start(target: u16) -> Self {
        Self::hiding("", target).await
    }

    /// One that puts another word in the place of `word` wherever the server says it.
    pub async fn hiding(word: &'static str, target: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let held = watch::Sender::new(false);
        let gate = held.clone();
        let mut task = JoinSet::new();
        task.spawn(async move {
            let mut served = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                // While the server is down, a client's connection ends.
                let Ok(server) = TcpStream::connect(("127.0.0.1", target)).await else {
                    continue;
                };
                // Only older connections are held.
                let gate = (!*gate.borrow()).then(|| gate.subscribe());
                let (from_client, to_client) = client.into_split();
                let (from_server, to_server) = server.into_split();
                served.spawn(forward(from_client, to_server, gate, ""));
                served.spawn(forward(from_server, to_client, None, word));
            }
        });
        Self {
            port,
            held,
            _task: task,
        }
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    pub fn url_as(&self, user: &str, password: &str) -> String {
        format!("redis://{user}:{password}@127.0.0.1:{}", self.port)
    }

    /// Holds back what comes from the clients of today; connections made from now on pass.
    pub fn hold(&self) {
        self.held.send_replace(true);
    }

    /// Lets everything pass, also what was held and whose client is gone.
    pub fn let_go(&self) {
        self.held.send_replace(false);
    }
}

async fn forward(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut gate: Option<watch::Receiver<bool>>,
    hidden: &str,
) {
    let mut buffer = [0; 1 << 16];
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        hide(&mut buffer[..count], hidden.as_bytes());
        if let Some(gate) = &mut gate {
            let _ = gate.wait_for(|held| !held).await;
        }
        if to.write_all(&buffer[..count]).await.is_err() {
            return;
        }
    }
}

/// Overwrites `word`, which must not be cut in two by the reads.
pub(super) fn hide(text: &mut [u8], word: &[u8]) {
    if word.is_empty() {
        return;
    }
    while let Some(at) = text.windows(word.len()).position(|part| part == word) {
        text[at..at + word.len()].fill(b'x');
    }
}
