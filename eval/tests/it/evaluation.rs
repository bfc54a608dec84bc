//! An evaluation from tasks to results folder with scripted policies, without any model.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::sync::Arc;

use async_trait::async_trait;
use drgym_env::scripted::FixedOutputs;
use drgym_env::{
    EnvConfig, EpisodeSetting, Expert, ExpertStep, JudgedReward, Policy, Renderer, RewardConfig,
    RolloutConfig, Scheduler, ScriptedPolicy, Task, TaskProvenance,
};
use drgym_eval::results::{read_traces, traces_hash};
use drgym_eval::{EvaluationRequest, Results, Summary, compare, compare_pooled, evaluate};
use drgym_judge::{AnswerJudge, JudgeError, JudgeRequest, Verdict, VerdictSource};
use drgym_search::{Page, PageRequest, Provenance, SearchBackend, SearchError, SearchHit, SearchResponse};

/// Finds what is asked for, is down for `down`.
struct Oracle;

#[async_trait]
impl SearchBackend for Oracle {
    async fn search(&self, query: &str, _: usize) -> Result<SearchResponse, SearchError> {
        if query.contains("down") {
            return Err(SearchError::Unavailable { engine: "oracle".into(), reason: "down".into() });
        }
        let hit = SearchHit {
            doc_id: "d".into(),
            url: "doc:d".into(),
            title: String::new(),
            text: format!("the answer to {query} is 42"),
            score: None,
        };
        Ok(SearchResponse { hits: vec![hit], provenance: Provenance::Index { hash: "oracle".into() } })
    }

    async fn fetch(&self, _: &PageRequest) -> Result<Page, SearchError> {
        Err(SearchError::BadRequest("no pages".into()))
    }

    fn name(&self) -> String {
        "oracle".into()
    }
}

struct Equal;

#[async_trait]
impl AnswerJudge for Equal {
    async fn judge(&self, request: &JudgeRequest) -> Result<Verdict, JudgeError> {
        if request.question.contains("unjudgeable") {
            return Err(JudgeError::Unparsable { judge: "equal".into(), reason: "half a JSON".into() });
        }
        let correct = request.references.contains(&request.answer);
        Ok(Verdict { correct, source: VerdictSource::Rule("equal".into()), rationale: String::new() })
    }

    fn name(&self) -> String {
        "equal".into()
    }
}

fn task(id: &str, question: &str, query: &str, answer: &str, kind: &str, phrasing: &str) -> Arc<Task> {
    Arc::new(Task {
        id: id.into(),
        question: question.into(),
        answers: vec![answer.into()],
        evidence: vec!["d".into()],
        kind: kind.into(),
        phrasing: phrasing.into(),
        entities: Vec::new(),
        expert: vec![ExpertStep { query: query.into(), finding: "42".into() }],
        provenance: TaskProvenance::default(),
        extra: serde_json::Map::new(),
    })
}

fn tasks() -> Vec<Arc<Task>> {
    vec![
        task("a", "q", "x", "42", "one_hop", "plain"),
        task("b", "q", "x", "42", "two_hop", "unseen/odd"),
        task("c", "q", "down", "42", "one_hop", "plain"),
        task("d", "unjudgeable", "x", "42", "one_hop", "plain"),
    ]
}

fn rollouts() -> (Scheduler, Arc<Renderer>) {
    let config =
        Arc::new(EnvConfig { max_context_tokens: 4000, max_response_tokens: 100, ..EnvConfig::default() });
    let renderer = Arc::new(Renderer::bytes(config.clone()).unwrap());
    let setting = EpisodeSetting { renderer: renderer.clone(), config, backend: Arc::new(Oracle) };
    let reward = Arc::new(JudgedReward::new(Arc::new(Equal), RewardConfig::default()));
    (Scheduler::new(setting, reward, RolloutConfig::default()), renderer)
}

async fn run(policy: Arc<dyn Policy>, scheduler: &Scheduler) -> (Summary, Vec<drgym_env::Trace>) {
    let request = EvaluationRequest { tasks: tasks(), samples: 1, temperature: 0.0, seed: 1 };
    evaluate(scheduler, policy, request).await.unwrap()
}

