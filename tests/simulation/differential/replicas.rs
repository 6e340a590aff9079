//! A master with a replica, real and simulated: what is written on the one is read on the other, whatever made it;
//! what a replica shows and refuses; and what both tell of themselves after the replica has been promoted, and the
//! former master has come back as a replica.

use super::plain::{self, Plain};
use super::wire::{Event, Real, Simulated, Wire, ask, packed};
use super::words::{KEYS, RUN_ID, Words, texts};
use super::{BEGIN, SEQUENCE, calls, number_from, scripts, snippets};
use crate::support::server::Kind;
use tower_redlock_simulated::server::Dialect;
use tower_redlock_simulated::server::dice::Dice;

/// Two servers of one kind, of which the second one follows the first one.
trait Couple {
    fn server(&mut self, number: usize) -> &mut dyn Wire;
    /// Has all changes of the first one arrive at the second one, and be acknowledged.
    fn settle(&mut self);
    /// The second one becomes a master, and the first one follows it.
    fn swap(&mut self);
    fn run_id(&self, number: usize) -> String;
}

/// With their names.
struct RealCouple([Real; 2], [String; 2]);

impl RealCouple {
    fn start(kind: Kind) -> Self {
        let couple = [(); 2].map(|()| Real::start(kind, BEGIN));
        for Real { server, .. } in &couple {
            server.run("CONFIG SET repl-diskless-sync-delay 0");
            // Their clocks are set ahead.
            server.run("CONFIG SET repl-timeout 1000000");
            server.run("CONFIG SET repl-backlog-ttl 0");
        }
        follow(&couple[1], &couple[0]);
        let run_ids = [0, 1].map(|number: usize| couple[number].server.info("run_id"));
        Self(couple, run_ids)
    }
}

fn follow(replica: &Real, master: &Real) {
    let port = master.server.port();
    replica.server.run(&format!("REPLICAOF 127.0.0.1 {port}"));
    replica.server.wait_to_follow(&master.server);
}

impl Couple for RealCouple {
    fn server(&mut self, number: usize) -> &mut dyn Wire {
        &mut self.0[number]
    }

    fn settle(&mut self) {
        // At some time the master removes what has expired. Until then replicas whose clocks are late show it.
        self.0[0].wait_until_expired_keys_are_gone();
        // What it waits for must have been written on the same connection.
        let mut raw = self.0[0].server.raw();
        raw.command(&["PUBLISH", "nobody", "listens"]).unwrap();
        assert_eq!(raw.command(&["WAIT", "1", "0"]).unwrap(), "1");
    }

    fn swap(&mut self) {
        self.0[1].server.run("REPLICAOF NO ONE");
        follow(&self.0[0], &self.0[1]);
        self.0.swap(0, 1);
        self.1.swap(0, 1);
    }

    fn run_id(&self, number: usize) -> String {
        self.1[number].clone()
    }
}

struct SimulatedCouple([Simulated; 2]);

/// The address of any replica: there is one at a time.
const REPLICA: (&str, u16) = ("127.0.0.1", 6379);

impl SimulatedCouple {
    /// With the names of real ones.
    fn start(dialect: Dialect, real: &RealCouple) -> Self {
        let mut couple = [0, 1].map(|number| Simulated::start_as(dialect, BEGIN, number));
        for (number, simulated) in (0..).zip(&mut couple) {
            simulated.server.set_run_id(&real.run_id(number));
        }
        let [first, second] = &mut couple;
        Self::follow(second, first);
        Self(couple)
    }

    fn follow(replica: &mut Simulated, master: &mut Simulated) {
        let outputs = replica.server.follow();
        replica.take(outputs);
        let position = replica.server.position();
        let image = master.server.attach(REPLICA.0, REPLICA.1, Some(&position));
        replica.server.synchronize(image);
    }
}

impl Couple for SimulatedCouple {
    fn server(&mut self, number: usize) -> &mut dyn Wire {
        &mut self.0[number]
    }

    fn settle(&mut self) {
        let [master, replica] = &mut self.0;
        let outputs = master.server.tick(master.now());
        master.take(outputs);
        let (has, now) = (replica.server.position().offset, replica.now());
        for change in master.server.changes_after(has).unwrap() {
            let outputs = replica.server.apply(&change, now);
            replica.take(outputs);
        }
        let has = replica.server.position().offset;
        assert_eq!(has, master.server.position().offset);
        let now = master.now();
        let outputs = (master.server).acknowledge(REPLICA.0, REPLICA.1, has, now);
        master.take(outputs);
    }

    fn swap(&mut self) {
        let [old, new] = &mut self.0;
        new.server.promote();
        Self::follow(old, new);
        self.0.swap(0, 1);
    }

