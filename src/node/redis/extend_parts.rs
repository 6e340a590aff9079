//! Extending locks whose tokens are spread over several connections.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

use crate::node::ExtendRequest;
use crate::node::redis::commands::{self, Extended};
use crate::node::redis::error::failed;
use crate::node::redis::shared::Shared;

/// Extends locks, each on the connection of its token. One connection's failure is that of its locks alone.
pub(super) async fn extend(shared: &Shared, requests: &[ExtendRequest]) -> Vec<Extended> {
    let mut parts: Vec<Vec<usize>> = vec![Vec::new(); shared.connections.count()];
    for (index, request) in requests.iter().enumerate() {
        if let Some(part) = parts.get_mut(shared.connections.of(&request.token)) {
            part.push(index);
        }
    }
    let parts = parts.into_iter().enumerate();
    let parts = parts.filter(|(_, part)| !part.is_empty());
    let jobs = parts.map(|(index, part)| {
        let own: Vec<ExtendRequest> = part
            .iter()
            .filter_map(|index| requests.get(*index).cloned())
            .collect();
        let job: Job<'_> = Box::pin(async move {
            let replies = extend_part(shared, index, &own).await;
            part.into_iter().zip(replies).collect()
        });
        job
    });
    let mut replies: Vec<(usize, Extended)> = all(jobs.collect()).await;
    replies.sort_unstable_by_key(|(index, _)| *index);
    replies.into_iter().map(|(_, reply)| reply).collect()
}

/// The extend on one connection: its replies with their indices in the whole.
type Job<'a> = Pin<Box<dyn Future<Output = Vec<(usize, Extended)>> + Send + 'a>>;

/// Extends the locks of one connection.
async fn extend_part(shared: &Shared, index: usize, requests: &[ExtendRequest]) -> Vec<Extended> {
    let replies = match shared.connection_of(index) {
        Ok(mut connection) => commands::extend(&mut connection, requests, shared.replicas.as_ref())
            .await
            .map_err(|error| failed(&error)),
        Err(error) => Err(error),
    };
    replies.unwrap_or_else(|error| vec![Err(error); requests.len()])
}

/// Runs all jobs concurrently. There are few, so each wake-up polls all that are left.
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
