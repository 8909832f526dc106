//! Reads samples from an exposition page.

/// What is zero when nobody asks for anything.
const AT_REST: [&str; 8] = [
    "radiosonde_request_table_size",
    "radiosonde_ledger_flights",
    "radiosonde_return_health_check_ipcs_depth",
    "radiosonde_scheduler_inbox_depth",
    "radiosonde_num_running_reqs",
    "radiosonde_num_queue_reqs",
    "radiosonde_kv_used_tokens",
    "radiosonde_health_probes_in_flight",
];

/// Nothing is under way.
pub fn is_at_rest(page: &str) -> bool {
    AT_REST.iter().all(|name| sum(page, name, &[]) == 0.0)
}

/// Sum of the samples `name` that bear all of `labels`. A name without a family is a mistake in the test; a family
/// without such a sample is 0.
pub fn sum(page: &str, name: &str, labels: &[(&str, &str)]) -> f64 {
    let families = page.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next());
    let suffixes = ["", "_bucket", "_count", "_sum"];
    let mut families = families.into_iter();
    let is_known = families.any(|family| suffixes.iter().any(|suffix| name.strip_suffix(suffix) == Some(family)));
    assert!(is_known, "there is no series {name}\n{page}");
    page.lines().filter_map(|line| sample(line, name, labels)).sum()
}

fn sample(line: &str, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
    let (series, value) = line.rsplit_once(' ')?;
    let rest = series.strip_prefix(name)?;
    let mine = match rest.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')) {
        Some(mine) => mine,
        None if rest.is_empty() => "",
        None => return None,
    };
    let has = |(key, value): &(&str, &str)| mine.split(',').any(|label| label == format!("{key}=\"{value}\""));
    labels.iter().all(has).then(|| value.parse().unwrap())
}

#[test]
fn sums() {
    let page = "# TYPE a_total counter\na_total{x=\"1\",y=\"/v1\"} 2\na_total{x=\"2\",y=\"/v1\"} 3\n\
                # TYPE a gauge\na 7\n# TYPE h histogram\nh_bucket{le=\"+Inf\"} 4\nh_sum 1.5\nh_count 4\n";
    assert_eq!(sum(page, "a_total", &[]), 5.0);
    assert_eq!(sum(page, "a_total", &[("x", "2"), ("y", "/v1")]), 3.0);
    assert_eq!(sum(page, "a_total", &[("x", "3")]), 0.0);
    assert_eq!(sum(page, "a", &[]), 7.0);
    assert_eq!(sum(page, "h_sum", &[]), 1.5);
}

#[test]
#[should_panic(expected = "there is no series b_total")]
fn a_name_that_does_not_exist() {
    sum("# TYPE a counter\na 1\n", "b_total", &[]);
}
