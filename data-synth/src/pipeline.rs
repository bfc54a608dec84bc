//! From a corpus folder to three files of checked tasks.

use std::collections::{BTreeMap, HashMap};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use drgym_env::Task;
use drgym_env::seed::{derive_seed, generator};
use drgym_search::artefact::{ArtefactError, FolderInProgress, holds_only, write_file};
use drgym_search::corpus::CorpusError;
use drgym_search::corpus::factbook::read_entities;
use drgym_search::{SearchBackend, SearchError};
use futures::{StreamExt, TryStreamExt};
use rand::seq::SliceRandom;
use serde::{Deserialize, Serialize};

use crate::checks::{self, DescribingTexts, Duplicates, Rejection};
use crate::config::SynthConfig;
use crate::factbook::candidate::{self, Candidate, Context, Fact, GENERATOR, Wording};
use crate::factbook::gazetteer::Gazetteer;
use crate::report::{RejectRecord, RetrievalReport, SplitReport, SynthReport};
use crate::selection;
use crate::split::{self, Split};

/// Version of the layout of the output folder.
pub const FORMAT_VERSION: u32 = 1;

/// Names the other files with their hashes; its presence tells a folder of tasks.
const MANIFEST: &str = "manifest.json";

/// Entities with fewer facts than this are dealt to the splits apart.
const RICH: usize = 12;

/// What a run reads and where it writes.
#[derive(Clone)]
pub struct SynthInputs {
    /// The Factbook, `<region>/<code>.json`.
    pub corpus_dir: PathBuf,
    /// Hash of the corpus or index that the evidence refers to; kept in every task.
    pub corpus_hash: String,
    /// With an engine, only tasks whose evidence it finds are kept.
    pub backend: Option<Arc<dyn SearchBackend>>,
    /// Receives `train.jsonl`, `dev.jsonl`, `test.jsonl`, `rejects.jsonl`, `report.json` and `manifest.json`.
    pub out_dir: PathBuf,
}

/// How far a run is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SynthProgress {
    /// The corpus has been read.
    Read {
        /// Entities.
        entities: usize,
        /// Facts.
        facts: usize,
    },
    /// Candidates have been worded and checked.
    Checked {
        /// All candidates.
        candidates: usize,
        /// Those that passed.
        passed: usize,
    },
    /// Tasks are being chosen.
    Chosen {
        /// For this split.
        split: Split,
        /// Tasks so far.
        tasks: usize,
        /// Tasks wanted.
        wanted: usize,
    },
}

