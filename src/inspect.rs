//! [`InspectService`]: the page for operators.

use std::convert::Infallible;
use std::fmt::{self, Display, Write as _};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use http::header::{
    ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri};
use tower_service::Service;

use crate::manager::{
    HeldLock, KeyStatus, KeyVerdict, LockList, LockManager, NodeStatus, QueueStatus, Snapshot,
    VotingStatus,
};
use crate::node::NodeState;

/// A read-only page for operators, with the nodes, held locks and queues of a manager (feature `inspect`).
///
/// **Protect this page**, because it has no authentication. It shows lock keys (unless they are redacted), the names of
/// the nodes and the load of the service, but no owner token and no password.
///
/// | path | response |
/// |---|---|
/// | `/` | the page, which reloads every two seconds |
/// | `/?still` | the page without reloading |
/// | `/snapshot.json`, `/?json` | [`Snapshot`] as JSON |
/// | `/?fleet` | up to 100 locks of all processes. Each node scans its keys, as for [`LockManager::list`] |
/// | `/fleet.json`, `/?fleet&json` | [`LockList`] as JSON |
///
/// # Examples
///
/// ```
/// # #[cfg(feature = "axum")] mod example {
/// use axum::Router;
/// use tower_redlock::{InspectService, LockManager};
///
/// fn operators_only(locks: LockManager) -> Router {
///     // The page is at `/locks/`.
///     Router::new().nest_service("/locks", InspectService::new(locks))
/// }
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct InspectService {
    locks: LockManager,
}

impl InspectService {
    /// Makes the page for the manager `locks`.
    #[must_use]
    pub const fn new(locks: LockManager) -> Self {
        Self { locks }
    }
}

impl<B> Service<Request<B>> for InspectService {
    type Response = Response<String>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let locks = self.locks.clone();
        let (method, uri) = (request.method().clone(), request.uri().clone());
        Box::pin(async move { Ok(respond(&locks, &method, &uri).await) })
    }
}

async fn respond(locks: &LockManager, method: &Method, uri: &Uri) -> Response<String> {
    // The page links to queries, because these work with and without a slash at the end of the page's address.
    let view = match (uri.path(), uri.query().unwrap_or_default()) {
        ("/snapshot.json", _) => "json",
        ("/fleet.json", _) => "fleet&json",
        ("" | "/", query) => query,
        _ => return response(StatusCode::NOT_FOUND, TEXT, "not found\n".to_owned()),
    };
    if method != Method::GET && method != Method::HEAD {
        let text = "this page can only be read\n".to_owned();
        let mut refusal = response(StatusCode::METHOD_NOT_ALLOWED, TEXT, text);
        (refusal.headers_mut()).insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return refusal;
    }
    let list = locks.list("", Snapshot::MOST);
    let (kind, text) = match view {
        "json" => (JSON, serde_json::to_string(&locks.snapshot())),
        "fleet" => (HTML, Ok(fleet(&list.await))),
        "fleet&json" => (JSON, serde_json::to_string(&list.await)),
        query => (HTML, Ok(page(&locks.snapshot(), query == "still"))),
    };
    // Return the body even for HEAD, because the HTTP server leaves it out.
    response(StatusCode::OK, kind, text.unwrap_or_default())
}

fn response(status: StatusCode, kind: &'static str, text: String) -> Response<String> {
    let mut response = Response::new(text);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    for (name, value) in [
        (CONTENT_TYPE, kind),
        (CACHE_CONTROL, "no-store"),
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, "no-referrer"),
        (CROSS_ORIGIN_RESOURCE_POLICY, "same-origin"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

const HTML: &str = "text/html; charset=utf-8";
const JSON: &str = "application/json";
const TEXT: &str = "text/plain; charset=utf-8";
/// Allows nothing but [`STYLE`], by its hash, which a test checks.
const POLICY: &str = "default-src 'none'; style-src 'sha256-COTnAwCGvoDjRAxaZBCWNIUENqp2gSbr4AxpdWj1gZk='; \
    base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
const CROSS_ORIGIN_RESOURCE_POLICY: HeaderName =
    HeaderName::from_static("cross-origin-resource-policy");

/// Writes text escaped for HTML.
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
                // Escape the backslash, because the escapes below begin with one.
                '\\' => f.write_str("\\\\")?,
                '\n' => f.write_str("<br>")?,
                // Show invisible characters, so that two keys that differ only in them look different.
                char if char.is_control() || is_unseen(char) => {
                    write!(f, "\\u{{{:x}}}", u32::from(char))?
                }
                char => f.write_char(char)?,
            }
        }
        Ok(())
    }
}

