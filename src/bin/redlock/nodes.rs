//! The commands about the nodes: `status`, `wait`, `bootstrap`, `nodes adopt` and `nodes retire`.

use std::time::Duration;

use clap::{Args, Subcommand};
use serde_json::json;
use tokio::time::{Instant, sleep, timeout};
use tower_redlock::LockManager;
use tower_redlock::error::NoQuorum;
use tower_redlock::node::NodeState;
use tower_redlock::snapshot::{NodeStatus, Snapshot, VotingStatus};

use crate::show::{self, Cell, Tone, confirm, plain, say, span, table, waiting};
use crate::{Failure, NO_QUORUM, SETTINGS, Source, code, duration};

/// Shows which nodes vote, and why the other nodes do not vote.
///
/// It writes only what each process writes when it connects: scripts, and that a node does not vote if its server has evicted
/// keys. The remaining time of a quarantine is the time for a process that connects now.
#[derive(Args)]
#[command(
    after_help = "Example:\n  redlock status --redis redis://10.0.0.1 --redis redis://10.0.0.2 --redis redis://10.0.0.3"
)]
pub(crate) struct Status {
    /// Repeats every second
    #[arg(long)]
    watch: bool,
    /// Prints JSON, one line each time
    #[arg(long)]
    json: bool,
}

impl Status {
    pub(crate) async fn run(&self, source: &Source) -> Result<u8, Failure> {
        let locks = observe(source).await?;
        loop {
            let snapshot = locks.snapshot();
            let text = match self.json {
                true => as_json(&snapshot),
                false => as_text(&snapshot),
            };
            let clear = self.watch && !self.json && show::is_watched();
            let is_read = say(&[if clear { show::CLEAR_SCREEN } else { "" }, &text].concat())?;
            if !(self.watch && is_read) {
                return Ok(code(&locks, snapshot.has_quorum));
            }
            sleep(Duration::from_secs(1)).await;
        }
    }
}

/// A manager that changes nothing, once each node is known to be up or down.
pub(crate) async fn observe(source: &Source) -> Result<LockManager, Failure> {
    let locks = source.settings()?.observing().connect_lazy()?;
    let end = Instant::now() + LONGEST_CONNECT;
    let is_open = |node: &NodeStatus| {
        let is_asked = node.voting != VotingStatus::Unknown;
        node.state == NodeState::Connecting || node.state == NodeState::Up && !is_asked
    };
    let known = async {
        while locks.snapshot().nodes.iter().any(is_open) && Instant::now() < end {
            sleep(Duration::from_millis(10)).await;
        }
    };
    waiting(known, || "connecting".to_owned()).await;
    Ok(locks)
}

/// After this time, a server that does not answer is known to be down.
const LONGEST_CONNECT: Duration = Duration::from_secs(6);

fn as_json(snapshot: &Snapshot) -> String {
    let (verdict, nodes) = (&snapshot.verdict, &snapshot.nodes);
    let whole = json!({"verdict": verdict, "has_quorum": snapshot.has_quorum, "nodes": nodes});
    format!("{whole}\n")
}

fn as_text(snapshot: &Snapshot) -> String {
    let rows: Vec<[Cell; 5]> = snapshot.nodes.iter().map(row).collect();
    let table = table(["NODE", "VOTE", "SERVER", "MEMORY", "CLOCK"], &rows);
    let reasons = snapshot.nodes.iter().filter_map(|node| {
        let reason = reason(node)?;
        Some(format!("{}: {reason}\n", node.name))
    });
    let doubled = (0..).zip(&snapshot.nodes).filter_map(|(index, node)| {
        let address = |node: &NodeStatus| Some(node.server.as_ref()?.address.clone());
        let ours = address(node)?;
        let others = snapshot.nodes.iter().take(index);
        let other = others.rev().find(|other| address(other).as_ref() == Some(&ours))?;
        let (node, other) = (&node.name, &other.name);
        Some(format!("{node}: its slot has the same master as the slot of {other}, so both fail together; move one of the slots\n"))
    });
    format!(
        "{}\n{table}{}",
        snapshot.verdict,
        reasons.chain(doubled).collect::<String>()
    )
}

