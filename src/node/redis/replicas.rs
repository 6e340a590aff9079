//! Locks that count only once replicas have them: each acquire and each renewal with a `WAIT` behind it.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::OnceLock;
use std::task::Poll;
use std::time::Duration;

use redis::{Cmd, Pipeline, RedisError, ServerErrorKind, Value};

use super::answers;
use super::commands;
use super::connection::Core;
use super::error::failed;
use super::link::Link;
use super::scripts::{self, Script};
use crate::node::{
    AcquireReply, AcquireRequest, ClusterConfig, CompleteReply, ExtendReply, ExtendRequest,
    NodeContext, NodeError, NodeErrorKind, ReleaseRequest,
};

/// How many replicas must have a lock before it counts, and how long they may take.
#[derive(Debug)]
pub(super) struct Replicas {
    require: u32,
    // A third of the node time-out unless it was chosen.
    within: Option<Duration>,
    // Known once the node has started.
    limit: OnceLock<Duration>,
}

impl Replicas {
    pub(super) const fn new(require: u32, within: Option<Duration>) -> Self {
        Self {
            require,
            within,
            limit: OnceLock::new(),
        }
    }

    /// Takes in how long the manager waits for an answer.
    pub(super) fn begin(&self, context: &NodeContext) {
        self.limit
            .get_or_init(|| self.within.unwrap_or(context.node_timeout / 3));
    }

    /// How long replicas may take.
    pub(super) fn limit(&self) -> Duration {
        let within = self.within.unwrap_or_default();
        self.limit.get().copied().unwrap_or(within)
    }

    /// Whether an answer can come in time at all.
    pub(super) fn check(&self, context: &NodeContext) -> Result<(), NodeError> {
        let (within, node_timeout) = (self.limit(), context.node_timeout);
        if within < node_timeout {
            return Ok(());
        }
        Err(NodeError::new(
            NodeErrorKind::Misconfigured,
            format!(
                "its replicas may take {within:?}, but the manager waits for a node no longer than {node_timeout:?}; choose a shorter `within` or a longer `node_timeout`"
            ),
        ))
    }

    /// The command that waits for the replicas. It asks for whole milliseconds, of which 0 would be forever.
    fn wait(&self) -> Cmd {
        let millis = self.limit().as_millis().max(1);
        let mut cmd = redis::cmd("WAIT");
        cmd.arg(self.require)
            .arg(u64::try_from(millis).unwrap_or(u64::MAX));
        cmd
    }

    /// Reads the answer to `WAIT`: whether enough replicas have acknowledged what came before it.
    fn judge(&self, answer: Option<Value>) -> Result<(), NodeError> {
        let answer = answer.unwrap_or(Value::Nil).extract_error();
        match answer {
            Ok(Value::Int(count)) if count >= i64::from(self.require) => Ok(()),
            Ok(Value::Int(count)) => {
                let (require, limit) = (self.require, self.limit());
                Err(not_replicated(format!(
                    "{count} of {require} replicas acknowledged within {limit:?}"
                )))
            }
            Ok(_) => Err(not_replicated(
                "it answered WAIT with something that makes no sense".to_owned(),
            )),
            Err(error) => Err(not_replicated(format!("WAIT failed: {}", failed(&error)))),
        }
    }
}

fn not_replicated(detail: String) -> NodeError {
    NodeError::new(NodeErrorKind::NotReplicated, detail)
}

/// Waits for the replicas after a renewal, if the node has any.
pub(super) fn append_wait(pipeline: &mut Pipeline, replicas: Option<&Replicas>) {
    if let Some(replicas) = replicas {
        pipeline.add_command(replicas.wait());
    }
}

/// Renewals that too few replicas have do not count. The locks stay where they are.
pub(super) fn discount(replies: &mut [Extended], answer: Option<Value>, replicas: &Replicas) {
    let Err(error) = replicas.judge(answer) else {
        return;
    };
    for reply in replies {
        if matches!(reply, Ok(ExtendReply::Extended | ExtendReply::Refilled)) {
            *reply = Err(error.clone());
        }
    }
}

/// Runs a script that takes a lock, waits until enough replicas have it, and releases it if too few do. A record that
/// too few have is not told of either: it might be gone tomorrow.
pub(super) async fn acquire(
    link: &mut Link,
    replicas: &Replicas,
    script: &Script,
    cmd: Cmd,
    request: &AcquireRequest,
) -> Result<AcquireReply, NodeError> {
    let (answer, acknowledged) = call_and_wait(link, replicas, script, cmd).await?;
    let reply = answers::read_acquire(answer, request.config.as_deref())?;
    if matches!(reply, AcquireReply::Held(_)) {
        return Ok(reply);
    }
    if let Err(error) = replicas.judge(acknowledged) {
        // Should this fail, or be dropped half-way, the caller owes a release as well. With nothing granted it does
        // nothing.
        let release = ReleaseRequest::new(request.keys.clone(), request.token, false);
        let release = scripts::release(&release, link.since());
        let _ = commands::run(link, &scripts::RELEASE, &release).await;
        return Err(error);
    }
    Ok(reply)
}

