//! The rules of this code base that a compiler does not know, read from the sources.

mod logs;
mod source;

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use logs::LogCall;
use radiosonde::http_server::endpoints::ENDPOINTS;
use radiosonde::telemetry::labels::HttpRoute;
use radiosonde::telemetry::log::events::EVENTS;
use source::{Source, root, rust_files};

/// Who may import whom, stations in flow order. A station may always import itself; `main` and `runtime` are not listed,
/// because they wire everything; a crate that is not listed is open to all.
const IMPORTS: &[(&str, &[&str])] = &[
    ("config", &["io_struct"]),
    (
        "http_server",
        &[
            "tokenizer_manager",
            "tokenizer",
            "io_struct",
            "server_status",
            "engine_view",
            "probe_ledger",
            "incidents",
            "config",
            "clock",
            "telemetry",
        ],
    ),
    (
        "tokenizer_manager",
        &[
            "tokenizer",
            "structured",
            "io_struct",
            "ipc",
            "detokenizer",
            "drills",
            "server_status",
            "engine_view",
            "runtime_lag",
            "probe_ledger",
            "incidents",
            "config",
            "clock",
            "telemetry",
        ],
    ),
    ("tokenizer", &["io_struct", "clock"]),
    ("structured", &["tokenizer", "io_struct", "clock"]),
    ("io_struct", &["clock", "telemetry::labels"]),
    ("ipc", &["io_struct", "clock"]),
    ("scheduler", &["model_runner", "structured", "drills", "io_struct", "config", "clock", "telemetry::labels"]),
    ("model_runner", &["tokenizer::bytes", "io_struct", "config", "clock", "telemetry::labels"]),
    ("detokenizer", &["tokenizer", "io_struct"]),
    ("server_status", &["clock", "telemetry"]),
    ("engine_view", &["io_struct", "clock", "telemetry::labels"]),
    ("runtime_lag", &["clock"]),
    ("probe_ledger", &["engine_view", "io_struct", "clock", "telemetry"]),
    ("incidents", &["probe_ledger", "io_struct", "clock", "telemetry::labels"]),
    ("model_hub", &["io_struct"]),
    ("drills", &["model_runner", "io_struct", "clock"]),
    ("healthcheck", &["config"]),
    ("clock", &[]),
    ("telemetry", &[]),
];

/// The engine must live where nothing can export, serve or wait for a scrape.
const ENGINE: &[&str] = &["scheduler", "model_runner"];
const FRONTEND_CRATES: &[&str] =
    &["axum", "tower", "tower_http", "prometheus", "opentelemetry", "opentelemetry_sdk", "opentelemetry_otlp"];

const MAX_LINES: usize = 400;

/// Where the passing of time is the purpose: a script's latencies, the wait before a restart.
const TIME_ITSELF: &[&str] = &["model_runner::scripted", "runtime::restarts"];

/// What ends up in the server.
fn sources() -> Vec<Source> {
    let tests = |path: &PathBuf| path.ends_with("tests.rs") || path.iter().any(|folder| folder == "tests");
    let files = rust_files("src").into_iter().filter(|path| !tests(path));
    let sources: Vec<_> = files.map(|path| Source::read(root(), &path)).collect();
    assert!(sources.len() > 30, "the sources are not where this test looks for them");
    sources
}

/// The server, its tests and its benches.
fn all_sources() -> Vec<Source> {
    let files = ["src", "tests", "benches"].into_iter().flat_map(rust_files);
    files.map(|path| Source::read(root(), &path)).collect()
}

/// Fails with every breach of a rule, and with what to do about them.
fn check(sources: &[Source], instead: &str, breach: impl Fn(&Source) -> Vec<String>) {
    let breaches: Vec<String> = sources
        .iter()
        .flat_map(|source| breach(source).into_iter().map(|what| format!("  {}: {what}", source.path.display())))
        .collect();
    assert!(breaches.is_empty(), "\n{}\n{instead}\n", breaches.join("\n"));
}

