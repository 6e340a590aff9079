//! The seam for the simulator of `tests/simulation`: it takes the place of the network, of randomness and of the
//! scheduler of tasks. Only built with `--cfg tower_redlock_simulation`, and no part of the interface. The name is long
//! so that nobody else's flag, which the compiler gives to all crates, is the same by chance.

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

/// What surrounds the processes of a simulation.
pub trait World: Send + Sync {
    /// Connects to a server.
    fn connect(&self, host: &str, port: u16) -> Boxed<io::Result<Box<dyn Stream>>>;

    /// Fills `bytes` from the seed of the simulation.
    fn fill_random(&self, bytes: &mut [u8]);

    /// Makes a task part of the process that spawns it.
    fn wrap(&self, task: Boxed<()>) -> Boxed<()>;
}

thread_local! {
    static WORLD: RefCell<Option<Arc<dyn World>>> = const { RefCell::new(None) };
}

/// Takes the world away when it is dropped.
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

/// Makes `world` the surroundings of all that runs on this thread.
pub fn install(world: Arc<dyn World>) -> Installed {
    WORLD.with(|current| current.replace(Some(world)));
    Installed(())
}

pub(crate) fn world() -> Option<Arc<dyn World>> {
    WORLD.with(|current| current.borrow().clone())
}