fn row(node: &NodeStatus) -> [Cell; 5] {
    let vote = match (&node.state, &node.voting) {
        (NodeState::Down(_), _) => "down",
        (NodeState::Refused(_), _) => "refused",
        (_, VotingStatus::Voting) if is_out_of_memory(node) => "full",
        (_, VotingStatus::Voting) => "votes",
        (_, VotingStatus::Failing { .. }) => "does not count",
        (_, VotingStatus::Foreign { .. }) => "foreign",
        (_, VotingStatus::Quarantined { remaining, .. }) => {
            &format!("quarantine, {}", span(*remaining))
        }
        _ => "unknown",
    };
    let tone = if vote == "votes" {
        Tone::Good
    } else {
        Tone::Bad
    };
    let none = || "-".to_owned();
    let [server, memory, clock] = match &node.server {
        None => [none(), none(), none()],
        Some(server) => [
            format!("{} {} at {}", server.role, server.version, server.address),
            server.max_memory.map_or_else(
                || mib(server.used_memory),
                |most| format!("{} of {}", mib(server.used_memory), mib(most)),
            ),
            (server.clock_ahead).map_or_else(none, |ahead| format!("{:+.1}ms", ahead as f64 / 1e3)),
        ],
    };
    let (name, vote) = (plain(node.name.clone()), (vote.to_owned(), tone));
    [name, vote, plain(server), plain(memory), plain(clock)]
}

const FULL: &str = "too full for more stored responses, so requests with new idempotency keys are refused; raise `maxmemory`, or store responses for a shorter time";

const OUT_OF_MEMORY: &str = "out of memory, so all new locks are refused; raise `maxmemory`, or store responses for a shorter time";

fn mib(bytes: u64) -> String {
    format!("{:.1}MiB", bytes as f64 / f64::from(1 << 20))
}

fn reason(node: &NodeStatus) -> Option<String> {
    let is_full = node.server.as_ref().is_some_and(|server| server.is_full);
    match (&node.state, &node.voting) {
        (NodeState::Down(error) | NodeState::Refused(error), _) => Some(error.to_string()),
        (_, VotingStatus::Failing { reason } | VotingStatus::Foreign { reason }) => {
            Some(reason.clone())
        }
        (_, VotingStatus::Quarantined { remaining, .. }) if remaining.is_none() => {
            Some("it votes once every node has accepted the list of nodes".to_owned())
        }
        _ if is_out_of_memory(node) => Some(OUT_OF_MEMORY.to_owned()),
        _ => is_full.then(|| FULL.to_owned()),
    }
}

fn is_out_of_memory(node: &NodeStatus) -> bool {
    let server = node.server.as_ref();
    server.is_some_and(|server| {
        server
            .max_memory
            .is_some_and(|most| server.used_memory >= most)
    })
}

/// Waits until all nodes vote, for example between the restarts of two servers.
///
/// Like a process of the service, it begins the quarantine of a node that may have forgotten locks, and ends the quarantine
/// when its time is over.
#[derive(Args)]
#[command(
    after_help = "Example:\n  for server in a b c; do ssh $server systemctl restart redis && redlock wait || break; done"
)]
pub(crate) struct Wait {
    /// The longest time to wait. After that, the exit code is 69. If no other process runs, it must be longer than a quarantine
    #[arg(long, value_parser = duration, default_value = "5m")]
    timeout: Duration,
}

impl Wait {
    pub(crate) async fn run(&self, source: &Source) -> Result<u8, Failure> {
        let locks = source.settings()?.connect_lazy()?;
        let voting = timeout(self.timeout, locks.all_voting());
        let waited = waiting(voting, || locks.snapshot().verdict).await;
        let snapshot = locks.snapshot();
        match waited {
            Ok(Ok(())) => {
                say(&format!("all {} nodes vote\n", snapshot.nodes.len()))?;
                Ok(0)
            }
            Ok(Err(error)) => Err(error.into()),
            Err(_) => {
                show::tell(as_text(&snapshot).trim_end());
                let text = format!("not all nodes vote after {:?}", self.timeout);
                Err(Failure::new(code(&locks, false), text))
            }
        }
    }
}

/// Declares that no lock is held on any node, which ends all quarantines.
///
/// Use it for the first start, or if all processes were stopped and max_ttl has passed since then.
#[derive(Args)]
#[command(after_help = "Example:\n  redlock bootstrap --yes")]
pub(crate) struct Bootstrap {
    /// Does not ask for confirmation
    #[arg(long)]
    yes: bool,
}

impl Bootstrap {
    pub(crate) async fn run(&self, source: &Source) -> Result<u8, Failure> {
        let locks = source.settings()?.connect_lazy()?;
        let text = format!(
            "This declares that no lock is held on any node ({}), and ends all quarantines. If a lock is held after all, two holders are possible.",
            names(&locks.snapshot())
        );
        confirm(&text, self.yes)?;
        voting(&locks, locks.bootstrap()).await
    }
}

#[derive(Subcommand)]
pub(crate) enum Nodes {
    Adopt(Adopt),
    Retire(Retire),
}

