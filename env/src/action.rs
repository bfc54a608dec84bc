//! What an agent can do, and how it writes it down.

use serde::{Deserialize, Serialize};

use crate::config::EnvConfig;

/// One action of the agent, parsed from its output by an action format.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", content = "value", rename_all = "snake_case")]
pub enum Action {
    /// Search for a query.
    Search(String),
    /// Fetch the page at a URL.
    Fetch(String),
    /// Replace the history by a summary.
    Summary(String),
    /// Answer and end the episode.
    Answer(String),
    /// The output is no action; the reason in words.
    Invalid(String),
}

/// The `tags` format: an optional `<think>…</think>`, then exactly one tagged action.
///
/// The rules are DeepResearchGym's: tags come in pairs, at most one pair of each; an emitted `<information>`
/// invalidates the turn; a summary must be the whole output and may quote tags inside.
#[derive(Clone, Debug)]
pub struct TagsFormat {
    allowed: Vec<Tag>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tag {
    Search,
    Fetch,
    Summary,
    Answer,
}

impl Tag {
    const ALL: [Self; 4] = [Self::Search, Self::Fetch, Self::Summary, Self::Answer];

    fn name(self) -> &'static str {
        match self {
            Self::Search => "search",
            Self::Fetch => "fetch",
            Self::Summary => "summary",
            Self::Answer => "answer",
        }
    }

    fn open(self) -> String {
        format!("<{}>", self.name())
    }

    fn close(self) -> String {
        format!("</{}>", self.name())
    }

    fn action(self, content: String) -> Action {
        match self {
            Self::Search => Action::Search(content),
            Self::Fetch => Action::Fetch(content),
            Self::Summary => Action::Summary(content),
            Self::Answer => Action::Answer(content),
        }
    }
}

/// Opens and closes the thinking before an action.
const THINK_TAGS: (&str, &str) = ("<think>", "</think>");

/// Opens and closes every observation.
pub const OBSERVATION_TAGS: (&str, &str) = ("<information>", "</information>");

impl TagsFormat {
    /// The format with the actions that the settings allow; search and answer always are.
    pub fn new(config: &EnvConfig) -> Self {
        let allowed = Tag::ALL
            .into_iter()
            .filter(|tag| match tag {
                Tag::Search | Tag::Answer => true,
                Tag::Fetch => config.fetch,
                Tag::Summary => config.summary,
            })
            .collect();
        Self { allowed }
    }

    /// What the policy is told about the format.
    pub fn instructions(&self) -> String {
        let mut text = String::from(
            "Answer the question. To look something up, write <search>query</search>; what is found comes back \
             between <information> and </information>.",
        );
        if self.allowed.contains(&Tag::Fetch) {
            text.push_str(" To read a page, write <fetch>url</fetch>.");
        }
        if self.allowed.contains(&Tag::Summary) {
            text.push_str(" To replace everything so far by your notes, write <summary>notes</summary> and nothing else.");
        }
        text.push_str(" When you know the answer, write <answer>answer</answer>.");
        text
    }

    /// What the policy is told after an output that is no action.
    pub fn reminder(&self) -> String {
        let forms: Vec<String> =
            self.allowed.iter().map(|tag| format!("{}…{}", tag.open(), tag.close())).collect();
        format!("That was no valid action. Write exactly one of {}.", forms.join(", "))
    }

    /// Strings that end a turn, unless they stand in an [open block](Self::has_open_block).
    pub fn stop_strings(&self) -> Vec<String> {
        self.allowed.iter().map(|tag| tag.close()).collect()
    }

    /// Whether an unfinished output stands inside a block that may quote tags: a `<think>` that is not closed yet, or
    /// a summary, where those are allowed, that is not. A stop string in there ends nothing.
    pub fn has_open_block(&self, output: &str) -> bool {
        let rest = output.rfind(THINK_TAGS.1).map_or(output, |end| &output[end + THINK_TAGS.1.len()..]);
        if rest.contains(THINK_TAGS.0) {
            return true;
        }
        // A summary must be the whole output, so that the tag in any other place opens none.
        let summary = Tag::Summary;
        self.allowed.contains(&summary)
            && rest.trim_start().starts_with(&summary.open())
            && !rest.contains(&summary.close())
    }

