//! Reads the parts of a path and a query, and says what is wrong with them in the one shape of an error.

use axum::extract::{FromRequestParts, Path, Query};
use axum::http::StatusCode;
use axum::http::request::Parts;
use serde::de::DeserializeOwned;

use super::error::ApiError;

/// A query, read.
pub struct ApiQuery<T>(pub T);

/// The one part of a path that varies. What is not UTF-8 names nothing: 404.
pub struct Name(pub String);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for ApiQuery<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let Query(query) = Query::from_request_parts(parts, state)
            .await
            .map_err(|rejection| ApiError { param: None, ..ApiError::invalid("", rejection.body_text()) })?;
        Ok(Self(query))
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Name {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let Path(name) = Path::from_request_parts(parts, state).await.map_err(|rejection| {
            ApiError::plain(
                StatusCode::NOT_FOUND,
                "not_found_error",
                format!("no such name: {}", rejection.body_text()),
            )
        })?;
        Ok(Self(name))
    }
}