/// Why a run made nothing.
#[derive(Debug, thiserror::Error)]
pub enum SynthError {
    /// The settings make no sense.
    #[error("the synthesis settings are wrong: {}", .problems.join("; "))]
    Config {
        /// Every problem, with its path.
        problems: Vec<String>,
    },
    /// The corpus cannot be read.
    #[error(transparent)]
    Corpus(#[from] CorpusError),
    /// The search engine failed.
    #[error("cannot check whether evidence is found: {0}")]
    Search(#[from] SearchError),
    /// The corpus holds too little for what was asked.
    #[error(
        "the {split} split has only {found} of {wanted} {kind} tasks with {wording} wordings; \
         ask for fewer, raise max_per_entity or max_per_relation, or set allow_fewer",
        split = .split.name()
    )]
    TooFew {
        /// The split.
        split: Split,
        /// `one_hop` or `two_hop`.
        kind: &'static str,
        /// `seen` or `unseen`.
        wording: &'static str,
        /// Tasks asked for.
        wanted: usize,
        /// Tasks found.
        found: usize,
    },
    /// A file or folder cannot be written.
    #[error(transparent)]
    Artefact(#[from] ArtefactError),
    /// The output folder holds something that is not a folder of tasks.
    #[error("{path} holds something else than (or besides) tasks of an earlier run; choose another folder", path = .path.display())]
    NotOverwritten {
        /// The folder.
        path: PathBuf,
    },
    /// Something cannot be written as JSON.
    #[error("cannot write {path} as JSON: {source}", path = .path.display())]
    Json {
        /// The file.
        path: PathBuf,
        /// What the serialiser said.
        source: serde_json::Error,
    },
}

/// Makes tasks and writes them as the output folder, in the place of an earlier run's tasks if it holds such.
///
/// The same corpus, settings and (where given) index yield the same bytes in every file. Entities of different
/// splits never meet in one task; wordings whose `phrasing` begins with `unseen/` occur in the test split alone.
pub async fn run(
    config: &SynthConfig,
    inputs: &SynthInputs,
    progress: &(dyn Fn(SynthProgress) + Send + Sync),
) -> Result<SynthReport, SynthError> {
    let problems = config.problems();
    if !problems.is_empty() {
        return Err(SynthError::Config { problems });
    }
    check_target(&inputs.out_dir)?;
    let entities = read_entities(&inputs.corpus_dir)?;
    let names = Gazetteer::new(&entities);
    let context =
        Context { names: &names, seed: config.seed, corpus: &inputs.corpus_hash, entities: &entities };
    let mut rejects: Vec<RejectRecord> = Vec::new();

    let (facts, messy) = candidate::facts(&entities, &names);
    rejects.extend(messy.into_iter().map(|(entity, relation, rejection)| RejectRecord {
        entity: names.name(entity).to_owned(),
        relation: relation.to_owned(),
        clue: None,
        question: None,
        rejection,
    }));
    progress(SynthProgress::Read { entities: entities.len(), facts: facts.len() });

    let mut facts_of = vec![0usize; entities.len()];
    for fact in &facts {
        facts_of[fact.entity] += 1;
    }
    let assigned = split::assign(&facts_of, RICH, &config.entity_fractions, config.seed);
    let worded = word(&facts, &assigned, config, &context, &mut rejects);
    let candidates = worded.len();
    let passed = check(worded, &assigned, &context, &mut rejects);
    progress(SynthProgress::Checked { candidates, passed: passed.len() });

    let mut choice = Choice::new(config, inputs.backend.as_deref(), passed);
    let mut tasks: BTreeMap<Split, Vec<Task>> = BTreeMap::new();
    for split in Split::ALL {
        let mut chosen = choice.fill(split, &assigned, progress).await?;
        chosen.shuffle(&mut generator(derive_seed(config.seed, "order", 0, split.name(), 0)));
        tasks.insert(split, chosen.into_iter().map(|index| choice.candidates[index].task.clone()).collect());
    }
    let written: usize = tasks.values().map(Vec::len).sum();
    let unused = choice.candidates.len() - written - choice.rejected.len();
    let retrieval = inputs.backend.as_ref().map(|backend| RetrievalReport {
        backend: backend.name(),
        k: config.retrievable_k,
        checked: choice.checked,
        found: choice.checked - choice.rejected.len(),
    });
    for (index, rejection) in &choice.rejected {
        rejects.push(record(&choice.candidates[*index], rejection.clone(), &names));
    }

    let mut rejections: BTreeMap<String, usize> = BTreeMap::new();
    for reject in &rejects {
        *rejections.entry(reject.rejection.reason().to_owned()).or_default() += 1;
    }
    let report = SynthReport {
        generator: GENERATOR.to_owned(),
        config: config.clone(),
        corpus: inputs.corpus_hash.clone(),
        corpus_entities: entities.len(),
        facts: facts.len(),
        candidates,
        unused,
        splits: tasks.iter().map(|(split, tasks)| (*split, SplitReport::of(tasks))).collect(),
        rejections,
        retrieval,
        files: BTreeMap::new(),
    };
    write_all(&inputs.out_dir, report, &tasks, &rejects)
}

/// Words every candidate: one question for each fact, and one for each pair of a description and a fact that stand
/// in different fields. In the test split a candidate's identifier decides whether its wording is an unseen one.
fn word(
    facts: &[Fact],
    assigned: &[Split],
    config: &SynthConfig,
    context: &Context<'_>,
    rejects: &mut Vec<RejectRecord>,
) -> Vec<Candidate> {
    let wording = |split: Split, name: &str| {
        let draw = derive_seed(config.seed, "wording", 0, name, 0) as f64 / u64::MAX as f64;
        if split == Split::Test && draw < config.unseen_phrasing_fraction {
            Wording::Unseen
        } else {
            Wording::Seen
        }
    };
    let mut by_entity: BTreeMap<usize, Vec<&Fact>> = BTreeMap::new();
    for fact in facts {
        by_entity.entry(fact.entity).or_default().push(fact);
    }
    let texts = DescribingTexts::new(context.entities);
    let mut worded = Vec::new();
    for (entity, own) in by_entity {
        let (split, code) = (assigned[entity], &context.entities[entity].code);
        let refuse = |fact: &Fact, clue: Option<&str>, rejection: Rejection| RejectRecord {
            entity: context.names.name(entity).to_owned(),
            relation: fact.relation.id.to_owned(),
            clue: clue.map(str::to_owned),
            question: None,
            rejection,
        };
        let named = checks::unambiguous_name(entity, context.names);
        for fact in &own {
            match &named {
                Ok(()) => {
                    let wording = wording(split, &format!("{code}/{}", fact.relation.id));
                    worded.push(candidate::one_hop(fact, wording, context));
                }
                Err(rejection) => rejects.push(refuse(fact, None, rejection.clone())),
            }
        }
        for clue in &own {
            let Some(how) = &clue.relation.clue else { continue };
            if let Err(rejection) = checks::unique_description(clue, &texts, context.names) {
                rejects.push(refuse(clue, Some(clue.relation.id), rejection));
                continue;
            }
            for fact in own.iter().filter(|fact| fact.evidence.doc_id != clue.evidence.doc_id) {
                let wording = wording(split, &format!("{code}/{}/{}", clue.relation.id, fact.relation.id));
                worded.push(candidate::two_hop(clue, how, fact, wording, context));
            }
        }
    }
    worded
}

/// Keeps the candidates that pass every check that needs no search.
fn check(
    worded: Vec<Candidate>,
    assigned: &[Split],
    context: &Context<'_>,
    rejects: &mut Vec<RejectRecord>,
) -> Vec<Candidate> {
    let mut duplicates = Duplicates::default();
    let mut passed = Vec::new();
    for candidate in worded {
        let verdict = checks::well_formed(&candidate.task)
            .and_then(|()| checks::no_answer_in_question(&candidate.task))
            .and_then(|()| checks::entity_not_named(&candidate, context.names))
            .and_then(|()| checks::evidence_holds(&candidate.task, &candidate.evidence))
            .and_then(|()| checks::every_step_needed(&candidate.task, &candidate.evidence))
            .and_then(|()| checks::within_one_split(&candidate.touched, assigned, context.names))
            .and_then(|_| duplicates.insert(&candidate.task));
        match verdict {
            Ok(()) => passed.push(candidate),
            Err(rejection) => rejects.push(record(&candidate, rejection, context.names)),
        }
    }
    passed
}

fn record(candidate: &Candidate, rejection: Rejection, names: &Gazetteer) -> RejectRecord {
    RejectRecord {
        entity: names.name(candidate.entity).to_owned(),
        relation: candidate.relation.to_owned(),
        clue: candidate.clue.map(str::to_owned),
        question: Some(candidate.task.question.clone()),
        rejection,
    }
}

/// The candidates that are taken.
struct Choice<'a> {
    config: &'a SynthConfig,
    backend: Option<&'a dyn SearchBackend>,
    candidates: Vec<Candidate>,
    per_entity: HashMap<usize, usize>,
    per_relation: HashMap<(Split, &'static str), usize>,
    checked: usize,
    rejected: BTreeMap<usize, Rejection>,
}

impl<'a> Choice<'a> {
    fn new(
        config: &'a SynthConfig,
        backend: Option<&'a dyn SearchBackend>,
        candidates: Vec<Candidate>,
    ) -> Self {
        Self {
            config,
            backend,
            candidates,
            per_entity: HashMap::new(),
            per_relation: HashMap::new(),
            checked: 0,
            rejected: BTreeMap::new(),
        }
    }