    fn run_id(&self, number: usize) -> String {
        self.0[number].server.run_id().to_owned()
    }
}

/// Lines of `INFO replication` without ports, offsets and names.
fn standing(couple: &mut dyn Couple, number: usize) -> Vec<String> {
    let info = ask(couple.server(number), 0, &["INFO", "replication"]);
    let field = |name| plain::field(&info, name).unwrap_or_default();
    let zeros = field("master_replid2").bytes().all(|byte| byte == b'0');
    vec![
        field("role"),
        format!("has a replica: {}", !field("slave0").is_empty()),
        format!("has a former history: {}", !zeros),
        format!("since an offset: {}", field("second_repl_offset") != "-1"),
    ]
}

/// What is heard on the first connection of a server after a call.
fn hear(couple: &mut dyn Couple, number: usize, words: &[Vec<u8>]) -> Plain {
    let run_id = couple.run_id(number);
    let own = words.iter();
    let own = own.map(|word| plain::replace(word, RUN_ID, &run_id));
    let own: Vec<Vec<u8>> = own.collect();
    let wire = couple.server(number);
    wire.write(0, &packed(&own));
    wire.read(0).unwrap().compared(words)
}

/// What is stored on a server: each key with what clients are told of it.
fn stored(couple: &mut dyn Couple, number: usize) -> Vec<Plain> {
    let mut all = vec![hear(couple, number, &texts(&["KEYS", "*"]))];
    for key in KEYS {
        for about in ["TYPE", "GET", "HGETALL", "PTTL"] {
            all.push(hear(couple, number, &texts(&[about, key])));
        }
    }
    all
}

/// Plays a sequence of calls; returns all that was heard.
fn play(couple: &mut dyn Couple, seed: u64) -> Vec<(String, Vec<Plain>)> {
    let mut words = Words {
        dice: Dice::new(seed),
        now: BEGIN,
        asks: true,
        before: None,
    };
    let mut heard = Vec::new();
    for number in 0..2 {
        couple.server(number).open(0);
        ask(couple.server(number), 0, &["HELLO", "3"]);
    }
    for script in scripts::all() {
        for number in 0..2 {
            ask(couple.server(number), 0, &["SCRIPT", "LOAD", &script.text]);
        }
    }
    for step in 0..SEQUENCE {
        if words.chance(20) {
            words.now += words.pick(&[1_000, 50_000, 51_000, 100_000, 1_000_000]);
            // The replica's clock is another one.
            let ahead = words.pick(&[-200_000, -1_000, 0, 1_000, 200_000]);
            couple.server(0).do_event(Event::Clock(words.now));
            let now = words.now.saturating_add_signed(ahead);
            couple.server(1).do_event(Event::Clock(now));
        }
        if step == SEQUENCE / 2 {
            // What has expired by then might or might not be removed before.
            couple.settle();
            couple.swap();
            // The answer would be where in its history that was.
            words.asks = false;
        }
        let number = usize::from(words.chance(25));
        let call = match words.dice.below(3) {
            0 => scripts::call(&mut words),
            1 => snippets::call(&mut words),
            _ => calls::keyed(&mut words),
        };
        couple.settle();
        let reply = hear(couple, number, &call);
        let shown = call.join(&b' ').escape_ascii().to_string();
        heard.push((format!("{number}: {shown}"), vec![reply]));
        couple.settle();
        if step % 20 == 0 || step == SEQUENCE / 2 {
            for number in 0..2 {
                heard.push((format!("the keys of {number}"), stored(couple, number)));
                let lines = standing(couple, number).join(", ");
                heard.push((format!("{number}: {lines}"), Vec::new()));
            }
        }
    }
    heard
}

fn compare(kind: Kind) {
    let seed = number_from("REDLOCK_DIFFERENTIAL_SEED");
    let seed = seed.unwrap_or_else(|| getrandom::u64().unwrap());
    println!("seed {seed}");
    let mut real = RealCouple::start(kind);
    let dialect = real.0[0].dialect;
    let mut simulated = SimulatedCouple::start(dialect, &real);
    let (all, simulated) = (play(&mut real, seed), play(&mut simulated, seed));
    for (at, (simulated, real)) in simulated.iter().zip(&all).enumerate() {
        let before = &all[at.saturating_sub(20)..at];
        let about = format!("{dialect:?}, seed {seed}: simulated, then real; after {before:?}");
        assert_eq!(simulated, real, "{about}");
    }
}

#[test]
fn a_simulated_replica_does_what_that_of_redis_does() {
    compare(Kind::Redis);
}

#[test]
fn a_simulated_replica_does_what_that_of_valkey_does() {
    compare(Kind::Valkey);
}
