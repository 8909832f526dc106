//! Who writes a span: the attributes of each service's process.

use opentelemetry::{Key, KeyValue};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::resource::{EnvResourceDetector, ResourceDetector};
use opentelemetry_semantic_conventions::attribute::{SERVICE_INSTANCE_ID, SERVICE_NAME, SERVICE_VERSION};

use crate::telemetry::spans::names::Side;

/// What the spans of `side` carry: `OTEL_SERVICE_NAME` and `OTEL_RESOURCE_ATTRIBUTES` win over the defaults, and the
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
    let instance = given(SERVICE_INSTANCE_ID).unwrap_or_else(|| uuid::Uuid::new_v4().to_string());
    Resource::builder()
        .with_service_name(name)
        .with_attribute(KeyValue::new(SERVICE_VERSION, version))
        .with_attribute(KeyValue::new(SERVICE_INSTANCE_ID, instance))
        .build()
}
