//! The page itself: tables of text, every piece of it escaped.

use std::fmt::{self, Display, Write as _};
use std::time::Duration;

use crate::manager::{HeldLock, NodeStanding, NodeStatus, Queue, Snapshot};
use crate::node::NodeState;

/// Text that came from elsewhere, made fit for HTML.
struct Text<'a>(&'a str);

impl Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for char in self.0.chars() {
            match char {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                '\'' => f.write_str("&#39;")?,
                // Neither control characters nor marks that turn the direction of text around are to be obeyed.
                char if char.is_control() || is_bidi(char) => {
                    write!(f, "\\u{{{:x}}}", u32::from(char))?
                }
                char => f.write_char(char)?,
            }
        }
        Ok(())
    }
}

const fn is_bidi(char: char) -> bool {
    matches!(char, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// The page that shows `snapshot`.
pub(super) fn page(snapshot: &Snapshot) -> String {
    let mut page = String::from(HEAD);
    let Snapshot { held, waiting, .. } = snapshot;
    let counts =
        format!("<p>{held} held, {waiting} in line. <a href=\"snapshot.json\">As JSON</a></p>\n");
    page.push_str(&counts);
    table(
        &mut page,
        "Nodes",
        "node|connection|vote",
        snapshot.nodes.iter().map(node),
    );
    table(
        &mut page,
        "Held locks",
        "keys|held for|remaining|waiting|fencing token|",
        snapshot.locks.iter().map(lock),
    );
    table(
        &mut page,
        "Queues",
        "key|waiting|longest wait",
        snapshot.queues.iter().map(queue),
    );
    page.push_str("</body></html>\n");
    page
}

/// A table with a heading; each row is already HTML.
fn table(
    page: &mut String,
    title: &str,
    columns: &str,
    rows: impl ExactSizeIterator<Item = String>,
) {
    let heads: String = columns
        .split('|')
        .map(|column| format!("<th>{column}</th>"))
        .collect();
    page.push_str(&format!("<h2>{title}</h2>\n"));
    let more = rows.len() >= Snapshot::MOST;
    if rows.len() == 0 {
        page.push_str("<p>none</p>\n");
        return;
    }
    page.push_str(&format!("<table><tr>{heads}</tr>\n"));
    page.extend(rows);
    page.push_str("</table>\n");
    if more {
        page.push_str("<p>There may be more.</p>\n");
    }
}

fn node(node: &NodeStatus) -> String {
    let (class, state) = match &node.state {
        NodeState::Up => ("good", "up".to_owned()),
        NodeState::Connecting => ("", "connecting".to_owned()),
        NodeState::Down(error) => ("bad", format!("down: {error}")),
        NodeState::Refused(error) => ("bad", format!("refused: {error}")),
        NodeState::Closed => ("bad", "closed".to_owned()),
    };
    let (vote_class, vote) = match &node.standing {
        NodeStanding::Voting => ("good", "votes".to_owned()),
        NodeStanding::Unknown => ("", "unknown".to_owned()),
        NodeStanding::Quarantined { remaining, .. } => (
            "bad",
            format!("quarantined for another {}", span(*remaining)),
        ),
        NodeStanding::Foreign { reason } => ("bad", format!("foreign: {reason}")),
    };
    format!(
        "<tr><td>{}</td><td class=\"{class}\">{}</td><td class=\"{vote_class}\">{}</td></tr>\n",
        Text(&node.name),
        Text(&state),
        Text(&vote)
    )
}

fn lock(lock: &HeldLock) -> String {
    let fence = lock
        .fence
        .map(|fence| fence.to_string())
        .unwrap_or_default();
    let mark = match (lock.lost, lock.borrowed) {
        (true, _) => "<td class=\"bad\">lost</td>",
        (false, true) => "<td>borrowed</td>",
        (false, false) => "<td></td>",
    };
    format!(
        "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{fence}</td>{mark}</tr>\n",
        Text(&lock.keys.join(" · ")),
        span(lock.held_for),
        span(lock.remaining),
        lock.waiting
    )
}

fn queue(queue: &Queue) -> String {
    format!(
        "<tr><td>{}</td><td>{}</td><td>{}</td></tr>\n",
        Text(&queue.key),
        queue.waiting,
        span(queue.longest_wait)
    )
}

fn span(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

const HEAD: &str = "<!DOCTYPE html>
<html lang=\"en\"><head><meta charset=\"utf-8\"><meta http-equiv=\"refresh\" content=\"2\">
<meta name=\"viewport\" content=\"width=device-width\"><title>Locks</title>
<style>
body { font: 15px/1.4 system-ui, sans-serif; margin: 2em; color: #222; background: #fff }
table { border-collapse: collapse } th, td { text-align: left; padding: .25em 1em .25em 0; vertical-align: top }
th { border-bottom: 1px solid #999 } td { border-bottom: 1px solid #ddd; overflow-wrap: anywhere }
h2 { font-size: 1.1em; margin: 1.5em 0 .5em } .good { color: #176117 } .bad { color: #a11010; font-weight: 600 }
</style></head><body><h1>Locks</h1>
";
