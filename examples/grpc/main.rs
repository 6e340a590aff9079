//! A gRPC service (tonic) whose calls hold locks, and whose refusals are gRPC statuses.
//!
//! ```text
//! cargo run --example grpc      serves, calls itself, prints what comes of it, and exits
//! ```
//!
//! The messages and the service are written by hand, so that no `protoc` is needed; with generated code the layer goes
//! around `PaymentsServer` in the same way:
//!
//! ```protobuf
//! package shop;
//! service Payments {
//!   rpc Pay(Payment) returns (Receipt);        // the layer locks the order that the metadata `x-order-id` names
//!   rpc Transfer(Transfer) returns (Receipt);  // the handler locks both accounts that the message names
//! }
//! ```

#![allow(clippy::print_stdout, reason = "an example talks to the terminal")]

mod payments;
mod refusals;

use std::net::SocketAddr;

use http::uri::PathAndQuery;
use tokio::net::TcpListener;
use tonic::service::LayerExt as _;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Server};
use tonic::{Request, Status};
use tonic_prost::ProstCodec;
use tower_redlock::{LockManager, RedlockLayer, key};

use crate::payments::{PAY, Payment, Payments, Receipt, TRANSFER, Transfer};

type AnyError = Box<dyn std::error::Error + Send + Sync>;

#[tokio::main]
async fn main() -> Result<(), AnyError> {
    let locks = LockManager::builder().memory(5).connect().await?;
    let address = serve(Payments::new(locks.clone())).await?;
    let channel = Channel::from_shared(format!("http://{address}"))?
        .connect()
        .await?;

    let of_both = Transfer { from: 7, to: 3 };
    let (first, second, transfer) = tokio::join!(
        pay(&channel, Some("42")),
        pay(&channel, Some("042")),
        call(&channel, TRANSFER, None, of_both),
    );
    show("pay order 42", &first);
    show("pay order 042, at the same time", &second);
    show("transfer from account 7 to 3", &transfer);
    show("pay without `x-order-id`", &pay(&channel, None).await);
    let report = locks.shutdown(std::time::Duration::from_secs(1)).await;
    println!("all locks are released: {}", report.is_all_released());
    Ok(())
}

/// Serves on a port of its own, with the lock layer around the service.
async fn serve(payments: Payments) -> Result<SocketAddr, AnyError> {
    let order = key::header("x-order-id").parse::<u64>().prefix("order");
    let one_at_a_time = RedlockLayer::new(payments.locks.clone(), order.when(payments::is_pay))
        .rejection_response(refusals::to_response);
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let server = Server::builder().add_service(one_at_a_time.named_layer(payments));
    tokio::spawn(server.serve_with_incoming(TcpIncoming::from(listener)));
    Ok(address)
}

async fn pay(channel: &Channel, order: Option<&str>) -> Result<Receipt, Status> {
    call(channel, PAY, order, Payment { cents: 250 }).await
}

/// Calls a method of the service, as a generated client does.
async fn call<M>(
    channel: &Channel,
    method: &'static str,
    order: Option<&str>,
    message: M,
) -> Result<Receipt, Status>
where
    M: prost::Message + 'static,
{
    let mut client = tonic::client::Grpc::new(channel.clone());
    let ready = client.ready().await;
    ready.map_err(|error| Status::unavailable(error.to_string()))?;
    let mut request = Request::new(message);
    if let Some(order) = order {
        let order = order.parse();
        let order = order.map_err(|_| Status::invalid_argument("no order"))?;
        request.metadata_mut().insert("x-order-id", order);
    }
    let method = PathAndQuery::from_static(method);
    let codec = ProstCodec::<M, Receipt>::default();
    Ok(client.unary(request, method, codec).await?.into_inner())
}

fn show(what: &str, came: &Result<Receipt, Status>) {
    match came {
        Ok(receipt) => println!("{what}: {}", receipt.text),
        Err(status) => println!("{what}: {:?}, {}", status.code(), status.message()),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tonic::Code;

    use super::*;

    async fn service(takes: Duration) -> (LockManager, Channel) {
        let locks = LockManager::builder().memory(5).connect().await.unwrap();
        let mut payments = Payments::new(locks.clone());
        payments.takes = takes;
        let address = serve(payments).await.unwrap();
        let channel = Channel::from_shared(format!("http://{address}")).unwrap();
        (locks, channel.connect().await.unwrap())
    }

    #[tokio::test]
    async fn a_call_runs_under_the_lock_of_its_order() {
        let (locks, channel) = service(Duration::ZERO).await;
        let receipt = pay(&channel, Some("042")).await.unwrap();
        assert_eq!(receipt.text, "250 cents are paid under order:42");
        let both = Transfer { from: 7, to: 3 };
        let receipt = call(&channel, TRANSFER, None, both).await.unwrap();
        assert_eq!(receipt.text, "from 7 to 3 under account:3 account:7");
        drop(locks.try_acquire("order:42").await.unwrap());
    }

    #[tokio::test]
    async fn refusals_are_statuses() {
        let (locks, channel) = service(Duration::ZERO).await;
        let held = locks.acquire(["order:42", "account:3"]).await.unwrap();
        let busy = pay(&channel, Some("42")).await.unwrap_err();
        assert_eq!(busy.code(), Code::Aborted);
        assert_eq!(
            busy.message(),
            "Another request is using this resource. This request was not processed."
        );
        let pushback = busy.metadata().get("grpc-retry-pushback-ms").unwrap();
        assert_eq!(pushback, "1000");
        drop(held);

        let missing = pay(&channel, None).await.unwrap_err();
        assert_eq!(missing.code(), Code::InvalidArgument);
        assert!(
            missing.message().contains("`x-order-id` is missing"),
            "{missing}"
        );
        assert!(missing.metadata().get("grpc-retry-pushback-ms").is_none());

        locks.shutdown(Duration::ZERO).await;
        let both = Transfer { from: 7, to: 3 };
        for refused in [
            pay(&channel, Some("42")).await,
            call(&channel, TRANSFER, None, both).await,
        ] {
            assert_eq!(refused.unwrap_err().code(), Code::Unavailable);
        }
    }

    /// `Unavailable` would have clients try again by themselves, though the first call may have had its effect.
    #[tokio::test]
    async fn a_lock_that_is_lost_half_way_is_not_unavailable() {
        let day = Duration::from_secs(86_400);
        for method in [PAY, TRANSFER] {
            let (locks, channel) = service(day).await;
            let called = tokio::spawn(async move {
                let both = Transfer { from: 7, to: 3 };
                match method {
                    PAY => pay(&channel, Some("42")).await,
                    _ => call(&channel, TRANSFER, None, both).await,
                }
            });
            while locks.snapshot().held == 0 {
                tokio::task::yield_now().await;
            }
            locks.shutdown(Duration::ZERO).await;
            let lost = called.await.unwrap().unwrap_err();
            assert_eq!(lost.code(), Code::Unknown);
            assert!(lost.metadata().get("grpc-retry-pushback-ms").is_none());
        }
    }
}
