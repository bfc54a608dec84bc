//! The commands of README.md: the program takes each as it is written, and the steps by hand make one path on which
//! every step reads only what an earlier one has written.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::Parser;

use crate::program::{run, workspace};

#[path = "../../src/arguments.rs"]
mod arguments;

/// The commands of the code blocks in their order, in words.
fn commands(readme: &str) -> Vec<Vec<String>> {
    let blocks: String = readme.split("```").skip(1).step_by(2).collect::<Vec<_>>().join("\n");
    let lines = blocks.replace("\\\n", " ");
    lines
        .lines()
        .flat_map(|line| words(line).split(|word| word == "&&").map(<[_]>::to_vec).collect::<Vec<_>>())
        .collect()
}

/// The commands in running text and tables, which stand between single backticks.
fn spans(readme: &str) -> Vec<Vec<String>> {
    let prose: String = readme.split("```").step_by(2).collect();
    prose.split('`').skip(1).step_by(2).map(words).collect()
}

/// What a shell makes of a line: quotes keep words together, a number sign at the start of a word ends the line.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    for letter in line.chars() {
        match (quote, letter) {
            (Some(open), _) if letter == open => quote = None,
            (None, '"' | '\'') => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            (None, '#') if word.is_none() => break,
            (None, _) if letter.is_whitespace() => words.extend(word.take()),
            _ => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word);
    words
}

fn is_drgym(words: &[String]) -> bool {
    words.first().is_some_and(|first| first.trim_start_matches('$') == "drgym")
}

fn readme() -> String {
    std::fs::read_to_string(workspace().join("README.md")).unwrap()
}

#[test]
fn a_line_is_split_as_a_shell_does() {
    assert_eq!(
        words("$drgym search --query \"a  b\" -k 3   # three 'hits"),
        ["$drgym", "search", "--query", "a  b", "-k", "3"]
    );
    assert_eq!(words("x --prefix '' a#b"), ["x", "--prefix", "", "a#b"]);
}

#[test]
fn every_command_is_taken_by_the_argument_parser() {
    let readme = readme();
    let found: Vec<Vec<String>> =
        commands(&readme).into_iter().chain(spans(&readme)).filter(|words| is_drgym(words)).collect();
    assert!(found.len() >= 10, "only {} commands were found: {found:?}", found.len());
    for words in found {
        if let Err(error) = arguments::Arguments::try_parse_from(&words) {
            panic!("{}: {error}", words.join(" "));
        }
    }
}

#[test]
fn the_steps_by_hand_read_only_what_they_have_written() {
    let folder = tempfile::tempdir().unwrap();
    let mut copies: BTreeMap<String, PathBuf> = BTreeMap::new();
    let mut written: Vec<PathBuf> = Vec::new();
    let mut checkpoints: Vec<PathBuf> = Vec::new();
    let mut verbs = Vec::new();
    for words in commands(&readme()) {
        if let [program, rule, from, to] = words.as_slice()
            && program == "sed"
        {
            let copy = folder.path().join(format!("{}.toml", copies.len()));
            std::fs::write(&copy, substituted(rule, &workspace().join(from))).unwrap();
            copies.insert(to.trim_start_matches('>').to_owned(), copy);
        }
        if !is_drgym(&words) {
            continue;
        }
        let verb = words[1].as_str();
        let value = |name: &str| {
            let at = words.iter().position(|word| word == name)?;
            words.get(at + 1).cloned()
        };
        let (config, out) = (value("--config"), value("--out"));
        let mut reads: Vec<String> = words
            .iter()
            .filter(|word| {
                word.starts_with("runs/") && Some(*word) != out.as_ref() && Some(*word) != config.as_ref()
            })
            .cloned()
            .collect();
        if let Some(config) = config {
            let config = copies.get(&config).cloned().unwrap_or_else(|| workspace().join(&config));
            let config = shown(&config);
            reads.extend(named_by(&config, verb));
            let number = |section: &str, key: &str| config[section][key].as_integer().unwrap();
            let last = match verb {
                "sft" => {
                    number("sft", "epochs")
                        * (number("demonstrations", "count") as u64)
                            .div_ceil(number("sft", "batch_size") as u64) as i64
                }
                "train" => number("grpo", "steps"),
                _ => 0,
            };
            if let (Some(out), 1..) = (&out, last) {
                checkpoints.push(Path::new(out).join(format!("checkpoints/step_{last}")));
            }
        }
        for read in reads {
            let read = Path::new(&read);
            assert!(
                written.iter().any(|done| read.starts_with(done)),
                "`{}` reads {}, which no step before has written; written are {written:?}",
                words.join(" "),
                read.display()
            );
            let is_checkpoint = read.components().any(|part| part.as_os_str() == "checkpoints");
            assert!(
                !is_checkpoint || checkpoints.iter().any(|whole| whole == read),
                "`{}` reads {}, but the checkpoints are {checkpoints:?}",
                words.join(" "),
                read.display()
            );
        }
        written.extend(out.map(PathBuf::from));
        verbs.push(verb.to_owned());
    }
    for verb in ["index", "search", "synth", "sft", "train", "eval", "compare"] {
        assert!(verbs.iter().any(|found| found == verb), "no step runs `drgym {verb}`");
    }
    let quickstart = Path::new("runs/quickstart");
    assert!(written.iter().all(|path| !path.starts_with(quickstart)), "a step writes into {quickstart:?}");
}

/// What `sed 's|A|B|' FILE` prints.
fn substituted(rule: &str, file: &Path) -> String {
    let parts: Vec<&str> = rule.split('|').collect();
    let ["s", from, to, ""] = parts.as_slice() else { panic!("{rule:?} is not of the form s|A|B|") };
    let text = std::fs::read_to_string(file).unwrap();
    assert!(text.contains(from), "{} does not contain {from}", file.display());
    text.lines().map(|line| line.replacen(from, to, 1) + "\n").collect()
}

/// A configuration with all defaults, if it is in order.
fn shown(config: &Path) -> toml::Table {
    let shown = run(&["config".as_ref(), "show".as_ref(), "--config".as_ref(), config.as_os_str()]);
    assert_eq!(shown.code, Some(0), "{}", shown.stderr);
    shown.stdout.parse().unwrap()
}

/// The runs that a verb reads because its configuration says so.
fn named_by(config: &toml::Table, verb: &str) -> Vec<String> {
    let keys: &[&[&str]] = match verb {
        "synth" | "eval" | "rollout" => &[&["search", "index"]],
        "sft" => &[&["search", "index"], &["tasks", "train"], &["sft", "model", "path"]],
        "train" => {
            &[&["search", "index"], &["tasks", "train"], &["tasks", "dev"], &["grpo", "model", "path"]]
        }
        _ => &[],
    };
    let value = |keys: &[&str]| {
        let (first, rest) = keys.split_first()?;
        let found = rest.iter().try_fold(config.get(*first)?, |value, key| value.get(*key))?;
        found.as_str().map(str::to_owned)
    };
    keys.iter().filter_map(|keys| value(keys)).filter(|path| path.starts_with("runs/")).collect()
}
