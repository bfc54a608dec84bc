//! The command line.

use std::path::PathBuf;

use clap::builder::RangedU64ValueParser;
use clap::{Args, Parser, Subcommand, ValueEnum};

/// Train, evaluate and compare search agents over a local, frozen search engine.
///
/// Standard output is data, standard error is talk. Exit status: 0 success, 1 something the user can mend, 2 a defect
/// of drgym.
#[derive(Parser)]
#[command(name = "drgym", version, max_term_width = 100)]
pub struct Arguments {
    #[command(subcommand)]
    pub command: Command,
    /// Print only data and errors
    #[arg(long, short, global = true)]
    pub quiet: bool,
}

#[derive(Subcommand)]
pub enum Command {
    /// Build, inspect and measure search indexes
    #[command(subcommand)]
    Index(IndexCommand),
    /// Search an index or a server
    Search(SearchArguments),
    /// Serve indexes over HTTP in DeepResearchGym's format
    Serve(ServeArguments),
    /// Make questions with answers, evidence and expert plans from a corpus
    Synth(SynthArguments),
    /// Play episodes and keep their traces
    Rollout(RolloutArguments),
    /// Evaluate a policy on a benchmark
    Eval(EvalArguments),
    /// Compare two evaluations of the same tasks
    Compare(CompareArguments),
    /// Fine-tune a model on expert traces
    #[cfg(feature = "train")]
    Sft(TrainArguments),
    /// Train a model by GRPO
    #[cfg(feature = "train")]
    Train(TrainArguments),
    /// Import and inspect models
    #[cfg(feature = "train")]
    #[command(subcommand)]
    Model(ModelCommand),
    /// Check and explain configuration files
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Say what this machine has and what is missing
    Doctor(DoctorArguments),
    /// Print shell completions
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
}

#[derive(Subcommand)]
pub enum IndexCommand {
    /// Encode a corpus and write an index folder
    Build(IndexBuildArguments),
    /// Print what an index holds
    Info(IndexFolderArguments),
    /// Read every byte of an index and compare it with the manifest
    Verify(IndexFolderArguments),
    /// Measure retrieval against relevance judgements
    Eval(IndexEvalArguments),
}

#[derive(Clone, Copy, ValueEnum)]
pub enum Format {
    /// One JSON document a line; plain, .gz or .zst
    Jsonl,
    /// The CIA World Factbook as JSON, one folder a region
    Factbook,
}

#[derive(Clone, Copy, ValueEnum)]
pub enum Kind {
    /// Exact search over all vectors
    Flat,
}

#[derive(Clone, Copy, ValueEnum)]
pub enum Pooling {
    /// The mean over all tokens
    Mean,
    /// The vector of the first token
    Cls,
}

