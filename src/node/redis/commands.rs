//! Commands on one connection: runs scripts, waits for replicas, and reads the replies.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use redis::{Cmd, ErrorKind, Pipeline, RedisError, ServerErrorKind, Value};

use crate::node::redis::connection::Connection;
use crate::node::redis::error::failed;
use crate::node::redis::replicas::Replicas;
use crate::node::redis::script::Script;
use crate::node::redis::shared::Shared;
use crate::node::redis::{replies, scripts};
use crate::node::{
    AcquireReply, AcquireRequest, CompleteReply, CompleteRequest, ExtendReplies, ExtendReply,
    ExtendRequest, NodeError, ReleaseRequest,
};

/// Runs a script that acquires a lock, and releases the lock if too few replicas have it. A record that too few have is
/// not returned: a failover may lose it.
pub(super) async fn acquire(
    shared: &Shared,
    script: &Script,
    request: &AcquireRequest,
    cmd: impl FnOnce(&Connection) -> Cmd,
) -> Result<AcquireReply, NodeError> {
    let mut connection = shared.connection(&request.token)?;
    let cmd = cmd(&connection);
    let (value, acknowledged) = run_and_wait(shared, &mut connection, script, cmd).await?;
    let proposed = request.fence.map(|fence| fence.token);
    let reply = replies::read_acquire(value, proposed, request.config.as_deref())?;
    judge(&mut connection, request, reply, acknowledged).await
}

/// Acquires a lock of one key without fencing token and restart guard, by one `SET`. `None` if it was not set: only the
/// script tells the holder.
pub(super) async fn acquire_bare(
    shared: &Shared,
    request: &AcquireRequest,
) -> Result<Option<AcquireReply>, NodeError> {
    let mut connection = shared.connection(&request.token)?;
    let cmd = scripts::set(request);
    let set = run_and_wait(shared, &mut connection, &scripts::ACQUIRE, cmd).await;
    let (value, acknowledged) = match set {
        // A server that takes no more keys says so whether or not this one is held.
        Err(error) if !error.outcome_unknown() => return Ok(None),
        set => set?,
    };
    if !replies::read_set(&value)? {
        return Ok(None);
    }
    let reply = AcquireReply::Granted { fence: None };
    let reply = judge(&mut connection, request, reply, acknowledged).await?;
    Ok(Some(reply))
}

async fn judge(
    connection: &mut Connection,
    request: &AcquireRequest,
    reply: AcquireReply,
    acknowledged: Result<(), NodeError>,
) -> Result<AcquireReply, NodeError> {
    match acknowledged {
        Err(error) if !matches!(reply, AcquireReply::Held(_)) => {
            // If this fails or is dropped, the caller still sends a release. If nothing was granted, it does nothing.
            let release = ReleaseRequest::new(request.keys.clone(), request.token, false);
            let release = scripts::release(&release, connection.since());
            let _ = Box::pin(run(connection, &scripts::RELEASE, &release)).await;
            Err(error)
        }
        _ => Ok(reply),
    }
}

/// Runs a completion. A record that too few replicas have does not count; it stays where it is.
pub(super) async fn complete(
    shared: &Shared,
    request: &CompleteRequest,
) -> Result<CompleteReply, NodeError> {
    let token = &request.release.token;
    let mut connection = match &request.record {
        Some(_) => shared.connection(token)?,
        None => shared.connections.connection_for(token)?,
    };
    let (identity, since) = (connection.identity(), connection.since());
    let cmd = scripts::complete(request, identity, since, shared.replicas.is_some());
    let script = &scripts::COMPLETE;
    // Without a record there is nothing that replicas must have.
    let (value, acknowledged) = match &request.record {
        Some(_) => run_and_wait(shared, &mut connection, script, cmd).await?,
        None => (run(&mut connection, script, &cmd).await?, Ok(())),
    };
    let reply = replies::read_complete(&value, request.config.as_deref())?;
    if matches!(reply, CompleteReply::Stored { .. }) {
        acknowledged?;
    }
    Ok(reply)
}

async fn run_and_wait(
    shared: &Shared,
    connection: &mut Connection,
    script: &Script,
    cmd: Cmd,
) -> Result<(Value, Result<(), NodeError>), NodeError> {
    match &shared.replicas {
        None => Ok((run(connection, script, &cmd).await?, Ok(()))),
        // In a box, so that the futures of plain nodes stay small.
        Some(replicas) => Box::pin(call_and_wait(connection, replicas, script, cmd)).await,
    }
}

pub(super) async fn run(
    connection: &mut Connection,
    script: &Script,
    cmd: &Cmd,
) -> Result<Value, NodeError> {
    let value = match connection.call(cmd).await {
        Err(error) if is_unknown_script(error.kind()) => {
            match connection.call(&script.load()).await {
                Ok(_) => connection.call(cmd).await,
                Err(error) => Err(error),
            }
        }
        result => result,
    };
    value.map_err(|error| failed(&error))
}

