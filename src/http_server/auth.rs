//! Keys: who may ask for what.

use std::sync::Arc;

use axum::extract::{MatchedPath, Request, State};
use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use sha2::{Digest, Sha256};
use subtle::{Choice, ConstantTimeEq};

use super::endpoints::{self, Access};
use super::error::ApiError;
use crate::config::{AccessArgs, ApiKey};

/// The keys that are asked for, as digests: comparing those tells nothing of a key, not even its length.
#[derive(Debug, Clone, Default)]
pub struct Keys {
    api: Option<[u8; 32]>,
    admin: Option<[u8; 32]>,
    guard_health: bool,
}

impl Keys {
    /// Those of the command line.
    #[must_use]
    pub fn new(args: &AccessArgs) -> Self {
        let digest = |key: &ApiKey| Sha256::digest(key.reveal()).into();
        Self {
            api: args.api_key.as_ref().map(digest),
            admin: args.admin_api_key.as_ref().map(digest),
            guard_health: args.guard_health,
        }
    }

    /// May somebody who brings the key `given` have `access`?
    fn admit(&self, access: Access, given: Option<&str>) -> bool {
        let accepted = match access {
            Access::Open if !self.guard_health => return true,
            Access::Open | Access::Api if self.api.is_none() => return true,
            Access::Open | Access::Api => [self.api, self.admin],
            Access::Admin if self.admin.is_some() => [self.admin, None],
            Access::Admin if self.api.is_none() => return true,
            Access::Admin => [self.api, None],
        };
        let Some(given) = given else { return false };
        let given: [u8; 32] = Sha256::digest(given).into();
        let matches = accepted.iter().flatten().map(|key| key.ct_eq(&given));
        matches.fold(Choice::from(0), |any, one| any | one).into()
    }
}

/// Lets through who has the key for the matched path.
pub async fn check(State(keys): State<Arc<Keys>>, request: Request, next: Next) -> Response {
    let access = endpoints::access(request.extensions().get::<MatchedPath>().map(MatchedPath::as_str));
    if keys.admit(access, bearer(request.headers())) {
        next.run(request).await
    } else {
        ApiError::unauthorized(access).into_response()
    }
}

/// The key in `Authorization: Bearer <key>`.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, key) = headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| key.trim())
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn which_key_opens_what() {
        let check = |api: Option<&str>, admin: Option<&str>, guard_health, want: [(&str, &str); 3]| {
            let digest = |key: &str| Sha256::digest(key).into();
            let keys = Keys { api: api.map(digest), admin: admin.map(digest), guard_health };
            for (access, (opens, does_not)) in [Access::Open, Access::Api, Access::Admin].into_iter().zip(want) {
                let split = |keys: &'static str| keys.split_whitespace();
                for key in split(leak(opens)) {
                    assert!(keys.admit(access, Some(key).filter(|key| *key != "-")), "{access:?} {key}");
                }
                for key in split(leak(does_not)) {
                    assert!(!keys.admit(access, Some(key).filter(|key| *key != "-")), "{access:?} {key}");
                }
            }
        };
        check(None, None, false, [("- x", ""), ("- x", ""), ("- x", "")]);
        check(Some("k"), None, false, [("- x", ""), ("k", "- x kk"), ("k", "- x")]);
        check(None, Some("a"), false, [("-", ""), ("- x", ""), ("a", "- x")]);
        check(Some("k"), Some("a"), false, [("-", ""), ("k a", "- x"), ("a", "- k x")]);
        check(Some("k"), Some("a"), true, [("k a", "- x"), ("k a", "-"), ("a", "k")]);
    }

    fn leak(text: &str) -> &'static str {
        Box::leak(text.to_owned().into_boxed_str())
    }

    #[test]
    fn a_key_stands_behind_its_scheme() {
        let check = |value: &'static str, want: Option<&str>| {
            let mut headers = HeaderMap::new();
            headers.insert(AUTHORIZATION, HeaderValue::from_static(value));
            assert_eq!(bearer(&headers), want, "{value}");
        };
        check("Bearer k", Some("k"));
        check("bearer  k ", Some("k"));
        check("Basic k", None);
        check("k", None);
        check("", None);
        assert_eq!(bearer(&HeaderMap::new()), None);
    }
}
