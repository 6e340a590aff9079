//! How requests are read: lists of strings, or words on a line.

use super::numbers::integer;

/// The begin of what a client has sent.
pub(super) enum Request<'a> {
    /// There is no whole command yet.
    Incomplete,
    /// The words of a command, which may be none, and how many bytes it has.
    Command(Vec<&'a [u8]>, usize),
    /// It is no command: why, in the server's words.
    Broken(String),
}

/// Reads the first command of `bytes`.
pub(super) fn read(bytes: &[u8]) -> Request<'_> {
    let mut reader = Reader { bytes, at: 0 };
    let Some(line) = reader.line() else {
        return Request::Incomplete;
    };
    let Some(length) = line.strip_prefix(b"*") else {
        let words = line.split(u8::is_ascii_whitespace);
        let words = words.filter(|word| !word.is_empty()).collect();
        return Request::Command(words, reader.at);
    };
    let Some(count) = integer(length).filter(|count| *count <= i64::from(i32::MAX)) else {
        return Request::Broken("invalid multibulk length".to_owned());
    };
    let count = usize::try_from(count).unwrap_or(0);
    let mut words = Vec::with_capacity(count.min(1_024));
    for _ in 0..count {
        let Some(line) = reader.line() else {
            return Request::Incomplete;
        };
        let Some(length) = line.strip_prefix(b"$") else {
            let got = char::from(line.first().copied().unwrap_or(b'\r'));
            return Request::Broken(format!("expected '$', got '{got}'"));
        };
        let length = integer(length).and_then(|length| usize::try_from(length).ok());
        let Some(length) = length.filter(|length| *length <= 512 << 20) else {
            return Request::Broken("invalid bulk length".to_owned());
        };
        let Some(word) = reader.take(length) else {
            return Request::Incomplete;
        };
        words.push(word);
    }
    Request::Command(words, reader.at)
}

/// The words of each command in `bytes`. An incomplete or broken command is one word.
pub(crate) fn commands_in(mut bytes: &[u8]) -> Vec<Vec<Vec<u8>>> {
    let mut commands = Vec::new();
    while !bytes.is_empty() {
        let (words, length) = match read(bytes) {
            Request::Command(words, length) => (words, length),
            Request::Incomplete | Request::Broken(_) => (vec![bytes], bytes.len()),
        };
        commands.push(words.into_iter().map(<[u8]>::to_vec).collect());
        bytes = &bytes[length..];
    }
    commands
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    /// The next line, without its end.
    fn line(&mut self) -> Option<&'a [u8]> {
        let rest = &self.bytes[self.at..];
        let end = rest.iter().position(|byte| *byte == b'\n')?;
        self.at += end + 1;
        let line = &rest[..end];
        Some(line.strip_suffix(b"\r").unwrap_or(line))
    }

    /// The next `length` bytes, which a line break follows.
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let rest = &self.bytes[self.at..];
        if rest.len() < length + 2 {
            return None;
        }
        self.at += length + 2;
        Some(&rest[..length])
    }
}
