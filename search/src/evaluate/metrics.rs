//! Retrieval metrics of one ranking, as pure functions.
//!
//! `grades[i]` is the judged grade of the hit at rank `i + 1`, 0 if it is not relevant or not judged; each document
//! occurs at most once. All values lie between 0 and 1.

use std::collections::HashSet;

/// 1 / rank of the first relevant hit among the first `k`, or 0.
pub fn reciprocal_rank(grades: &[u32], k: usize) -> f64 {
    grades.iter().take(k).position(|&grade| grade > 0).map_or(0.0, |at| 1.0 / (at + 1) as f64)
}

/// Relevant hits among the first `k`, divided by `k` (trec_eval's `P_k`): ranks that an engine leaves empty count as misses.
pub fn precision(grades: &[u32], k: usize) -> f64 {
    ratio(relevant(grades, k), k)
}

/// Share of all `relevant_documents` that are among the first `k` hits.
pub fn recall(grades: &[u32], relevant_documents: usize, k: usize) -> f64 {
    ratio(relevant(grades, k), relevant_documents)
}

/// Mean over all relevant documents of the precision at their ranks, 0 for those not among the first `k`.
pub fn average_precision(grades: &[u32], relevant_documents: usize, k: usize) -> f64 {
    let mut found = 0;
    let mut sum = 0.0;
    for (at, &grade) in grades.iter().take(k).enumerate() {
        if grade > 0 {
            found += 1;
            sum += f64::from(found) / (at + 1) as f64;
        }
    }
    if relevant_documents == 0 { 0.0 } else { sum / relevant_documents as f64 }
}

/// Normalised discounted cumulative gain: `Σ grade / log2(rank + 1)` over the first `k`, divided by the same of the best
/// ranking possible. The gain is the grade itself (Järvelin and Kekäläinen 2002; trec_eval's `ndcg_cut`), so with
/// grades 0 and 1 this is the binary nDCG. `judged` holds the grades of all relevant documents, in any order.
pub fn ndcg(grades: &[u32], judged: &[u32], k: usize) -> f64 {
    let mut ideal = judged.to_vec();
    ideal.sort_unstable_by(|a, b| b.cmp(a));
    let best = dcg(&ideal, k);
    if best == 0.0 { 0.0 } else { dcg(grades, k) / best }
}

/// As [`ndcg`], every grade above 0 counting as 1 (DeepResearchGym's definition).
pub fn ndcg_binary(grades: &[u32], relevant_documents: usize, k: usize) -> f64 {
    let binary: Vec<u32> = grades.iter().map(|&grade| grade.min(1)).collect();
    ndcg(&binary, &vec![1; relevant_documents], k)
}

/// Share of the exact top `n` that is among the first `n` found.
pub fn ann_recall<T: AsRef<str>>(found: &[T], exact: &[T], n: usize) -> f64 {
    let found: HashSet<&str> = found.iter().take(n).map(AsRef::as_ref).collect();
    let exact: HashSet<&str> = exact.iter().take(n).map(AsRef::as_ref).collect();
    ratio(exact.intersection(&found).count(), exact.len())
}

fn dcg(grades: &[u32], k: usize) -> f64 {
    grades.iter().take(k).enumerate().map(|(at, &grade)| f64::from(grade) / ((at + 2) as f64).log2()).sum()
}

fn relevant(grades: &[u32], k: usize) -> usize {
    grades.iter().take(k).filter(|&&grade| grade > 0).count()
}

fn ratio(part: usize, whole: usize) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(value: f64, expected: f64) {
        assert!((value - expected).abs() < 1e-12, "{value}, expected {expected}");
    }

    // Worked by hand: relevant hits at ranks 2 and 4 of 5, three relevant documents in all.
    const GRADES: [u32; 5] = [0, 1, 0, 1, 0];

    #[test]
    fn binary_metrics_by_hand() {
        close(reciprocal_rank(&GRADES, 10), 0.5);
        close(reciprocal_rank(&GRADES, 1), 0.0);
        close(precision(&GRADES, 2), 0.5);
        // Five hits only: the denominator is 10 all the same, else an engine would gain by returning less.
        close(precision(&GRADES, 10), 0.2);
        close(precision(&[1], 10), 0.1);
        close(recall(&GRADES, 3, 10), 2.0 / 3.0);
        close(recall(&GRADES, 3, 3), 1.0 / 3.0);
        close(average_precision(&GRADES, 3, 10), (1.0 / 2.0 + 2.0 / 4.0) / 3.0);
        // (1/log2 3 + 1/log2 5) / (1 + 1/log2 3 + 1/log2 4)
        let dcg = 0.630_929_753_571_457_4 + 0.430_676_558_073_393_06;
        let ideal = 1.0 + 0.630_929_753_571_457_4 + 0.5;
        close(ndcg(&GRADES, &[1, 1, 1], 10), dcg / ideal);
        close(ndcg_binary(&GRADES, 3, 10), dcg / ideal);
    }

    #[test]
    fn graded_gain_is_the_grade() {
        // Grades 1, 3 found, 3, 2, 1 judged, at depth 2: (1 + 3/log2 3) / (3 + 2/log2 3).
        let log = 0.630_929_753_571_457_4;
        close(ndcg(&[1, 3], &[1, 2, 3], 2), (1.0 + 3.0 * log) / (3.0 + 2.0 * log));
        close(ndcg_binary(&[1, 3], 3, 2), 1.0);
    }

    #[test]
    fn nothing_found_or_nothing_relevant_is_zero_and_not_a_division() {
        close(precision(&[], 10), 0.0);
        close(recall(&[0], 0, 10), 0.0);
        close(average_precision(&[0], 0, 10), 0.0);
        close(ndcg(&[0], &[], 10), 0.0);
        close(ann_recall::<&str>(&[], &[], 10), 0.0);
    }

    #[test]
    fn ann_recall_counts_the_overlap_of_the_tops() {
        close(ann_recall(&["a", "b", "c"], &["b", "d", "a"], 2), 0.5);
        close(ann_recall(&["a", "b", "c"], &["b", "d", "a"], 3), 2.0 / 3.0);
    }
}
