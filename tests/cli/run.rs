//! `run`: a command under a lock.

use std::fs;
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::support::eventually;
use crate::support::server::Server;
use crate::{Ended, Fleet, ended, held, redlock, told, words};

/// The program with a shell script as its command.
fn shell(fleet: &Fleet, options: &str, script: &str) -> Command {
    let options = words(options);
    fleet.redlock(&[&options[..], &["--", "sh", "-c", script]].concat())
}

/// Starts the program with a shell script as its command, and waits until that says that it runs, at `BEGUN`.
async fn begun(fleet: &Fleet, options: &str, script: &str) -> Child {
    let mark = fleet.dir.join("begun");
    let _ = fs::remove_file(&mark);
    let script = script.replace("BEGUN", &format!("echo $$ >{}", mark.display()));
    let child = shell(fleet, options, &script).spawn().unwrap();
    let is_there = || fs::read_to_string(&mark).is_ok_and(|text| text.ends_with('\n'));
    eventually("the command runs", is_there).await;
    child
}

async fn end_of(child: Child) -> Ended {
    let output = tokio::task::spawn_blocking(move || child.wait_with_output().unwrap());
    told(output.await.unwrap())
}

fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

/// Whether the command has ended: its process is gone.
fn has_ended(fleet: &Fleet) -> bool {
    is_gone(&fleet.dir.join("begun"))
}

/// Whether the process has ended whose id is in this file.
fn is_gone(file: &Path) -> bool {
    let id = fs::read_to_string(file).unwrap();
    let seen = Command::new("kill").args(["-0", id.trim()]).output();
    !seen.unwrap().status.success()
}

/// With a majority of its servers, all locks are lost.
fn lose(fleet: &mut Fleet) {
    fleet.servers[..2].iter_mut().for_each(Server::kill);
}

#[tokio::test]
async fn a_command_runs_under_the_lock_and_its_code_is_passed_on() {
    let (fleet, locks) = Fleet::started().await;
    let script = "echo $REDLOCK_KEY $REDLOCK_FENCE; exit 7";
    let ended = ended(shell(&fleet, "run k", script)).await.with(7);
    let (key, fence) = ended.out.trim().split_once(' ').unwrap();
    assert_eq!((key, ended.err.as_str()), ("k", ""));
    let fence: tower_redlock::FencingToken = fence.parse().unwrap();
    assert_eq!(fleet.holding("k"), 0, "it was released");
    let next = held(&fleet, &locks, "k").await.fence().unwrap();
    assert!(next > fence);
    let killed = shell(&fleet, "run other", "kill -9 $$");
    crate::ended(killed).await.with(137);
    let missing = fleet.run("run other -- /no/such/program").await.with(127);
    missing.complains("/no/such/program cannot be run");
    fleet.run("run other -- /").await.with(126);
    assert_eq!(fleet.holding("other"), 0);
    // What it gives to its command is no setting of a service that is started by it.
    let inner = env!("CARGO_BIN_EXE_redlock");
    for options in ["", "--permits 2 "] {
        let line = format!("run other {options}--keep-env -- {inner} status");
        fleet.run(&line).await.with(0);
    }
}

#[tokio::test]
async fn a_lock_that_another_holds_is_waited_for_or_refused() {
    let (fleet, locks) = Fleet::started().await;
    let guard = held(&fleet, &locks, "k").await;
    let mark = fleet.dir.join("ran");
    let run = |wait| format!("run k --wait {wait} -- touch {}", mark.display());
    fleet.run(&run("0s")).await.with(75);
    fleet.run(&run("300ms")).await.with(75);
    assert!(!mark.exists());
    let waiting = async || {
        let child = fleet.redlock(&words(&run("20s"))).spawn().unwrap();
        let listens = || fleet.ask(0, "PUBSUB NUMSUB lk!free:k").ends_with('1');
        eventually("it waits", listens).await;
        child
    };
    let child = waiting().await;
    guard.release().await.unwrap();
    end_of(child).await.with(0);
    assert!(mark.exists());
    // One that is ended while it waits leaves nothing.
    let guard = held(&fleet, &locks, "k").await;
    let child = waiting().await;
    signal(&child, Signal::TERM);
    end_of(child).await.with(143);
    guard.release().await.unwrap();
    eventually("free", || fleet.holding("k") == 0).await;
    let none = redlock(&["run", "k", "--redis", "redis://127.0.0.1:1", "--", "true"]);
    ended(none).await.with(69);
}

