//! One live connection and the signals around it.

use std::sync::Arc;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, Pipeline, RedisError, Value};
use tokio::sync::{Notify, watch};

use super::error;
use crate::node::{NodeError, NodeErrorKind};

/// One connection that has passed the checks. Cheap to clone.
///
/// A command that was queued on a link goes out before one that is queued later, so a release that follows a
/// dropped acquire takes effect after it.
#[derive(Clone, Debug)]
pub(super) struct Link {
    connection: MultiplexedConnection,
    signals: Arc<Signals>,
}

/// What the users of a link and its supervisor tell each other.
#[derive(Debug)]
pub(super) struct Signals {
    /// A command was given up or broke: is the server still there?
    pub(super) suspect: Notify,
    /// The server's nature has changed: look at it anew.
    pub(super) recheck: Notify,
    /// The supervisor has given the link up; nobody need wait for answers any more.
    condemned: watch::Sender<bool>,
}

impl Link {
    pub(super) fn new(connection: MultiplexedConnection) -> Self {
        Self {
            connection,
            signals: Arc::new(Signals {
                suspect: Notify::new(),
                recheck: Notify::new(),
                condemned: watch::Sender::new(false),
            }),
        }
    }

    pub(super) fn signals(&self) -> &Signals {
        &self.signals
    }

    /// Ends all waiting for answers on this link.
    pub(super) fn condemn(&self) {
        self.signals.condemned.send_replace(true);
    }

    /// Sends one command and waits for its answer. Errors from the server are errors.
    pub(super) async fn call(&self, cmd: &Cmd) -> Result<Value, RedisError> {
        let mut connection = self.connection.clone();
        self.attended(async move {
            // The client reports a server's error as a successful answer here.
            connection.send_packed_command(cmd).await?.extract_error()
        })
        .await
    }

    /// Sends many commands at once and waits for all answers. Errors from the server are among the values.
    pub(super) async fn call_all(&self, pipeline: &Pipeline) -> Result<Vec<Value>, RedisError> {
        let mut connection = self.connection.clone();
        self.attended(async move {
            connection
                .send_packed_commands(pipeline, 0, pipeline.len())
                .await
        })
        .await
    }

    /// Waits for `answer`, until the link is condemned. Dropped halfway, or failed, it raises suspicion.
    async fn attended<T>(
        &self,
        answer: impl Future<Output = Result<T, RedisError>>,
    ) -> Result<T, RedisError> {
        let mut unanswered = Unanswered(Some(&self.signals.suspect));
        let mut condemned = self.signals.condemned.subscribe();
        let result = tokio::select! {
            biased;
            result = answer => result,
            // An error means that the sender is gone, which `self` rules out.
            _ = condemned.wait_for(|condemned| *condemned) => {
                Err((redis::ErrorKind::Io, "the server does not answer").into())
            }
        };
        match &result {
            Ok(_) => unanswered.0 = None,
            Err(error) if error.kind() == redis::ErrorKind::Io => {}
            Err(error) => {
                unanswered.0 = None;
                self.look_at(error);
            }
        }
        result
    }

    /// Draws the supervisor's attention to an answer that says that the server has changed.
    pub(super) fn look_at(&self, error: &RedisError) {
        if error::is_read_only(&error::server_text(error)) {
            self.signals.recheck.notify_one();
        }
    }

    /// The same for the answers to one chunk of an extend, where the errors of single locks are items.
    pub(super) fn look_at_locks<T>(&self, answers: &[Result<T, NodeError>]) {
        let demoted = |answer: &Result<T, NodeError>| {
            answer
                .as_ref()
                .is_err_and(|error| error::is_read_only(&error.to_string()))
        };
        if answers.iter().any(demoted) {
            self.signals.recheck.notify_one();
        }
    }
}

/// Raises suspicion when it is dropped armed.
struct Unanswered<'a>(Option<&'a Notify>);

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        if let Some(suspect) = self.0 {
            suspect.notify_one();
        }
    }
}

/// The error of a command that finds no link.
pub(super) fn no_link(reason: &NodeError) -> NodeError {
    NodeError::new(NodeErrorKind::Unavailable, format!("it is down: {reason}"))
}
