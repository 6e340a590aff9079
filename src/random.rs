//! Randomness from the operating system; in a simulation, from its seed.

/// Fills `bytes` with random ones.
pub(crate) fn fill(bytes: &mut [u8]) -> Result<(), getrandom::Error> {
    #[cfg(tower_redlock_simulation)]
    if let Some(world) = crate::simulation::world() {
        world.fill_random(bytes);
        return Ok(());
    }
    getrandom::fill(bytes)
}

fn u64() -> Result<u64, getrandom::Error> {
    #[cfg(tower_redlock_simulation)]
    if let Some(world) = crate::simulation::world() {
        let mut bytes = [0; 8];
        world.fill_random(&mut bytes);
        return Ok(u64::from_le_bytes(bytes));
    }
    getrandom::u64()
}

/// A random number for pauses, of managers and of Redis nodes. Without entropy pauses are equal, which is slower but not
/// wrong.
pub(crate) fn for_pause() -> u64 {
    u64().unwrap_or(u64::MAX / 2)
}
