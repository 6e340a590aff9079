//! A relay between a process that is counted and its servers. It works when that process has nothing else to do, and
//! then brings it all replies at once: so how often the process wakes up, of which each costs some instructions, does
//! not depend on how fast servers are.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

/// How long a reply is waited for, should there be none: the relay counts commands and does not know them.
const LIMIT: Duration = Duration::from_secs(1);

/// Where the counted process finds the relay of its servers, and the gate at which it calls it.
pub(crate) struct Relay {
    pub(crate) urls: Vec<String>,
    pub(crate) gate: String,
}

impl Relay {
    /// A relay for one process, whose end is its own.
    pub(crate) fn start(servers: &[String]) -> Self {
        let gate = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = |listener: &TcpListener| listener.local_addr().unwrap().to_string();
        let mut doors = Vec::new();
        let mut urls = Vec::new();
        for server in servers {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            listener.set_nonblocking(true).unwrap();
            urls.push(format!("redis://{}", address(&listener)));
            doors.push((listener, server.trim_start_matches("redis://").to_owned()));
        }
        let relay = Self {
            urls,
            gate: address(&gate),
        };
        thread::spawn(move || {
            let (gate, _) = gate.accept().unwrap();
            serve(gate, &doors);
        });
        relay
    }
}

/// In the counted process: calls the relay, and returns when it has brought all replies.
pub(crate) fn call(mut gate: &TcpStream) {
    let mut byte = [0];
    gate.write_all(&byte).unwrap();
    gate.read_exact(&mut byte).unwrap();
}

pub(crate) fn reach(gate: &str) -> TcpStream {
    let gate = TcpStream::connect(gate).unwrap();
    gate.set_nodelay(true).unwrap();
    gate
}

fn serve(mut gate: TcpStream, doors: &[(TcpListener, String)]) {
    gate.set_nodelay(true).unwrap();
    let mut pairs: Vec<Pair> = Vec::new();
    let mut byte = [0];
    while gate.read_exact(&mut byte).is_ok() {
        for (door, server) in doors {
            while let Ok((client, _)) = door.accept() {
                pairs.push(Pair::new(client, server));
            }
        }
        pairs.retain_mut(Pair::take_requests);
        let replies: Vec<_> = pairs.iter_mut().map(Pair::replies).collect();
        for (pair, replies) in pairs.iter_mut().zip(replies) {
            // It may have closed the connection.
            let _ = pair.client.write_all(&replies);
        }
        if gate.write_all(&byte).is_err() {
            break;
        }
    }
}

/// A connection of the counted process, and the one to its server.
struct Pair {
    client: TcpStream,
    server: TcpStream,
    // What has come of a command, or of a reply, that is not yet whole.
    asked: Vec<u8>,
    told: Vec<u8>,
    // Commands without a reply.
    open: usize,
}

impl Pair {
    fn new(client: TcpStream, server: &str) -> Self {
        let server = TcpStream::connect(server).unwrap();
        for stream in [&client, &server] {
            stream.set_nodelay(true).unwrap();
            stream.set_read_timeout(Some(LIMIT)).unwrap();
        }
        Self {
            client,
            server,
            asked: Vec::new(),
            told: Vec::new(),
            open: 0,
        }
    }

    /// Passes on the commands that have come; `false` at the end of the connection.
    fn take_requests(&mut self) -> bool {
        let (requests, is_open) = at_once(&mut self.client);
        self.open += whole(&mut self.asked, &requests);
        self.server.write_all(&requests).is_ok() && is_open
    }

    /// What the server has to say, with the replies to all commands.
    fn replies(&mut self) -> Vec<u8> {
        let (mut replies, _) = at_once(&mut self.server);
        let mut count = whole(&mut self.told, &replies);
        let mut part = [0; 4_096];
        while count < self.open {
            match self.server.read(&mut part) {
                Ok(length @ 1..) => {
                    count += whole(&mut self.told, &part[..length]);
                    replies.extend_from_slice(&part[..length]);
                }
                _ => break,
            }
        }
        self.open = 0;
        replies
    }
}

/// What can be read without waiting, and whether the connection is still open.
fn at_once(stream: &mut TcpStream) -> (Vec<u8>, bool) {
    let mut bytes = Vec::new();
    stream.set_nonblocking(true).unwrap();
    let end = stream.read_to_end(&mut bytes);
    stream.set_nonblocking(false).unwrap();
    let is_open = end.is_err_and(|error| error.kind() == ErrorKind::WouldBlock);
    (bytes, is_open)
}

/// Adds `bytes` to what is not yet whole, and tells how many values of the protocol, commands or replies, now are.
fn whole(part: &mut Vec<u8>, bytes: &[u8]) -> usize {
    part.extend_from_slice(bytes);
    let (mut count, mut end) = (0, 0);
    while let Some(length) = value(&part[end..]) {
        count += 1;
        end += length;
    }
    part.drain(..end);
    count
}

/// The length of the first value in `bytes`, if it is all there.
fn value(bytes: &[u8]) -> Option<usize> {
    let line = bytes.windows(2).position(|pair| pair == b"\r\n")?;
    let number: i64 = std::str::from_utf8(&bytes[1..line])
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(0);
    let mut end = line + 2;
    match bytes[0] {
        b'$' | b'=' if number >= 0 => end += usize::try_from(number).unwrap() + 2,
        b'*' | b'~' | b'>' | b'%' => {
            let items = if bytes[0] == b'%' { 2 * number } else { number };
            for _ in 0..items {
                end += value(bytes.get(end..)?)?;
            }
        }
        _ => {}
    }
    (end <= bytes.len()).then_some(end)
}
