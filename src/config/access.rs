//! Who may ask, from where, and for how long.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::Args;

use super::duration::{parse_duration, parse_duration_or_zero};

/// Who may ask, from where, and for how long.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Access")]
pub struct AccessArgs {
    /// The key that requests must bring, as `Authorization: Bearer <KEY>`. Health, metrics and `/debug` stay open. The
    /// variable is the better place: everybody on the machine can read flags.
    #[arg(long, value_name = "KEY", env = "RADIOSONDE_API_KEY", hide_env_values = true)]
    pub api_key: Option<ApiKey>,
    /// The key for what changes the server for everybody: abort, pause, continue, drills; it opens the rest too. Without
    /// it, `--api-key` is asked for there as well.
    #[arg(long, value_name = "KEY", env = "RADIOSONDE_ADMIN_API_KEY", hide_env_values = true)]
    pub admin_api_key: Option<ApiKey>,
    /// Health, metrics and `/debug` ask for `--api-key` as well, on both listeners. Whoever probes and scrapes needs the key
    /// then.
    #[arg(long, requires = "api_key", env = "RADIOSONDE_GUARD_HEALTH")]
    pub guard_health: bool,
    /// Serve https with this chain of certificates in PEM. The admin listener stays plain: give it an address that only
    /// those reach who watch.
    #[arg(long, value_name = "PATH", requires = "ssl_keyfile", env = "RADIOSONDE_SSL_CERTFILE")]
    pub ssl_certfile: Option<PathBuf>,
    /// The key of `--ssl-certfile`, in PEM.
    #[arg(long, value_name = "PATH", requires = "ssl_certfile", env = "RADIOSONDE_SSL_KEYFILE")]
    pub ssl_keyfile: Option<PathBuf>,
    /// Let pages of this origin, as in `https://example.org`, call the server from a browser; `*`: of any. May be
    /// repeated. Default: of none.
    #[arg(long, value_name = "ORIGIN", env = "RADIOSONDE_CORS_ALLOW_ORIGIN", value_delimiter = ',')]
    pub cors_allow_origin: Vec<Origin>,
    /// How long one request may take, from its arrival to its last token, waiting included; then it ends with an error.
    /// 0: as long as it likes.
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = parse_duration_or_zero,
          env = "RADIOSONDE_REQUEST_TIMEOUT")]
    pub request_timeout: Duration,
    /// A connection is closed when the head of a request, its first or its next one, is not here after so long; both
    /// listeners do it. Give proxies in front of the server a shorter limit of their own, so that they close first.
    #[arg(long, value_name = "DURATION", default_value = "75s", value_parser = parse_duration,
          env = "RADIOSONDE_KEEP_ALIVE_TIMEOUT")]
    pub keep_alive_timeout: Duration,
}

impl AccessArgs {
    /// How long one request may take; `None`: as long as it likes.
    #[must_use]
    pub fn request_limit(&self) -> Option<Duration> {
        (!self.request_timeout.is_zero()).then_some(self.request_timeout)
    }

    /// Certificates and key, if https is asked for.
    #[must_use]
    pub fn tls(&self) -> Option<(PathBuf, PathBuf)> {
        self.ssl_certfile.clone().zip(self.ssl_keyfile.clone())
    }
}

/// A key; it shows itself to nobody.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiKey(String);

impl ApiKey {
    /// The key itself.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ApiKey(..)")
    }
}

impl FromStr for ApiKey {
    type Err = &'static str;

    /// A header must be able to carry it.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.bytes().all(|byte| byte.is_ascii_graphic()) && !text.is_empty() {
            true => Ok(Self(text.to_owned())),
            false => Err("a key is at least one visible ASCII character, without spaces"),
        }
    }
}

/// Where a page comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// Anywhere.
    Any,
    /// Scheme, host and port, as a browser writes them.
    Of(String),
}

impl FromStr for Origin {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let host =
            text.split_once("://").filter(|(scheme, _)| ["http", "https"].contains(scheme)).map(|(_, host)| host);
        let is_host = |host: &str| !host.is_empty() && host.bytes().all(|b| b.is_ascii_graphic() && b != b'/');
        match (text, host) {
            ("*", _) => Ok(Self::Any),
            (_, Some(host)) if is_host(host) => Ok(Self::Of(text.to_ascii_lowercase())),
            _ => Err(format!("'{text}' is no origin: write * or scheme and host, as in https://example.org")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins() {
        let of = |text: &str| Ok(Origin::Of(text.to_owned()));
        for (text, want) in [
            ("*", Ok(Origin::Any)),
            ("https://example.org", of("https://example.org")),
            ("http://localhost:3000", of("http://localhost:3000")),
            ("https://Example.org", of("https://example.org")),
        ] {
            assert_eq!(text.parse(), want, "{text}");
        }
        for wrong in ["", "example.org", "https://", "https://example.org/", "ftp://x", "https://a b", "https://*\n"] {
            assert!(wrong.parse::<Origin>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn keys_are_not_shown() {
        let key: ApiKey = "secret".parse().unwrap();
        assert_eq!((format!("{key:?}").as_str(), key.reveal()), ("ApiKey(..)", "secret"));
        for wrong in ["", "a b", "ü", "a\n"] {
            assert!(wrong.parse::<ApiKey>().is_err(), "{wrong:?}");
        }
    }
}
