//! The trace: everything that happened, in order. Two runs of one seed have the same.

use std::fmt;

use super::process::ProcessId;
use super::topology::HostId;
use crate::dice::Hash;
use crate::server::commands_in;

/// A line of the history, or who sent a command to whom, by which connection, and the words of the command.
pub type Sent = (String, Vec<Vec<u8>>);

/// What happened so far.
#[derive(Debug, Default)]
pub(super) struct Trace {
    pub(super) now: u64,
    hash: Hash,
    lines: Vec<String>,
    /// Whether connections and the bytes on them are lines, too. They are always part of the hash.
    is_wordy: bool,
    /// All commands when they are sent, between the lines of the history. Empty unless the trace is wordy.
    sent: Vec<Sent>,
}

impl Trace {
    pub(super) fn new(is_wordy: bool) -> Self {
        Self {
            is_wordy,
            ..Self::default()
        }
    }

    /// Adds a line.
    pub(super) fn note(&mut self, process: Option<ProcessId>, text: impl fmt::Display) {
        let line = self.line(process, text);
        if self.is_wordy {
            self.sent.push((line.clone(), Vec::new()));
        }
        self.lines.push(line);
    }

    /// Adds a line that is shown beside the bytes only. It is always part of the hash.
    pub(super) fn detail(&mut self, process: Option<ProcessId>, text: impl fmt::Display) {
        let line = self.line(process, text);
        if self.is_wordy {
            self.sent.push((line.clone(), Vec::new()));
            self.lines.push(line);
        }
    }

    /// A line that is part of the hash.
    fn line(&mut self, process: Option<ProcessId>, text: impl fmt::Display) -> String {
        let who = process.map_or_else(|| "-".to_owned(), |process| process.to_string());
        let line = format!("{:>7} {who:<4} {text}", self.now);
        self.hash.add(line.as_bytes());
        line
    }

    /// Adds the commands that a process sends, whether they will arrive or not.
    pub(super) fn written(
        &mut self,
        process: ProcessId,
        host: HostId,
        connection: u64,
        bytes: &[u8],
    ) {
        if self.is_wordy {
            let head = format!("{:>7} {process:<4} -> {host} #{connection}", self.now);
            let commands = commands_in(bytes).into_iter();
            self.sent
                .extend(commands.map(|words| (head.clone(), words)));
        }
    }

    /// Adds bytes that have arrived.
    pub(super) fn carried(
        &mut self,
        process: ProcessId,
        host: HostId,
        connection: u64,
        there: bool,
        bytes: &[u8],
    ) {
        self.hash.add(&self.now.to_le_bytes());
        self.hash.add(&[u8::from(there)]);
        self.hash.add(&connection.to_le_bytes());
        self.hash.add(bytes);
        if self.is_wordy {
            let way = if there { "->" } else { "<-" };
            let (now, words) = (self.now, words(bytes));
            let line = format!("{now:>7} {process:<4} {way} {host} #{connection} {words}");
            self.lines.push(line);
        }
    }

    /// Tells whether a run was the same as another.
    pub(super) const fn hash(&self) -> u64 {
        self.hash.value()
    }

    pub(super) fn sent(&self) -> &[Sent] {
        &self.sent
    }

    pub(super) fn lines(&self) -> &[String] {
        &self.lines
    }
}

/// The words of the protocol's bytes, without their lengths; long ones cut short.
fn words(bytes: &[u8]) -> String {
    const MOST: usize = 400;
    let text = String::from_utf8_lossy(bytes);
    let mut words = String::new();
    for line in text.split("\r\n") {
        if line.is_empty() || line.starts_with(['*', '$', '%', '>']) || line.starts_with("INFO") {
            continue;
        }
        let short: String = line
            .chars()
            .take(60)
            .flat_map(char::escape_default)
            .collect();
        words.push_str(&short);
        words.push(' ');
        if words.len() > MOST {
            words.push_str("..");
            break;
        }
    }
    words
}

#[test]
fn bytes_are_part_of_the_hash_whether_they_are_shown_or_not() {
    let id = ProcessId { place: 0, life: 0 };
    let trace = |wordy, bytes: &[u8]| {
        let mut trace = Trace::new(wordy);
        trace.carried(id, HostId(1), 7, true, bytes);
        (trace.hash(), trace.lines().len())
    };
    let ping = b"*1\r\n$4\r\nPING\r\n";
    assert_eq!(trace(true, ping).0, trace(false, ping).0);
    assert_ne!(trace(true, ping).0, trace(true, b"+PONG\r\n").0);
    assert_eq!((trace(true, ping).1, trace(false, ping).1), (1, 0));
    assert_eq!(words(ping), "PING ");
}