/// Completes. A record that too few replicas have does not count; it stays where it is.
pub(super) async fn complete(
    link: &mut Link,
    replicas: &Replicas,
    cmd: Cmd,
    config: Option<&ClusterConfig>,
) -> Result<CompleteReply, NodeError> {
    let script = &scripts::COMPLETE;
    let (answer, acknowledged) = call_and_wait(link, replicas, script, cmd).await?;
    let reply = answers::read_complete(&answer, config)?;
    if matches!(reply, CompleteReply::Stored { .. }) {
        replicas.judge(acknowledged)?;
    }
    Ok(reply)
}

/// Runs a script and waits for the replicas: what it answered, and how many have it.
///
/// One connection carries one such wait at a time: the server holds up everything behind a `WAIT`, so a second one
/// in a row would hold up the releases twice as long.
async fn call_and_wait(
    link: &mut Link,
    replicas: &Replicas,
    script: &Script,
    cmd: Cmd,
) -> Result<(Value, Option<Value>), NodeError> {
    let signals = link.share();
    let _turn = signals.turn().await;
    let mut pipeline = redis::pipe();
    pipeline.add_command(cmd);
    pipeline.add_command(replicas.wait());
    let answers = call_all(link, script, &pipeline).await;
    let mut answers = answers.map_err(|error| failed(&error))?.into_iter();
    let answer = answers.next().unwrap_or(Value::Nil).extract_error();
    let answer = answer.map_err(|error| {
        link.look_at(&error);
        failed(&error)
    })?;
    Ok((answer, answers.next()))
}

/// Runs the whole of a pipeline of scripts, again if the server has lost the script.
pub(super) async fn call_all(
    link: &mut Link,
    script: &Script,
    pipeline: &Pipeline,
) -> Result<Vec<Value>, RedisError> {
    let answers = link.call_all(pipeline).await?;
    if !answers.iter().any(is_lost_script) {
        return Ok(answers);
    }
    // All of it again: to do it twice does no harm.
    link.call(&script.load()).await?;
    link.call_all(pipeline).await
}

fn is_lost_script(answer: &Value) -> bool {
    matches!(answer, Value::ServerError(error) if error.kind() == Some(ServerErrorKind::NoScript))
}

impl Core {
    /// Whether another server's data can take the place of this one's without its connections being lost, at any time,
    /// so that the scripts have to look themselves whose it is.
    pub(super) const fn reads_identity_itself(&self) -> bool {
        self.allowed.replicas
    }

    /// How long the server may hold up a connection by our own wish.
    pub(super) fn hold_up(&self) -> Duration {
        self.replicas
            .as_ref()
            .map_or(Duration::ZERO, Replicas::limit)
    }
}

/// Extends locks, each on the connection of its token. One connection's failure is that of its locks alone.
pub(super) async fn extend(core: &Core, requests: &[ExtendRequest]) -> Vec<Extended> {
    let mut parts: Vec<Vec<usize>> = vec![Vec::new(); core.lanes.count()];
    for (index, request) in requests.iter().enumerate() {
        if let Some(part) = parts.get_mut(core.lanes.of(&request.token)) {
            part.push(index);
        }
    }
    let parts = parts.into_iter().enumerate();
    let parts = parts.filter(|(_, part)| !part.is_empty());
    let jobs = parts.map(|(lane, part)| {
        let own: Vec<ExtendRequest> = part
            .iter()
            .filter_map(|index| requests.get(*index).cloned())
            .collect();
        let job: Job<'_> = Box::pin(async move {
            let replies = extend_part(core, lane, &own).await;
            part.into_iter().zip(replies).collect()
        });
        job
    });
    let mut replies: Vec<(usize, Extended)> = all(jobs.collect()).await;
    replies.sort_unstable_by_key(|(index, _)| *index);
    replies.into_iter().map(|(_, reply)| reply).collect()
}

/// The answer for one lock.
type Extended = Result<ExtendReply, NodeError>;

/// The extend of one lane: answers with the places they have in the whole.
type Job<'a> = Pin<Box<dyn Future<Output = Vec<(usize, Extended)>> + Send + 'a>>;

/// Extends the locks of one lane.
async fn extend_part(core: &Core, lane: usize, requests: &[ExtendRequest]) -> Vec<Extended> {
    let replies = match core.link_of(lane) {
        Ok(mut link) => commands::extend(&mut link, requests, core.replicas.as_ref())
            .await
            .map_err(|error| failed(&error)),
        Err(error) => Err(error),
    };
    replies.unwrap_or_else(|error| vec![Err(error); requests.len()])
}

/// Runs all at once; there are a few at most, so each wake-up polls every one that is left.
async fn all(mut jobs: Vec<Job<'_>>) -> Vec<(usize, Extended)> {
    let mut done = Vec::new();
    poll_fn(|cx| {
        jobs.retain_mut(|job| match job.as_mut().poll(cx) {
            Poll::Ready(replies) => {
                done.extend(replies);
                false
            }
            Poll::Pending => true,
        });
        if jobs.is_empty() {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    })
    .await;
    done
}
