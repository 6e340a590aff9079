//! A node at a server that talks nonsense: wrong types, errors anywhere, pushes that nobody asked for, half a reply,
//! two replies, the same bytes one by one. Whatever it says, no call waits for ever, no text has a secret, and nothing
//! is left when the node is closed.

use std::cell::{Cell, RefCell};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::LocalSet;
use tokio::time::timeout;
use tower_redlock::clock::TokioClock;
use tower_redlock::node::{
    AcquireRequest, CheckInMode, CheckInRequest, ClusterConfig, CompleteRequest, ExtendRequest,
    Fence, LiveNode, Namespace, Node, NodeContext, NodeError, NodeKey, NodeState, NoticeReceiver,
    OwnerToken, PromoteRequest, RaiseRequest, RecallRequest, Record, RedisNode, ReleaseRequest,
    ServerRegistry,
};
use tower_redlock::{FencingToken, LockKey};

use super::assert_short;
use super::input::Input;
use super::requests::*;

const TTL: Duration = Duration::from_secs(60);
/// How long a call may take: its caller's deadline.
const DEADLINE: Duration = Duration::from_secs(1);
/// After that, what has no deadline of its own is stuck.
const STUCK: Duration = Duration::from_secs(60);
/// How much nonsense is said, and how long connecting may go on for that: each attempt may fail, and take its pause.
const MOST: usize = 128;
const PATIENCE: Duration = Duration::from_secs(20 * 60);

pub fn run(bytes: &[u8]) -> bool {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build();
    let runtime = runtime.unwrap();
    let world = LocalSet::new();
    world.block_on(&runtime, scene(bytes))
}

async fn scene(bytes: &[u8]) -> bool {
    let secrets = Secrets::new();
    let world = Rc::new(World {
        script: RefCell::new((bytes[..bytes.len().min(MOST)].to_vec(), 0)),
        sound: Cell::new(""),
    });
    let path = socket();
    let listener = UnixListener::bind(&path).unwrap();
    let serving = tokio::task::spawn_local(serve(listener, Rc::clone(&world)));
    let url = format!(
        "unix://{}?user=locks&pass={}",
        path.display(),
        secrets.password
    );
    let node = RedisNode::new(&url).name("node").build().unwrap();
    let receiver = NoticeReceiver::new(2);
    let notifier = node.notifier().unwrap();
    let listening = [0, 1].map(|number| notifier.subscribe(&key(number), receiver.sender(number)));
    let clock = Arc::new(TokioClock::new());
    node.start(NodeContext::new(clock, ServerRegistry::new()));
    // Nonsense may go on for a while; when it has ended, the server is sound.
    let ready = timeout(PATIENCE, node.ready()).await;
    let mut any = false;
    match ready.expect("it is neither ready nor refused") {
        Ok(()) => any |= talk(&node, &world, &secrets).await,
        Err(error) => secrets.check(&error),
    }
    if let NodeState::Down(error) | NodeState::Refused(error) = node.state() {
        secrets.check(&error);
    }
    let shown = format!("{node:?}");
    assert!(!shown.contains(&secrets.password), "{shown}");
    drop(listening);
    timeout(STUCK, node.close())
        .await
        .expect("it does not close");
    assert_eq!(node.state(), NodeState::Closed);
    drop((node, notifier));
    serving.abort();
    let _ = std::fs::remove_file(path);
    nothing_is_left().await;
    any
}

