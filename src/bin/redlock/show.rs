//! The output: tables, colours and progress on a terminal, and questions.

use std::io::{self, IsTerminal as _, Write as _};
use std::time::Duration;

use tokio::time::sleep;

use crate::{Failure, OUTPUT, SAID_NO, USAGE};

/// Prints `text` to the standard output. Returns whether it still has a reader.
pub(crate) fn say(text: &str) -> Result<bool, Failure> {
    let mut out = io::stdout().lock();
    let written = out.write_all(text.as_bytes());
    match written.and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(Failure::new(
            OUTPUT,
            format!("cannot write the output: {error}"),
        )),
        Ok(()) => Ok(true),
    }
}

pub(crate) fn tell(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// Prints `text`, and asks for confirmation unless `yes`.
pub(crate) fn confirm(text: &str, yes: bool) -> Result<(), Failure> {
    tell(text);
    if yes {
        return Ok(());
    }
    if !io::stdin().is_terminal() {
        let why = "without a terminal, confirm it by --yes";
        return Err(Failure::new(USAGE, why));
    }
    let _ = write!(io::stderr(), "Go on? [y/N] ");
    let mut answer = String::new();
    let _ = io::stdin().read_line(&mut answer);
    match answer.trim() {
        "y" | "Y" | "yes" => Ok(()),
        _ => Err(Failure::new(SAID_NO, "nothing was changed")),
    }
}

/// Waits for `work`, and shows `progress` if there is a terminal.
pub(crate) async fn waiting<T>(work: impl Future<Output = T>, progress: impl Fn() -> String) -> T {
    let mut work = std::pin::pin!(work);
    let shows = io::stderr().is_terminal();
    loop {
        tokio::select! {
            biased;
            result = &mut work => {
                if shows {
                    let _ = write!(io::stderr(), "{CLEAR_LINE}");
                }
                return result;
            }
            () = sleep(TICK), if shows => {
                let _ = write!(io::stderr(), "{CLEAR_LINE}{}", progress());
            }
        }
    }
}

const TICK: Duration = Duration::from_millis(500);
const CLEAR_LINE: &str = "\r\x1b[2K";
pub(crate) const CLEAR_SCREEN: &str = "\x1b[H\x1b[2J";

pub(crate) fn is_watched() -> bool {
    io::stdout().is_terminal()
}

#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Tone {
    Plain,
    Good,
    Bad,
}

pub(crate) type Cell = (String, Tone);

pub(crate) const fn plain(text: String) -> Cell {
    (text, Tone::Plain)
}

pub(crate) fn table<const N: usize>(titles: [&str; N], rows: &[[Cell; N]]) -> String {
    let colours = is_watched() && std::env::var_os("NO_COLOR").is_none_or(|set| set.is_empty());
    let titles = titles.map(|title| plain(title.to_owned()));
    let all = || std::iter::once(&titles).chain(rows);
    let mut text = String::new();
    for row in all() {
        let mut line = String::new();
        for (column, (cell, tone)) in row.iter().enumerate() {
            let width =
                all().map(|row| row.get(column).map_or(0, |(text, _)| text.chars().count()));
            let gap = width.max().unwrap_or(0) - cell.chars().count() + 2;
            line += &match tone {
                Tone::Good if colours => format!("\x1b[32m{cell}\x1b[0m"),
                Tone::Bad if colours => format!("\x1b[31m{cell}\x1b[0m"),
                _ => cell.clone(),
            };
            line.extend(std::iter::repeat_n(' ', gap));
        }
        text += line.trim_end();
        text.push('\n');
    }
    text
}

pub(crate) fn span(time: Option<Duration>) -> String {
    match time {
        None => "-".to_owned(),
        Some(time) if time < Duration::from_secs(60) => format!("{:.1}s", time.as_secs_f64()),
        Some(time) => humantime::format_duration(Duration::from_secs(time.as_secs())).to_string(),
    }
}