    /// Reads the action from an output.
    pub fn parse(&self, output: &str) -> Action {
        let text = match without_thinking(output) {
            Ok(text) => text.trim(),
            Err(reason) => return Action::Invalid(reason),
        };
        let summary = Tag::Summary;
        if self.allowed.contains(&summary) && text.contains(&summary.open()) {
            return parse_summary(text);
        }
        if text.contains(OBSERVATION_TAGS.0) || text.contains(OBSERVATION_TAGS.1) {
            return Action::Invalid("the output contains an observation tag".into());
        }
        let mut found: Option<Action> = None;
        for &tag in &self.allowed {
            let (open, close) = (tag.open(), tag.close());
            let (opened, closed) = (text.matches(&open).count(), text.matches(&close).count());
            if opened == 0 && closed == 0 {
                continue;
            }
            if opened != 1 || closed != 1 {
                return Action::Invalid(format!(
                    "{open} stands {opened} times and {close} {closed} times, not once each"
                ));
            }
            let Some(content) = between(text, &open, &close) else {
                return Action::Invalid(format!("{close} stands before {open}"));
            };
            if found.is_some() {
                return Action::Invalid("the output contains more than one action".into());
            }
            let content = content.trim();
            if content.is_empty() {
                return Action::Invalid(format!("{open} is empty"));
            }
            found = Some(tag.action(content.to_owned()));
        }
        found.unwrap_or_else(|| Action::Invalid("the output contains no action".into()))
    }

    /// Writes an action down as [`parse`](Self::parse) reads it.
    pub fn render(&self, action: &Action) -> String {
        let (tag, content) = match action {
            Action::Search(content) => (Tag::Search, content),
            Action::Fetch(content) => (Tag::Fetch, content),
            Action::Summary(content) => (Tag::Summary, content),
            Action::Answer(content) => (Tag::Answer, content),
            Action::Invalid(text) => return text.clone(),
        };
        format!("{}{content}{}", tag.open(), tag.close())
    }

    /// Makes every tag of this format in a text from outside unreadable as a tag: `<` becomes `‹`.
    ///
    /// Without this a document could close its own observation or seem to write an action.
    pub fn neutralise(text: &str) -> String {
        let mut result = text.to_owned();
        let names = Tag::ALL.iter().map(|tag| tag.name()).chain(["information", "think"]);
        for name in names {
            for (tag, replacement) in
                [(format!("<{name}>"), format!("‹{name}>")), (format!("</{name}>"), format!("‹/{name}>"))]
            {
                if result.contains(&tag) {
                    result = result.replace(&tag, &replacement);
                }
            }
        }
        result
    }
}

/// The output after its thinking block; an opened block that never closes is an error.
fn without_thinking(output: &str) -> Result<&str, String> {
    match (output.contains(THINK_TAGS.0), output.rfind(THINK_TAGS.1)) {
        (_, Some(end)) => Ok(&output[end + THINK_TAGS.1.len()..]),
        (true, None) => Err("<think> is never closed".into()),
        (false, None) => Ok(output),
    }
}

fn parse_summary(text: &str) -> Action {
    let (open, close) = (Tag::Summary.open(), Tag::Summary.close());
    if text.matches(&open).count() != 1 || text.matches(&close).count() != 1 {
        return Action::Invalid(format!("{open} and {close} must stand once each"));
    }
    match text.strip_prefix(&open).and_then(|rest| rest.strip_suffix(&close)) {
        Some(content) if !content.trim().is_empty() => Action::Summary(content.trim().to_owned()),
        Some(_) => Action::Invalid(format!("{open} is empty")),
        None => Action::Invalid("a summary must be the whole output".into()),
    }
}

