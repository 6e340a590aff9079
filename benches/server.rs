//! What a lock costs its server: the processor time of a cycle, without the client and without the waits between commands.
//!
//! The commands of uncontended cycles are recorded as a manager sends them, and sent again in long batches; in turns with
//! the least that a lock without fencing tokens and guard costs: `SET NX PX`, and a script that compares and deletes.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;

use crate::acquire::ours;
use crate::cost::servers_cpu;
use crate::floors::{DELETE, TOKEN};
use crate::support::server::{Kind, Server};

const CYCLES: u32 = 5_000;
const BATCH: usize = 200;
const TURNS: usize = 11;
const KEY: &str = "bench:server";

pub(crate) async fn run() {
    let servers = [Server::start(Kind::Redis, &[])];
    let (marker, ours) = record(&servers).await;
    let set = packed(&["SET", KEY, TOKEN, "NX", "PX", "10000"]);
    let delete = packed(&["EVAL", DELETE, "1", KEY, TOKEN]);
    let least = vec![[set, delete]; CYCLES as usize].concat();
    let mut took = [[0.0; TURNS]; 2];
    for turn in 0..TURNS {
        for (commands, took) in [&ours, &least].into_iter().zip(&mut took) {
            servers[0].run("FLUSHALL");
            servers[0].command(&marker.iter().map(String::as_str).collect::<Vec<_>>());
            took[turn] = replay(&servers, commands);
        }
    }
    println!("\nProcessor time of a server in µs, of {CYCLES} cycles: median, least, most");
    for (name, mut took) in ["acquire and release", "SET NX PX, EVAL"].iter().zip(took) {
        took.sort_by(f64::total_cmp);
        let [median, least, most] = [TURNS / 2, 0, TURNS - 1].map(|index| took[index]);
        println!("{name:30} {median:>8.2} {least:>8.2} {most:>8.2}");
    }
}

/// The command that writes the marker as it was before the cycles, and the commands of these.
async fn record(servers: &[Server]) -> (Vec<String>, Vec<Vec<u8>>) {
    let locks = ours(servers).await;
    // The first fencing tokens are ahead of the clock.
    let first = locks.try_acquire("bench").await.unwrap();
    first.release().await.unwrap();
    let fields = servers[0].run("HGETALL lk!node");
    let marker = ["HSET", "lk!node"].into_iter().chain(fields.lines());
    let mut monitor = servers[0].raw();
    monitor.command(&["MONITOR"]).unwrap();
    for _ in 0..CYCLES {
        let guard = locks.try_acquire(KEY).await.unwrap();
        guard.release().await.unwrap();
    }
    let lines = std::iter::from_fn(|| monitor.answer().ok());
    let lines = lines.filter(|line| line.contains(r#"] "EVALSHA""#) && line.contains(KEY));
    let commands = lines.take(2 * CYCLES as usize).map(|line| {
        let words: Vec<_> = line.split('"').skip(1).step_by(2).collect();
        packed(&words)
    });
    (marker.map(str::to_owned).collect(), commands.collect())
}

fn packed(words: &[&str]) -> Vec<u8> {
    redis::cmd(words[0]).arg(&words[1..]).get_packed_command()
}

fn replay(servers: &[Server], commands: &[Vec<u8>]) -> f64 {
    let mut stream = UnixStream::connect(servers[0].socket()).unwrap();
    let before = servers_cpu(servers);
    for batch in commands.chunks(BATCH) {
        stream.write_all(&batch.concat()).unwrap();
        let (mut replies, mut buffer) = (0, [0; 4_096]);
        while replies < batch.len() {
            let size = stream.read(&mut buffer).unwrap();
            assert!(size > 0 && !buffer[..size].contains(&b'-'), "a failure");
            replies += buffer[..size].iter().filter(|it| **it == b'\n').count();
        }
    }
    (servers_cpu(servers) - before).as_secs_f64() * 1e6 / f64::from(CYCLES)
}