    /// Fills one split, cell by cell: (kind × wording), each with its own quota.
    async fn fill(
        &mut self,
        split: Split,
        assigned: &[Split],
        progress: &(dyn Fn(SynthProgress) + Send + Sync),
    ) -> Result<Vec<usize>, SynthError> {
        let wanted = self.config.counts.get(split);
        let two_hop = (self.config.two_hop_fraction * wanted as f64).round() as usize;
        let mut chosen = Vec::new();
        for (kind, of_kind) in [("one_hop", wanted - two_hop), ("two_hop", two_hop)] {
            let unseen = if split == Split::Test {
                (self.config.unseen_phrasing_fraction * of_kind as f64).round() as usize
            } else {
                0
            };
            for (wording, name, quota) in
                [(Wording::Unseen, "unseen", unseen), (Wording::Seen, "seen", of_kind - unseen)]
            {
                let pool: Vec<usize> = (0..self.candidates.len())
                    .filter(|&index| {
                        let candidate = &self.candidates[index];
                        assigned[candidate.entity] == split
                            && candidate.task.kind == kind
                            && candidate.wording == wording
                    })
                    .collect();
                let component = format!("selection/{}/{kind}/{name}", split.name());
                let order = selection::in_turns(&self.candidates, &pool, self.config.seed, &component);
                let taken = self.take(split, order, quota).await?;
                if taken.len() < quota && !self.config.allow_fewer {
                    let found = taken.len();
                    return Err(SynthError::TooFew { split, kind, wording: name, wanted: quota, found });
                }
                chosen.extend(taken);
                progress(SynthProgress::Chosen { split, tasks: chosen.len(), wanted });
            }
        }
        Ok(chosen)
    }

