//! `redlock`, the program for operators of a service. `docs::operating` has its tasks.

#[cfg(not(unix))]
compile_error!("`redlock` needs Unix, because it passes signals on");

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

/// Shows and repairs the locks of a service, and runs commands under a lock.
///
/// Give it the settings of the service: a TOML file, and environment variables (REDLOCK_TTL, REDLOCK_PASSWORD and so on),
/// which override the file. --redis replaces all nodes. If the nodes or max_ttl differ from the service's, the nodes are shown
/// as foreign.
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
  0   done; for `status`: a quorum of nodes votes
  1   not done, because you answered no
  64  an argument is wrong or missing
  69  too few nodes vote or answer
  74  the output cannot be written
  75  another process holds the lock; for `release`: another holder has acquired it in the meantime
  76  the lock was lost while the command ran
  78  a setting is wrong, even if an argument sets it, or a node serves processes with other nodes or settings
  126 the command of `run` cannot be started; 127 it was not found
Otherwise `run` exits with the code of its command, or with 128 plus the number of the signal that ended it.

Example:
  redlock status --config /etc/orders/locks.toml";

#[derive(Args)]
struct Source {
    /// The settings of the service, as TOML
    #[arg(long, global = true, env = "REDLOCK_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    /// A node, instead of the nodes in the settings. Repeat it for each node. Put the password into REDLOCK_PASSWORD
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
    /// Prints the ACL rule for the user on a server: its keys, channels and commands
    ///
    /// It does not connect. Replace PASSWORD by a password. Without a user in the settings, the rule is for the user locks.
    #[command(after_help = "Example:\n  redlock acl --read-only")]
    Acl {
        /// For a user that may only run status, who and list
        #[arg(long)]
        read_only: bool,
    },
    /// Prints a script that lets a shell complete the arguments of `redlock`
    #[command(after_help = "Example:\n  redlock completion bash >/etc/bash_completion.d/redlock")]
    Completion {
        /// The shell
        shell: Shell,
    },
}

struct Failure {
    code: u8,
    text: String,
}

const SAID_NO: u8 = 1;
const USAGE: u8 = 64;
const NO_QUORUM: u8 = 69;
const OUTPUT: u8 = 74;
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
        // With a time to retry, the node has been taken over, and stops being foreign by itself.
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

/// The exit code of a command that only reads: whether a quorum of nodes has answered.
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
            let why =
                "memory: such nodes exist only inside one process; name the servers of the service";
            return Err(Failure::new(SETTINGS, why));
        }
        // In the settings, `bootstrap` is for one start of the service. This program has a command for it.
        Ok(settings.bootstrap(false))
    }
}

/// Reads settings from a file. Only the message of an error is shown, because its other text may quote passwords.
fn read(path: &PathBuf) -> Result<Settings, Failure> {
    let fail = |text: &str| Failure::new(SETTINGS, format!("{}: {text}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| fail(&error.to_string()))?;
    toml::from_str(&text).map_err(|error| fail(error.message()))
}

fn duration(text: &str) -> Result<Duration, String> {
    // `humantime` panics if the sum of the parts overflows. Its `M` is a month, where the writer probably means minutes.
    let mut numbers = text.split(|char: char| !char.is_ascii_digit());
    if text.len() > 100 || numbers.any(|digits| digits.len() > 10) || text.contains('M') {
        return Err("expected a duration such as `90s` or `5min`".to_owned());
    }
    humantime::parse_duration(text).map_err(|error| error.to_string())
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
                for (place, rule) in &rules {
                    let place = (rules.len() > 1).then(|| format!("# {place}\n"));
                    show::say(&format!("{}{rule}\n", place.unwrap_or_default()))?;
                }
                Ok(0)
            }
            Command::Completion { shell } => {
                let mut script = Vec::new();
                clap_complete::generate(shell, &mut Self::command(), "redlock", &mut script);
                show::say(&String::from_utf8_lossy(&script))?;
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