#[derive(Args)]
pub struct IndexBuildArguments {
    /// Corpus files or folders
    #[arg(long, required = true, num_args = 1.., value_name = "PATH")]
    pub corpus: Vec<PathBuf>,
    /// How to read them
    #[arg(long, value_enum)]
    pub format: Format,
    /// Folder of the sentence encoder (BERT family, Hugging Face layout) [default: the one that set-up lays out]
    #[arg(long, value_name = "DIR")]
    pub encoder: Option<PathBuf>,
    /// Kind of index
    #[arg(long, value_enum, default_value = "flat")]
    pub kind: Kind,
    /// `none` for one vector a document, or the most tokens of a chunk
    #[arg(long, default_value = "none", value_name = "none|TOKENS")]
    pub chunk: String,
    /// Most tokens that the encoder reads of a text [default: as the encoder's folder says]
    #[arg(long, value_name = "N", value_parser = positive)]
    pub max_tokens: Option<usize>,
    /// How the encoder's token vectors become one [default: as the encoder's folder says]
    #[arg(long, value_enum)]
    pub pooling: Option<Pooling>,
    /// Text before every query, for instance "query: " for E5 [default: as the encoder's folder says]
    #[arg(long, value_name = "TEXT")]
    pub query_prefix: Option<String>,
    /// Text before every document, for instance "passage: " for E5 [default: as the encoder's folder says]
    #[arg(long, value_name = "TEXT")]
    pub passage_prefix: Option<String>,
    /// Folder to write
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// Replace an index that is already there
    #[arg(long)]
    pub overwrite: bool,
    /// Take only the first N documents
    #[arg(long, value_name = "N", value_parser = positive)]
    pub limit: Option<usize>,
    /// Threads [default: all cores]
    #[arg(long, value_name = "N")]
    pub threads: Option<usize>,
    /// Print the summary as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct IndexFolderArguments {
    /// Index folder
    #[arg(value_name = "DIR")]
    pub index: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct IndexEvalArguments {
    #[command(flatten)]
    pub search: SearchSource,
    /// Queries: BEIR JSONL or `id<TAB>text`
    #[arg(long, value_name = "FILE")]
    pub queries: PathBuf,
    /// Judgements: BEIR or TREC qrels, or `query<TAB>document`
    #[arg(long, value_name = "FILE")]
    pub qrels: PathBuf,
    /// Results per query
    #[arg(short, long, default_value_t = 100)]
    pub k: usize,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Where to search.
#[derive(Args, Clone)]
pub struct SearchSource {
    /// Index folder
    #[arg(long, value_name = "DIR", conflicts_with = "url")]
    pub index: Option<PathBuf>,
    /// Base URL of a server that speaks DeepResearchGym's API
    #[arg(long)]
    pub url: Option<String>,
    /// Environment variable that holds the server's key
    #[arg(long, value_name = "NAME", requires = "url")]
    pub api_key_env: Option<String>,
    /// Folder of the encoder, if it is not where the index was built
    #[arg(long, value_name = "DIR")]
    pub encoder: Option<PathBuf>,
}

#[derive(Args)]
pub struct SearchArguments {
    #[command(flatten)]
    pub search: SearchSource,
    /// What to search for
    #[arg(long)]
    pub query: String,
    /// Number of documents
    #[arg(short, long, default_value_t = 10)]
    pub k: usize,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct ServeArguments {
    /// Index folder, with a name in front to serve several; the first also answers without its name
    #[arg(long, required = true, num_args = 1.., value_name = "[NAME=]DIR")]
    pub index: Vec<String>,
    /// Address to listen on; port 0 takes a free one
    #[arg(long, default_value = "127.0.0.1:8080", value_name = "HOST:PORT")]
    pub addr: String,
    /// Folder of the encoder, if it is not where the index was built
    #[arg(long, value_name = "DIR")]
    pub encoder: Option<PathBuf>,
    /// Longest time for one answer, waiting included
    #[arg(long, default_value_t = 30, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    pub timeout: u64,
    /// Searches of an index computed at the same time; further ones wait
    #[arg(long, default_value_t = 4, value_name = "N", value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    pub concurrency: usize,
}

/// A configuration file with overrides.
#[derive(Args, Clone)]
pub struct ConfigSource {
    /// Configuration file (TOML)
    #[arg(long, value_name = "FILE")]
    pub config: PathBuf,
    /// Override a key of the configuration, for instance `--set grpo.steps=5`
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
}

#[derive(Args)]
pub struct SynthArguments {
    #[command(flatten)]
    pub config: ConfigSource,
    /// Folder to write train.jsonl, dev.jsonl, test.jsonl, rejects.jsonl and report.json into
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// Print the report as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct RolloutArguments {
    #[command(flatten)]
    pub config: ConfigSource,
    /// Model folder, `expert` (byte tokens) or `expert:DIR` (with the tokenizer of a model folder)
    #[arg(long, value_name = "POLICY")]
    pub policy: String,
    /// Tasks file
    #[arg(long, value_name = "FILE")]
    pub tasks: PathBuf,
    /// Index folder or base URL of a search server; `none` finds nothing [default: as the configuration says]
    #[arg(long, value_name = "DIR|URL|none")]
    pub search: Option<String>,
    /// File to write the traces to
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
    /// Take only the first N tasks
    #[arg(long, value_name = "N", value_parser = positive)]
    pub limit: Option<usize>,
    /// Episodes a task; more than 1 needs a temperature above 0
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub samples: u32,
    /// Sampling temperature, 0 is greedy
    #[arg(long, default_value_t = 1.0)]
    pub temperature: f32,
}

#[derive(Args)]
pub struct EvalArguments {
    /// List the benchmarks and stop
    #[arg(long)]
    pub list: bool,
    /// Benchmark
    #[arg(long, default_value = "tasks", value_name = "NAME")]
    pub benchmark: String,
    /// File of the benchmark
    #[arg(long, value_name = "FILE", required_unless_present = "list")]
    pub data: Option<PathBuf>,
    /// Model folder, `expert` (byte tokens) or `expert:DIR` (with the tokenizer of a model folder)
    #[arg(long, value_name = "POLICY", required_unless_present = "list")]
    pub policy: Option<String>,
    /// Index folder or base URL of a search server; `none` finds nothing [default: as the configuration says]
    #[arg(long, value_name = "DIR|URL|none")]
    pub search: Option<String>,
    /// Configuration file for environment, judge and search
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Override a key of the configuration
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Folder to write results.json and traces.jsonl into
    #[arg(long, value_name = "DIR", required_unless_present = "list")]
    pub out: Option<PathBuf>,
    /// Replace an evaluation that is already there
    #[arg(long)]
    pub overwrite: bool,
    /// Take only the first N tasks
    #[arg(long, value_name = "N", value_parser = positive)]
    pub limit: Option<usize>,
    /// Episodes a task; more than 1 needs a temperature above 0
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub samples: u32,
    /// Sampling temperature, 0 is greedy
    #[arg(long, default_value_t = 0.0)]
    pub temperature: f32,
    /// Exit with status 1 if a larger share of the episodes was excluded because search, policy or judge failed; what
    /// happened is then written as refused.json, not as results.json
    #[arg(long, default_value_t = 0.05, value_parser = share, value_name = "SHARE")]
    pub max_excluded: f64,
    /// Print the results as JSON
    #[arg(long)]
    pub json: bool,
}

/// A whole number above 0.
fn positive(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("expected at least 1".into()),
        Ok(number) => Ok(number),
        Err(error) => Err(format!("expected a whole number above 0: {error}")),
    }
}

/// A number from 0 to 1.
fn share(text: &str) -> Result<f64, String> {
    let share = text.parse::<f64>().map_err(|error| error.to_string())?;
    if (0.0..=1.0).contains(&share) { Ok(share) } else { Err("expected a share from 0 to 1".into()) }
}

#[derive(Args)]
pub struct CompareArguments {
    /// Results folder of the first evaluation
    #[arg(value_name = "DIR")]
    pub first: PathBuf,
    /// Results folder of the second evaluation
    #[arg(value_name = "DIR")]
    pub second: PathBuf,
    /// A further pair of the same data, for instance of another training seed; the difference is pooled over all pairs
    #[arg(long, num_args = 2, value_names = ["DIR", "DIR"])]
    pub also: Vec<PathBuf>,
    /// Seed of the bootstrap
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[cfg(feature = "train")]
#[derive(Args)]
pub struct TrainArguments {
    #[command(flatten)]
    pub config: ConfigSource,
    /// Folder of the run
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// Go on with the run that is in the folder
    #[arg(long)]
    pub resume: bool,
    /// Print the report as JSON
    #[arg(long)]
    pub json: bool,
}

#[cfg(feature = "train")]
#[derive(Subcommand)]
pub enum ModelCommand {
    /// Turn a GGUF file (llama architecture) into a Hugging Face folder
    Import(ModelImportArguments),
    /// Print what a model folder holds
    Info {
        /// Model folder
        #[arg(value_name = "DIR")]
        model: PathBuf,
    },
    /// Merge a LoRA adapter (PEFT format) into its base model
    Merge {
        /// Model folder
        #[arg(long, value_name = "DIR")]
        model: PathBuf,
        /// Adapter folder
        #[arg(long, value_name = "DIR")]
        adapter: PathBuf,
        /// Folder to write
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
    },
}

#[cfg(feature = "train")]
#[derive(Args)]
pub struct ModelImportArguments {
    /// GGUF file
    #[arg(long, value_name = "FILE")]
    pub gguf: PathBuf,
    /// Folder to write
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// Replace a folder that is already there
    #[arg(long)]
    pub overwrite: bool,
}

#[derive(Subcommand)]
pub enum ConfigCommand {
    /// Report every problem of a configuration file
    Check(ConfigSource),
    /// Print a configuration with all defaults filled in
    Show(ConfigSource),
    /// Print the JSON schema of configuration files
    Schema,
}

#[derive(Args)]
pub struct DoctorArguments {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}