fn found(what: &BTreeSet<String>, wanted: &[&str]) -> Vec<String> {
    wanted.iter().filter(|name| what.contains(**name)).map(|name| (*name).to_owned()).collect()
}

#[test]
fn stations_import_only_what_lies_downstream() {
    check(
        &sources(),
        "Pass the value in from `runtime`, or send it as a message of `io_struct`. If the layout itself is wrong, change \
         IMPORTS in this test and write an ADR.",
        |source| {
            let Some((_, allowed)) = IMPORTS.iter().find(|(station, _)| *station == source.station()) else {
                return Vec::new();
            };
            let is_allowed = |path: &[String]| {
                let path = path.join("::");
                allowed.iter().any(|allowed| path == *allowed || path.starts_with(&format!("{allowed}::")))
            };
            source
                .imports()
                .filter(|path| !is_allowed(path))
                .map(|path| format!("crate::{}", path.join("::")))
                .collect()
        },
    );
}

#[test]
fn every_station_has_its_rule() {
    let listed: BTreeSet<&str> =
        IMPORTS.iter().map(|(station, _)| *station).chain(["lib", "main", "runtime"]).collect();
    check(&sources(), "Add the station to IMPORTS in this test, to lib.rs and to docs/architecture.md.", |source| {
        if listed.contains(source.station()) { Vec::new() } else { vec![source.station().to_owned()] }
    });
}

#[test]
fn only_main_imports_runtime() {
    check(
        &sources(),
        "`runtime` knows all stations, so none may know it: take what you need as an argument.",
        |source| {
            let is_main = ["main", "runtime"].contains(&source.station());
            let imports = source.imports().filter(|path| !is_main && path[0] == "runtime");
            imports.map(|path| format!("crate::{}", path.join("::"))).collect()
        },
    );
}

#[test]
fn the_engine_neither_serves_nor_exports() {
    check(
        &sources(),
        "The engine may hang, so it opens no spans and holds no metrics: send an `EngineEvent`, and the frontend writes it.",
        |source| {
            let is_engine = ENGINE.contains(&source.station());
            let crates = source.paths.iter().map(|path| path[0].clone()).collect();
            if is_engine { found(&crates, FRONTEND_CRATES) } else { Vec::new() }
        },
    );
}

#[test]
fn spans_are_made_in_telemetry() {
    check(
        &sources(),
        "Add a constructor to `telemetry::spans` and call it: names of spans and attributes exist there alone.",
        |source| {
            let spans = ["span", "trace_span", "debug_span", "info_span", "warn_span", "error_span"];
            let mut breaches = found(&source.macros, &spans);
            breaches.extend(found(&source.attributes, &["instrument"]));
            if source.is_telemetry() { Vec::new() } else { breaches }
        },
    );
}

#[test]
fn series_are_named_in_telemetry() {
    check(
        &sources(),
        "Declare the series in `telemetry::metrics`, with a method that says what happened, and call that.",
        |source| {
            let names = source.strings.iter().filter(|text| text.starts_with("radiosonde_"));
            if source.is_telemetry() { Vec::new() } else { names.cloned().collect() }
        },
    );
}

#[test]
fn every_route_is_a_label() {
    check(
        &sources(),
        "Add the route to `telemetry::labels::HttpRoute`: what is not there is counted as unmatched.",
        |source| {
            let routes = source.routes.iter().filter(|route| *route != "/metrics"); // reading changes nothing
            let unknown = routes.filter(|route| HttpRoute::ALL.iter().all(|known| known.as_str() != **route));
            unknown.cloned().collect()
        },
    );
    let routes = sources().iter().map(|source| source.routes.len()).sum::<usize>();
    assert!(routes + 1 >= HttpRoute::ALL.len(), "{routes} routes: a label has none, or this test does not see them");
}

