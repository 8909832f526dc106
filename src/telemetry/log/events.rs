//! The log lines that there are: the single source of `docs/logs.md`. A test compares the table with the sources.

use serde::Serialize;

/// One thing that is worth a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct LogEventInfo {
    /// `error`, `warn`, `info` or `debug`.
    pub level: &'static str,
    /// Its text, always the same: search for it.
    pub message: &'static str,
    /// Its own fields; one without a value is left out of a line.
    pub fields: &'static [&'static str],
    /// What it means to somebody on call.
    pub meaning: &'static str,
}

type Fields = &'static [&'static str];

const fn error(message: &'static str, fields: Fields, meaning: &'static str) -> LogEventInfo {
    LogEventInfo { level: "error", message, fields, meaning }
}

const fn warn(message: &'static str, fields: Fields, meaning: &'static str) -> LogEventInfo {
    LogEventInfo { level: "warn", message, fields, meaning }
}

const fn info(message: &'static str, fields: Fields, meaning: &'static str) -> LogEventInfo {
    LogEventInfo { level: "info", message, fields, meaning }
}

const fn debug(message: &'static str, fields: Fields, meaning: &'static str) -> LogEventInfo {
    LogEventInfo { level: "debug", message, fields, meaning }
}

/// Every log line of ours: by level, and inside a level as a server meets them from its start to its end.
pub const EVENTS: &[LogEventInfo] = &[
    error(
        "the engine is dead",
        &["reason"],
        "It will not be started again, and the server ends with code 1. See /debug/incidents.",
    ),
    error(
        "the frontend cannot serve the engine's model",
        &["reason"],
        "Frontend and engine are of different versions, or the model's vocabulary is not supported.",
    ),
    error(
        "the admin listener has ended",
        &["error"],
        "The server ends with code 1: without it nobody would see how it stands.",
    ),
    error("signals cannot be heard", &["error"], "The server ends with code 1: it could not be asked to drain."),
    error(
        "engine cannot listen for frontends",
        &["error"],
        "The engine is of no use; start it again with another --listen.",
    ),
    warn(
        "the model cannot be had from here",
        &["failure"],
        "The next place is tried; the last failure is in the exit's text.",
    ),
    warn(
        "taking the transfer up again",
        &["error"],
        "The connection broke in the middle of the model; nothing is lost.",
    ),
    warn(
        "the cached model is not the expected file; fetching it again",
        &["path"],
        "A disk fault, or somebody wrote into the cache.",
    ),
    warn(
        "the file of SSL_CERT_FILE cannot be read; using the public roots",
        &["error", "path"],
        "A mirror with a private certificate will then be refused.",
    ),
    warn(
        "health probe failed",
        &["outcome", "stalled_at", "cause", "detail", "duration_ms"],
        "stalled_at says where to look, cause what to do (README); the rest is at /debug/probes/{probe_id} and in the trace.",
    ),
    warn(
        "request failed",
        &["rid", "error"],
        "The runtime failed an accepted request; its caller got the same text, with 500 or 503 or as an event.",
    ),
    warn(
        "request refused",
        &["endpoint", "reason", "status"],
        "503 before it was accepted. queue_full: more load than this server takes; not_serving: see the server's status.",
    ),
    warn(
        "step failed, its requests end",
        &["step", "error"],
        "The forward pass returned an error. Once: those requests; every time: the model or the machine is broken.",
    ),
    warn(
        "the engine is started again",
        &["reason"],
        "It died and is replaced. Look into /debug/incidents before the budget is spent.",
    ),
    warn(
        "incident reported",
        &["id", "cause", "reason"],
        "A death, or the first failed probe of a cause: the report is at /debug/incidents.",
    ),
    warn(
        "incident report not written",
        &["error", "path"],
        "It is in memory, and lost when the server ends. Look whether the disk is full.",
    ),
    warn(
        "incident reports are kept in memory alone",
        &["error", "folder"],
        "The folder of --incidents cannot be used.",
    ),
    warn("the engine announced its model twice", &[], "A bug: please report it."),
    warn(
        "frontend does not read, cut off",
        &["worker", "capacity"],
        "That frontend hangs or is stopped; its requests end, the others go on.",
    ),
    warn(
        "a frontend could not connect",
        &["error"],
        "The engine accepted no connection: often too few file descriptors.",
    ),
    warn("a frontend was refused", &["error"], "Of another version, or no frontend at all."),
    warn(
        "a series cannot be encoded",
        &["error"],
        "It is missing on the page of /metrics, the others are there. A bug: please report it.",
    ),
    warn(
        "traces do not reach the collector",
        &["error", "endpoint"],
        "Told once, until they do again; count them in radiosonde_trace_spans_dropped_total.",
    ),
    warn("spans cannot be flushed", &["error"], "No thread could be started at the end; the last spans are lost."),
    warn(
        "spans were lost: the collector did not take them",
        &["spans", "queue_full", "export_failed", "shutdown", "buffer_full"],
        "All that were lost since the start, in all and by reason, told at the end.",
    ),
    warn(
        "log records do not reach the collector",
        &["error", "endpoint"],
        "As for traces; standard error has every line.",
    ),
    warn(
        "log records cannot be flushed",
        &["error"],
        "No thread could be started at the end; the last records are lost.",
    ),
    warn(
        "log records were lost: the collector did not take them",
        &["records"],
        "All that were lost since the start, told at the end.",
    ),
    warn(
        "lines were suppressed: too many of one kind",
        &["lines", "line"],
        "So many lines like `line` were not written; told when it is over, and each minute while it is not.",
    ),
    warn(
        "what is logged changes",
        &["filter"],
        "Somebody asked for it: /configure_logging. Lines may be missing, or more, from here on. Each process says it.",
    ),
    warn("a drill begins", &["fault"], "Somebody breaks this server on purpose (docs/drills.md)."),
    warn("all drills end", &[], "Whatever is broken from now on is real."),
    warn(
        "asked again: the server ends at once",
        &["signal"],
        "A second signal cut the drain off; running requests end with an error.",
    ),
    warn(
        "the drain limit has passed, running requests are cut off (--drain-timeout)",
        &["running"],
        "So many callers got an error. Give the drain more time, or the requests fewer tokens.",
    ),
    warn("connections were still open", &[], "Somebody kept a connection for a second after the end of the drain."),
    info("fetching the model", &["origin"], "The start takes as long as this does."),
    info("the model is on its way", &["percent", "bytes"], "One line for each tenth."),
    info(
        "another process fetches this model; waiting for it",
        &["path"],
        "The start takes as long as the other needs.",
    ),
    info(
        "model loaded",
        &["model", "architecture", "context_length", "max_total_tokens", "kernels", "weight_bytes", "load_seconds"],
        "The engine is ready.",
    ),
    info("engine listens for frontends", &["path"], "Give this path to `radiosonde frontend --engine`."),
    info("frontend connected", &["worker", "pid"], "From now on its requests are taken."),
    info(
        "frontend gone",
        &["worker", "reason"],
        "Its requests end; a frontend that was not asked to end has a log of its own.",
    ),
    info("server status changed", &["from", "to", "reason"], "The story of a server in a few lines: read these first."),
    info(
        "the new engine is ready, requests without output were sent again",
        &["requests"],
        "The restart is over; these callers only waited longer.",
    ),
    info(
        "all requests were aborted",
        &["requests"],
        "Somebody asked for it: /abort_request with abort_all. So many requests ended with the finish reason abort.",
    ),
    info(
        "generation paused or continued",
        &["paused"],
        "Somebody asked for it: /pause_generation, /continue_generation.",
    ),
    info(
        "prefix cache flushed",
        &["tokens"],
        "Somebody asked for it: /flush_cache. Prompts are computed from their beginning again.",
    ),
    info("how much is traced has changed", &["trace_level"], "Somebody asked for it: /set_trace_level."),
    info("traces reach the collector again", &["endpoint"], "The hole in the traces ends here."),
    info("log records reach the collector again", &["endpoint"], "The hole in the records ends here."),
    info("graceful exit begins", &["signal"], "Somebody asked for the end; it is no crash."),
    info("waiting for running requests", &["running", "limit_seconds"], "The drain takes at most so long."),
    debug("health probe ended", &["outcome", "branch"], "A probe that did not fail."),
    debug(
        "request ended",
        &["rid", "outcome", "prompt_tokens", "cached_tokens", "completion_tokens", "first_output_ms", "duration_ms"],
        "A request that was accepted. The target is radiosonde::requests; /configure_logging switches these lines on and off.",
    ),
    debug("request not accepted", &["endpoint", "reason", "status"], "The caller's mistake: 400, 404 or 413."),
    debug("the caller's trace is not continued", &["error"], "Its spans are in a trace of their own."),
    debug("engine ends", &["signal"], "It was asked to."),
    debug("socket not removed", &["error", "path"], "Somebody else did, or it stays behind."),
];
