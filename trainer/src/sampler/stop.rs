//! Finding stop strings in text that arrives in pieces.

/// Watches bytes for any of several strings, however the pieces cut them.
#[derive(Clone, Debug)]
pub struct StopWatch {
    stops: Vec<Vec<u8>>,
    /// The last bytes seen, one fewer than the longest stop string has.
    tail: Vec<u8>,
    keep: usize,
}

impl StopWatch {
    /// Watches for these strings; none may be empty.
    pub fn new(stops: &[String]) -> Self {
        let keep = stops.iter().map(String::len).max().unwrap_or(0).saturating_sub(1);
        Self { stops: stops.iter().map(|stop| stop.clone().into_bytes()).collect(), tail: Vec::new(), keep }
    }

    /// Takes the next bytes and tells which string they complete: the one that is complete first, and among those
    /// complete at the same byte the one given first.
    pub fn push(&mut self, bytes: &[u8]) -> Option<usize> {
        if self.stops.is_empty() {
            return None;
        }
        let old = self.tail.len();
        self.tail.extend_from_slice(bytes);
        let completed = (old + 1..=self.tail.len())
            .find_map(|end| self.stops.iter().position(|stop| self.tail[..end].ends_with(stop)));
        let surplus = self.tail.len().saturating_sub(self.keep);
        self.tail.drain(..surplus);
        completed
    }
}
