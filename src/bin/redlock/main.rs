//! `redlock`: an operator's hands on the nodes of a service. It reads the same settings as the service; the guide has
//! the tasks, in `docs::operating`.

#[cfg(not(unix))]
compile_error!("`redlock` passes signals on: it needs Unix");

mod locks;
mod nodes;
mod run;
mod show;

use std::fmt::Display;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, CommandFactory as _, Parser, Subcommand};
use clap_complete::Shell;
use tower_redlock::error::{ConfigError, ConnectError, NoQuorum, NodeFailure};
use tower_redlock::node::NodeErrorKind;
use tower_redlock::snapshot::{NodeStatus, VotingStatus};
use tower_redlock::{AcquireError, LockManager, Settings};

/// Looks after the locks of a service, and runs commands under one.
///
/// The settings are those of the service: a TOML file; in place of those there, environment variables (REDLOCK_TTL,
/// REDLOCK_PASSWORD and so on); in place of all nodes, --redis. With other nodes or another max_ttl than in the service the nodes are shown as foreign.
#[derive(Parser)]
#[command(name = "redlock", version, after_help = AFTER)]
struct Program {
    #[command(flatten)]
    source: Source,
    #[command(subcommand)]
    command: Command,
}

const AFTER: &str = "\
Exit codes:
  0   done; of `status`: a quorum of nodes votes
  1   not done, as you said no
  64  usage: an argument is wrong or missing
  69  too few nodes vote or answer
  75  another one holds the lock; of `release`: the lock changed hands meanwhile
  76  the lock was lost while the command ran
  78  a setting is wrong, or a node serves processes with other nodes or settings
  126 or 127 the command of `run` cannot be started, or is not there; else its own, or 128 and the number of its signal

Example:
  redlock status --config /etc/orders/locks.toml";

#[derive(Args)]
struct Source {
    /// The settings of the service, as TOML
    #[arg(long, global = true, env = "REDLOCK_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    /// A node, in place of those in the settings; once for each. Its password is better in REDLOCK_PASSWORD
    #[arg(long, global = true, value_name = "URL")]
    redis: Vec<String>,
}

#[derive(Subcommand)]
enum Command {
    // Each with the help of its arguments.
    Status(nodes::Status),
    Wait(nodes::Wait),
    Bootstrap(nodes::Bootstrap),
    /// Changes which nodes belong together
    #[command(subcommand)]
    Nodes(nodes::Nodes),
    Who(locks::Who),
    List(locks::List),
    Release(locks::Release),
    Run(run::Run),
    /// Prints the rule of the user that a server needs: its keys, channels and commands
    ///
    /// It connects to nothing. Put a password in the place of PASSWORD. Without a user in the settings it is called locks.
    #[command(after_help = "Example:\n  redlock acl --read-only")]
    Acl {
        /// For a user who may run status, who and list, and nothing else
        #[arg(long)]
        read_only: bool,
    },
    /// Prints a script that completes the arguments of `redlock` in a shell
    #[command(after_help = "Example:\n  redlock completion bash >/etc/bash_completion.d/redlock")]
    Completion {
        /// The shell
        shell: Shell,
    },
}

/// An end other than success.
struct Failure {
    code: u8,
    text: String,
}

const SAID_NO: u8 = 1;
const USAGE: u8 = 64;
const NO_QUORUM: u8 = 69;
const HELD: u8 = 75;
const LOST: u8 = 76;
const SETTINGS: u8 = 78;

impl Failure {
    fn new(code: u8, text: impl Display) -> Self {
        let text = text.to_string();
        Self { code, text }
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        Self::new(SETTINGS, error)
    }
}

impl From<ConnectError> for Failure {
    fn from(error: ConnectError) -> Self {
        match error {
            ConnectError::NoQuorum(error) => error.into(),
            error => Self::new(SETTINGS, error),
        }
    }
}

