//! Closed label sets: every value that a label or an attribute of ours can take.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// An enum whose variants are label values: `ALL` lists them, `as_str` gives the text.
macro_rules! label_set {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident => $text:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
        pub enum $name { $($(#[$vdoc])* #[serde(rename = $text)] $variant),+ }

        impl $name {
            /// Every value, in order.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The text of this value in labels, attributes and JSON.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text),+ }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}

label_set! {
    /// The stations that a probe or a request crosses, in flow order.
    Hop {
        /// The HTTP server: from the first byte of the request to the verdict.
        Http => "http",
        /// Text to ids, request table, hand-over to the connection.
        Submit => "tokenizer_manager.submit",
        /// On the socket to the engine.
        IpcToEngine => "ipc.to_engine",
        /// Received by the engine, not yet seen by the scheduler.
        Inbox => "scheduler.inbox",
        /// The scheduler's decision about it.
        ProcessInput => "scheduler.process_input_requests",
        /// Waiting for its first place in a batch.
        Queue => "scheduler.waiting_queue",
        /// A busy scheduler's probes wait here for the batch in flight.
        ReturnHealthCheckIpcs => "scheduler.return_health_check_ipcs",
        /// The batch of a probe, from planning to output.
        RunBatch => "scheduler.run_batch",
        /// The forward pass of that batch.
        Forward => "model_runner.forward",
        /// Prompt chunks of a user request, first to last.
        Prefill => "scheduler.prefill",
        /// Output tokens of a user request, second to last.
        Decode => "scheduler.decode",
        /// On the socket to the frontend.
        IpcToFrontend => "ipc.to_frontend",
        /// Ids to text.
        Detokenizer => "detokenizer",
        /// Matched to its waiter; `last_receive_tstamp` moves at its end.
        Receive => "tokenizer_manager.receive",
    }
}

label_set! {
    /// Which way the scheduler took for a probe.
    ProbeBranch {
        /// The scheduler never decided, or a short cut answered.
        None => "none",
        /// The scheduler was idle: the probe ran as a real minimal request.
        Idle => "idle",
        /// The scheduler was busy: the probe waited for a batch result.
        Busy => "busy",
    }
}

label_set! {
    /// How a probe ended.
    ProbeOutcome {
        /// Something was received in time: 200.
        Ok => "ok",
        /// The limit passed: 503.
        Timeout => "timeout",
        /// The engine was dead, or died meanwhile: 503.
        EngineDead => "engine_dead",
        /// The server is starting: 503.
        Starting => "starting",
        /// The server is draining: 503.
        Draining => "draining",
        /// Generation on `/health` is switched off: 200 without touching the runtime.
        Shortcut => "shortcut",
        /// Generation is paused: 200, and no word about the runtime's health.
        Paused => "paused",
        /// The client hung up before the verdict.
        ClientGone => "client_gone",
        /// The runtime refused or failed the probe's request: 503.
        Error => "error",
    }
}

label_set! {
    /// What proved life to a probe.
    ProbeEvidence {
        /// Nothing was received.
        None => "none",
        /// The answer that belongs to this probe.
        OwnAnswer => "own_answer",
        /// Some other output of the engine, received after the probe was sent.
        OtherTraffic => "other_traffic",
    }
}

label_set! {
    /// Where a probe came in.
    ProbeEndpoint {
        /// `GET /health`
        Health => "/health",
        /// `GET /health_generate`
        HealthGenerate => "/health_generate",
        /// Nobody asked: the server's own, after `--self-probe-interval` without a verdict and without an output.
        SelfProbe => "self",
    }
}

label_set! {
    /// Why a probe failed: the sick hop's cause. A closed set; `unknown` is a bug.
    Cause {
        /// The engine's connection ended or its process exited.
        EngineDead => "engine_dead",
        /// No heartbeat: the engine is stopped or starved.
        EngineFrozen => "engine_frozen",
        /// Heartbeats go on, the step in flight does not end.
        StepStuck => "step_stuck",
        /// Heartbeats go on, no step is in flight, and the scheduler's loop does not turn.
        LoopFrozen => "loop_frozen",
        /// The forward pass of the probe returned an error.
        StepFailed => "step_failed",
        /// The loop turns, requests wait, no batch forms.
        NotScheduling => "not_scheduling",
        /// The engine sent the answer, the frontend never received it.
        ReturnPathLost => "return_path_lost",
        /// Received by the detokenizer and not handed on.
        DetokenizerStuck => "detokenizer_stuck",
        /// Messages wait in front of the socket.
        IpcBackpressure => "ipc_backpressure",
        /// The frontend's own runtime lags.
        FrontendStalled => "frontend_stalled",
        /// Never needed; a case that lands here is a bug.
        Unknown => "unknown",
    }
}

label_set! {
    /// The APIs that take requests.
    RequestEndpoint {
        /// `POST /generate`
        Generate => "/generate",
        /// `POST /v1/completions`
        Completions => "/v1/completions",
        /// `POST /v1/chat/completions`
        ChatCompletions => "/v1/chat/completions",
        /// `POST /v1/embeddings`
        Embeddings => "/v1/embeddings",
        /// `POST /encode`
        Encode => "/encode",
    }
}

impl RequestEndpoint {
    /// Generates text; the others embed it.
    #[must_use]
    pub const fn is_generation(self) -> bool {
        !matches!(self, Self::Embeddings | Self::Encode)
    }
}

label_set! {
    /// How a user request ended.
    RequestOutcome {
        /// A stop token or a stop string.
        Stop => "stop",
        /// The asked number of tokens, or the end of the context.
        Length => "length",
        /// The client left, or asked for the end.
        Abort => "abort",
        /// The runtime failed it.
        Error => "error",
    }
}

label_set! {
    /// Why a request was refused before it was accepted.
    RejectReason {
        /// Bad input: 400, 404 or 413.
        Invalid => "invalid",
        /// `--max-queued-requests` reached: 503.
        QueueFull => "queue_full",
        /// Starting, draining or without an engine: 503.
        NotServing => "not_serving",
    }
}

label_set! {
    /// What the server as a whole can say of itself.
    ServerStatus {
        /// Binding, fetching or loading.
        Starting => "starting",
        /// The last verdict was good.
        Up => "up",
        /// The last probe failed, or the engine is dead.
        UnHealthy => "unhealthy",
        /// Graceful exit has begun.
        Draining => "draining",
    }
}

label_set! {
    /// What made the server's status change.
    StatusReason {
        /// The model is loaded and has run once.
        EngineReady => "engine_ready",
        /// A probe heard something in time.
        ProbeOk => "probe_ok",
        /// A probe's limit passed.
        ProbeFailed => "probe_failed",
        /// The engine is gone, and another one is started.
        EngineRestarting => "engine_restarting",
        /// The engine is gone for good.
        EngineDied => "engine_died",
        /// The process was asked to end.
        DrainBegan => "drain_began",
    }
}

label_set! {
    /// What a scheduler step works on.
    StepPhase {
        /// Prompt chunks only.
        Prefill => "prefill",
        /// One token for each running request.
        Decode => "decode",
        /// Both.
        Mixed => "mixed",
    }
}

label_set! {
    /// The paths that are served, as they are matched; `/metrics` is not one of them, since reading changes nothing.
    HttpRoute {
        /// `GET /health`
        Health => "/health",
        /// `GET /health_generate`
        HealthGenerate => "/health_generate",
        /// `GET /livez`
        Livez => "/livez",
        /// `GET /readyz`
        Readyz => "/readyz",
        /// `GET /startupz`
        Startupz => "/startupz",
        /// `GET /ready`
        Ready => "/ready",
        /// `GET /ping`
        Ping => "/ping",
        /// `GET /debug/probes`
        DebugProbes => "/debug/probes",
        /// `GET /debug/probes/{probe_id}`
        DebugProbe => "/debug/probes/{probe_id}",
        /// `GET /debug/incidents`
        DebugIncidents => "/debug/incidents",
        /// `/debug/fault`
        DebugFault => "/debug/fault",
        /// `POST /generate`
        Generate => "/generate",
        /// `POST /v1/completions`
        Completions => "/v1/completions",
        /// `POST /v1/chat/completions`
        ChatCompletions => "/v1/chat/completions",
        /// `POST /v1/embeddings`
        Embeddings => "/v1/embeddings",
        /// `POST /encode`
        Encode => "/encode",
        /// `GET /v1/models`
        Models => "/v1/models",
        /// `GET /v1/models/{model}`
        Model => "/v1/models/{*model}",
        /// `POST /v1/tokenize`
        Tokenize => "/v1/tokenize",
        /// `POST /v1/detokenize`
        Detokenize => "/v1/detokenize",
        /// `GET /`
        Root => "/",
        /// `GET /model_info`
        ModelInfo => "/model_info",
        /// `GET /server_info`
        ServerInfo => "/server_info",
        /// `GET /v1/loads`
        Loads => "/v1/loads",
        /// `GET /openapi.json`
        OpenApi => "/openapi.json",
        /// `POST /parse_function_call`
        ParseFunctionCall => "/parse_function_call",
        /// `POST /separate_reasoning`
        SeparateReasoning => "/separate_reasoning",
        /// `POST /abort_request`
        AbortRequest => "/abort_request",
        /// `POST /pause_generation`
        PauseGeneration => "/pause_generation",
        /// `POST /continue_generation`
        ContinueGeneration => "/continue_generation",
        /// `POST /flush_cache`
        FlushCache => "/flush_cache",
        /// `GET` or `POST /set_trace_level`
        SetTraceLevel => "/set_trace_level",
        /// `POST /configure_logging`
        ConfigureLogging => "/configure_logging",
        /// Health as gRPC has it.
        GrpcHealth => "/grpc.health.v1.Health/{method}",
        /// Nothing is there.
        Unmatched => "unmatched",
    }
}

label_set! {
    /// The first digit of an HTTP answer's status.
    HttpCode {
        /// It worked.
        Success => "2xx",
        /// Look elsewhere, or nothing is new.
        Redirection => "3xx",
        /// The client's business.
        ClientError => "4xx",
        /// Ours.
        ServerError => "5xx",
        /// The client left before there was an answer.
        None => "none",
    }
}

label_set! {
    /// Why a span never reached the collector.
    SpanLoss {
        /// More spans waited for export than the queue holds.
        QueueFull => "queue_full",
        /// The collector refused them, or did not answer in time.
        ExportFailed => "export_failed",
        /// They still waited when the server ended.
        Shutdown => "shutdown",
        /// Too many traces waited for their end to be judged.
        BufferFull => "buffer_full",
    }
}

label_set! {
    /// Why the collector did not get a log record.
    RecordLoss {
        /// Too many waited already.
        QueueFull => "queue_full",
        /// The collector refused or did not answer.
        ExportFailed => "export_failed",
        /// The process ended first.
        Shutdown => "shutdown",
    }
}

label_set! {
    /// The field of a request that says what the output must look like.
    GrammarField {
        /// `json_schema`
        JsonSchema => "json_schema",
        /// `regex`
        Regex => "regex",
        /// `ebnf`
        Ebnf => "ebnf",
        /// `structural_tag`
        StructuralTag => "structural_tag",
        /// `response_format`
        ResponseFormat => "response_format",
        /// `tools`, with a `tool_choice` that forces a call.
        Tools => "tools",
    }
}

label_set! {
    /// Whether a grammar could be compiled.
    GrammarOutcome {
        /// It could.
        Ok => "ok",
        /// It is wrong, too large or not supported: 400.
        Refused => "refused",
    }
}