#[tokio::test]
async fn the_lock_is_kept_for_as_long_as_the_command_runs() {
    let (fleet, _locks) = Fleet::started().await;
    let child = begun(&fleet, "run k", "BEGUN; sleep 600").await;
    let begin = Instant::now();
    let is_held = || {
        assert!(fleet.holding("k") >= 2);
        begin.elapsed() > Duration::from_secs(4)
    };
    eventually("it is extended", is_held).await;
    signal(&child, Signal::TERM);
    end_of(child).await.with(143);
    assert!(has_ended(&fleet));
}

#[tokio::test]
async fn signals_are_passed_on() {
    let (fleet, _locks) = Fleet::started().await;
    for (signal_, name, code) in [(Signal::INT, "INT", 40), (Signal::TERM, "TERM", 41)] {
        let script = format!("trap 'exit {code}' {name}; BEGUN; while :; do sleep 0.05; done");
        let child = begun(&fleet, "run k", &script).await;
        signal(&child, signal_);
        end_of(child).await.with(code);
        assert_eq!(fleet.holding("k"), 0);
    }
}

#[tokio::test]
async fn a_command_is_ended_when_its_lock_is_lost() {
    let (mut fleet, _locks) = Fleet::started().await;
    let child = begun(&fleet, "run k", "BEGUN; sleep 600 & wait").await;
    lose(&mut fleet);
    end_of(child).await.with(76).complains("the lock was lost");
    assert!(has_ended(&fleet));
}

#[tokio::test]
async fn a_command_is_ended_when_its_lock_is_taken() {
    let (fleet, _locks) = Fleet::started().await;
    let child = begun(&fleet, "run k", "BEGUN; sleep 600").await;
    eventually("everywhere", || fleet.holding("k") == 3).await;
    fleet.run("release k --force --yes").await.with(0);
    end_of(child).await.with(76);
}

/// Within the grace, and not before.
#[tokio::test]
async fn a_command_that_does_not_end_is_killed() {
    let (mut fleet, _locks) = Fleet::started().await;
    let script = "trap '' TERM; BEGUN; while :; do sleep 0.1; done";
    let child = begun(&fleet, "run k --ttl 500ms", script).await;
    let begin = Instant::now();
    lose(&mut fleet);
    end_of(child).await.with(76);
    let took = begin.elapsed();
    assert!(took > Duration::from_secs(10), "{took:?}");
    assert!(has_ended(&fleet));
}

/// The shell of the command dies of the signal; what it has started works on.
#[tokio::test]
async fn the_lock_is_kept_until_all_that_the_command_has_started_has_ended() {
    let (fleet, _locks) = Fleet::started().await;
    let done = fleet.dir.join("done");
    let worker = format!(
        "(trap '' TERM; BEGUN; sleep 2; touch {}) & wait",
        done.display()
    );
    let child = begun(&fleet, "run k", &worker).await;
    signal(&child, Signal::TERM);
    eventually("the shell has ended", || has_ended(&fleet)).await;
    assert!(!done.exists(), "the worker has not ended");
    assert!(fleet.holding("k") >= 2, "the lock is still held");
    fleet.run("run k -- true").await.with(75);
    end_of(child).await.with(143);
    assert!(done.exists());
    assert_eq!(fleet.holding("k"), 0);
}

#[tokio::test]
async fn what_a_command_has_started_is_killed_after_the_loss_of_the_lock() {
    let (mut fleet, _locks) = Fleet::started().await;
    let id = fleet.dir.join("worker");
    let script = format!(
        "(trap '' TERM; echo $(exec sh -c 'echo $PPID') >{}; while :; do sleep 0.1; done) & BEGUN; wait",
        id.display()
    );
    let child = begun(&fleet, "run k --ttl 500ms", &script).await;
    lose(&mut fleet);
    end_of(child).await.with(76);
    assert!(is_gone(&id), "it was killed");
}

