//! `run`: a command under a lock.

use std::env;
use std::future::pending;
use std::io::{ErrorKind, IsTerminal as _, stdin};
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;
use std::time::Duration;

use clap::Args;
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep, sleep_until};
use tower_redlock::error::ReleaseError;
use tower_redlock::{LockGuard, LockManager};

use self::signals::{Group, Signals};
use crate::show::{tell, waiting};
use crate::{Failure, LOST, Source, duration};

/// Runs a command under a lock, for as long as the command takes.
///
/// The command finds the key in REDLOCK_KEY, the fencing token in REDLOCK_FENCE, and the slot of a permit in
/// REDLOCK_SLOT. All other variables that begin with REDLOCK_ are removed, because they can hold passwords.
///
/// SIGINT, SIGTERM, SIGHUP and SIGQUIT are passed on to the command. If the lock is lost, the command gets SIGTERM.
/// Without a terminal, the signals reach the whole process group of the command.
///
/// After a signal, this program keeps the lock until the whole group has ended. After the loss of the lock, it waits
/// for the group as well. Ten seconds after the loss, or after the end of the command, the group gets SIGKILL. If the
/// command ends without a signal, its lock is released immediately, so let the command wait for the processes that it
/// starts. On a terminal, this program only waits for the command. If this program is killed, the command continues
/// without a lock.
#[derive(Args)]
#[command(
    after_help = "Example:\n  redlock run nightly-report --wait 5s -- ./report.sh --day yesterday"
)]
pub(crate) struct Run {
    /// The key
    key: String,
    /// Lets up to this many commands run at the same time, each with one permit of the key
    #[arg(long)]
    permits: Option<u32>,
    /// Takes the key as a reader: other readers may run at the same time, but no exclusive holder
    #[arg(long, conflicts_with = "permits")]
    shared: bool,
    /// How long to wait while another process holds the lock. After that, the exit code is 75
    #[arg(long, value_parser = duration, default_value = "0s")]
    wait: Duration,
    /// How long the lock outlives a crash, instead of the ttl in the settings
    #[arg(long, value_parser = duration)]
    ttl: Option<Duration>,
    /// How long the command may take. After that, the lock is lost. Default: no limit
    #[arg(long, value_parser = duration)]
    max_hold: Option<Duration>,
    /// Passes the variables that begin with REDLOCK_ on to the command, with their passwords
    #[arg(long)]
    keep_env: bool,
    /// The command, and its arguments
    #[arg(last = true, required = true)]
    command: Vec<String>,
}

impl Run {
    pub(crate) async fn run(&self, source: &Source) -> Result<u8, Failure> {
        let mut signals = Signals::new().map_err(|error| Failure::new(126, error))?;
        let connected = waiting(self.connect(source), || "connecting".to_owned());
        let locks = tokio::select! {
            biased;
            signal = signals.next() => return Ok(code_of_signal(signal)),
            locks = connected => locks?,
        };
        let acquired = locks.acquire(self.key.as_str());
        let acquired = waiting(acquired, || format!("waiting for {}", self.key));
        let ended = tokio::select! {
            biased;
            signal = signals.next() => Ok(code_of_signal(signal)),
            guard = acquired => match guard {
                Ok(guard) => self.under(guard, &mut signals).await,
                Err(error) => Err(error.into()),
            },
        };
        // This also releases keys that an abandoned round has set on the nodes.
        locks.shutdown(RELEASE).await;
        ended
    }

    async fn under(&self, guard: LockGuard, signals: &mut Signals) -> Result<u8, Failure> {
        let ended = match self.spawn(&guard) {
            Ok(child) => attend(child, &guard, signals).await,
            Err(failure) => Err(failure),
        };
        match (ended, guard.release().await) {
            (Ok(Some(_)), Err(ReleaseError::Lost(reason))) => {
                Err(Failure::new(LOST, format!("the lock was lost: {reason}")))
            }
            (Ok(Some(status)), _) => Ok(code(status)),
            (Ok(None), _) => Ok(LOST),
            (Err(failure), _) => Err(failure),
        }
    }

    async fn connect(&self, source: &Source) -> Result<LockManager, Failure> {
        let locks = source.settings()?.connect().await?;
        let locks = locks.with_max_wait(self.wait);
        let locks = self
            .ttl
            .map_or(Ok(locks.clone()), |ttl| locks.with_ttl(ttl))?;
        let locks = locks.with_max_hold(self.max_hold.unwrap_or(NO_LIMIT))?;
        Ok(match self.permits {
            Some(permits) => locks.permits(permits)?,
            None if self.shared => locks.shared(),
            None => locks,
        })
    }

    fn spawn(&self, guard: &LockGuard) -> Result<Child, Failure> {
        let (program, arguments) = self.command.split_first().unzip();
        let program: &str = program.map_or("", |program| program);
        let mut command = Command::new(program);
        command.args(arguments.unwrap_or_default());
        if !self.keep_env {
            let names = env::vars_os().map(|(name, _)| name);
            let ours = names.filter(|name| name.as_encoded_bytes().starts_with(b"REDLOCK_"));
            ours.for_each(|name| _ = command.env_remove(name));
        }
        command.env("REDLOCK_KEY", &self.key);
        if let Some(fence) = guard.fence() {
            command.env("REDLOCK_FENCE", fence.to_string());
        }
        if let Some(slot) = guard.slot() {
            command.env("REDLOCK_SLOT", slot.to_string());
        }
        if !stdin().is_terminal() {
            command.process_group(0);
        }
        command.spawn().map_err(|error| {
            let is_there = error.kind() != ErrorKind::NotFound;
            Failure::new(
                if is_there { 126 } else { 127 },
                format!("{program} cannot be run: {error}"),
            )
        })
    }
}

