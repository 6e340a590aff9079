//! The process's end of a connection, as the redis client sees it.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::sleep;

use super::World;
use super::network::{Attempt, Ended};
use super::process::ProcessId;
use super::topology::HostId;

/// Connects a process to a host, sooner or later.
pub(super) async fn connect(
    world: World,
    process: ProcessId,
    host: Option<HostId>,
) -> io::Result<SimStream> {
    let Some(host) = host else {
        return Err(io::Error::other("no host has this name"));
    };
    let span = world.with(|state| state.round_trip(process, host));
    if span > 0 {
        sleep(Duration::from_millis(span)).await;
    }
    loop {
        match world.with(|state| state.try_connect(process, host)) {
            Attempt::Made(id) => return Ok(SimStream { world, id }),
            Attempt::Refused => return Err(io::ErrorKind::ConnectionRefused.into()),
            Attempt::Wait => world.changed().await,
        }
    }
}

/// A connection of a process to a host. Dropped, it is closed.
pub struct SimStream {
    world: World,
    id: u64,
}

impl AsyncRead for SimStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.world.with(|state| {
            let Some(connection) = state.connections.get_mut(&self.id) else {
                return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
            };
            let count = connection.inbox.len().min(buffer.remaining());
            if count > 0 {
                buffer.put_slice(&connection.inbox[..count]);
                connection.inbox.drain(..count);
                return Poll::Ready(Ok(()));
            }
            match connection.ended {
                Some(Ended::Closed) => Poll::Ready(Ok(())),
                Some(Ended::Reset) => Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
                None => {
                    let before = connection.reader.replace(cx.waker().clone());
                    drop(before);
                    Poll::Pending
                }
            }
        })
    }
}

impl AsyncWrite for SimStream {
    fn poll_write(
        self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.world.with(|state| {
            let connection = state.connections.get(&self.id);
            match connection.map_or(Some(Ended::Reset), |known| known.ended) {
                Some(Ended::Reset) => Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
                // Half-closed connections take what is written.
                Some(Ended::Closed) | None => {
                    state.write(self.id, bytes);
                    Poll::Ready(Ok(bytes.len()))
                }
            }
        })
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl Drop for SimStream {
    fn drop(&mut self) {
        self.world.with(|state| state.close(self.id));
    }
}