    /// Takes up to `quota` candidates in order, within the limits, dropping those whose evidence is not found.
    async fn take(
        &mut self,
        split: Split,
        order: Vec<usize>,
        quota: usize,
    ) -> Result<Vec<usize>, SynthError> {
        let mut taken = Vec::new();
        let mut pending = order;
        loop {
            // What a limit holds back may become possible again when a search refuses another.
            let (mut batch, mut held_back) = (Vec::new(), Vec::new());
            for index in pending {
                if taken.len() + batch.len() < quota && self.reserve(split, index) {
                    batch.push(index);
                } else {
                    held_back.push(index);
                }
            }
            if batch.is_empty() {
                return Ok(taken);
            }
            for (index, verdict) in batch.iter().copied().zip(self.search(&batch).await?) {
                match verdict {
                    Ok(()) => taken.push(index),
                    Err(rejection) => {
                        self.release(split, index);
                        self.rejected.insert(index, rejection);
                    }
                }
            }
            pending = held_back;
        }
    }

    async fn search(&mut self, batch: &[usize]) -> Result<Vec<Result<(), Rejection>>, SearchError> {
        let Some(backend) = self.backend else { return Ok(vec![Ok(()); batch.len()]) };
        self.checked += batch.len();
        let k = self.config.retrievable_k;
        let tasks: Vec<&Task> = batch.iter().map(|&index| &self.candidates[index].task).collect();
        // `buffered` keeps the order, so the outcome does not depend on which search is faster.
        futures::stream::iter(tasks.into_iter().map(|task| checks::retrievable(task, backend, k)))
            .buffered(self.config.concurrency)
            .try_collect()
            .await
    }

