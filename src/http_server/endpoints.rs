//! Every path: the one table behind `docs/api.md`, the API key, and the answer to what other servers have and this one
//! does not.

mod elsewhere;
mod page;
mod served;

pub use elsewhere::{ELSEWHERE, Elsewhere};
pub use page::{markdown, title};
use schemars::{Schema, SchemaGenerator};

pub use served::{ENDPOINTS, aliases};

/// Makes the schema of a type.
pub type SchemaOf = fn(&mut SchemaGenerator) -> Schema;

/// A path that is served.
#[derive(Debug, Clone, Copy)]
pub struct Endpoint {
    /// What it is for.
    pub family: Family,
    /// `GET`, which answers `HEAD` too, `POST`, ...
    pub methods: &'static [&'static str],
    /// As the router matches it.
    pub path: &'static str,
    /// What it does.
    pub what: &'static str,
    /// Every status that it answers with, beside those that any path can have.
    pub statuses: &'static [u16],
    /// The path that it is another name of.
    pub alias_of: Option<&'static str>,
    /// The query that it understands.
    pub asks: Option<SchemaOf>,
    /// The JSON body that its `POST` and `PUT` take.
    pub takes: Option<SchemaOf>,
    /// That body may be left out.
    pub body_is_optional: bool,
    /// Its answer as JSON.
    pub gives: Option<SchemaOf>,
    /// Each event of its answer, where that can be a stream.
    pub streams: Option<SchemaOf>,
    /// Other media types of its answer.
    pub texts: &'static [&'static str],
}

/// What paths are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Family {
    /// OpenAI's APIs.
    OpenAi,
    /// SGLang's own generation.
    Native,
    /// What is served, and how busy it is.
    Info,
    /// What changes the server for everybody.
    Control,
    /// How it is.
    Health,
}

/// Who may ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Everybody, unless health is guarded too.
    Open,
    /// Who has the API key.
    Api,
    /// Who has the admin key.
    Admin,
}

impl Family {
    /// In reading order.
    pub const ALL: [Self; 5] = [Self::OpenAi, Self::Native, Self::Info, Self::Control, Self::Health];

    const fn access(self) -> Access {
        match self {
            Self::OpenAi | Self::Native | Self::Info => Access::Api,
            Self::Control => Access::Admin,
            Self::Health => Access::Open,
        }
    }
}

/// Who may ask for a matched path; what nothing matches is nobody's business without a key.
#[must_use]
pub fn access(matched: Option<&str>) -> Access {
    let endpoint = ENDPOINTS.iter().find(|endpoint| Some(endpoint.path) == matched);
    endpoint.map_or(Access::Api, |endpoint| endpoint.family.access())
}

/// The first name of a matched path.
#[must_use]
pub fn first_name(matched: &str) -> &str {
    let endpoint = ENDPOINTS.iter().find(|endpoint| endpoint.path == matched);
    endpoint.and_then(|endpoint| endpoint.alias_of).unwrap_or(matched)
}

/// What other servers have at `path`, where this one has nothing.
#[must_use]
pub fn elsewhere(path: &str) -> Option<&'static Elsewhere> {
    ELSEWHERE.iter().find(|elsewhere| matches(elsewhere.path, path))
}

/// Is `path` one of `pattern`, in which `{..}` stands for one segment?
fn matches(pattern: &str, path: &str) -> bool {
    let (mut pattern, mut path) = (pattern.split('/'), path.trim_end_matches('/').split('/'));
    loop {
        match (pattern.next(), path.next()) {
            (None, None) => return true,
            (Some(expected), Some(segment)) if expected.starts_with('{') && !segment.is_empty() => {}
            (Some(expected), Some(segment)) if expected == segment => {}
            _ => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn a_pattern_stands_for_its_segments() {
        let check = |pattern, path, want| assert_eq!(matches(pattern, path), want, "{pattern} {path}");
        check("/classify", "/classify", true);
        check("/classify", "/classify/", true);
        check("/classify", "/classify/x", false);
        check("/dumper/{method}", "/dumper/dump", true);
        check("/dumper/{method}", "/dumper/", false);
        check("/dumper/{method}", "/dumper", false);
        check("/v1/responses/{id}/cancel", "/v1/responses/7/cancel", true);
        check("/v1/responses/{id}", "/v1/responses/7/cancel", false);
    }

    #[test]
    fn the_tables_are_sound() {
        let mut paths = HashSet::new();
        for endpoint in ENDPOINTS {
            assert!(paths.insert(endpoint.path), "{} is there twice", endpoint.path);
            assert!(endpoint.what.ends_with('.') && !endpoint.what.contains('|'), "{}", endpoint.path);
            assert!(endpoint.statuses.is_sorted() && !endpoint.methods.is_empty(), "{}", endpoint.path);
            if let Some(first) = endpoint.alias_of {
                let named = ENDPOINTS.iter().find(|named| named.path == first).expect("an alias of something");
                assert_eq!((named.alias_of, named.family, named.methods), (None, endpoint.family, endpoint.methods));
            }
        }
        for elsewhere in ELSEWHERE {
            assert!(paths.insert(elsewhere.path), "{} is there twice", elsewhere.path);
            assert!(elsewhere.why.ends_with('.') && !elsewhere.why.contains('|'), "{}", elsewhere.path);
        }
    }

    #[test]
    fn who_may_ask() {
        assert_eq!(access(Some("/health")), Access::Open);
        assert_eq!(access(Some("/metrics")), Access::Open);
        assert_eq!(access(Some("/v1/models/{*model}")), Access::Api);
        assert_eq!(access(Some("/abort_request")), Access::Admin);
        assert_eq!(access(Some("/debug/fault")), Access::Admin);
        assert_eq!(access(None), Access::Api);
    }

    #[test]
    fn the_page_is_what_the_tables_say() {
        expect_test::expect_file!["../../docs/api.md"].assert_eq(&markdown());
    }
}
