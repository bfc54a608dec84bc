//! Lines of JSONL files, and how their faults are told.

/// The text of a line, given its number from 1; the mark of the byte order that some editors put before the first line is
/// left out. An error says at which byte of the line the text stops being UTF-8.
pub fn text(number: usize, bytes: &[u8]) -> Result<&str, String> {
    let text = std::str::from_utf8(bytes)
        .map_err(|error| format!("not UTF-8: byte {} of the line does not decode", error.valid_up_to()))?;
    Ok(if number == 1 { text.trim_start_matches('\u{feff}') } else { text })
}

/// What is wrong with a line of JSON, by column: the line number that serde gives is always 1.
pub fn json_fault(error: &serde_json::Error) -> String {
    error.to_string().replace(" at line 1 column ", " at column ")
}