#[test]
fn every_route_is_documented() {
    let routes: BTreeSet<String> = sources().into_iter().flat_map(|source| source.routes).collect();
    let documented = ENDPOINTS.iter().filter(|endpoint| endpoint.alias_of.is_none());
    let documented: BTreeSet<String> = documented.map(|endpoint| endpoint.path.to_owned()).collect();
    assert_eq!(
        routes, documented,
        "\nadd the route to `http_server::endpoints`, and write docs/api.md anew: \
         UPDATE_EXPECT=1 cargo test --release --lib endpoints\n"
    );
}

#[test]
fn a_log_line_is_in_the_table() {
    check(
        &sources(),
        "Add the line to `telemetry::log::events`, with what it means to somebody on call; its text is static.",
        |source| source.logs.iter().filter_map(LogCall::breach).collect(),
    );
}

#[test]
fn a_log_line_of_the_table_is_written_once() {
    let sources = sources();
    for event in EVENTS {
        let message = event.message;
        let calls = sources.iter().flat_map(|source| &source.logs).filter(|call| call.message == message).count();
        assert_eq!(calls, 1, "{message:?} is in the table and so often in the sources");
        assert!(message.starts_with(|first: char| first.is_lowercase()) && !message.ends_with('.'), "{message:?}");
        assert!(!message.contains(['{', '|', '`']), "{message:?} is no static text, or would break the page");
        assert!(event.meaning.ends_with('.') && !event.meaning.contains('|'), "{message:?}: {}", event.meaning);
    }
}

#[test]
fn nothing_sleeps() {
    check(
        &sources(),
        "Wait for the thing itself: a `watch`, a `Notify`, a channel, a condition variable, an `interval` for a beat.",
        |source| {
            let is_one_of_them = TIME_ITSELF.contains(&source.module.join("::").as_str());
            let sleeps =
                source.paths.iter().filter(|path| !is_one_of_them && path.last().is_some_and(|name| name == "sleep"));
            sleeps.map(|path| path.join("::")).collect()
        },
    );
}

#[test]
fn a_file_says_its_job_first() {
    check(&all_sources(), "Open the file with one `//!` sentence: its job.", |source| {
        let first = source.text.lines().next().unwrap_or_default();
        if first.starts_with("//! ") && first.len() > 10 { Vec::new() } else { vec![first.to_owned()] }
    });
}

#[test]
fn a_file_holds_one_idea() {
    check(&sources(), &format!("Split it: at most {MAX_LINES} lines beside the tests."), |source| {
        let lines = source.production_lines();
        if lines > MAX_LINES { vec![format!("{lines} lines")] } else { Vec::new() }
    });
}

#[test]
fn a_module_has_the_name_of_its_file() {
    check(&all_sources(), "Call it `name.rs`, beside the folder `name/`.", |source| {
        if source.path.ends_with("mod.rs") { vec!["mod.rs".to_owned()] } else { Vec::new() }
    });
}

#[test]
fn nothing_is_switched_off_or_left_undone() {
    check(
        &all_sources(),
        "Do it, delete it, or state the exception with `#[expect(lint, reason = \"..\")]`.",
        |source| {
            let mut breaches = found(&source.attributes, &["allow", "ignore"]);
            breaches.extend(found(&source.macros, &["todo", "unimplemented", "dbg"]));
            breaches
        },
    );
}

/// The reading order: `lib.rs` and the code map tell it alike.
#[test]
fn the_code_map_is_in_reading_order() {
    let declared: Vec<String> = {
        let lib = fs::read_to_string(root().join("src/lib.rs")).expect("lib.rs exists");
        let module = |line: &str| Some(line.strip_prefix("pub mod ")?.strip_suffix(';')?.to_owned());
        lib.lines().filter_map(module).collect()
    };
    let mapped: Vec<String> = {
        let map = fs::read_to_string(root().join("docs/architecture.md")).expect("docs/architecture.md exists");
        let module = |line: &str| Some(line.strip_prefix("### `")?.split('`').next()?.to_owned());
        map.lines().filter_map(module).collect()
    };
    assert_eq!(
        mapped, declared,
        "\ngive each module of lib.rs a section \"### `name`\" of the code map, in its order\n"
    );
}
