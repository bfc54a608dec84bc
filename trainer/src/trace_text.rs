//! An episode as Markdown, for TensorBoard's text page.

use std::fmt::Write;

use drgym_env::{Event, Outcome, Trace};

/// Question, turns, searches, outcome and reward of an episode.
pub fn markdown(trace: &Trace) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = write!(text, "**{}**\n\nExpected: {}\n\n", trace.task.question, trace.task.answers.join(" | "));
    for event in &trace.events {
        let _ = match event {
            Event::Turn { turn, text: output, .. } => write!(text, "Turn {turn}:\n\n{}\n\n", quoted(output)),
            Event::Search { query, doc_ids, .. } => {
                write!(text, "Search `{query}` gave {}\n\n", doc_ids.join(", "))
            }
            Event::Fetch { url, doc_id, .. } => {
                write!(text, "Fetch `{url}` gave {}\n\n", doc_id.as_deref().unwrap_or("no such page"))
            }
            Event::Summarised { replaced_tokens } => {
                write!(text, "{replaced_tokens} tokens of history were replaced by a summary\n\n")
            }
            Event::Reminded { reason } => write!(text, "Reminded: {reason}\n\n"),
        };
    }
    let outcome = match &trace.outcome {
        Outcome::Answered { answer } => format!("Answer: {answer}"),
        Outcome::TurnLimit => "No answer within the turns".into(),
        Outcome::ContextLimit => "No answer within the context".into(),
        Outcome::Failed { boundary, reason } => format!("Failed at the {boundary} boundary: {reason}"),
    };
    let reward = trace.reward.map_or_else(|| "none".to_owned(), |reward| reward.to_string());
    let _ = write!(text, "{outcome}\n\nReward: {reward}");
    text
}

/// Indented by four blanks, so that tags in it are shown and not interpreted.
fn quoted(output: &str) -> String {
    output.lines().map(|line| format!("    {line}")).collect::<Vec<_>>().join("\n")
}