/// Once the node is gone, so are its tasks and connections.
async fn nothing_is_left() {
    let metrics = tokio::runtime::Handle::current().metrics();
    for _ in 0..100 {
        if metrics.num_alive_tasks() == 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("{} tasks are left", metrics.num_alive_tasks());
}

fn socket() -> PathBuf {
    let name = format!(
        "redlock-fuzz-{}-{:?}",
        std::process::id(),
        std::thread::current().id()
    );
    let path = std::env::temp_dir().join(name.replace(['(', ')'], ""));
    let _ = std::fs::remove_file(&path);
    path
}

fn key(number: usize) -> NodeKey {
    let names = ["a", "b"];
    Namespace::default().node_key(&LockKey::new(names[number]).unwrap())
}

/// What no input can hold, because it is new in each process.
struct Secrets {
    password: String,
    token: OwnerToken,
}

impl Secrets {
    fn new() -> Self {
        let seed = u64::from(std::process::id()).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let letters = seed.to_le_bytes().map(|byte| char::from(b'g' + byte % 20));
        let mut entropy = [0; OwnerToken::ENTROPY_LEN];
        entropy[..8].copy_from_slice(&seed.to_le_bytes());
        Self {
            password: letters.iter().collect(),
            token: OwnerToken::from_entropy(entropy),
        }
    }

    fn check(&self, error: &NodeError) {
        assert_short(&error.to_string(), 2_000);
        let text = format!("{error} {error:?}");
        let token = String::from_utf8_lossy(self.token.expose()).into_owned();
        for secret in [self.password.as_str(), &token[..16]] {
            assert!(!text.contains(secret), "{text}");
        }
    }

    /// Waits for a reply, no longer than its caller would. Returns whether it makes sense.
    async fn judge<T: std::fmt::Debug>(
        &self,
        reply: impl Future<Output = Result<T, NodeError>>,
    ) -> bool {
        match timeout(DEADLINE, reply).await {
            Ok(Ok(_)) => true,
            Ok(Err(error)) => {
                self.check(&error);
                false
            }
            Err(_) => false,
        }
    }
}

/// Every command there is, each with the reply that would be sound. Whether any made sense.
async fn talk(node: &LiveNode, world: &World, secrets: &Secrets) -> bool {
    let token = secrets.token;
    let config = || Arc::new(ClusterConfig::new("ours"));
    let fence = Fence::new(FencingToken::new(1 << 60).unwrap(), TTL);
    let acquire = || {
        let request = AcquireRequest::new(key(0), token, TTL).fenced(Some(fence));
        request.under(Some(config()))
    };

    world
        .sound
        .set("*2\r\n:1\r\n$19\r\n0000000000000000005\r\n");
    let (id, mode) = ("id".to_owned(), CheckInMode::Normal);
    let check_in = CheckInRequest::new(Namespace::default(), config(), TTL, id.clone(), mode);
    let mut any = secrets.judge(node.check_in(check_in)).await;
    world.sound.set(":1\r\n");
    let promote = PromoteRequest::new(Namespace::default(), config(), id, None);
    any |= secrets.judge(node.promote(promote)).await;

    world
        .sound
        .set("*2\r\n:1\r\n$19\r\n1152921504606846976\r\n");
    any |= secrets.judge(node.acquire(acquire())).await;
    world.sound.set(":1\r\n");
    let raise = RaiseRequest::new(key(0), token, fence);
    any |= secrets.judge(node.raise(raise)).await;
    world.sound.set("*3\r\n:1\r\n:1\r\n:2\r\n");
    let locks = [0, 1].map(|number| ExtendRequest::new(key(number), token, TTL, true));
    let extended = async {
        let replies = node.extend(Arc::from(locks)).await?;
        assert_eq!(replies.len(), 2);
        let errors = replies.iter().filter_map(|reply| reply.as_ref().err());
        errors.for_each(|error| secrets.check(error));
        replies
            .into_iter()
            .reduce(|one, other| one.or(other))
            .unwrap()
    };
    any |= secrets.judge(extended).await;

    world.sound.set(":3\r\n");
    let release = ReleaseRequest::new(key(0), token, true);
    any |= secrets.judge(node.release(release.clone())).await;
    world
        .sound
        .set("*3\r\n:3\r\n$19\r\n0000000000000000007\r\n:1700000000000\r\n");
    let recall = RecallRequest::new(acquire(), true, TTL);
    any |= secrets.judge(node.recall(recall)).await;
    world.sound.set(":0\r\n");
    let record = Record::new(
        FencingToken::new(7).unwrap(),
        "done".into(),
        4_102_444_800_000,
    );
    let complete = CompleteRequest::new(release, Some(record));
    any | secrets.judge(node.complete(complete)).await
}

/// What the server says: bytes of the input for each command, and the sound reply once they are used up.
struct World {
    script: RefCell<(Vec<u8>, usize)>,
    sound: Cell<&'static str>,
}

/// What is sent for one command.
enum Said {
    Whole(Vec<u8>),
    /// One byte after the other.
    Bytes(Vec<u8>),
    /// Then the connection ends.
    Last(Vec<u8>),
}

impl World {
    fn answer(&self, words: &[String]) -> Said {
        let sound = self.sound(words);
        let mut script = self.script.borrow_mut();
        let (bytes, at) = &mut *script;
        let mut input = Input::new(bytes.get(*at..).unwrap_or_default());
        if input.is_empty() {
            return Said::Whole(sound);
        }
        let said = match input.below(24) {
            0..=7 => Said::Whole(sound),
            8..=11 => Said::Whole(nonsense(&mut input, words)),
            12..=14 => Said::Whole(input.bytes(64).to_vec()),
            15 => Said::Whole([push(&mut input).as_slice(), &sound].concat()),
            16 => Said::Whole([sound.as_slice(), &push(&mut input)].concat()),
            17 => Said::Whole([sound.as_slice(), &sound].concat()),
            18 => Said::Last(sound[..usize::from(input.byte()) % (sound.len() + 1)].to_vec()),
            19 => Said::Last(Vec::new()),
            20 => Said::Whole(Vec::new()),
            21 => Said::Last([sound.as_slice(), &nonsense(&mut input, words)].concat()),
            22 => Said::Bytes([sound.as_slice(), &push(&mut input)].concat()),
            _ => Said::Bytes(sound),
        };
        *at = bytes.len() - input.rest().len();
        said
    }

    fn sound(&self, words: &[String]) -> Vec<u8> {
        let text = match words[0].as_str() {
            "HELLO" => "%1\r\n+server\r\n+redis\r\n".to_owned(),
            "INFO" => format!("${}\r\n{INFO}\r\n", INFO.len()),
            "SCRIPT" => "+hash\r\n".to_owned(),
            "PING" => "+PONG\r\n".to_owned(),
            // Which commands the user may not run, as it is asked at connect.
            "EVALSHA" if words.iter().any(|word| word == "lk!rights") => "*0\r\n".to_owned(),
            "EVALSHA" => self.sound.get().to_owned(),
            "SUBSCRIBE" | "UNSUBSCRIBE" => {
                let kind = words[0].to_lowercase();
                let one = |channel: &String| {
                    let (len, of) = (channel.len(), kind.len());
                    format!(">3\r\n${of}\r\n{kind}\r\n${len}\r\n{channel}\r\n:1\r\n")
                };
                words[1..].iter().map(one).collect()
            }
            _ => "+OK\r\n".to_owned(),
        };
        text.into_bytes()
    }
}

const INFO: &str = "redis_version:7.0.15\r\nrun_id:fake\r\nrole:master\r\nmaster_replid2:0000\r\nsecond_repl_offset:-1\r\nmaxmemory_policy:noeviction\r\ncluster_enabled:0\r\n";

/// What servers, proxies and other programs might say in the wrong place.
fn nonsense(input: &mut Input<'_>, words: &[String]) -> Vec<u8> {
    let all = words.join(" ");
    let text = match input.below(24) {
        0 => "-ERR\r\n".to_owned(),
        1 => "-NOSCRIPT No matching script\r\n".to_owned(),
        2 => "-READONLY You can't write against a read only replica.\r\n".to_owned(),
        3 => "-LOADING Redis is loading the dataset in memory\r\n".to_owned(),
        4 => "-NOPERM this user has no permissions\r\n".to_owned(),
        5 => "-MOVED 3999 127.0.0.1:6381\r\n".to_owned(),
        6 => "_\r\n".to_owned(),
        7 => "$-1\r\n".to_owned(),
        8 => "*-1\r\n".to_owned(),
        9 => "*0\r\n".to_owned(),
        10 => "%1\r\n+a\r\n*1\r\n-ERR inside\r\n".to_owned(),
        11 => format!("*2\r\n:1\r\n-ERR inside of {all}\r\n"),
        12 => "$999999999999\r\n".to_owned(),
        13 => "*999999999999\r\n".to_owned(),
        14 => "*1\r\n".repeat(usize::from(input.byte())),
        15 => "HTTP/1.1 400 Bad Request\r\n\r\n".to_owned(),
        16 => "|1\r\n+key\r\n:1\r\n:1\r\n".to_owned(),
        17 => "(3492890328409238509324850943850943825024385\r\n".to_owned(),
        18 => "~2\r\n:1\r\n#t\r\n".to_owned(),
        19 => "=15\r\ntxt:Some string\r\n".to_owned(),
        20 => "!21\r\nSYNTAX invalid syntax\r\n".to_owned(),
        // They quote what they were sent.
        21 => format!(
            "-ERR unknown command '{}', with args beginning with: {all}\r\n",
            words[0]
        ),
        22 => format!("-WRONGPASS no such password: {all}\r\n"),
        _ => format!("${}\r\n{all}\r\n", all.len()),
    };
    text.into_bytes()
}

fn push(input: &mut Input<'_>) -> Vec<u8> {
    let text = match input.below(8) {
        0 => ">3\r\n$7\r\nmessage\r\n$9\r\nlk!free:a\r\n$1\r\n1\r\n",
        1 => ">3\r\n$7\r\nmessage\r\n$9\r\nlk!free:b\r\n:-1\r\n",
        2 => ">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\na\r\n",
        3 => ">3\r\n$11\r\nunsubscribe\r\n$9\r\nlk!free:a\r\n:0\r\n",
        4 => ">3\r\n$9\r\nsubscribe\r\n$9\r\nlk!free:a\r\n:1\r\n",
        5 => ">0\r\n",
        6 => ">1\r\n-ERR pushed\r\n",
        _ => ">4\r\n+pmessage\r\n+a\r\n+b\r\n_\r\n",
    };
    text.as_bytes().to_vec()
}

async fn serve(listener: UnixListener, world: Rc<World>) {
    // What it serves ends with it.
    let mut served = tokio::task::JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        served.spawn_local(converse(stream, Rc::clone(&world)));
    }
}