/// Retires the nodes in favour of other nodes: processes with these nodes get no more locks.
///
/// The command ends when no lock on these nodes is valid. After that, processes with the other nodes may start. To move without
/// a stop, see docs::operating. `redlock nodes adopt` takes the nodes into use again.
#[derive(Args)]
#[command(
    after_help = "Example:\n  redlock nodes retire 'the cluster of redis-7.internal' --config old.toml --yes"
)]
pub(crate) struct Retire {
    /// The name of the new nodes, for the people who read the errors
    #[arg(value_parser = clap::builder::NonEmptyStringValueParser::new())]
    successor: String,
    /// Does not ask for confirmation
    #[arg(long)]
    yes: bool,
}

impl Retire {
    pub(crate) async fn run(&self, source: &Source) -> Result<u8, Failure> {
        let locks = source.settings()?.connect_lazy()?;
        let text = format!(
            "This retires the list of nodes ({}). Processes with this list lose their locks, and are refused.",
            names(&locks.snapshot())
        );
        confirm(&text, self.yes)?;
        let retiring = locks.retire_nodes(&self.successor);
        let left = waiting(retiring, || "connecting".to_owned()).await?;
        waiting(sleep(left), || "waiting until no lock is valid".to_owned()).await;
        say("retired; no lock on these nodes is valid any more\n")?;
        Ok(0)
    }
}

/// Takes the nodes over from processes with another list of nodes or other settings.
///
/// First stop all processes. All nodes must answer, and each is quarantined until no lock of those processes is valid. Then
/// start the processes with the new list.
#[derive(Args)]
#[command(after_help = "Example:\n  redlock nodes adopt --config new.toml")]
pub(crate) struct Adopt {
    /// The old max_ttl, needed if the old list and the new list have no node in common
    #[arg(long, value_parser = duration, value_name = "MAX_TTL")]
    former: Option<Duration>,
    /// Does not ask for confirmation
    #[arg(long)]
    yes: bool,
}

impl Adopt {
    pub(crate) async fn run(&self, source: &Source) -> Result<u8, Failure> {
        let seen = observe(source).await?.snapshot();
        if seen.nodes.iter().all(votes) {
            say(&format!(
                "{}; they have accepted this list already\n",
                seen.verdict
            ))?;
            return Ok(0);
        }
        if self.former.is_none() && seen.nodes.iter().all(serves_no_other) {
            return Err(Failure::new(SETTINGS, NOTHING_TO_ADOPT));
        }
        let locks = source.settings()?.connect_lazy()?;
        let quarantine = locks.max_ttl().max(self.former.unwrap_or_default());
        let downtime = quarantine + quarantine / 100 + Duration::from_secs(2);
        let text = format!(
            "This takes the nodes ({}) over for this list and these settings. No lock is granted for about {}: longer if max_ttl was longer before, and by confirm_within longer in a cluster or behind Sentinels. Processes with another list lose their locks and are refused, so stop them first.",
            names(&seen),
            span(Some(downtime))
        );
        confirm(&text, self.yes)?;
        let code = voting(&locks, locks.adopt_nodes(self.former)).await?;
        let snapshot = locks.snapshot();
        if snapshot.nodes.iter().all(votes) {
            return Ok(code);
        }
        show::tell(as_text(&snapshot).trim_end());
        Err(Failure::new(NO_QUORUM, NOT_ALL_ADOPTED))
    }
}

const NOT_ALL_ADOPTED: &str = "a node was not taken over to the end, and would keep all nodes from granting when it is back; once it is up, run this again, and start the processes after that";

/// Processes with another list would know nothing of this adoption, and go on beside those with this list.
const NOTHING_TO_ADOPT: &str = "no node serves another list. If this list replaces other nodes, stop their processes, and give the old max_ttl as --former. For the first start, use `redlock bootstrap`; after an adoption that was interrupted, `redlock wait`";

fn votes(node: &NodeStatus) -> bool {
    node.state == NodeState::Up && node.voting == VotingStatus::Voting
}

fn serves_no_other(node: &NodeStatus) -> bool {
    node.state == NodeState::Up && !matches!(node.voting, VotingStatus::Foreign { .. })
}

fn names(snapshot: &Snapshot) -> String {
    let names: Vec<&str> = snapshot.nodes.iter().map(|node| &*node.name).collect();
    names.join(", ")
}

/// Waits until the nodes vote.
async fn voting(
    locks: &LockManager,
    work: impl Future<Output = Result<(), NoQuorum>>,
) -> Result<u8, Failure> {
    waiting(work, || locks.snapshot().verdict).await?;
    say(&format!("{}\n", locks.snapshot().verdict))?;
    Ok(0)
}
