//! Just enough of the protocol to talk to a server past the code under test. Blocking.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// One connection.
#[derive(Debug)]
pub struct Raw(BufReader<UnixStream>);

impl Raw {
    pub fn connect(socket: &Path) -> std::io::Result<Self> {
        let stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        Ok(Self(BufReader::new(stream)))
    }

    /// Sends one command and reads its answer: errors begin with `-`, nil is `(nil)`, the items of a list are lines.
    pub fn command(&mut self, words: &[&str]) -> std::io::Result<String> {
        let mut message = format!("*{}\r\n", words.len());
        for word in words {
            message += &format!("${}\r\n{word}\r\n", word.len());
        }
        self.0.get_mut().write_all(message.as_bytes())?;
        self.answer()
    }

    /// Ends the connection, and returns once the server has ended it, too.
    pub fn end(&mut self) -> std::io::Result<()> {
        self.0.get_mut().shutdown(Shutdown::Write)?;
        self.0.read_to_end(&mut Vec::new())?;
        Ok(())
    }

    /// Reads one answer, or one message of a subscription.
    pub fn answer(&mut self) -> std::io::Result<String> {
        let mut line = String::new();
        self.0.read_line(&mut line)?;
        let line = line.trim_end();
        let Some((kind, rest)) = line.split_at_checked(1) else {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        };
        let length = || rest.parse::<i64>().unwrap();
        Ok(match kind {
            "-" => line.to_owned(),
            "$" if length() < 0 => "(nil)".to_owned(),
            "$" => {
                let mut text = vec![0; usize::try_from(length()).unwrap() + 2];
                self.0.read_exact(&mut text)?;
                text.truncate(text.len() - 2);
                String::from_utf8_lossy(&text).into_owned()
            }
            "*" | ">" => {
                let items: Result<Vec<_>, _> = (0..length()).map(|_| self.answer()).collect();
                items?.join("\n")
            }
            _ => rest.to_owned(),
        })
    }
}