#[tokio::test]
async fn failures_of_search_and_judge_are_excluded_and_counted() {
    let (scheduler, renderer) = rollouts();
    let expert = Arc::new(ScriptedPolicy::new(Expert::new(tasks(), &renderer), renderer.clone()));
    let (summary, traces) = run(expert, &scheduler).await;
    let accuracy = summary.accuracy.clone().unwrap();
    assert_eq!((accuracy.correct, accuracy.n, summary.episodes), (2, 2, 4));
    assert_eq!((summary.failures.search_failed, summary.failures.judge_failed), (1, 1));
    assert_eq!((summary.failures.excluded(), summary.excluded), (2, 2));
    let bounds = summary.bounds.unwrap();
    assert_eq!((bounds.low, bounds.high), (0.5, 1.0), "both right, or both wrong, of four");
    assert_eq!((summary.by_kind["two_hop"].n, summary.by_phrasing["unseen"].n), (1, 1));
    assert_eq!(summary.by_phrasing["seen"].n, 1);
    assert!((summary.means.searches - 1.0).abs() < 1e-12 && (summary.means.turns - 2.0).abs() < 1e-12);
    assert_eq!(traces.len(), 4);
}

#[tokio::test]
async fn wrong_and_missing_answers_are_told_apart_and_runs_compared() {
    let (scheduler, renderer) = rollouts();
    let expert = Arc::new(ScriptedPolicy::new(Expert::new(tasks(), &renderer), renderer.clone()));
    let fixed = |output: &str| -> Arc<dyn Policy> {
        Arc::new(ScriptedPolicy::new(FixedOutputs(vec![output.into()]), renderer.clone()))
    };
    let (_, right) = run(expert, &scheduler).await;
    let (summary, wrong) = run(fixed("<answer>41</answer>"), &scheduler).await;
    assert_eq!((summary.failures.wrong_answer, summary.failures.judge_failed), (3, 1));
    let (summary, _) = run(fixed("hm"), &scheduler).await;
    assert_eq!((summary.failures.turn_limit, summary.accuracy.unwrap().n), (4, 4));
    let comparison = compare(&right, &wrong, 1).unwrap();
    assert_eq!((comparison.n, comparison.only_first, comparison.only_second), (2, 2, 0));
    assert!((comparison.difference.difference - 1.0).abs() < 1e-12);
    assert!((comparison.mcnemar_p.unwrap() - 0.5).abs() < 1e-12, "two discordant pairs: p = 2 / 4");
    let pooled = compare_pooled(&[(&right, &wrong), (&right, &right)], 1).unwrap();
    assert_eq!((pooled.n, pooled.each), (2, vec![1.0, 0.0]), "only tasks that all four scored");
    assert!((pooled.difference.difference - 0.5).abs() < 1e-12);
}

#[tokio::test]
async fn a_results_folder_is_read_back_and_damage_is_named() {
    let (scheduler, renderer) = rollouts();
    let expert = Arc::new(ScriptedPolicy::new(Expert::new(tasks(), &renderer), renderer.clone()));
    let (summary, traces) = run(expert, &scheduler).await;
    let results = Results {
        version: 1,
        program: "drgym 0".into(),
        benchmark: "tasks".into(),
        data_hash: "h".into(),
        policy: "expert".into(),
        policy_source: Some("expert".into()),
        model_hash: None,
        limit: Some(4),
        config: Some("seed = 1\n".into()),
        search: "oracle".into(),
        search_hash: Some("oracle".into()),
        judge: "equal".into(),
        seed: 1,
        temperature: 0.0,
        samples: 1,
        env: EnvConfig::default(),
        summary,
        traces_hash: traces_hash(&traces),
        seconds: 0.5,
    };
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("deep/er");
    results.write(&out, &traces).unwrap();
    assert_eq!(Results::read(&out).unwrap(), results);
    let back = read_traces(&out.join("traces.jsonl")).unwrap();
    assert_eq!((back.len(), traces_hash(&back)), (4, results.traces_hash.clone()));
    let path = out.join("traces.jsonl");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, &text[..text.len() - 40]).unwrap();
    assert!(read_traces(&path).unwrap_err().to_string().contains("traces.jsonl:4"));
}

#[tokio::test]
async fn no_task_and_copies_of_one_episode_are_refused() {
    let (scheduler, renderer) = rollouts();
    let policy: Arc<dyn Policy> = Arc::new(ScriptedPolicy::new(FixedOutputs(vec!["hm".into()]), renderer));
    let request = |tasks, samples, temperature| EvaluationRequest { tasks, samples, temperature, seed: 1 };
    for (refused, said) in [
        (request(Vec::new(), 1, 0.0), "there is no task"),
        (request(tasks(), 2, 0.0), "the 2 samples of a task are copies"),
    ] {
        let error = evaluate(&scheduler, policy.clone(), refused).await.unwrap_err().to_string();
        assert!(error.contains(said), "{error}");
    }
    assert!(evaluate(&scheduler, policy, request(tasks(), 2, 1.0)).await.is_ok());
}
