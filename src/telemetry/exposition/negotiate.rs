//! Which format a scrape asks for, by its `Accept` header.

/// The formats of the page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Prometheus' text format 0.0.4.
    Text,
    /// OpenMetrics 1.0, which alone has exemplars.
    OpenMetrics,
}

impl Format {
    /// The format that the values of all `Accept` headers prefer. OpenMetrics must be asked for by name; whoever accepts
    /// neither, or says nothing, gets text.
    pub fn negotiate<'a>(accept: impl IntoIterator<Item = &'a str>) -> Self {
        let ranges: Vec<_> = accept.into_iter().flat_map(|values| values.split(',')).filter_map(Range::parse).collect();
        let (text, openmetrics) = (Self::Text.weight(&ranges), Self::OpenMetrics.weight(&ranges));
        if openmetrics > 0 && openmetrics >= text { Self::OpenMetrics } else { Self::Text }
    }

    /// The value of the `Content-Type` header.
    #[must_use]
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }

    /// In thousandths, what the most specific range says of this format.
    fn weight(self, ranges: &[Range<'_>]) -> u16 {
        let said = ranges.iter().filter_map(|range| Some((self.specificity(range)?, range.weight)));
        said.max().map_or(0, |(_, weight)| weight)
    }

    /// How closely `range` describes this format; `None` if it does not.
    fn specificity(self, range: &Range<'_>) -> Option<u8> {
        let (media_type, version, wildcards): (_, _, &[&str]) = match self {
            Self::Text => ("text/plain", "0.0.4", &["*/*", "text/*"]),
            Self::OpenMetrics => ("application/openmetrics-text", "1.0.0", &[]),
        };
        if range.media_type.eq_ignore_ascii_case(media_type) {
            return match range.version {
                None => Some(2),
                Some(asked) => (asked == version).then_some(3),
            };
        }
        wildcards.iter().position(|wildcard| *wildcard == range.media_type).and_then(|place| u8::try_from(place).ok())
    }
}

/// One entry of an `Accept` header.
struct Range<'a> {
    media_type: &'a str,
    version: Option<&'a str>,
    /// `q` in thousandths.
    weight: u16,
}

impl<'a> Range<'a> {
    /// `None` if its weight cannot be read.
    fn parse(text: &'a str) -> Option<Self> {
        let mut parts = text.split(';').map(str::trim);
        let mut range = Self { media_type: parts.next()?, version: None, weight: 1000 };
        for (name, value) in parts.filter_map(|parameter| parameter.split_once('=')) {
            let value = value.trim().trim_matches('"');
            match name.trim().to_ascii_lowercase().as_str() {
                "version" => range.version = Some(value),
                "q" => range.weight = thousandths(value)?,
                _ => {}
            }
        }
        Some(range)
    }
}

fn thousandths(q: &str) -> Option<u16> {
    let q: f32 = q.parse().ok()?;
    (0.0..=1.0).contains(&q).then_some((q * 1000.0).round() as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_asks_for_what() {
        use Format::{OpenMetrics, Text};
        let prometheus_2 = "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,\
                            text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        let prometheus_3 = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,\
                            application/openmetrics-text;version=0.0.1;q=0.5,\
                            text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
        let protobuf_first = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;\
                              encoding=delimited;q=0.8,application/openmetrics-text;version=1.0.0;q=0.7,*/*;q=0.1";
        for (accept, want) in [
            ("", Text),
            ("*/*", Text),
            ("text/html", Text),
            ("application/*", Text),
            ("application/json", Text),
            ("text/plain;version=0.0.4", Text),
            (prometheus_2, OpenMetrics),
            (prometheus_3, OpenMetrics),
            (protobuf_first, OpenMetrics),
            ("application/openmetrics-text", OpenMetrics),
            ("Application/OpenMetrics-Text; Version=\"1.0.0\"; charset=utf-8", OpenMetrics),
            ("application/openmetrics-text;version=0.0.1", Text),
            ("application/openmetrics-text;version=2.0.0, text/plain;q=0.1", Text),
            ("application/openmetrics-text;q=0", Text),
            ("application/openmetrics-text;q=0, */*", Text),
            ("application/openmetrics-text;q=0.5, text/plain;q=0.6", Text),
            ("application/openmetrics-text;q=0.6, text/plain;q=0.5", OpenMetrics),
            ("text/plain, application/openmetrics-text", OpenMetrics),
            ("application/openmetrics-text;q=0.5, */*", Text),
            ("application/openmetrics-text;q=0.5, text/plain;q=0.1, text/*;q=0.9, */*", OpenMetrics),
            ("application/openmetrics-text, application/openmetrics-text;version=1.0.0;q=0", Text),
            ("application/openmetrics-text;q=x", Text),
            ("application/openmetrics-text;q=7", Text),
            (";;,=;q", Text),
        ] {
            assert_eq!(Format::negotiate([accept]), want, "{accept:?}");
        }
        assert_eq!(Format::negotiate(["text/plain;q=0.2", "application/openmetrics-text"]), OpenMetrics, "two headers");
        assert_eq!(Format::negotiate([]), Text);
    }
}
