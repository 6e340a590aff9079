//! Tasks of the runtime: the one place that spawns them, so that a simulation knows to which process each belongs.

use tokio::runtime::Handle;
use tokio::task::JoinHandle;

/// Runs `task` on the runtime that this is called in.
#[cfg(feature = "redis")]
#[track_caller]
pub(crate) fn spawn(task: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
    spawn_on(&Handle::current(), task)
}

/// Runs `task` on `runtime`.
#[track_caller]
pub(crate) fn spawn_on(
    runtime: &Handle,
    task: impl Future<Output = ()> + Send + 'static,
) -> JoinHandle<()> {
    #[cfg(tower_redlock_simulation)]
    if let Some(world) = crate::simulation::world() {
        return runtime.spawn(world.wrap(Box::pin(task)));
    }
    runtime.spawn(task)
}
