//! The compose file, and what else is deployed: mounted files exist, images are pinned, times fit, names agree.

use std::collections::BTreeSet;
use std::time::Duration;

use radiosonde::telemetry::metrics::catalogue;
use serde_json::Value;

use crate::boards::{Board, text};
use crate::{check, read, root};

/// `--drain-timeout` by default, and what the end takes beside it (docs/orchestration.md).
const DRAIN: Duration = Duration::from_secs(30);
const END: Duration = Duration::from_secs(6);

/// Ports on which the server answers.
const PORTS: &[&str] = &["30000", "30001"];

fn yaml(path: &str) -> Value {
    serde_saphyr::from_str(&read(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The documents of a file of Kubernetes objects.
fn objects(path: &str) -> Vec<Value> {
    let parse = |document: &str| serde_saphyr::from_str(document).unwrap_or_else(|error| panic!("{path}: {error}"));
    read(path).split("\n---\n").map(parse).collect()
}

fn services() -> Vec<(String, Value)> {
    let compose = yaml("docker-compose.yml");
    let services = compose["services"].as_object().expect("services").clone();
    services.into_iter().map(|(name, service)| (name, merged(service))).collect()
}

/// Merge keys, should the parser leave them as they are.
fn merged(mut service: Value) -> Value {
    while let Some(base) = service.as_object_mut().and_then(|fields| fields.remove("<<")) {
        for (key, value) in base.as_object().into_iter().flatten() {
            service.as_object_mut().expect("an object").entry(key).or_insert(value.clone());
        }
    }
    service
}

fn strings(value: &Value) -> Vec<&str> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

#[test]
fn the_compose_file_keeps_the_conventions() {
    let services = services();
    let names: BTreeSet<_> = services.iter().map(|(name, _)| name.as_str()).collect();
    let mut wrong = Vec::new();
    for (name, service) in &services {
        wrong.extend(of_service(service, &names).into_iter().map(|breach| format!("{name}: {breach}")));
    }
    check(&wrong);
}

fn of_service(service: &Value, names: &BTreeSet<&str>) -> Vec<String> {
    let image = text(service, "/image");
    let version = image.split_once(":-").and_then(|(_, version)| version.strip_suffix('}')).unwrap_or_default();
    let is_pinned = version.matches('.').count() >= 2 && version.chars().any(|c| c.is_ascii_digit());
    let health = &service["healthcheck"];
    let is_exec = health["disable"] == true || strings(&health["test"]).first() == Some(&"CMD");
    // Ours needs nothing but the binary.
    let is_own = !image.starts_with("radiosonde:")
        || strings(&health["test"]).starts_with(&["CMD", "radiosonde", "healthcheck"]);
    let mut wrong = Vec::new();
    let rules = [
        (is_pinned, format!("{image} is not pinned to a version that the environment can change")),
        (service.get("container_name").is_none(), "container_name forbids a second copy".to_owned()),
        (text(service, "/network_mode") != "host", "the host's network is no place for a demonstration".to_owned()),
        (text(service, "/restart") == "unless-stopped", "it does not come back".to_owned()),
        (!health.is_null(), "nobody checks its health".to_owned()),
        (is_exec, "its health is asked for through a shell".to_owned()),
        (is_own, "its health is asked for by a tool that its image lacks".to_owned()),
    ];
    wrong.extend(rules.into_iter().filter(|(holds, _)| !holds).map(|(_, breach)| breach));
    for port in strings(&service["ports"]) {
        if !port.starts_with("${BIND:-127.0.0.1}:") {
            wrong.push(format!("port {port} is open to the network"));
        }
    }
    for mount in strings(&service["volumes"]) {
        let mut parts = mount.split(':');
        let Some(source) = parts.next().and_then(|source| source.strip_prefix("./")) else { continue };
        if !root().join(source).exists() {
            wrong.push(format!("{source} is mounted and does not exist"));
        }
        if parts.next_back() != Some("ro") {
            wrong.push(format!("{source} can be written from inside"));
        }
    }
    for dependency in service["depends_on"].as_object().into_iter().flatten() {
        if !names.contains(dependency.0.as_str()) {
            wrong.push(format!("it depends on {}, which is not there", dependency.0));
        }
    }
    wrong
}

#[test]
fn the_parts_of_the_stack_know_each_other() {
    let services: BTreeSet<_> = services().into_iter().map(|(name, _)| name).collect();
    let knows = |host: &str| services.contains(host) || host == "localhost";
    let mut unknown = Vec::new();
    let prometheus = yaml("deploy/prometheus.yml");
    let jobs = prometheus["scrape_configs"].as_array().expect("jobs").iter();
    let managers = prometheus["alerting"]["alertmanagers"].as_array().expect("alertmanagers").iter();
    for config in jobs.chain(managers).flat_map(|job| job["static_configs"].as_array().into_iter().flatten()) {
        unknown.extend(strings(&config["targets"]).into_iter().map(str::to_owned));
    }
    let grafana = yaml("deploy/grafana/provisioning/datasources/radiosonde.yml");
    let sources = grafana["datasources"].as_array().expect("data sources");
    unknown.extend(sources.iter().map(|source| text(source, "/url").replace("http://", "")));
    unknown.retain(|target| !knows(target.split(':').next().unwrap_or_default()));
    assert!(unknown.is_empty(), "nobody is called {unknown:?}");

    let uids: BTreeSet<_> = sources.iter().map(|source| text(source, "/uid")).collect();
    assert_eq!(uids, ["alertmanager", "jaeger", "prometheus"].into_iter().collect());
    assert_eq!(sources[0]["jsonData"]["timeInterval"], prometheus["global"]["scrape_interval"]);
    for board in Board::all() {
        assert!(!read(&board.file).contains("${DS_"), "{}: a variable that only an import fills in", board.file);
        let used = data_sources(&board.json);
        let unknown: Vec<_> = used.iter().filter(|uid| **uid != "${datasource}" && !uids.contains(*uid)).collect();
        assert!(!used.is_empty() && unknown.is_empty(), "{}: nobody provisions {unknown:?}", board.file);
    }
    let dots = &sources[0]["jsonData"]["exemplarTraceIdDestinations"][0];
    assert_eq!((text(dots, "/name"), text(dots, "/datasourceUid")), ("trace_id", "jaeger"));
}

/// The uid of every data source that is named anywhere in `value`, but for Grafana's own.
fn data_sources(value: &Value) -> Vec<&str> {
    let uid = value["datasource"]["uid"].as_str().filter(|uid| *uid != "-- Grafana --");
    let within: Vec<&Value> = match value {
        Value::Object(fields) => fields.values().collect(),
        Value::Array(items) => items.iter().collect(),
        _ => Vec::new(),
    };
    uid.into_iter().chain(within.into_iter().flat_map(data_sources)).collect()
}

#[test]
fn the_orchestrators_have_the_patience_that_the_server_needs() {
    let deployment = &objects("deploy/kubernetes/radiosonde.yaml")[0];
    let pod = &deployment["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    let settle = strings(&container["args"]).windows(2).find(|pair| pair[0] == "--drain-settle").map(|pair| pair[1]);
    assert_eq!(settle, Some("5s"), "endpoints need some seconds to be taken out");
    let grace = pod["terminationGracePeriodSeconds"].as_u64().map(Duration::from_secs);
    assert!(grace > Some(DRAIN + END), "{grace:?} is not enough to drain");
    let of = |probe: &str| (text(&container[probe], "/httpGet/path"), text(&container[probe], "/httpGet/port"));
    assert_eq!(of("startupProbe"), ("/startupz", "admin"));
    assert_eq!(of("readinessProbe"), ("/readyz", "admin"));
    assert_eq!(of("livenessProbe"), ("/livez", "admin"), "only /livez may restart");
    let startup = &container["startupProbe"];
    let patience = startup["periodSeconds"].as_u64().unwrap_or(0) * startup["failureThreshold"].as_u64().unwrap_or(0);
    assert!(patience >= 600, "a model needs up to ten minutes, and {patience} s are given");
    assert!(container["livenessProbe"]["failureThreshold"].as_u64() >= Some(3), "one slow answer restarts nobody");

    let page = read("docs/orchestration.md");
    assert!(page.contains("**Only `/livez` may restart. `/readyz` only unroutes.**"));
    let yaml =
        page.split("```").filter_map(|block| block.strip_prefix("yaml\n")).find(|it| it.contains("startupProbe"));
    let shown: Value = serde_saphyr::from_str(yaml.expect("an example")).expect("it is YAML");
    assert_eq!(shown["terminationGracePeriodSeconds"], pod["terminationGracePeriodSeconds"]);
    for probe in ["startupProbe", "readinessProbe", "livenessProbe"] {
        for place in ["/httpGet/path", "/periodSeconds", "/failureThreshold"] {
            assert_eq!(shown[probe].pointer(place), container[probe].pointer(place), "{probe}{place}");
        }
    }
    let ports = container["ports"].as_array().expect("ports").iter().map(|port| port["containerPort"].to_string());
    assert_eq!(ports.collect::<Vec<_>>(), PORTS);

    let unit = read("deploy/radiosonde.service");
    let setting = |name: &str| unit.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
    let stop = setting("TimeoutStopSec").and_then(|text| text.strip_suffix('s')?.parse().ok()).map(Duration::from_secs);
    assert!(stop > Some(DRAIN + END), "systemd waits {stop:?}");
    assert_eq!(setting("KillMode"), Some("mixed"), "the engine must outlive the first signal");
    assert_eq!(setting("RestartPreventExitStatus"), Some("2"), "bad arguments do not get better");
}

#[test]
fn replicas_are_added_by_a_series_that_exists() {
    let series = catalogue().expect("the series are sound");
    let scaler = &objects("deploy/kubernetes/autoscaling.yaml")[0];
    let name = text(scaler, "/spec/metrics/0/pods/metric/name");
    assert!(series.iter().any(|series| series.name == name && series.kind == "gauge"), "{name} is no gauge of ours");
    let monitor = &objects("deploy/kubernetes/monitoring.yaml")[0];
    assert_eq!(text(monitor, "/kind"), "PodMonitor");
    assert_eq!(text(monitor, "/spec/podMetricsEndpoints/0/port"), "admin");
}

#[test]
fn the_image_has_what_the_compose_file_expects() {
    let dockerfile = read("Dockerfile");
    let has = |line: &str| assert!(dockerfile.contains(line), "the Dockerfile lacks {line}");
    has("USER 65532:65532");
    has("RADIOSONDE_HOST=0.0.0.0");
    has("http://127.0.0.1:30001/readyz");
    has(r#"CMD ["radiosonde", "healthcheck","#);
    has("RADIOSONDE_CACHE=/var/cache/radiosonde");
    let services = services();
    let server = &services.iter().find(|(name, _)| name == "radiosonde").expect("it is there").1;
    let folders: Vec<_> = strings(&server["volumes"]).iter().filter_map(|volume| volume.split(':').nth(1)).collect();
    for folder in folders {
        has(&format!("/out{folder}"));
    }
    let manifest = read("Cargo.toml");
    let rust = manifest.lines().find_map(|line| line.strip_prefix("rust-version = \"")?.strip_suffix('"'));
    has(&format!("ARG RUST={}-slim", rust.expect("Cargo.toml says which Rust it needs")));
    for line in read(".dockerignore").lines().filter_map(|line| line.strip_prefix('!')) {
        assert!(root().join(line).exists(), ".dockerignore lets through {line}, which does not exist");
    }
}
