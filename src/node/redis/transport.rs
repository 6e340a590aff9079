//! The one place where the client gets its connections; in a simulation, from there.

use redis::{AsyncConnectionConfig, Client, RedisError};

#[cfg(not(tower_redlock_simulation))]
pub(super) use redis::aio::MultiplexedConnection as Multiplexed;

#[cfg(tower_redlock_simulation)]
pub(super) use self::simulated::Multiplexed;

pub(super) async fn connect(
    client: &Client,
    config: &AsyncConnectionConfig,
) -> Result<Multiplexed, RedisError> {
    #[cfg(tower_redlock_simulation)]
    if let Some(world) = crate::simulation::world() {
        return simulated::connect(&*world, client, config).await;
    }
    let connection = client.get_multiplexed_async_connection_with_config(config);
    #[cfg(not(tower_redlock_simulation))]
    return connection.await;
    #[cfg(tower_redlock_simulation)]
    connection.await.map(Multiplexed::from)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
pub(super) async fn over(
    stream: tokio::io::DuplexStream,
    info: redis::RedisConnectionInfo,
    config: AsyncConnectionConfig,
) -> Multiplexed {
    let made = redis::aio::MultiplexedConnection::new_with_config(&info, stream, config).await;
    let (connection, driver) = made.unwrap();
    tokio::spawn(driver);
    #[cfg(tower_redlock_simulation)]
    let connection = Multiplexed::from(connection);
    connection
}

#[cfg(tower_redlock_simulation)]
mod simulated {
    use std::ops::{Deref, DerefMut};
    use std::sync::Arc;

    use redis::aio::MultiplexedConnection;
    use redis::{AsyncConnectionConfig, Client, ConnectionAddr, ErrorKind, RedisError};
    use tokio::task::JoinHandle;

    use crate::simulation::World;
    use crate::task;

    /// A connection whose driver ends with its last clone, as that of a real one does.
    #[derive(Clone, Debug)]
    pub(in crate::node::redis) struct Multiplexed {
        connection: MultiplexedConnection,
        _driver: Option<Arc<Driver>>,
    }

    #[derive(Debug)]
    struct Driver(JoinHandle<()>);

    impl Drop for Driver {
        fn drop(&mut self) {
            self.0.abort();
        }
    }

    impl From<MultiplexedConnection> for Multiplexed {
        fn from(connection: MultiplexedConnection) -> Self {
            Self {
                connection,
                _driver: None,
            }
        }
    }

    impl Deref for Multiplexed {
        type Target = MultiplexedConnection;

        fn deref(&self) -> &MultiplexedConnection {
            &self.connection
        }
    }

    impl DerefMut for Multiplexed {
        fn deref_mut(&mut self) -> &mut MultiplexedConnection {
            &mut self.connection
        }
    }

    pub(super) async fn connect(
        world: &dyn World,
        client: &Client,
        config: &AsyncConnectionConfig,
    ) -> Result<Multiplexed, RedisError> {
        let info = client.get_connection_info();
        let (ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. }) =
            info.addr()
        else {
            let text = "simulated servers have no sockets in the file system";
            return Err((ErrorKind::InvalidClientConfig, text).into());
        };
        let stream = world.connect(host, *port).await?;
        let settings = info.redis_settings();
        let made = MultiplexedConnection::new_with_config(settings, stream, config.clone()).await;
        let (connection, driver) = made?;
        let driver = Arc::new(Driver(task::spawn(driver)));
        Ok(Multiplexed {
            connection,
            _driver: Some(driver),
        })
    }
}