/// Waits until the command has ended; after a signal or a loss, until its process group has ended. Returns `None` if
/// the lock was lost.
async fn attend(
    mut child: Child,
    guard: &LockGuard,
    signals: &mut Signals,
) -> Result<Option<ExitStatus>, Failure> {
    let group = Group::of(&child);
    let mut lost = std::pin::pin!(guard.lost());
    let (mut is_lost, mut is_ending) = (false, false);
    let mut status = None;
    let mut kill_at: Option<Instant> = None;
    let mut is_killed = false;
    loop {
        // Give up a second after SIGKILL, because dead processes stay in the group until their parent reaps them.
        let is_over = |at: Option<Instant>| is_killed && at.is_some_and(|at| at <= Instant::now());
        if let Some(status) = status
            && (!is_ending || is_over(kill_at) || group.is_gone())
        {
            return Ok((!is_lost).then_some(status));
        }
        let kill = async {
            match kill_at {
                Some(at) => sleep_until(at).await,
                None => pending().await,
            }
        };
        tokio::select! {
            biased;
            ended = child.wait(), if status.is_none() => {
                status = Some(ended.map_err(|error| Failure::new(126, error))?);
                kill_at = kill_at.or(Some(Instant::now() + GRACE));
            }
            reason = &mut lost, if !is_lost => {
                tell(&format!("redlock: the lock was lost: {reason}; the command gets SIGTERM"));
                group.send(signals::TERM);
                kill_at = kill_at.or(Some(Instant::now() + GRACE));
                (is_lost, is_ending) = (true, true);
            }
            () = kill => {
                group.send(signals::KILL);
                is_killed = true;
                kill_at = Some(Instant::now() + SECOND);
            }
            signal = signals.next() => {
                group.send(signal);
                is_ending = true;
            }
            // Poll the group, because no event reports the end of processes that are not our children.
            () = sleep(LOOK), if status.is_some() => {}
        }
    }
}

fn code(status: ExitStatus) -> u8 {
    match status.signal() {
        Some(signal) => code_of_signal(signal),
        None => status
            .code()
            .and_then(|code| u8::try_from(code).ok())
            .unwrap_or(u8::MAX),
    }
}

fn code_of_signal(signal: i32) -> u8 {
    u8::try_from(128 + signal).unwrap_or(u8::MAX)
}

/// A hundred years.
const NO_LIMIT: Duration = Duration::from_secs(100 * 366 * 24 * 3_600);
const GRACE: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(50);
const SECOND: Duration = Duration::from_secs(1);
const RELEASE: Duration = Duration::from_secs(2);

mod signals {
    //! Receives signals, and sends them to the command.

    use std::future::poll_fn;
    use std::io::{self, IsTerminal as _};
    use std::task::Poll;

    use nix::errno::Errno;
    use nix::sys::signal::{Signal, kill, killpg};
    use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
    use nix::unistd::Pid;
    use tokio::process::Child;
    use tokio::signal::unix::{self, SignalKind};

    pub(super) const TERM: i32 = Signal::SIGTERM as i32;
    pub(super) const KILL: i32 = Signal::SIGKILL as i32;
    // For Ctrl-C and Ctrl-\, a terminal sends these to the command itself.
    const FROM_KEYBOARD: [i32; 2] = [Signal::SIGINT as i32, Signal::SIGQUIT as i32];

    pub(super) struct Signals(Vec<(i32, unix::Signal)>);

    impl Signals {
        pub(super) fn new() -> io::Result<Self> {
            let numbers = FROM_KEYBOARD
                .into_iter()
                .chain([TERM, Signal::SIGHUP as i32]);
            let listen = |number| Ok((number, unix::signal(SignalKind::from_raw(number))?));
            numbers.map(listen).collect::<io::Result<_>>().map(Self)
        }

        pub(super) async fn next(&mut self) -> i32 {
            poll_fn(|cx| {
                let mut signals = self.0.iter_mut();
                let come = signals.find_map(|(number, signal)| match signal.poll_recv(cx) {
                    Poll::Ready(_) => Some(*number),
                    Poll::Pending => None,
                });
                come.map_or(Poll::Pending, Poll::Ready)
            })
            .await
        }
    }

    /// The processes that get signals.
    pub(super) enum Group {
        /// Without a terminal: the process group of the command, with all processes that it has started.
        All(Pid),
        /// Only the command.
        One(Option<Pid>),
    }

    impl Group {
        pub(super) fn of(child: &Child) -> Self {
            let id = child.id().and_then(|id| i32::try_from(id).ok());
            match id {
                Some(id) if !io::stdin().is_terminal() => Self::All(Pid::from_raw(id)),
                id => Self::One(id.map(Pid::from_raw)),
            }
        }

        pub(super) fn send(&self, signal: i32) {
            let number = Signal::try_from(signal).ok();
            let _ = match *self {
                Self::All(id) => killpg(id, number),
                Self::One(Some(id)) if !FROM_KEYBOARD.contains(&signal) => kill(id, number),
                Self::One(_) => Ok(()),
            };
        }

        /// Whether no process is left. Call it only after the command itself has ended.
        pub(super) fn is_gone(&self) -> bool {
            let Self::All(id) = *self else { return true };
            // As the first process of a container, this program must reap the processes that the command leaves behind.
            while let Ok(WaitStatus::Exited(..) | WaitStatus::Signaled(..)) =
                waitpid(Pid::from_raw(-id.as_raw()), Some(WaitPidFlag::WNOHANG))
            {}
            killpg(id, None) == Err(Errno::ESRCH)
        }
    }
}