/// Unicode's default ignorable characters and line separators.
const fn is_unseen(char: char) -> bool {
    matches!(
        char,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}'
            | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fff8}'
            | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}'
    )
}

fn page(snapshot: &Snapshot, still: bool) -> String {
    let (held, waiting) = (snapshot.held, snapshot.waiting);
    // It can name a successor, which is a text of a node.
    let verdict = Text(&snapshot.verdict);
    let class = if snapshot.has_quorum { GOOD } else { BAD };
    let (reload, other) = if still {
        ("", "<a href=\"?\">Reload every two seconds</a>")
    } else {
        (RELOAD, "<a href=\"?still\">Stop reloading</a>")
    };
    let mut page = opening(reload, &format!("Locks: {held} held, {waiting} in line"));
    page.push_str(&format!(
        "<p{class}>{verdict}</p>\n<p>{}: {held} held, {waiting} in line. {other} · <a href=\"?json\">As JSON</a> · \
         <a href=\"?fleet\">Ask the nodes for the locks of all processes</a></p>\n",
        snapshot.instance
    ));
    table(&mut page, "Nodes", NODE, snapshot.nodes.iter().map(node));
    table(
        &mut page,
        "Held locks",
        LOCK,
        snapshot.locks.iter().map(lock),
    );
    note_if_truncated(&mut page, snapshot.locks.len());
    table(
        &mut page,
        "Queues",
        QUEUE,
        snapshot.queues.iter().map(queue),
    );
    note_if_truncated(&mut page, snapshot.queues.len());
    page + END
}

fn fleet(list: &LockList) -> String {
    let most = Snapshot::MOST;
    let mut page = opening("", "Locks of all processes");
    page.push_str(&format!(
        "<p>Up to {most} locks, without idempotency keys. Each node has scanned its keys (SCAN), for at most ten seconds, so do \
         not ask often. <a href=\"?\">This process</a> · <a href=\"?fleet\">Ask again</a> · \
         <a href=\"?fleet&amp;json\">As JSON</a></p>\n"
    ));
    for failure in &list.failures {
        page.push_str(&format!("<p{BAD}>Not listed: {}</p>\n", Text(failure)));
    }
    let rows: Vec<_> = list.locks.iter().filter_map(fleet_lock).collect();
    table(&mut page, "Locks of all processes", FLEET, rows.into_iter());
    if list.more {
        let more = "There may be more locks. The command redlock list PREFIX shows the locks whose keys begin with PREFIX.";
        page.push_str(&format!("<p{BAD}>{more}</p>\n"));
    }
    page + END
}

fn opening(reload: &str, title: &str) -> String {
    format!(
        "{HEAD}{reload}<title>{title}</title>\n<style>{STYLE}</style></head>\n<body><main><h1>Locks</h1>\n"
    )
}

fn note_if_truncated(page: &mut String, rows: usize) {
    let most = Snapshot::MOST;
    if rows >= most {
        page.push_str(&format!(
            "<p>These are the {most} longest; there may be more.</p>\n"
        ));
    }
}

const NODE: [&str; 3] = ["Node", "Connection", "Vote"];
#[rustfmt::skip]
const LOCK: [&str; 6] = ["Keys", "Held for", "Remaining", "Waiting", "Fencing token", "State"];
const QUEUE: [&str; 3] = ["Key", "Waiting", "Longest wait"];
const FLEET: [&str; 5] = ["Key", "Holder", "Held for", "Remaining", "Nodes"];

