//! The only place that spawns tasks and asks for random numbers, so that a simulation can control both.

use tokio::runtime::Handle;
use tokio::task::JoinHandle;

#[cfg(feature = "redis")]
#[track_caller]
pub(crate) fn spawn(task: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
    spawn_on(&Handle::current(), task)
}

#[track_caller]
pub(crate) fn spawn_on(
    runtime: &Handle,
    task: impl Future<Output = ()> + Send + 'static,
) -> JoinHandle<()> {
    spawn_as(runtime, task, false)
}

/// Spawns a task on the manager's thread. In a simulation, such tasks go on while others are blocked.
#[track_caller]
pub(crate) fn spawn_in_background(
    thread: &Handle,
    task: impl Future<Output = ()> + Send + 'static,
) -> JoinHandle<()> {
    spawn_as(thread, task, true)
}

#[track_caller]
fn spawn_as(
    runtime: &Handle,
    task: impl Future<Output = ()> + Send + 'static,
    is_background: bool,
) -> JoinHandle<()> {
    #[cfg(tower_redlock_tests)]
    if let Some(world) = simulation::world() {
        return runtime.spawn(world.wrap(Box::pin(task), is_background));
    }
    // Only a simulation uses it.
    let _ = is_background;
    runtime.spawn(task)
}

pub(crate) fn fill_random(bytes: &mut [u8]) -> Result<(), getrandom::Error> {
    #[cfg(tower_redlock_tests)]
    if let Some(world) = simulation::world() {
        world.fill_random(bytes);
        return Ok(());
    }
    getrandom::fill(bytes)
}

fn random() -> Result<u64, getrandom::Error> {
    #[cfg(tower_redlock_tests)]
    if let Some(world) = simulation::world() {
        let mut bytes = [0; 8];
        world.fill_random(&mut bytes);
        return Ok(u64::from_le_bytes(bytes));
    }
    getrandom::u64()
}

/// A random number for pauses. Without entropy all pauses are equal, which is slower but not wrong.
pub(crate) fn for_pause() -> u64 {
    random().unwrap_or(u64::MAX / 2)
}

/// Lets the simulator in `tests/simulation` replace the network, randomness and the scheduler. Without an installed
/// [`World`](simulation::World), the crate uses the real ones.
#[cfg(tower_redlock_tests)]
pub mod simulation {
    use std::cell::RefCell;
    use std::fmt;
    use std::io;
    use std::pin::Pin;
    use std::sync::Arc;

    use tokio::io::{AsyncRead, AsyncWrite};

    /// What the functions of a [`World`] return.
    pub type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;

    /// A connection to a server.
    pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

    impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

    /// The surroundings of the processes in a simulation.
    pub trait World: Send + Sync {
        /// Connects to a server.
        fn connect(&self, host: &str, port: u16) -> Boxed<io::Result<Box<dyn Stream>>>;

        /// Fills `bytes` with random numbers that the simulation's seed determines.
        fn fill_random(&self, bytes: &mut [u8]);

        /// Assigns a task to the process that spawns it. It belongs to the manager's thread if it `is_background` or is
        /// spawned by such a task.
        fn wrap(&self, task: Boxed<()>, is_background: bool) -> Boxed<()>;
    }

    thread_local! {
        static WORLD: RefCell<Option<Arc<dyn World>>> = const { RefCell::new(None) };
    }

    /// Removes the world when it is dropped.
    #[must_use = "the world is gone when this is dropped"]
    pub struct Installed(());

    impl Drop for Installed {
        fn drop(&mut self) {
            WORLD.with(|current| current.replace(None));
        }
    }

    impl fmt::Debug for Installed {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("Installed")
        }
    }

    /// Installs `world` for everything that runs on this thread.
    pub fn install(world: Arc<dyn World>) -> Installed {
        WORLD.with(|current| current.replace(Some(world)));
        Installed(())
    }

    pub(crate) fn world() -> Option<Arc<dyn World>> {
        WORLD.with(|current| current.borrow().clone())
    }
}