const fn is_unknown_script(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::Server(ServerErrorKind::NoScript))
}

pub(super) async fn extend(shared: &Shared, requests: &[ExtendRequest]) -> ExtendReplies {
    if requests.is_empty() {
        return Ok(Vec::new());
    }
    if shared.connections.count() > 1 {
        return Ok(Box::pin(extend_on_all(shared, requests)).await);
    }
    extend_on(shared, 0, requests).await
}

async fn extend_on_all(shared: &Shared, requests: &[ExtendRequest]) -> Vec<Extended> {
    let mut parts = vec![(Vec::new(), Vec::new()); shared.connections.count()];
    for (index, request) in requests.iter().enumerate() {
        if let Some((indices, part)) = parts.get_mut(shared.connections.of(&request.token)) {
            indices.push(index);
            part.push(request.clone());
        }
    }
    let parts = parts.into_iter().enumerate();
    let parts = parts.filter(|(_, (indices, _))| !indices.is_empty());
    let jobs = parts.map(|(connection, (indices, part))| {
        let job: Job<'_> = Box::pin(async move {
            let replies = extend_on(shared, connection, &part).await;
            let replies = replies.unwrap_or_else(|error| vec![Err(error); part.len()]);
            indices.into_iter().zip(replies).collect()
        });
        job
    });
    let mut replies = all(jobs.collect()).await;
    replies.sort_unstable_by_key(|(index, _)| *index);
    replies.into_iter().map(|(_, reply)| reply).collect()
}

type Job<'a> = Pin<Box<dyn Future<Output = Vec<(usize, Extended)>> + Send + 'a>>;

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

async fn extend_on(shared: &Shared, index: usize, requests: &[ExtendRequest]) -> ExtendReplies {
    let mut connection = shared.connection_of(index)?;
    let chunks: Vec<&[ExtendRequest]> = scripts::chunks(requests).collect();
    let mut pipeline = redis::pipe();
    for chunk in &chunks {
        pipeline.add_command(scripts::extend(chunk, connection.identity()));
    }
    if let Some(replicas) = &shared.replicas {
        pipeline.add_command(replicas.wait());
    }
    let values = call_all(&mut connection, &scripts::EXTEND, &pipeline).await;
    let mut values = values.map_err(|error| failed(&error))?.into_iter();
    let mut replies = Vec::with_capacity(requests.len());
    for chunk in chunks {
        let ours = chunk.first().and_then(|request| request.config.as_deref());
        let read = next_value(&connection, &mut values)
            .and_then(|value| replies::read_extend(&value, chunk.len(), ours));
        match read {
            Ok(items) => {
                connection.signals().look_at_locks(&items);
                replies.extend(items);
            }
            Err(error) => replies.extend(chunk.iter().map(|_| Err(error.clone()))),
        }
    }
    if let Some(replicas) = &shared.replicas {
        discount(&mut replies, values.next(), replicas);
    }
    Ok(replies)
}

fn discount(replies: &mut [Extended], acknowledged: Option<Value>, replicas: &Replicas) {
    let Err(error) = replicas.judge(acknowledged) else {
        return;
    };
    for reply in replies {
        if matches!(reply, Ok(ExtendReply::Extended | ExtendReply::Refilled)) {
            *reply = Err(error.clone());
        }
    }
}

/// Runs a script and waits for the replicas. One connection carries one such wait at a time: the server holds up
/// everything behind a `WAIT`, also releases.
async fn call_and_wait(
    connection: &mut Connection,
    replicas: &Replicas,
    script: &Script,
    cmd: Cmd,
) -> Result<(Value, Result<(), NodeError>), NodeError> {
    let signals = Arc::clone(connection.signals());
    let _turn = signals.turn().await;
    let mut pipeline = redis::pipe();
    pipeline.add_command(cmd);
    pipeline.add_command(replicas.wait());
    let values = call_all(connection, script, &pipeline).await;
    let mut values = values.map_err(|error| failed(&error))?.into_iter();
    let value = next_value(connection, &mut values)?;
    Ok((value, replicas.judge(values.next())))
}

fn next_value(
    connection: &Connection,
    values: &mut impl Iterator<Item = Value>,
) -> Result<Value, NodeError> {
    let value = values.next().unwrap_or(Value::Nil).extract_error();
    value.map_err(|error| {
        connection.signals().look_at(&error);
        failed(&error)
    })
}

async fn call_all(
    connection: &mut Connection,
    script: &Script,
    pipeline: &Pipeline,
) -> Result<Vec<Value>, RedisError> {
    let values = connection.call_all(pipeline).await?;
    if !values.iter().any(is_lost_script) {
        return Ok(values);
    }
    // All of it again: running it twice does no harm.
    connection.call(&script.load()).await?;
    connection.call_all(pipeline).await
}

fn is_lost_script(value: &Value) -> bool {
    matches!(value, Value::ServerError(error) if error.kind() == Some(ServerErrorKind::NoScript))
}

type Extended = Result<ExtendReply, NodeError>;
