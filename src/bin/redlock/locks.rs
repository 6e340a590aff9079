//! The commands about the locks of all processes: `who`, `list` and `release`.

use std::time::{Duration, SystemTime};

use clap::Args;
use serde::Serialize;
use tower_redlock::snapshot::{KeyHolder, KeyOnNode, KeyStatus, KeyVerdict, LockList};
use tower_redlock::{FencingToken, LockManager};

use crate::nodes::observe;
use crate::show::{Cell, Tone, confirm, plain, say, span, table, tell, waiting};
use crate::{Failure, HELD, NO_QUORUM, Source, USAGE, code};

#[derive(Args)]
struct Key {
    /// The key, as the page for operators and the log show it
    key: String,
    /// KEY is the id of an idempotency key: `idempotency:` and a hash
    #[arg(long)]
    idempotency: bool,
    /// KEY is a permit: a key and the number of a slot, for example tenant:7:0
    #[arg(long, conflicts_with = "idempotency")]
    permit: bool,
}

impl Key {
    async fn ask(&self, locks: &LockManager) -> Result<KeyStatus, Failure> {
        let status = match self {
            Self {
                idempotency: true, ..
            } => locks.idempotent_holders(&self.key).await,
            Self { permit: true, .. } => locks.permits(1)?.holders(&self.key).await,
            _ => locks.holders(&self.key).await,
        };
        status.map_err(|error| Failure::new(USAGE, error))
    }
}

/// Shows for each node who holds a key, since when, and when the lock ends if nobody extends it. Changes nothing.
///
/// For an idempotency key it also shows how long its response remains stored.
#[derive(Args)]
#[command(after_help = "Example:\n  redlock who order:42")]
pub(crate) struct Who {
    #[command(flatten)]
    key: Key,
    /// Prints JSON
    #[arg(long)]
    json: bool,
}

impl Who {
    pub(crate) async fn run(&self, source: &Source) -> Result<u8, Failure> {
        let locks = observe(source).await?;
        let status = self.key.ask(&locks).await?;
        say(&match self.json {
            true => as_json(&status),
            false => as_text(&status),
        })?;
        let is_known = status.verdict != KeyVerdict::Unknown;
        Ok(code(&locks, is_known))
    }
}

fn as_json(report: &impl Serialize) -> String {
    serde_json::to_string(report).unwrap_or_default() + "\n"
}

fn as_text(status: &KeyStatus) -> String {
    let rows: Vec<[Cell; 5]> = status.nodes.iter().map(row).collect();
    let titles = ["NODE", "INSTANCE", "OWNER", "SINCE", "REMAINING"];
    let stored = status.nodes.iter().filter_map(|node| {
        let rest = span(Some(node.stored_for?));
        Some(format!("{}: a response is stored for {rest}\n", node.node))
    });
    let (table, stored) = (table(titles, &rows), stored.collect::<String>());
    format!("{}: {status}\n{table}{stored}", status.key)
}

fn row(node: &KeyOnNode) -> [Cell; 5] {
    let cells = match &node.holder {
        Some(holder) => {
            let owner = holder.owner.to_string().chars().take(8).collect();
            [instance(holder), owner, since(holder), rest(holder)]
        }
        None => ["-"; 4].map(str::to_owned),
    };
    let [mut instance, owner, since, rest] = cells.map(plain);
    if let Some(error) = &node.error {
        instance = (error.to_string(), Tone::Bad);
    }
    [plain(node.node.clone()), instance, owner, since, rest]
}

fn instance(holder: &KeyHolder) -> String {
    let name = holder.instance.as_str();
    if name.is_empty() { "unnamed" } else { name }.to_owned()
}

fn since(holder: &KeyHolder) -> String {
    let fence = holder.fence.filter(|_| holder.held_for.is_some());
    let since = fence.map(|fence| Duration::from_micros(fence.get() / FencingToken::STEP));
    let since =
        since.map(|since| humantime::format_rfc3339_seconds(SystemTime::UNIX_EPOCH + since));
    since.map_or_else(|| "-".to_owned(), |since| since.to_string())
}

fn rest(holder: &KeyHolder) -> String {
    (holder.remaining).map_or_else(|| "no end".to_owned(), |rest| span(Some(rest)))
}

/// Lists the locks of all processes. Changes nothing.
///
/// Each node scans all its keys, for at most ten seconds. The user on the nodes needs the right +scan.
#[derive(Args)]
#[command(after_help = "Example:\n  redlock list order: --limit 20")]
pub(crate) struct List {
    /// Lists only keys that begin with this text
    #[arg(default_value = "")]
    prefix: String,
    /// Lists only the idempotency keys of running requests
    #[arg(long)]
    idempotency: bool,
    /// Lists only permits, each as its key and the number of its slot
    #[arg(long, conflicts_with = "idempotency")]
    permits: bool,
    /// Lists at most this many locks
    #[arg(long, default_value_t = 100)]
    limit: usize,
    /// Prints JSON
    #[arg(long)]
    json: bool,
}

