//! What the cases share: a program that uses the interface as it should, but for the one mistake of a case.

#![allow(dead_code, unused_imports, reason = "each case uses some")]

pub(crate) use std::convert::Infallible;
pub(crate) use std::sync::Arc;

pub(crate) use axum::extract::{FromRequestParts, Path};
pub(crate) use http::request::Parts;
pub(crate) use tower_layer::Layer;
pub(crate) use tower_redlock::error::KeyError;
pub(crate) use tower_redlock::extract::AsLockKeys;
pub(crate) use tower_redlock::idempotency::caller;
pub(crate) use tower_redlock::key::LockKeys;
pub(crate) use tower_redlock::{IdempotencyLayer, LockKey, LockManager, Locked, RedlockLayer, key};
pub(crate) use tower_service::Service;

pub(crate) struct OrderId(pub(crate) u64);

impl<S: Send + Sync> FromRequestParts<S> for OrderId {
    type Rejection = axum::extract::rejection::PathRejection;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Self::Rejection> {
        Ok(Self(Path::from_request_parts(parts, state).await?.0))
    }
}

pub(crate) type Order = RedlockLayer;
pub(crate) type Once = IdempotencyLayer;

pub(crate) fn is_extractor<S, T: FromRequestParts<S>>() {}
pub(crate) fn is_service<S: Service<http::Request<String>>>(_: S) {}
