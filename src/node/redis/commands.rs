//! Running scripts on a link.

use redis::{Cmd, ErrorKind, RedisError, ServerErrorKind, Value};

use super::link::Link;
use super::replicas::{self, Replicas};
use super::scripts::{self, Script};
use super::{answers, error};
use crate::node::{AcquireReply, AcquireRequest, ExtendReply, ExtendRequest, NodeError};

/// Runs a script that takes a lock.
pub(super) async fn acquire(
    replicas: Option<&Replicas>,
    link: &mut Link,
    script: &Script,
    cmd: Cmd,
    request: &AcquireRequest,
) -> Result<AcquireReply, NodeError> {
    if let Some(replicas) = replicas {
        // In a box, so that the futures of plain nodes stay small.
        return Box::pin(replicas::acquire(link, replicas, script, cmd, request)).await;
    }
    let answer = run(link, script, &cmd).await?;
    answers::read_acquire(answer, request.config.as_deref())
}

/// Runs one script, and loads it first where the server has lost it.
pub(super) async fn run(link: &mut Link, script: &Script, cmd: &Cmd) -> Result<Value, NodeError> {
    let answer = match link.call(cmd).await {
        Err(error) if is_unknown_script(error.kind()) => match link.call(&script.load()).await {
            Ok(_) => link.call(cmd).await,
            Err(error) => Err(error),
        },
        result => result,
    };
    answer.map_err(|error| error::failed(&error))
}

const fn is_unknown_script(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::Server(ServerErrorKind::NoScript))
}

/// Extends in chunks, all in one message. An error of one chunk is the error of each of its locks.
pub(super) async fn extend(
    link: &mut Link,
    requests: &[ExtendRequest],
    replicas: Option<&Replicas>,
) -> Result<Vec<Result<ExtendReply, NodeError>>, RedisError> {
    let chunks: Vec<&[ExtendRequest]> = scripts::chunks(requests).collect();
    let mut pipeline = redis::pipe();
    for chunk in &chunks {
        pipeline.add_command(scripts::extend(chunk, link.identity()));
    }
    replicas::append_wait(&mut pipeline, replicas);
    let answers = replicas::call_all(link, &scripts::EXTEND, &pipeline).await?;
    let mut replies = Vec::with_capacity(requests.len());
    let mut answers = answers.into_iter();
    for chunk in chunks {
        let answer = answers.next().unwrap_or(Value::Nil).extract_error();
        let read = answer
            .map_err(|error| {
                link.look_at(&error);
                error::failed(&error)
            })
            .and_then(|answer| {
                let ours = chunk.first().and_then(|request| request.config.as_deref());
                answers::read_extend(&answer, chunk.len(), ours)
            });
        match read {
            Ok(items) => {
                link.look_at_locks(&items);
                replies.extend(items);
            }
            Err(error) => replies.extend(chunk.iter().map(|_| Err(error.clone()))),
        }
    }
    if let Some(replicas) = replicas {
        replicas::discount(&mut replies, answers.next(), replicas);
    }
    Ok(replies)
}
