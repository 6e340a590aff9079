//! The least that a lock on several servers can cost: the same bytes without anything around them.
//!
//! Neither this floor nor that of [`fanout`](crate::fanout) is a lock to use: no time-outs, no retries, no clean-up,
//! and fixed tokens.

use std::future::poll_fn;
use std::task::Poll;

use tokio::net::TcpStream;

use crate::support::server::Server;

pub(crate) const TOKEN: &str = "00112233445566778899aabbccddeeff00112233";

/// Compare and delete, as the Redlock page has it.
pub(crate) const DELETE: &str = "if redis.call('get',KEYS[1]) == ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end";

/// Floor 1: bare sockets. `SET NX PX` to all, then compare-and-delete on all, each until a majority has answered.
pub(crate) struct Sockets {
    nodes: Vec<Socket>,
    acquire: Vec<u8>,
    release: Vec<u8>,
}

struct Socket {
    stream: TcpStream,
    sent: u64,
    answered: u64,
}

impl Sockets {
    pub(crate) async fn connect(servers: &[Server], key: &str) -> Self {
        let mut nodes = Vec::new();
        for server in servers {
            let stream = TcpStream::connect(("127.0.0.1", server.port()))
                .await
                .unwrap();
            stream.set_nodelay(true).unwrap();
            nodes.push(Socket {
                stream,
                sent: 0,
                answered: 0,
            });
            server.command(&["SCRIPT", "LOAD", DELETE]);
        }
        let hash = redis::Script::new(DELETE).get_hash().to_owned();
        let mut acquire = redis::cmd("SET");
        acquire.arg(key).arg(TOKEN).arg("NX").arg("PX").arg(10_000);
        let mut release = redis::cmd("EVALSHA");
        release.arg(hash).arg(1).arg(key).arg(TOKEN);
        Self {
            nodes,
            acquire: acquire.get_packed_command(),
            release: release.get_packed_command(),
        }
    }

    pub(crate) async fn acquire(&mut self) {
        Self::ask(&mut self.nodes, &self.acquire).await;
    }

    pub(crate) async fn release(&mut self) {
        Self::ask(&mut self.nodes, &self.release).await;
    }

    async fn ask(nodes: &mut [Socket], message: &[u8]) {
        for node in nodes.iter_mut() {
            // A hundred bytes into an empty buffer; whatever else happens is not a benchmark.
            assert_eq!(node.stream.try_write(message).unwrap(), message.len());
            node.sent += 1;
        }
        let quorum = nodes.len() / 2 + 1;
        poll_fn(|cx| {
            for node in nodes.iter_mut() {
                while node.answered < node.sent {
                    let Poll::Ready(readable) = node.stream.poll_read_ready(cx) else {
                        break;
                    };
                    readable.unwrap();
                    node.read();
                }
            }
            let done = nodes.iter().filter(|node| node.answered == node.sent);
            if done.count() >= quorum {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
    }
}

impl Socket {
    /// Reads what is there: every answer is one short line, and says yes.
    fn read(&mut self) {
        let mut buffer = [0; 256];
        if let Ok(count) = self.stream.try_read(&mut buffer) {
            assert!(count > 0, "the server is gone");
            let lines = buffer[..count].split(|byte| *byte == b'\n');
            for line in lines.filter(|line| !line.is_empty()) {
                assert!(matches!(line, b"+OK\r" | b":1\r"), "{line:?}");
                self.answered += 1;
            }
        }
    }
}