    fn reserve(&mut self, split: Split, index: usize) -> bool {
        let candidate = &self.candidates[index];
        let of_entity = self.per_entity.entry(candidate.entity).or_default();
        let of_relation = self.per_relation.entry((split, candidate.relation)).or_default();
        let free = *of_entity < self.config.max_per_entity && *of_relation < self.config.max_per_relation;
        if free {
            *of_entity += 1;
            *of_relation += 1;
        }
        free
    }

    fn release(&mut self, split: Split, index: usize) {
        let candidate = &self.candidates[index];
        if let Some(count) = self.per_entity.get_mut(&candidate.entity) {
            *count -= 1;
        }
        if let Some(count) = self.per_relation.get_mut(&(split, candidate.relation)) {
            *count -= 1;
        }
    }
}

#[derive(Serialize)]
struct Manifest<'a> {
    format_version: u32,
    generator: &'a str,
    seed: u64,
    corpus: &'a str,
    /// blake3 in hex.
    files: &'a BTreeMap<String, String>,
}

fn write_all(
    out_dir: &Path,
    mut report: SynthReport,
    tasks: &BTreeMap<Split, Vec<Task>>,
    rejects: &[RejectRecord],
) -> Result<SynthReport, SynthError> {
    let folder = FolderInProgress::new(out_dir)?;
    let path = |name: &str| folder.path().join(name);
    for (split, tasks) in tasks {
        let name = format!("{}.jsonl", split.name());
        let hash = write_json(&path(&name), json_lines(tasks))?;
        report.files.insert(name, hash);
    }
    let hash = write_json(&path("rejects.jsonl"), json_lines(rejects))?;
    report.files.insert("rejects.jsonl".to_owned(), hash);
    let report_hash = write_json(&path("report.json"), serde_json::to_vec_pretty(&report))?;
    let mut files = report.files.clone();
    files.insert("report.json".to_owned(), report_hash);
    let manifest = Manifest {
        format_version: FORMAT_VERSION,
        generator: &report.generator,
        seed: report.config.seed,
        corpus: &report.corpus,
        files: &files,
    };
    write_json(&path(MANIFEST), serde_json::to_vec_pretty(&manifest))?;
    // Something may have come there while the tasks were made.
    check_target(out_dir)?;
    folder.replace()?;
    Ok(report)
}

/// What tells the manifest of a folder of tasks from others.
#[derive(Deserialize)]
struct EarlierManifest {
    #[serde(rename = "generator")]
    _generator: String,
    files: BTreeMap<String, String>,
}

/// Spares whatever is not an earlier run's tasks, and what lies beside them.
fn check_target(out_dir: &Path) -> Result<(), SynthError> {
    let listed: Option<EarlierManifest> =
        std::fs::read(out_dir.join(MANIFEST)).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
    let known = |name: &str| {
        listed.as_ref().is_some_and(|listed| name == MANIFEST || listed.files.contains_key(name))
    };
    if !out_dir.exists() || holds_only(out_dir, known) {
        return Ok(());
    }
    Err(SynthError::NotOverwritten { path: out_dir.to_owned() })
}

/// Writes a file and gives its blake3 hash in hex.
fn write_json(path: &Path, bytes: Result<Vec<u8>, serde_json::Error>) -> Result<String, SynthError> {
    let bytes = bytes.map_err(|source| SynthError::Json { path: path.to_owned(), source })?;
    write_file(path, |file| file.write_all(&bytes))?;
    Ok(blake3::hash(&bytes).to_hex().to_string())
}

/// One JSON value a line.
fn json_lines<'a, T: Serialize + 'a>(
    values: impl IntoIterator<Item = &'a T>,
) -> Result<Vec<u8>, serde_json::Error> {
    let mut bytes = Vec::new();
    for value in values {
        serde_json::to_writer(&mut bytes, value)?;
        bytes.push(b'\n');
    }
    Ok(bytes)
}
