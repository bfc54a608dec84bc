//! Chat templates as Hugging Face models carry them, rendered by minijinja.

use std::path::{Path, PathBuf};

use minijinja::{Environment, Value, context};
use serde::Serialize;

/// One message of a chat.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Message {
    /// `system`, `user` or `assistant`.
    pub role: &'static str,
    /// Text.
    pub content: String,
}

/// Why a template is not usable.
#[derive(Debug, thiserror::Error)]
pub enum ChatTemplateError {
    /// A file of the model folder cannot be read.
    #[error("cannot read {path}: {reason}")]
    Read {
        /// The file.
        path: PathBuf,
        /// What was wrong.
        reason: String,
    },
    /// The template is not valid, or refused the messages.
    #[error("the chat template of the model does not render: {0}")]
    Render(String),
}

/// A model's chat template.
pub struct ChatTemplate {
    environment: Environment<'static>,
    special: Vec<(String, String)>,
}

impl ChatTemplate {
    /// The template of a model folder: `chat_template.jinja`, else `chat_template` in `tokenizer_config.json`;
    /// `None` if the model has none.
    pub fn load(folder: &Path) -> Result<Option<Self>, ChatTemplateError> {
        let config_path = folder.join("tokenizer_config.json");
        let config: serde_json::Value = match std::fs::read(&config_path) {
            Ok(bytes) => serde_json::from_slice(&bytes)
                .map_err(|error| ChatTemplateError::Read { path: config_path, reason: error.to_string() })?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => serde_json::Value::Null,
            Err(error) => {
                return Err(ChatTemplateError::Read { path: config_path, reason: error.to_string() });
            }
        };
        let jinja_path = folder.join("chat_template.jinja");
        let source = match std::fs::read_to_string(&jinja_path) {
            Ok(source) => Some(source),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => template_in_config(&config),
            Err(error) => {
                return Err(ChatTemplateError::Read { path: jinja_path, reason: error.to_string() });
            }
        };
        let special = ["bos_token", "eos_token", "pad_token", "unk_token"]
            .into_iter()
            .filter_map(|name| Some((name.to_owned(), token_text(config.get(name)?)?)))
            .collect();
        source.map(|source| Self::new(source, special)).transpose()
    }

    /// A template from its source; `special` names tokens such as `bos_token` for it.
    pub fn new(source: String, special: Vec<(String, String)>) -> Result<Self, ChatTemplateError> {
        let mut environment = Environment::new();
        environment.set_trim_blocks(true);
        environment.set_lstrip_blocks(true);
        environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        environment.add_function("raise_exception", |message: String| -> Result<Value, minijinja::Error> {
            Err(minijinja::Error::new(minijinja::ErrorKind::InvalidOperation, message))
        });
        environment
            .add_template_owned("chat", source)
            .map_err(|error| ChatTemplateError::Render(error.to_string()))?;
        Ok(Self { environment, special })
    }

    /// ChatML, for policies that bring no template.
    pub fn chatml() -> Result<Self, ChatTemplateError> {
        let source = "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n\
                      {% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
        Self::new(source.to_owned(), Vec::new())
    }

    /// The text of a chat, ready for the model to go on.
    pub fn render(
        &self,
        messages: &[Message],
        add_generation_prompt: bool,
    ) -> Result<String, ChatTemplateError> {
        let render = || -> Result<String, minijinja::Error> {
            let special: Value =
                self.special.iter().map(|(name, text)| (name.clone(), text.clone())).collect();
            self.environment
                .get_template("chat")?
                .render(context! { messages, add_generation_prompt, ..special })
        };
        render().map_err(|error| ChatTemplateError::Render(error.to_string()))
    }
}

/// `chat_template` may be a string or a list of named ones.
fn template_in_config(config: &serde_json::Value) -> Option<String> {
    match config.get("chat_template")? {
        serde_json::Value::String(source) => Some(source.clone()),
        serde_json::Value::Array(named) => {
            let default = named.iter().find(|entry| entry["name"] == "default").or_else(|| named.first())?;
            default["template"].as_str().map(str::to_owned)
        }
        _ => None,
    }
}

/// A token may be a string or an object with its `content`.
fn token_text(value: &serde_json::Value) -> Option<String> {
    value.as_str().or_else(|| value["content"].as_str()).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(content: &str) -> Vec<Message> {
        vec![Message { role: "user", content: content.into() }]
    }

    #[test]
    fn chatml_renders_as_published() {
        let template = ChatTemplate::chatml().unwrap();
        assert_eq!(
            template.render(&user("hi"), true).unwrap(),
            "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
        );
        assert_eq!(template.render(&user("hi"), false).unwrap(), "<|im_start|>user\nhi<|im_end|>\n");
    }

    #[test]
    fn python_methods_and_raised_exceptions_work() {
        let source = "{% if messages[0].content.startswith('x') %}{{ raise_exception('no x') }}{% endif %}\
                      {{ bos_token }}{{ messages[0].content.strip() }}";
        let template = ChatTemplate::new(source.into(), vec![("bos_token".into(), "<s>".into())]).unwrap();
        assert_eq!(template.render(&user(" a "), true).unwrap(), "<s>a");
        assert!(template.render(&user("x"), true).unwrap_err().to_string().contains("no x"));
    }

    #[test]
    fn a_folder_without_template_has_none_and_a_broken_one_says_so() {
        let folder = tempfile::tempdir().unwrap();
        assert!(ChatTemplate::load(folder.path()).unwrap().is_none());
        std::fs::write(folder.path().join("tokenizer_config.json"), "{").unwrap();
        assert!(
            ChatTemplate::load(folder.path()).err().unwrap().to_string().contains("tokenizer_config.json")
        );
        let named = r#"{"chat_template":[{"name":"tool","template":"t"},{"name":"default","template":"d"}]}"#;
        std::fs::write(folder.path().join("tokenizer_config.json"), named).unwrap();
        assert_eq!(ChatTemplate::load(folder.path()).unwrap().unwrap().render(&[], true).unwrap(), "d");
    }
}
