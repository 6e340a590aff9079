//! The layer around a plain tower service, served by hyper: no axum.
//!
//! ```text
//! cargo run --example tower_only
//! ```
//!
//! There is no router here, so a function makes the key of the request's path. The service gets its lock by
//! `Held::of`.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "an example talks to the terminal"
)]

use std::convert::Infallible;
use std::error::Error;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{Request, Response, StatusCode};
use http_body_util::{Empty, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tower::{ServiceBuilder, service_fn};
use tower_redlock::error::KeyError;
use tower_redlock::{Held, LockKey, LockManager, RedlockLayer};

type AnyError = Box<dyn Error + Send + Sync>;

/// How long a payment takes.
const WORK: Duration = Duration::from_millis(200);

#[tokio::main]
async fn main() -> ExitCode {
    match run().await {
        Ok(mut answers) => {
            answers.sort_unstable();
            let [first, second] = answers;
            println!("two payments of order 7 at once: {first} and {second}");
            if answers == [StatusCode::OK, StatusCode::CONFLICT] {
                return ExitCode::SUCCESS;
            }
            println!("NOT as told");
        }
        Err(error) => eprintln!("tower_only: {error}"),
    }
    ExitCode::FAILURE
}

/// Serves payments and asks for one of them twice at once.
async fn run() -> Result<[StatusCode; 2], AnyError> {
    let locks = LockManager::builder().memory(5).connect().await?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let server = tokio::spawn(serve(listener, locks.clone()));
    let (first, second) = tokio::join!(ask(address), ask(address));
    server.abort();
    locks.shutdown(WORK * 10).await;
    Ok([first?, second?])
}

async fn serve(listener: TcpListener, locks: LockManager) -> std::io::Result<()> {
    let service = ServiceBuilder::new()
        .layer(RedlockLayer::new(locks, order))
        .service(service_fn(pay));
    loop {
        let (stream, _) = listener.accept().await?;
        let service = TowerToHyperService::new(service.clone());
        tokio::spawn(async move {
            let server = auto::Builder::new(TokioExecutor::new());
            let connection = server.serve_connection(TokioIo::new(stream), service);
            if let Err(error) = connection.await {
                eprintln!("a connection ended: {error}");
            }
        });
    }
}

/// `/orders/7/pay` locks `order:7`; other paths need no lock. As a number, so that `07` is no other order.
fn order(parts: &Parts) -> Result<Option<LockKey>, KeyError> {
    let path = parts.uri.path();
    let Some(id) = path
        .strip_prefix("/orders/")
        .and_then(|rest| rest.strip_suffix("/pay"))
    else {
        return Ok(None);
    };
    let id: u64 = id
        .parse()
        .map_err(|_| KeyError::malformed("the order is no number"))?;
    LockKey::join(["order", &id.to_string()]).map(Some)
}

async fn pay(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let Ok(lock) = Held::of(request.extensions()) else {
        let mut response = Response::new(Full::from("there is no such path\n"));
        *response.status_mut() = StatusCode::NOT_FOUND;
        return Ok(response);
    };
    tokio::time::sleep(WORK).await;
    Ok(Response::new(Full::from(format!(
        "{} is paid\n",
        lock.key()
    ))))
}

async fn ask(address: SocketAddr) -> Result<StatusCode, AnyError> {
    let client = Client::builder(TokioExecutor::new()).build_http();
    let uri = format!("http://{address}/orders/7/pay");
    let answer = client.request(Request::post(uri).body(Empty::<Bytes>::new())?);
    Ok(answer.await?.status())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_of_two_is_refused() {
        let mut answers = run().await.unwrap();
        answers.sort_unstable();
        assert_eq!(answers, [StatusCode::OK, StatusCode::CONFLICT]);
    }

    #[test]
    fn only_payments_have_keys_and_one_order_has_one() {
        let of = |path: &str| order(&Request::post(path).body(()).unwrap().into_parts().0);
        assert_eq!(of("/orders/07/pay"), of("/orders/7/pay"));
        assert_eq!(of("/orders/7/pay").unwrap().unwrap().as_str(), "order:7");
        assert_eq!(of("/orders"), Ok(None));
        assert!(of("/orders/x/pay").is_err());
    }
}
