//! The messages and the service, as tonic and prost generate them.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use http::request::Parts;
use tonic::body::Body;
use tonic::server::{Grpc, NamedService};
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;
use tower::{Service, service_fn};
use tower_redlock::{Held, LockManager};

use crate::refusals;

pub(crate) const PAY: &str = "/shop.Payments/Pay";
pub(crate) const TRANSFER: &str = "/shop.Payments/Transfer";

/// The order is in the metadata, where the layer sees it.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Payment {
    #[prost(uint64, tag = "1")]
    pub(crate) cents: u64,
}

/// The accounts are in the message, which only the handler sees.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Transfer {
    #[prost(uint64, tag = "1")]
    pub(crate) from: u64,
    #[prost(uint64, tag = "2")]
    pub(crate) to: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Receipt {
    #[prost(string, tag = "1")]
    pub(crate) text: String,
}

/// Whether the layer is to lock a call: it stands around all methods of the service.
pub(crate) fn is_pay(parts: &Parts) -> bool {
    parts.uri.path() == PAY
}

#[derive(Clone)]
pub(crate) struct Payments {
    pub(crate) locks: LockManager,
    /// How long the payment provider takes.
    pub(crate) takes: Duration,
}

impl Payments {
    pub(crate) const fn new(locks: LockManager) -> Self {
        let takes = Duration::from_millis(100);
        Self { locks, takes }
    }

    /// Runs under the lock that the layer holds.
    async fn pay(self, request: Request<Payment>) -> Result<Response<Receipt>, Status> {
        let held = Held::of(request.extensions());
        let held = held.map_err(|error| Status::internal(error.to_string()))?;
        tokio::time::sleep(self.takes).await;
        let cents = request.into_inner().cents;
        let text = format!("{cents} cents are paid under {}", held.key());
        Ok(Response::new(Receipt { text }))
    }

    /// Takes the locks that the message names, all or none, and ends when they are lost.
    async fn transfer(self, request: Request<Transfer>) -> Result<Response<Receipt>, Status> {
        let Transfer { from, to } = request.into_inner();
        let accounts = [from, to].map(|account| format!("account:{account}"));
        let text = self.locks.run(accounts, async |lock| {
            tokio::time::sleep(self.takes).await;
            let keys: Vec<&str> = lock.keys().iter().map(|key| key.as_str()).collect();
            format!("from {from} to {to} under {}", keys.join(" "))
        });
        let text = text
            .await
            .map_err(|error| refusals::to_status(&error.into()))?;
        Ok(Response::new(Receipt { text }))
    }
}

impl NamedService for Payments {
    const NAME: &'static str = "shop.Payments";
}

impl Service<http::Request<Body>> for Payments {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let this = self.clone();
        Box::pin(async move {
            Ok(match request.uri().path() {
                PAY => {
                    let pay = service_fn(move |request| this.clone().pay(request));
                    let codec = ProstCodec::<Receipt, Payment>::default();
                    Grpc::new(codec).unary(pay, request).await
                }
                TRANSFER => {
                    let transfer = service_fn(move |request| this.clone().transfer(request));
                    let codec = ProstCodec::<Receipt, Transfer>::default();
                    Grpc::new(codec).unary(transfer, request).await
                }
                _ => Status::unimplemented("there is no such method").into_http(),
            })
        })
    }
}
