//! The least that a lock on several servers can cost with redis-rs as the client: the second [floor](crate::floors),
//! and the one by which `make cost` counts.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::{Client, Cmd, IntoConnectionInfo, Value};

/// What a lock without a fencing token and without a restart guard needs.
const ACQUIRE: &str = "
if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then
  return {1}
end
return {0, redis.call('PTTL', KEYS[1])}";
/// The same for its release, announced to those who listen.
const RELEASE: &str = "
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return {0}
end
redis.call('DEL', KEYS[1])
return {1, redis.call('PUBLISH', ARGV[2], '')}";
const TOKEN: &str = "00112233445566778899aabbccddeeff00112233";

/// Floor 2: redis-rs as it comes, with the plainest scripts, each until a majority has answered.
#[derive(Clone)]
pub(crate) struct Fanout {
    nodes: Vec<MultiplexedConnection>,
    acquire: Cmd,
    release: Cmd,
}

impl Fanout {
    pub(crate) async fn connect(urls: impl IntoIterator<Item = String>, key: &str) -> Self {
        let mut nodes = Vec::new();
        for url in urls {
            let info = url.into_connection_info().unwrap();
            let info = info.set_tcp_settings(TcpSettings::default().set_nodelay(true));
            let client = Client::open(info).unwrap();
            let mut node = client.get_multiplexed_async_connection().await.unwrap();
            for script in [ACQUIRE, RELEASE] {
                let mut load = redis::cmd("SCRIPT");
                load.arg("LOAD").arg(script);
                node.send_packed_command(&load).await.unwrap();
            }
            nodes.push(node);
        }
        let mut fanout = Self {
            nodes,
            acquire: Cmd::new(),
            release: Cmd::new(),
        };
        fanout.key(key);
        fanout
    }

    /// Uses another key from now on.
    pub(crate) fn key(&mut self, key: &str) {
        let run = |script: &str| {
            let mut cmd = redis::cmd("EVALSHA");
            let hash = redis::Script::new(script).get_hash().to_owned();
            cmd.arg(hash).arg(1).arg(key).arg(TOKEN);
            cmd
        };
        self.acquire = run(ACQUIRE);
        self.acquire.arg(10_000);
        self.release = run(RELEASE);
        self.release.arg(format!("!free:{key}"));
    }

    pub(crate) async fn acquire(&self) {
        ask(&self.nodes, &self.acquire).await;
    }

    pub(crate) async fn release(&self) {
        ask(&self.nodes, &self.release).await;
    }
}

type Answer<'a> = Pin<Box<dyn Future<Output = Value> + Send + 'a>>;

async fn ask(nodes: &[MultiplexedConnection], cmd: &Cmd) {
    let mut pending: Vec<Answer<'_>> = nodes
        .iter()
        .map(|node| {
            let mut node = node.clone();
            Box::pin(async move { node.send_packed_command(cmd).await.unwrap() }) as Answer<'_>
        })
        .collect();
    let left = pending.len() - (pending.len() / 2 + 1);
    poll_fn(|cx| {
        let mut index = 0;
        while index < pending.len() {
            if let Poll::Ready(answer) = pending[index].as_mut().poll(cx) {
                assert!(said_yes(&answer), "{answer:?}");
                drop(pending.swap_remove(index));
            } else {
                index += 1;
            }
        }
        if pending.len() <= left {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    })
    .await;
}

fn said_yes(answer: &Value) -> bool {
    matches!(answer, Value::Array(items) if items.first() == Some(&Value::Int(1)))
}
