//! The crate in a simulated world: it gets its connections, its random bytes and its clock there, and all its tasks
//! are those of a process (`src/seam.rs`).

use std::io;
use std::sync::Arc;

use tower_redlock::clock::{Clock, Moment};
use tower_redlock::simulation::{self, Boxed, Installed, Stream};
use tower_redlock_simulated::world::{ProcessId, SimClock, World};

/// Lets the world run, and makes it that of all that runs on this thread, for as long as what is returned lives.
pub(crate) fn begin(world: &World) -> Installed {
    world.begin();
    simulation::install(Arc::new(Seam(world.clone())))
}

/// The clock of a process, for its manager.
pub(crate) fn clock(world: &World, process: ProcessId) -> Arc<ProcessClock> {
    Arc::new(ProcessClock(world.clock(process)))
}

struct Seam(World);

impl simulation::World for Seam {
    fn connect(&self, host: &str, port: u16) -> Boxed<io::Result<Box<dyn Stream>>> {
        let connecting = self.0.connect(host, port);
        Box::pin(async move { Ok(Box::new(connecting.await?) as Box<dyn Stream>) })
    }

    fn fill_random(&self, bytes: &mut [u8]) {
        self.0.fill_random(bytes);
    }

    fn wrap(&self, task: Boxed<()>, is_aside: bool) -> Boxed<()> {
        Box::pin(self.0.wrap(task, is_aside))
    }
}

#[derive(Debug)]
pub(crate) struct ProcessClock(Arc<SimClock>);

impl Clock for ProcessClock {
    fn now(&self) -> Moment {
        Moment::from_nanos(self.0.nanos())
    }

    fn unix_micros(&self) -> u64 {
        self.0.unix_micros()
    }

    // All tasks of a world run on one thread, so that a seed says in which order. `Fault::Block` keeps those of callers
    // from running.
    fn follows_runtime(&self) -> bool {
        true
    }
}
