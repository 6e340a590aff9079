//! Commands on one connection: runs scripts, waits for replicas, and reads the replies.

use redis::{Cmd, ErrorKind, Pipeline, RedisError, ServerErrorKind, Value};

use crate::node::redis::connection::Connection;
use crate::node::redis::error::failed;
use crate::node::redis::replicas::Replicas;
use crate::node::redis::script::Script;
use crate::node::redis::{replies, scripts};
use crate::node::{
    AcquireReply, AcquireRequest, ClusterConfig, CompleteReply, ExtendReply, ExtendRequest,
    NodeError, ReleaseRequest,
};

/// Runs a script that acquires a lock.
pub(super) async fn acquire(
    replicas: Option<&Replicas>,
    connection: &mut Connection,
    script: &Script,
    cmd: Cmd,
    request: &AcquireRequest,
) -> Result<AcquireReply, NodeError> {
    if let Some(replicas) = replicas {
        // In a box, so that the futures of plain nodes stay small.
        return Box::pin(acquire_replicated(
            connection, replicas, script, cmd, request,
        ))
        .await;
    }
    let answer = run(connection, script, &cmd).await?;
    replies::read_acquire(answer, request.config.as_deref())
}

/// Runs one script. If the server has lost it, loads it and runs it again.
pub(super) async fn run(
    connection: &mut Connection,
    script: &Script,
    cmd: &Cmd,
) -> Result<Value, NodeError> {
    let answer = match connection.call(cmd).await {
        Err(error) if is_unknown_script(error.kind()) => {
            match connection.call(&script.load()).await {
                Ok(_) => connection.call(cmd).await,
                Err(error) => Err(error),
            }
        }
        result => result,
    };
    answer.map_err(|error| failed(&error))
}

const fn is_unknown_script(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::Server(ServerErrorKind::NoScript))
}

/// Extends in chunks, all in one message. An error of one chunk is the error of each of its locks.
pub(super) async fn extend(
    connection: &mut Connection,
    requests: &[ExtendRequest],
    replicas: Option<&Replicas>,
) -> Result<Vec<Result<ExtendReply, NodeError>>, RedisError> {
    let chunks: Vec<&[ExtendRequest]> = scripts::chunks(requests).collect();
    let mut pipeline = redis::pipe();
    for chunk in &chunks {
        pipeline.add_command(scripts::extend(chunk, connection.identity()));
    }
    if let Some(replicas) = replicas {
        pipeline.add_command(replicas.wait());
    }
    let answers = call_all(connection, &scripts::EXTEND, &pipeline).await?;
    let mut replies = Vec::with_capacity(requests.len());
    let mut answers = answers.into_iter();
    for chunk in chunks {
        let answer = answers.next().unwrap_or(Value::Nil).extract_error();
        let read = answer
            .map_err(|error| {
                connection.look_at(&error);
                failed(&error)
            })
            .and_then(|answer| {
                let ours = chunk.first().and_then(|request| request.config.as_deref());
                replies::read_extend(&answer, chunk.len(), ours)
            });
        match read {
            Ok(items) => {
                connection.look_at_locks(&items);
                replies.extend(items);
            }
            Err(error) => replies.extend(chunk.iter().map(|_| Err(error.clone()))),
        }
    }
    if let Some(replicas) = replicas {
        discount(&mut replies, answers.next(), replicas);
    }
    Ok(replies)
}

/// Turns renewals that too few replicas acknowledged into errors. The locks stay where they are.
fn discount(replies: &mut [Extended], answer: Option<Value>, replicas: &Replicas) {
    let Err(error) = replicas.judge(answer) else {
        return;
    };
    for reply in replies {
        if matches!(reply, Ok(ExtendReply::Extended | ExtendReply::Refilled)) {
            *reply = Err(error.clone());
        }
    }
}

/// Runs a script that acquires a lock, waits until enough replicas have it, and releases it if too few do. A record
/// that too few have is not returned either: a failover may lose it.
async fn acquire_replicated(
    connection: &mut Connection,
    replicas: &Replicas,
    script: &Script,
    cmd: Cmd,
    request: &AcquireRequest,
) -> Result<AcquireReply, NodeError> {
    let (answer, acknowledged) = call_and_wait(connection, replicas, script, cmd).await?;
    let reply = replies::read_acquire(answer, request.config.as_deref())?;
    if matches!(reply, AcquireReply::Held(_)) {
        return Ok(reply);
    }
    if let Err(error) = replicas.judge(acknowledged) {
        // If this fails or is dropped, the caller still sends a release. If nothing was granted, it does nothing.
        let release = ReleaseRequest::new(request.keys.clone(), request.token, false);
        let release = scripts::release(&release, connection.since());
        let _ = run(connection, &scripts::RELEASE, &release).await;
        return Err(error);
    }
    Ok(reply)
}

/// Runs a completion. A record that too few replicas have does not count; it stays where it is.
pub(super) async fn complete_replicated(
    connection: &mut Connection,
    replicas: &Replicas,
    cmd: Cmd,
    config: Option<&ClusterConfig>,
) -> Result<CompleteReply, NodeError> {
    let script = &scripts::COMPLETE;
    let (answer, acknowledged) = call_and_wait(connection, replicas, script, cmd).await?;
    let reply = replies::read_complete(&answer, config)?;
    if matches!(reply, CompleteReply::Stored { .. }) {
        replicas.judge(acknowledged)?;
    }
    Ok(reply)
}

/// Runs a script and waits for the replicas. Returns the reply, and the reply to `WAIT`.
///
/// One connection carries one such wait at a time: the server holds up everything behind a `WAIT`, so a second one
/// in a row would hold up the releases twice as long.
async fn call_and_wait(
    connection: &mut Connection,
    replicas: &Replicas,
    script: &Script,
    cmd: Cmd,
) -> Result<(Value, Option<Value>), NodeError> {
    let signals = connection.share();
    let _turn = signals.turn().await;
    let mut pipeline = redis::pipe();
    pipeline.add_command(cmd);
    pipeline.add_command(replicas.wait());
    let answers = call_all(connection, script, &pipeline).await;
    let mut answers = answers.map_err(|error| failed(&error))?.into_iter();
    let answer = answers.next().unwrap_or(Value::Nil).extract_error();
    let answer = answer.map_err(|error| {
        connection.look_at(&error);
        failed(&error)
    })?;
    Ok((answer, answers.next()))
}

/// Runs the whole of a pipeline of scripts, again if the server has lost the script.
async fn call_all(
    connection: &mut Connection,
    script: &Script,
    pipeline: &Pipeline,
) -> Result<Vec<Value>, RedisError> {
    let answers = connection.call_all(pipeline).await?;
    if !answers.iter().any(is_lost_script) {
        return Ok(answers);
    }
    // All of it again: running it twice does no harm.
    connection.call(&script.load()).await?;
    connection.call_all(pipeline).await
}

fn is_lost_script(answer: &Value) -> bool {
    matches!(answer, Value::ServerError(error) if error.kind() == Some(ServerErrorKind::NoScript))
}

/// The reply for one lock.
pub(super) type Extended = Result<ExtendReply, NodeError>;
