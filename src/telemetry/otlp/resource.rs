//! Who writes a span or a record: the attributes of each service's process.

use std::sync::LazyLock;

use opentelemetry::{Key, KeyValue};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::resource::{EnvResourceDetector, ResourceDetector};
use opentelemetry_semantic_conventions::attribute::{SERVICE_INSTANCE_ID, SERVICE_NAME, SERVICE_VERSION};

use crate::telemetry::spans::names::Side;

/// Of each side, for the life of this process: its traces and its logs name the same one.
static INSTANCES: LazyLock<[String; 2]> = LazyLock::new(|| [(); 2].map(|()| uuid::Uuid::new_v4().to_string()));

/// What the spans and records of `side` carry: `OTEL_SERVICE_NAME` and `OTEL_RESOURCE_ATTRIBUTES` win over the defaults, and the
/// engine's name follows the frontend's.
pub(super) fn resource(side: Side) -> Resource {
    let given = EnvResourceDetector::new().detect();
    let given = |key: &'static str| given.get(&Key::from_static_str(key)).map(|value| value.to_string());
    let named = std::env::var("OTEL_SERVICE_NAME").ok().filter(|name| !name.is_empty());
    let name = match (named.or_else(|| given(SERVICE_NAME)), side) {
        (None, side) => side.service().to_owned(),
        (Some(name), Side::Frontend) => name,
        (Some(name), Side::Engine) => format!("{name}-engine"),
    };
    let version = given(SERVICE_VERSION).unwrap_or_else(|| env!("CARGO_PKG_VERSION").to_owned());
    let instance = given(SERVICE_INSTANCE_ID).unwrap_or_else(|| INSTANCES[side as usize].clone());
    Resource::builder()
        .with_service_name(name)
        .with_attribute(KeyValue::new(SERVICE_VERSION, version))
        .with_attribute(KeyValue::new(SERVICE_INSTANCE_ID, instance))
        .build()
}
