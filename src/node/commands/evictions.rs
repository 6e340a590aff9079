//! Evictions, on Redis only: tells whether the server has evicted keys since the last time. Then the marker loses the
//! server's identity, so that the node does not vote before a quarantine.

use crate::namespace::Namespace;
use crate::node::NodeError;
use crate::node::commands::script::{Parts, Script, run};
use crate::node::redis::connection::Connection;

pub(crate) static SCRIPT: Script = Script::of(include_str!("evictions.lua"));

pub(crate) async fn look(
    connection: &mut Connection,
    namespace: &Namespace,
) -> Result<(), NodeError> {
    let mut cmd = SCRIPT.run(1, 1);
    cmd.arg(Parts(&namespace.marker()));
    run(connection, &SCRIPT, &cmd).await.map(drop)
}