fn between<'text>(text: &'text str, open: &str, close: &str) -> Option<&'text str> {
    let start = text.find(open)? + open.len();
    let length = text[start..].find(close)?;
    Some(&text[start..start + length])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn format() -> TagsFormat {
        TagsFormat::new(&EnvConfig { fetch: true, summary: true, ..EnvConfig::default() })
    }

    fn reason(output: &str) -> String {
        match format().parse(output) {
            Action::Invalid(reason) => reason,
            action => panic!("{output:?} was read as {action:?}"),
        }
    }

    #[test]
    fn one_action_is_read_with_or_without_thinking_and_prose() {
        let format = format();
        assert_eq!(
            format.parse("<search> capital of Kenya </search>"),
            Action::Search("capital of Kenya".into())
        );
        assert_eq!(
            format.parse("<think>a <answer>b</answer></think>\n<answer>c</answer>"),
            Action::Answer("c".into())
        );
        assert_eq!(
            format.parse("Let me look. <fetch>factbook://ke</fetch>"),
            Action::Fetch("factbook://ke".into())
        );
        assert_eq!(
            format.parse("<summary>saw <answer>x</answer></summary>"),
            Action::Summary("saw <answer>x</answer>".into())
        );
    }

    #[test]
    fn everything_else_is_invalid_with_a_reason() {
        assert!(reason("Paris").contains("no action"));
        assert!(reason("").contains("no action"));
        assert!(reason("<search>a</search><answer>b</answer>").contains("more than one"));
        assert!(reason("<search>a</search><search>b</search>").contains("2 times"));
        assert!(reason("<search>a").contains("0 times"));
        assert!(reason("</search>a<search>").contains("before"));
        assert!(reason("<answer>  </answer>").contains("empty"));
        assert!(reason("<information>x</information><answer>x</answer>").contains("observation tag"));
        assert!(reason("so <summary>x</summary>").contains("whole output"));
        assert!(reason("<think>for ever").contains("never closed"));
    }

    #[test]
    fn an_action_that_is_switched_off_is_no_action() {
        let format = TagsFormat::new(&EnvConfig::default());
        assert!(matches!(format.parse("<fetch>u</fetch>"), Action::Invalid(_)));
        assert!(!format.instructions().contains("fetch"));
        assert_eq!(format.stop_strings(), ["</search>", "</answer>"]);
    }

    #[test]
    fn blocks_that_may_quote_tags_are_open_until_they_close() {
        let format = format();
        for open in [
            "<think>",
            "<think>maybe <answer>b</answer>",
            "<think>a</think> <think>b <search>c</search>",
            "<summary>saw <answer>x</answer>",
            "<think>a</think>\n<summary>saw <search>x</search>",
        ] {
            assert!(format.has_open_block(open), "{open}");
        }
        for closed in [
            "",
            "Paris",
            "<answer>b</answer>",
            "<think>a</think><answer>b</answer>",
            "<think>a <think> b</think><answer>c</answer>",
            "a</think><answer>b</answer>",
            "<summary>x</summary>",
            "<answer>the <summary> tag</answer>",
        ] {
            assert!(!format.has_open_block(closed), "{closed}");
        }
        let without_summaries = TagsFormat::new(&EnvConfig::default());
        assert!(!without_summaries.has_open_block("<summary>saw <answer>x</answer>"));
    }

    proptest! {
        #[test]
        fn rendered_actions_are_read_back(content in "[a-zA-Z0-9éß .,:/-]{1,40}") {
            prop_assume!(!content.trim().is_empty());
            let format = format();
            let content = content.trim().to_owned();
            for action in [Action::Search(content.clone()), Action::Fetch(content.clone()),
                           Action::Summary(content.clone()), Action::Answer(content.clone())] {
                prop_assert_eq!(format.parse(&format.render(&action)), action);
            }
        }

        #[test]
        fn no_output_panics_the_parser(output in "(<|>|/|search|answer|think|summary|information| |é){0,20}") {
            format().parse(&output);
        }

        #[test]
        fn neutralised_text_holds_no_tag(text in "(<|>|/|search|answer|think|information| ){0,20}") {
            let clean = TagsFormat::neutralise(&text);
            for name in ["search", "answer", "think", "information"] {
                let (open, close) = (format!("<{name}>"), format!("</{name}>"));
                prop_assert!(!clean.contains(&open) && !clean.contains(&close));
            }
        }
    }
}