async fn converse(mut stream: UnixStream, world: Rc<World>) {
    let mut received = Vec::new();
    loop {
        while let Some(words) = next_command(&mut received) {
            let sent = match world.answer(&words) {
                Said::Whole(bytes) => stream.write_all(&bytes).await,
                Said::Bytes(bytes) => one_by_one(&mut stream, &bytes).await,
                Said::Last(bytes) => {
                    let _ = stream.write_all(&bytes).await;
                    return;
                }
            };
            if sent.is_err() {
                return;
            }
        }
        match stream.read_buf(&mut received).await {
            Ok(1..) => {}
            _ => return,
        }
    }
}

async fn one_by_one(stream: &mut UnixStream, bytes: &[u8]) -> std::io::Result<()> {
    for byte in bytes {
        stream.write_all(&[*byte]).await?;
        tokio::task::yield_now().await;
    }
    Ok(())
}

/// Takes one command off what was received, once all of it is there.
fn next_command(received: &mut Vec<u8>) -> Option<Vec<String>> {
    let mut rest = received.as_slice();
    let count = number(&mut rest)?;
    let mut words = Vec::new();
    for _ in 0..count {
        let len = number(&mut rest)?;
        let word = rest.get(..len)?;
        rest = rest.get(len + 2..)?;
        words.push(String::from_utf8_lossy(word).into_owned());
    }
    let used = received.len() - rest.len();
    received.drain(..used);
    Some(words)
}

/// The number in a line such as `*3` or `$12`.
fn number(rest: &mut &[u8]) -> Option<usize> {
    let end = rest.windows(2).position(|two| two == b"\r\n")?;
    let line = std::str::from_utf8(rest.get(1..end)?).ok()?;
    *rest = &rest[end + 2..];
    line.parse().ok()
}