impl List {
    pub(crate) async fn run(&self, source: &Source) -> Result<u8, Failure> {
        let mut locks = observe(source).await?;
        if self.permits {
            locks = locks.permits(1)?;
        }
        let list = async {
            match self.idempotency {
                true => locks.list_idempotent(&self.prefix, self.limit).await,
                false => locks.list(&self.prefix, self.limit).await,
            }
        };
        let list = waiting(list, || "looking for locks".to_owned()).await;
        say(&match self.json {
            true => as_json(&list),
            false => listed(&list),
        })?;
        for failure in &list.failures {
            tell(&format!("not listed: {failure}"));
        }
        if list.more && list.has_quorum && !self.json {
            tell("there may be more locks; give a prefix or a higher --limit");
        }
        if !list.has_quorum {
            tell(
                "the list is incomplete, because fewer nodes than a quorum have listed their keys",
            );
        }
        Ok(code(&locks, list.has_quorum))
    }
}

fn listed(list: &LockList) -> String {
    let row = |lock: &KeyStatus| {
        let holder = lock.holder()?;
        let nodes = match lock.verdict {
            KeyVerdict::Held => plain(format!("{} of {}", lock.count(holder), lock.nodes.len())),
            _ => ("no quorum".to_owned(), Tone::Bad),
        };
        let name = plain(instance(holder));
        let (held, rest) = (plain(span(holder.held_for)), plain(rest(holder)));
        Some([plain(lock.key.clone()), name, held, rest, nodes])
    };
    let rows: Vec<[Cell; 5]> = list.locks.iter().filter_map(row).collect();
    table(["KEY", "INSTANCE", "HELD", "REMAINING", "NODES"], &rows)
}

/// Takes a key from its holder, and releases it.
///
/// This program first takes the key over from the shown holder for the rest of the ttl. By then the holder has noticed the loss,
/// or its lock has ended. Then the key is released. A holder that is suspended, or does not watch for the loss, may still write
/// afterwards. Only fencing tokens can reject such writes.
#[derive(Args)]
#[command(after_help = "Example:\n  redlock release order:42 --force")]
pub(crate) struct Release {
    #[command(flatten)]
    key: Key,
    /// Confirms that the key is taken without asking its holder
    #[arg(long, required = true)]
    force: bool,
    /// Releases the key without waiting. Use it only if the holder is dead
    #[arg(long)]
    now: bool,
    /// Does not ask for confirmation
    #[arg(long)]
    yes: bool,
}

impl Release {
    pub(crate) async fn run(&self, source: &Source) -> Result<u8, Failure> {
        let locks = observe(source).await?;
        let seen = self.key.ask(&locks).await?;
        say(&as_text(&seen))?;
        let is_known = seen.holder().is_some() || seen.verdict != KeyVerdict::Unknown;
        let code = code(&locks, is_known);
        let Some(holder) = seen.holder().filter(|_| code == 0) else {
            return Ok(code);
        };
        confirm(&self.intent(&seen, holder), self.yes)?;
        let freed = locks.force_release(&seen, self.now);
        let freed = waiting(freed, || "waiting until the holder has lost it".to_owned()).await?;
        say(&format!("freed on {freed} of {} nodes\n", seen.nodes.len()))?;
        let after = self.key.ask(&locks).await?;
        let is_left = after.holder().is_some_and(|now| now.owner == holder.owner);
        match after.verdict {
            KeyVerdict::Held if !is_left && freed == 0 => {
                let text = format!("another holder has acquired it in the meantime: {after}");
                Err(Failure::new(HELD, text))
            }
            KeyVerdict::Held if !is_left => Ok(0),
            KeyVerdict::Free => Ok(0),
            _ => Err(Failure::new(NO_QUORUM, &after)),
        }
    }

    fn intent(&self, seen: &KeyStatus, holder: &KeyHolder) -> String {
        let end = match self.now {
            true => "frees it immediately. If the holder is alive, two may work at the same time"
                .to_owned(),
            false => match holder.remaining {
                Some(rest) => {
                    let rest = span(Some(rest));
                    format!("frees it in {rest}, when the holder has lost it")
                }
                None => "frees it after a minute or more, because it has no end".to_owned(),
            },
        };
        format!("This takes {} from {holder}, and {end}.", seen.key)
    }
}
