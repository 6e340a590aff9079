//! Five hundred duplicates at once, over four processes, while servers and processes are killed and come back.

use std::collections::BTreeMap;
use std::env;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::{Arc, Mutex};

use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::branch::{Branch, Part};
use crate::client::{Client, Reply};
use crate::dice::{chance, choose, millis};
use crate::ledger::Ledger;
use crate::*;

/// How often all of it is done.
const ROUNDS: &str = "REDLOCK_SOAK_DUPLICATES";
const TTL: Duration = Duration::from_millis(400);
const PROCESSES: usize = 4;
const SERVERS: usize = 5;
const CLIENTS: usize = 500;
/// How many keys the clients have, one round after the other.
const KEYS: [usize; 3] = [1, 5, 25];
const LEDGER: &str = "ledger";
/// How long a handler takes at most, in milliseconds.
const MOST_WORK: u64 = 1_600;
/// A client without an answer by then has failed.
const BOUND: Duration = Duration::from_secs(30);

/// What becomes of the servers.
#[derive(Clone, Copy, Debug)]
struct Scene {
    args: &'static [&'static str],
    /// How many are away at the same time.
    most_away: usize,
    masked: usize,
}

/// They are killed two at a time, and come back with what they had. A write is the kernel's before it is answered, and of a process
/// that is killed the kernel keeps it; to wait for the disk besides would make this a test of the disk.
const REMEMBERING: Scene = Scene {
    args: &["--appendonly", "yes", "--appendfsync", "no"],
    most_away: 2,
    masked: 0,
};

/// They are killed one at a time, and come back with nothing.
const FORGETTING: Scene = Scene {
    args: &[],
    most_away: 1,
    masked: 1,
};

/// One client's two answers, and whether each is a replay.
struct Asked {
    key: String,
    replies: [(Reply, bool); 2],
}

/// Where the processes are to be found.
type Addresses = Arc<Mutex<Vec<SocketAddr>>>;

/// Sends the request until it is answered, and once more after a while.
async fn ask(client: Client, addresses: Addresses, key: String) -> Asked {
    let first = answered(&client, &addresses, &key).await;
    sleep(millis(0..=2_000)).await;
    let second = answered(&client, &addresses, &key).await;
    let replies = [first, second];
    Asked { key, replies }
}

/// The process ended before it had answered.
struct Killed;

/// Sends the request to `address`. A client whose connection ends while it is made may wait for another for ever, so
/// this looks whether the process is still there, too.
///
/// # Panics
///
/// If a process that is there does not answer.
async fn send(
    client: &Client,
    addresses: &Addresses,
    address: SocketAddr,
    key: &str,
) -> Result<(Reply, bool), Killed> {
    let begin = Stopwatch::start();
    let mut sent = pin!(client.send(address, key));
    loop {
        let is_there = addresses.lock().unwrap().contains(&address);
        match timeout(Duration::from_secs(1), &mut sent).await {
            Ok(result) => return result.map_err(|_| Killed),
            Err(_) if !is_there => return Err(Killed),
            Err(_) => assert!(begin.elapsed() < BOUND, "{address} does not answer {key}"),
        }
    }
}

async fn answered(client: &Client, addresses: &Addresses, key: &str) -> (Reply, bool) {
    let begin = Stopwatch::start();
    loop {
        let address = {
            let addresses = addresses.lock().unwrap();
            addresses[fastrand::usize(..addresses.len())]
        };
        let refused = match send(client, addresses, address, key).await {
            Ok((reply, replayed)) => match reply.status.as_u16() {
                201 => return (reply, replayed),
                409 | 503 => format!("{reply:?}"),
                _ => panic!("{key}: {reply:?}"),
            },
            Err(Killed) => "process killed".to_owned(),
        };
        assert!(begin.elapsed() < BOUND, "{key} has no answer: {refused}");
        sleep(millis(20..=120)).await;
    }
}

/// Servers and processes.
struct Site {
    scene: Scene,
    servers: Vec<Server>,
    ledger: Ledger,
    branches: Vec<Branch>,
    addresses: Addresses,
    strikes: usize,
    killed: usize,
}