type Cell = (&'static str, String);

/// Adds a table whose first column names the rows. The roles are explicit, because in a narrow window `inspect.css`
/// shows cells as blocks, which have no role.
fn table<const N: usize>(
    page: &mut String,
    title: &str,
    columns: [&str; N],
    rows: impl ExactSizeIterator<Item = [Cell; N]>,
) {
    if rows.len() == 0 {
        page.push_str(&format!("<h2>{title}</h2>\n<p>None.</p>\n"));
        return;
    }
    let titles =
        columns.map(|column| format!("<th role=\"columnheader\" scope=\"col\">{column}</th>"));
    page.push_str(&format!(
        "<table role=\"table\"><caption><h2>{title}</h2></caption>\n\
         <thead role=\"rowgroup\"><tr role=\"row\">{}</tr></thead>\n<tbody role=\"rowgroup\">\n",
        titles.concat()
    ));
    for row in rows {
        page.push_str("<tr role=\"row\">");
        for (at, (column, (class, text))) in columns.iter().zip(&row).enumerate() {
            let text = Text(text);
            let cell = match at {
                0 => format!("<th role=\"rowheader\" scope=\"row\">{text}</th>"),
                _ => format!("<td role=\"cell\" data-label=\"{column}\"{class}>{text}</td>"),
            };
            page.push_str(&cell);
        }
        page.push_str("</tr>\n");
    }
    page.push_str("</tbody></table>\n");
}

const PLAIN: &str = "";
const NUMBER: &str = " class=\"number\"";
const GOOD: &str = " class=\"good\"";
const BAD: &str = " class=\"bad\"";

fn node(node: &NodeStatus) -> [Cell; 3] {
    let state = match &node.state {
        NodeState::Up => (GOOD, "up".to_owned()),
        NodeState::Connecting => (PLAIN, "connecting".to_owned()),
        NodeState::Down(error) => (BAD, format!("down: {error}")),
        NodeState::Refused(error) => (BAD, format!("refused: {error}")),
        NodeState::Closed => (BAD, "closed".to_owned()),
    };
    let vote = match &node.voting {
        VotingStatus::Voting if node.server.as_ref().is_some_and(|server| server.is_full) => {
            (BAD, "votes; too full for more stored responses".to_owned())
        }
        VotingStatus::Voting => (GOOD, "votes".to_owned()),
        // The column of the connection has the reason.
        VotingStatus::Failing { .. } if node.state != NodeState::Up => {
            (BAD, "does not count".to_owned())
        }
        VotingStatus::Failing { reason } => (BAD, format!("does not count: {reason}")),
        VotingStatus::Unknown => (PLAIN, "unknown".to_owned()),
        VotingStatus::Quarantined { remaining, .. } => {
            let text = match remaining {
                Some(remaining) => format!("quarantined for another {}", span(*remaining)),
                None => "quarantined until other nodes answer".to_owned(),
            };
            (BAD, text)
        }
        VotingStatus::Foreign { reason } => (BAD, format!("foreign: {reason}")),
    };
    [(PLAIN, node.name.clone()), state, vote]
}

fn lock(lock: &HeldLock) -> [Cell; 6] {
    let fence = lock.fence.map(|fence| fence.to_string());
    let state = match lock.lost {
        true => (BAD, "lost".to_owned()),
        false => (GOOD, "held".to_owned()),
    };
    [
        (PLAIN, lock.keys.join("\n")),
        (NUMBER, span(lock.held_for)),
        (NUMBER, span(lock.remaining)),
        (NUMBER, lock.waiting.to_string()),
        (NUMBER, fence.unwrap_or_else(|| "none".to_owned())),
        state,
    ]
}

fn queue(queue: &QueueStatus) -> [Cell; 3] {
    [
        (PLAIN, queue.key.clone()),
        (NUMBER, queue.waiting.to_string()),
        (NUMBER, span(queue.longest_wait)),
    ]
}

fn fleet_lock(lock: &KeyStatus) -> Option<[Cell; 5]> {
    let holder = lock.holder()?;
    let (count, of) = (lock.count(holder), lock.nodes.len());
    let nodes = match lock.verdict {
        KeyVerdict::Held => (GOOD, format!("{count} of {of}")),
        _ => (BAD, format!("{count} of {of}, no quorum")),
    };
    let rest = holder.remaining.map_or_else(|| "no end".to_owned(), span);
    Some([
        (PLAIN, lock.key.clone()),
        (PLAIN, holder.to_string()),
        (NUMBER, holder.held_for.map_or_else(String::new, span)),
        (NUMBER, rest),
        nodes,
    ])
}

fn span(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

const HEAD: &str = "<!DOCTYPE html>
<html lang=\"en\"><head><meta charset=\"utf-8\">
<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">
";
const END: &str = "</main></body></html>\n";
const RELOAD: &str = "<meta http-equiv=\"refresh\" content=\"2\">\n";
const STYLE: &str = include_str!("inspect.css");
