//! Five hundred duplicates at once, over four processes, while servers and processes are killed and come back.

use std::collections::BTreeMap;
use std::env;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::branch::{Branch, Part};
use crate::client::{Client, Reply};
use crate::dice::Dice;
use crate::ledger::Ledger;
use crate::support::server::{Kind, Server};
use crate::support::stalls::Stopwatch;
use crate::{bootstrap, records};

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
const MOST_WORK: usize = 1_600;
/// A client without an answer by then has failed.
const BOUND: Duration = Duration::from_secs(30);

/// What becomes of the servers.
#[derive(Clone, Copy, Debug)]
struct Scene {
    name: &'static str,
    args: &'static [&'static str],
    /// How many are away at the same time.
    most_away: usize,
    masked: usize,
}

/// They come back with what they had, two at a time. A write is the kernel's before it is answered, and of a process
/// that is killed the kernel keeps it; to wait for the disk besides would make this a test of the disk.
const REMEMBERING: Scene = Scene {
    name: "two killed at a time, with an append-only file",
    args: &["--appendonly", "yes", "--appendfsync", "no"],
    most_away: 2,
    masked: 0,
};

/// They come back with nothing, one at a time.
const FORGETTING: Scene = Scene {
    name: "one killed at a time, which forgets everything",
    args: &[],
    most_away: 1,
    masked: 1,
};

/// What clients met before they had an answer.
#[derive(Debug, Default)]
struct Tally {
    first: usize,
    replayed: usize,
    // Kinds of problems.
    refused: BTreeMap<String, usize>,
    // The last one, whole.
    last: String,
}

/// One client's two answers, and what it met on the way.
struct Asked {
    key: String,
    replies: [Reply; 2],
    tally: Tally,
}

/// Where the processes are to be found.
type Addresses = Arc<Mutex<Vec<SocketAddr>>>;

/// Sends the request until it is answered, and once more after a while.
async fn ask(client: Client, addresses: Addresses, key: String) -> Asked {
    let (mut dice, mut tally) = (Dice::new(), Tally::default());
    let first = answered(&client, &addresses, &key, &mut dice, &mut tally).await;
    sleep(dice.millis(0, 2_000)).await;
    let second = answered(&client, &addresses, &key, &mut dice, &mut tally).await;
    Asked {
        key,
        replies: [first, second],
        tally,
    }
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

async fn answered(
    client: &Client,
    addresses: &Addresses,
    key: &str,
    dice: &mut Dice,
    tally: &mut Tally,
) -> Reply {
    let begin = Stopwatch::start();
    loop {
        let address = {
            let addresses = addresses.lock().unwrap();
            addresses[dice.below(addresses.len())]
        };
        let sent = send(client, addresses, address, key).await;
        let refused = match sent {
            Ok((reply, replayed)) => match reply.status.as_u16() {
                201 => {
                    tally.replayed += usize::from(replayed);
                    tally.first += usize::from(!replayed);
                    return reply;
                }
                409 | 503 => {
                    tally.last = String::from_utf8_lossy(&reply.body).into_owned();
                    reply.problem()
                }
                _ => panic!("{key}: {reply:?}"),
            },
            Err(Killed) => "process killed".to_owned(),
        };
        *tally.refused.entry(refused).or_default() += 1;
        assert!(begin.elapsed() < BOUND, "{key} has no answer: {tally:?}");
        sleep(dice.millis(20, 120)).await;
    }
}

/// Servers and processes.
struct Site {
    scene: Scene,
    servers: Vec<Server>,
    ledger: Ledger,
    branches: Vec<Branch>,
    addresses: Addresses,
    dice: Dice,
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
            dice: Dice::new(),
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
        let count = 1 + self.dice.below(self.scene.most_away);
        let struck = self.dice.choose(count, SERVERS);
        for index in &struck {
            self.servers[*index].kill();
        }
        sleep(self.dice.millis(0, 150)).await;
        for index in &struck {
            self.servers[*index].restart();
        }
        if self.scene.masked == 0 && self.dice.chance(1, 2) {
            // Nothing is forgotten, and so the next may be struck while these do not vote.
            return sleep(self.dice.millis(0, 100)).await;
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
        let index = self.dice.below(self.branches.len());
        self.branches[index].kill().await;
        self.killed += 1;
        let branch = self.start().await;
        self.addresses.lock().unwrap()[index] = branch.address;
        self.branches[index] = branch;
    }

    async fn torment(&mut self) {
        loop {
            self.strike().await;
            if self.dice.chance(1, 2) {
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

/// Five hundred clients with `keys` keys.
async fn round(scene: Scene, keys: usize) -> String {
    let mut site = Site::open(scene).await;
    let (client, begin) = (Client::new(), Instant::now());
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
    let took = begin.elapsed();
    let (orders, runs) = (site.ledger.orders(), site.ledger.runs());
    let tally = check(&asked, keys);
    assert_eq!(orders.len(), keys, "{orders:?}");
    assert!(runs >= keys && site.strikes > 0, "{runs} runs");
    format!(
        "{}: {CLIENTS} clients, {keys} keys, {took:.1?}, {} strikes, {} processes killed; {} runs too many; {} first answers, {} replays; refused on the way: {:?}",
        scene.name,
        site.strikes,
        site.killed,
        runs - keys,
        tally.first,
        tally.replayed,
        tally.refused
    )
}

/// That all clients with the same key have the same answer. Tells what they met in all.
fn check(asked: &[Asked], keys: usize) -> Tally {
    let mut answers: BTreeMap<&str, &Reply> = BTreeMap::new();
    let mut sum = Tally::default();
    for one in asked {
        for reply in &one.replies {
            let answer = answers.entry(&one.key).or_insert(reply);
            assert_eq!(*answer, reply, "two answers to {}", one.key);
        }
        sum.first += one.tally.first;
        sum.replayed += one.tally.replayed;
        for (kind, count) in &one.tally.refused {
            *sum.refused.entry(kind.clone()).or_default() += count;
        }
    }
    assert_eq!((asked.len(), answers.len()), (CLIENTS, keys));
    assert_eq!(sum.first + sum.replayed, 2 * CLIENTS);
    // All but whoever's request ran.
    assert!(sum.first <= keys, "{sum:?}");
    sum
}

async fn rounds(scene: Scene, offset: usize) {
    let count = env::var(ROUNDS).map_or(1, |count| count.parse().unwrap());
    for number in 0..count {
        let keys = KEYS[(number + offset) % KEYS.len()];
        println!("{}", round(scene, keys).await);
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