impl Site {
    async fn open(scene: Scene) -> Self {
        let servers = Server::start_many_with(Kind::Redis, SERVERS, scene.args);
        bootstrap(&servers, TTL, scene.masked).await;
        let ledger = Ledger::create(&servers[0].file(LEDGER));
        let mut site = Self {
            scene,
            servers,
            ledger,
            branches: Vec::new(),
            addresses: Addresses::default(),
            strikes: 0,
            killed: 0,
        };
        for _ in 0..PROCESSES {
            let branch = site.start().await;
            site.addresses.lock().unwrap().push(branch.address);
            site.branches.push(branch);
        }
        site
    }

    async fn start(&self) -> Branch {
        let process = u32::try_from(self.branches.len() + self.killed).unwrap();
        let part = Part::new(process, &self.servers, &self.servers[0].file(LEDGER), TTL);
        let part = Part {
            masked: self.scene.masked,
            most_work: MOST_WORK,
            ..part
        };
        Branch::start(&part).await
    }

    /// Kills some servers and brings them back. Where that is called for, waits until they vote and have the records
    /// that the others have.
    async fn strike(&mut self) {
        self.strikes += 1;
        let count = 1 + fastrand::usize(..self.scene.most_away);
        let struck = choose(count, SERVERS);
        for index in &struck {
            self.servers[*index].kill();
        }
        sleep(millis(0..=150)).await;
        for index in &struck {
            self.servers[*index].restart();
        }
        if self.scene.masked == 0 && chance(1, 2) {
            // Nothing is forgotten, and so the next may be struck while these do not vote.
            return sleep(millis(0..=100)).await;
        }
        // One that forgets before the others have what it forgot would be one too many. Clients that ask again see to
        // that.
        let votes = |index: &usize| votes(&self.servers[*index]);
        while !(struck.iter().all(votes) && is_level(&self.servers)) {
            sleep(Duration::from_millis(5)).await;
        }
    }

    /// Kills a process, and starts another in its place.
    async fn replace_a_process(&mut self) {
        let index = fastrand::usize(..self.branches.len());
        self.branches[index].kill().await;
        self.killed += 1;
        let branch = self.start().await;
        self.addresses.lock().unwrap()[index] = branch.address;
        self.branches[index] = branch;
    }

    async fn torment(&mut self) {
        loop {
            self.strike().await;
            if chance(1, 2) {
                self.replace_a_process().await;
            }
        }
    }
}

/// Whether processes let the server vote in its present life.
fn votes(server: &Server) -> bool {
    let identity = server.run("HGET lk!node identity");
    identity.starts_with(&server.info("run_id"))
}

/// Whether all servers have the same records.
fn is_level(servers: &[Server]) -> bool {
    let mut all = servers.iter().map(records);
    let first = all.next();
    all.all(|records| Some(records) == first)
}

/// Five hundred clients with `keys` keys: all with the same key have the same answer.
async fn round(scene: Scene, keys: usize) {
    let mut site = Site::open(scene).await;
    let client = Client::new();
    let mut clients = JoinSet::new();
    for number in 0..CLIENTS {
        let key = format!("order-{}", number % keys);
        clients.spawn(ask(client.clone(), Arc::clone(&site.addresses), key));
    }
    let asked = tokio::select! {
        biased;
        asked = clients.join_all() => asked,
        () = site.torment() => unreachable!("it never ends"),
    };
    let mut answers: BTreeMap<&str, &Reply> = BTreeMap::new();
    let mut first = 0;
    for one in &asked {
        for (reply, replayed) in &one.replies {
            let answer = answers.entry(&one.key).or_insert(reply);
            assert_eq!(*answer, reply, "two answers to {}", one.key);
            first += usize::from(!replayed);
        }
    }
    assert_eq!((asked.len(), answers.len()), (CLIENTS, keys));
    // All but whoever's request ran.
    assert!(first <= keys, "{first} first answers to {keys} keys");
    let (orders, runs) = (site.ledger.orders(), site.ledger.runs());
    assert_eq!(orders.len(), keys, "{orders:?}");
    assert!(runs >= keys && site.strikes > 0, "{runs} runs");
}

async fn rounds(scene: Scene, offset: usize) {
    let count = env::var(ROUNDS).map_or(1, |count| count.parse().unwrap());
    for number in 0..count {
        round(scene, KEYS[(number + offset) % KEYS.len()]).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn duplicates_get_one_answer_while_servers_are_killed() {
    rounds(REMEMBERING, 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn duplicates_get_one_answer_while_servers_forget() {
    rounds(FORGETTING, 1).await;
}
