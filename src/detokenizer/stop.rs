//! Stop strings, found wherever the tokens happen to end.

/// Lets text through up to the first stop string.
#[derive(Debug)]
pub struct StopStrings {
    stops: Vec<String>,
    keep_match: bool,
    /// Text that may be the beginning of a stop string.
    held: String,
}

/// What got through.
#[derive(Debug, PartialEq, Eq)]
pub struct Passed {
    /// Text that is certainly not part of a stop string.
    pub text: String,
    /// The stop string that was found.
    pub matched: Option<String>,
}

impl StopStrings {
    /// Looks for `stops`; `keep_match` lets the found one through as well.
    #[must_use]
    pub fn new(stops: &[String], keep_match: bool) -> Self {
        let stops = stops.iter().filter(|stop| !stop.is_empty()).cloned().collect();
        Self { stops, keep_match, held: String::new() }
    }

    /// Takes new text. Of several stop strings the one that is complete first counts, however the text is cut.
    pub fn pass(&mut self, text: &str) -> Passed {
        self.held.push_str(text);
        let found = self.stops.iter().filter_map(|stop| self.held.find(stop.as_str()).map(|start| (start, stop)));
        if let Some((start, stop)) = found.min_by_key(|(start, stop)| (start + stop.len(), *start)) {
            let end = if self.keep_match { start + stop.len() } else { start };
            let passed = Passed { text: self.held[..end].to_owned(), matched: Some(stop.clone()) };
            self.held.clear();
            return passed;
        }
        let kept = self.stops.iter().map(|stop| overlap(&self.held, stop)).max().unwrap_or(0);
        let held = self.held.split_off(self.held.len() - kept);
        Passed { text: std::mem::replace(&mut self.held, held), matched: None }
    }

    /// Nothing follows: what was held back is plain text.
    pub fn release(&mut self) -> String {
        std::mem::take(&mut self.held)
    }
}

/// Bytes at the end of `text` that begin `stop` without completing it.
fn overlap(text: &str, stop: &str) -> usize {
    let begins = stop.char_indices().map(|(at, _)| at).rev();
    begins.filter(|len| text.ends_with(&stop[..*len])).max().unwrap_or(0)
}