/// A signal finds such a process, and cannot end it.
#[tokio::test]
async fn a_dead_process_that_nobody_waits_for_keeps_the_lock_for_the_grace_at_most() {
    let (fleet, _locks) = Fleet::started().await;
    let python = "import os, time\nif os.fork() == 0:\n  if os.fork() == 0: os._exit(0)\n  os.setsid()\n  time.sleep(40)";
    let script = format!("python3 -c '{python}' >/dev/null 2>&1; BEGUN; sleep 600");
    let child = begun(&fleet, "run k", &script).await;
    let begin = Instant::now();
    signal(&child, Signal::TERM);
    end_of(child).await.with(143);
    assert!(begin.elapsed() > Duration::from_secs(10), "there is none");
    assert_eq!(fleet.holding("k"), 0);
}

#[tokio::test]
async fn a_command_gets_no_settings_unless_asked() {
    let (fleet, _locks) = Fleet::started().await;
    let script = "echo ${REDLOCK_MAX_WAIT-none} ${OTHER-none}";
    for (options, expected) in [("run k", "none 7"), ("run k --keep-env", "7s 7")] {
        let mut command = shell(&fleet, options, script);
        command.env("REDLOCK_MAX_WAIT", "7s").env("OTHER", "7");
        let ended = ended(command).await.with(0);
        assert_eq!(ended.out.trim(), expected);
    }
}

#[tokio::test]
async fn a_command_may_hold_the_lock_for_so_long() {
    let (fleet, _locks) = Fleet::started().await;
    let ended = fleet
        .run("run k --ttl 600ms --max-hold 1s -- sleep 600")
        .await;
    ended.with(76).complains("max_hold");
}

#[tokio::test]
async fn commands_share_a_key_that_another_has_alone() {
    let (fleet, locks) = Fleet::started().await;
    let reader = begun(&fleet, "run k --shared --ttl 2s", "BEGUN; exec sleep 600").await;
    let (beside, alone) = ("run k --shared --ttl 2s -- true", "run k -- true");
    fleet.run(beside).await.with(0);
    fleet.run(alone).await.with(75);
    fleet.run("who k").await.with(0).begins("k: held by shared");
    signal(&reader, Signal::TERM);
    end_of(reader).await.with(143);
    fleet.run(alone).await.with(0);
    let _writer = held(&fleet, &locks, "k").await;
    fleet.run(beside).await.with(75);
}

#[tokio::test]
async fn so_many_commands_run_at_once_as_a_key_has_permits() {
    let (fleet, _locks) = Fleet::started().await;
    let options = "run report --permits 2 --ttl 2s";
    let mut running = Vec::new();
    for _ in 0..2 {
        running.push(begun(&fleet, options, "BEGUN; exec sleep 600").await);
    }
    let third = || ended(shell(&fleet, options, "echo $REDLOCK_KEY $REDLOCK_SLOT"));
    third().await.with(75);
    let list = fleet.run("list --permits").await.with(0).out;
    let mut rows: Vec<_> = list
        .lines()
        .skip(1)
        .map(|row| row.split(' ').next().unwrap())
        .collect();
    rows.sort_unstable();
    assert_eq!(rows, ["report:0", "report:1"], "{list}");
    assert_eq!(fleet.run("list").await.with(0).out.lines().count(), 1);
    let who = fleet.run("who report:1 --permit").await.with(0);
    who.begins("report:1: held by");
    let wrong = fleet.run("who report --permit").await.with(64);
    wrong.complains("the number of its slot");

    let release = "release report:1 --permit --force --yes --now";
    fleet.run(release).await.with(0);
    assert_eq!(third().await.with(0).out, "report 1\n");
    running.iter().for_each(|child| signal(child, Signal::TERM));
    for child in running {
        assert!([143, 76].contains(&end_of(child).await.code));
    }
}