impl From<NoQuorum> for Failure {
    fn from(error: NoQuorum) -> Self {
        let is_foreign = |node: &NodeFailure| node.error.kind() == NodeErrorKind::Foreign;
        // One that was taken over ends that by itself.
        let lasts = error.retry_after().is_none() && error.failures().iter().any(is_foreign);
        Self::new(if lasts { SETTINGS } else { NO_QUORUM }, error)
    }
}

impl From<AcquireError> for Failure {
    fn from(error: AcquireError) -> Self {
        let code = match error {
            AcquireError::NoQuorum(error) => return error.into(),
            AcquireError::InvalidKey(_) => USAGE,
            AcquireError::Contended { .. } | AcquireError::WaitTimeout { .. } => HELD,
            _ => NO_QUORUM,
        };
        Self::new(code, error)
    }
}

/// The exit code of a look at the nodes, by whether a quorum of them has answered.
fn code(locks: &LockManager, is_quorum: bool) -> u8 {
    let is_foreign = |node: &NodeStatus| matches!(node.voting, VotingStatus::Foreign { .. });
    match is_quorum {
        _ if locks.snapshot().nodes.iter().any(is_foreign) => SETTINGS,
        true => 0,
        false => NO_QUORUM,
    }
}

impl Source {
    fn settings(&self) -> Result<Settings, Failure> {
        let settings = match &self.config {
            Some(path) => read(path)?,
            None => Settings::default(),
        };
        let mut settings = settings.with_env("REDLOCK")?;
        if !self.redis.is_empty() {
            let names = (0..self.redis.len()).map(|index| format!("CLI_NODES_{index}_URL"));
            settings = settings.with_vars("CLI", names.zip(self.redis.iter().cloned()))?;
        }
        if settings.is_in_memory() {
            let why = "memory: these nodes are in each process by itself; give the servers";
            return Err(Failure::new(SETTINGS, why));
        }
        // That is for one start of the service; here there is a command for it.
        Ok(settings.bootstrap(false))
    }
}

/// The settings in a file. Only the message of a format's error, which may quote passwords otherwise.
fn read(path: &PathBuf) -> Result<Settings, Failure> {
    let fail = |text: &str| Failure::new(SETTINGS, format!("{}: {text}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| fail(&error.to_string()))?;
    toml::from_str(&text).map_err(|error| fail(error.message()))
}

fn duration(text: &str) -> Result<Duration, humantime::DurationError> {
    humantime::parse_duration(text)
}

impl Program {
    async fn run(self) -> Result<u8, Failure> {
        let source = &self.source;
        match self.command {
            Command::Status(status) => status.run(source).await,
            Command::Wait(wait) => wait.run(source).await,
            Command::Bootstrap(bootstrap) => bootstrap.run(source).await,
            Command::Nodes(nodes::Nodes::Adopt(adopt)) => adopt.run(source).await,
            Command::Nodes(nodes::Nodes::Retire(retire)) => retire.run(source).await,
            Command::Who(who) => who.run(source).await,
            Command::List(list) => list.run(source).await,
            Command::Release(release) => release.run(source).await,
            Command::Run(run) => run.run(source).await,
            Command::Acl { read_only } => {
                let rules = source.settings()?.acl(read_only)?;
                let is_one = rules.len() == 1;
                for (place, rule) in rules {
                    let place = if is_one {
                        String::new()
                    } else {
                        format!("# {place}\n")
                    };
                    show::say(&format!("{place}{rule}\n"));
                }
                Ok(0)
            }
            Command::Completion { shell } => {
                let mut script = Vec::new();
                clap_complete::generate(shell, &mut Self::command(), "redlock", &mut script);
                show::say(&String::from_utf8_lossy(&script));
                Ok(0)
            }
        }
    }
}

fn main() -> ExitCode {
    let program = match Program::try_parse() {
        Ok(program) => program,
        Err(error) => {
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { USAGE } else { 0 });
        }
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let ended = match runtime {
        Ok(runtime) => runtime.block_on(program.run()),
        Err(error) => Err(Failure::new(NO_QUORUM, error)),
    };
    ExitCode::from(ended.unwrap_or_else(|Failure { code, text }| {
        show::tell(&format!("redlock: {text}"));
        code
    }))
}
