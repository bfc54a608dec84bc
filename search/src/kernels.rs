//! The few loops on which encoding and exact search spend their time, beside matrix products.
//!
//! Every kernel is written once, as plain safe code over fixed lanes, and compiled twice: for the baseline processor
//! and for AVX2, chosen at run time. Neither version fuses a multiplication with an addition, and the order of every
//! sum is fixed by the lanes, so both give the same bits: a ranking does not depend on the processor's age.
#![expect(unsafe_code, reason = "a function compiled for AVX2 may be called only where the processor has it")]
#![expect(
    clippy::inline_always,
    reason = "a body must become part of each version to be compiled for its processor"
)]
#![expect(clippy::excessive_precision, reason = "coefficients are given as printed in their source")]

/// Lanes of an accumulator: four 256-bit registers hide the latency of the additions.
const LANES: usize = 32;

macro_rules! compiled_twice {
    ($(#[$doc:meta])* $name:ident = $body:ident($($arg:ident: $type:ty),*) $(-> $result:ty)?) => {
        $(#[$doc])*
        pub(crate) fn $name($($arg: $type),*) $(-> $result)? {
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx2")]
                fn with_avx2($($arg: $type),*) $(-> $result)? {
                    $body($($arg),*)
                }
                if std::arch::is_x86_feature_detected!("avx2") {
                    // SAFETY: the line above has seen that this processor has AVX2, the only thing that the call
                    // requires; the function's body is safe code.
                    return unsafe { with_avx2($($arg),*) };
                }
            }
            $body($($arg),*)
        }
    };
}

compiled_twice! {
    /// Inner product of a query with a row of a vector file (little-endian `f32`, four bytes a component).
    dot = dot_body(query: &[f32], row: &[u8]) -> f32
}

compiled_twice! {
    /// `x[i, j] += bias[j]`, `x` of shape `[rows, bias.len()]`.
    add_bias = add_bias_body(x: &mut [f32], bias: &[f32])
}

compiled_twice! {
    /// `x[i, j] = gelu(x[i, j] + bias[j])`, `x` of shape `[rows, bias.len()]`, with the exact (erf) GELU.
    add_bias_gelu = add_bias_gelu_body(x: &mut [f32], bias: &[f32])
}

compiled_twice! {
    /// `x[i] = softmax(scale * x[i])` for every row of `width` components.
    scaled_softmax = scaled_softmax_body(x: &mut [f32], width: usize, scale: f32)
}

compiled_twice! {
    /// Layer normalisation of every row, in place: `(x - mean) / sqrt(variance + epsilon) * weight + bias`.
    layer_norm = layer_norm_body(x: &mut [f32], weight: &[f32], bias: &[f32], epsilon: f32)
}

#[inline(always)]
fn dot_body(query: &[f32], row: &[u8]) -> f32 {
    let mut lanes = [0.0f32; LANES];
    let mut queries = query.chunks_exact(LANES);
    let mut rows = row.chunks_exact(4 * LANES);
    for (q, r) in queries.by_ref().zip(rows.by_ref()) {
        for ((lane, q), r) in lanes.iter_mut().zip(q).zip(r.as_chunks::<4>().0) {
            *lane += q * f32::from_le_bytes(*r);
        }
    }
    let mut rest = 0.0;
    for (q, r) in queries.remainder().iter().zip(rows.remainder().as_chunks::<4>().0) {
        rest += q * f32::from_le_bytes(*r);
    }
    sum_lanes(lanes) + rest
}

#[inline(always)]
fn sum_lanes(mut lanes: [f32; LANES]) -> f32 {
    let mut width = LANES / 2;
    while width > 0 {
        for lane in 0..width {
            lanes[lane] += lanes[lane + width];
        }
        width /= 2;
    }
    lanes[0]
}

/// Sum of `f(x)` in the fixed order of the lanes.
#[inline(always)]
fn sum_of(row: &[f32], f: impl Fn(f32) -> f32) -> f32 {
    let mut lanes = [0.0f32; LANES];
    let mut chunks = row.chunks_exact(LANES);
    for chunk in chunks.by_ref() {
        for (lane, x) in lanes.iter_mut().zip(chunk) {
            *lane += f(*x);
        }
    }
    let rest: f32 = chunks.remainder().iter().map(|x| f(*x)).sum();
    sum_lanes(lanes) + rest
}

#[inline(always)]
fn add_bias_body(x: &mut [f32], bias: &[f32]) {
    for row in x.chunks_exact_mut(bias.len()) {
        for (x, b) in row.iter_mut().zip(bias) {
            *x += b;
        }
    }
}

#[inline(always)]
fn add_bias_gelu_body(x: &mut [f32], bias: &[f32]) {
    for row in x.chunks_exact_mut(bias.len()) {
        for (x, b) in row.iter_mut().zip(bias) {
            let y = *x + b;
            *x = 0.5 * y * (1.0 + erf(y * std::f32::consts::FRAC_1_SQRT_2));
        }
    }
}

/// Abramowitz and Stegun, Handbook of Mathematical Functions, 7.1.28: absolute error at most 3e-7, no exponential.
#[inline(always)]
fn erf(x: f32) -> f32 {
    // Beyond 4 the value is 1 to the last bit; the bound keeps the sixteenth power finite.
    let a = x.abs().min(4.0);
    let p = a * (0.0092705272 + a * (0.0001520143 + a * (0.0002765672 + a * 0.0000430638)));
    let p = 1.0 + a * (0.0705230784 + a * (0.0422820123 + p));
    let p2 = p * p;
    let p4 = p2 * p2;
    let p8 = p4 * p4;
    (1.0 - 1.0 / (p8 * p8)).copysign(x)
}

#[inline(always)]
fn scaled_softmax_body(x: &mut [f32], width: usize, scale: f32) {
    for row in x.chunks_exact_mut(width) {
        let mut lanes = [f32::NEG_INFINITY; LANES];
        let mut chunks = row.chunks_exact(LANES);
        for chunk in chunks.by_ref() {
            for (lane, x) in lanes.iter_mut().zip(chunk) {
                *lane = if *x > *lane { *x } else { *lane };
            }
        }
        let maximum = lanes.iter().chain(chunks.remainder()).copied().fold(f32::NEG_INFINITY, f32::max);
        for x in row.iter_mut() {
            *x = exp((*x - maximum) * scale);
        }
        let reciprocal = 1.0 / sum_of(row, |x| x);
        for x in row.iter_mut() {
            *x *= reciprocal;
        }
    }
}

/// `e^x` for `x <= 0`, relative error about 1e-7: `2^n` from the exponent bits, the rest by its Taylor series.
#[inline(always)]
fn exp(x: f32) -> f32 {
    // Adding 1.5 * 2^23 rounds to an integer and leaves that integer in the low bits.
    const ROUND: f32 = 12_582_912.0;
    let x = x.max(-87.0);
    let shifted = x * std::f32::consts::LOG2_E + ROUND;
    let n = shifted - ROUND;
    // ln 2 in two parts, the first short enough for `n * LN2_HIGH` to be exact.
    let r = (x - n * 0.693_359_4) + n * 2.121_944_4e-4;
    let series = 1.0 / 6.0 + r * (1.0 / 24.0 + r * (1.0 / 120.0 + r * (1.0 / 720.0 + r * (1.0 / 5040.0))));
    let power = shifted.to_bits().wrapping_sub(ROUND.to_bits()).wrapping_add(127) << 23;
    (1.0 + r * (1.0 + r * (0.5 + r * series))) * f32::from_bits(power)
}

#[inline(always)]
fn layer_norm_body(x: &mut [f32], weight: &[f32], bias: &[f32], epsilon: f32) {
    let reciprocal = 1.0 / weight.len() as f32;
    for row in x.chunks_exact_mut(weight.len()) {
        let mean = sum_of(row, |x| x) * reciprocal;
        let variance = sum_of(row, |x| (x - mean) * (x - mean)) * reciprocal;
        let scale = 1.0 / (variance + epsilon).sqrt();
        for ((x, w), b) in row.iter_mut().zip(weight).zip(bias) {
            *x = (*x - mean) * scale * w + b;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// erf by its Maclaurin series in f64, good to 1e-12 for |x| below 4.
    fn erf_series(x: f64) -> f64 {
        let (mut term, mut sum) = (x, x);
        for n in 1..200 {
            let n = f64::from(n);
            term *= -x * x / n;
            sum += term / (2.0 * n + 1.0);
        }
        sum * 2.0 / std::f64::consts::PI.sqrt()
    }

    #[test]
    fn erf_and_exp_agree_with_series_in_double_precision() {
        for i in -390..=390i16 {
            let x = f32::from(i) / 100.0;
            assert!((f64::from(erf(x)) - erf_series(f64::from(x))).abs() < 2e-6, "erf({x})");
        }
        for i in 0..=8700i16 {
            let x = f32::from(-i) / 100.0;
            let expected = f64::from(x).exp();
            assert!((f64::from(exp(x)) - expected).abs() <= 3e-7 * expected, "exp({x})");
        }
        assert_eq!(erf(10.0), 1.0);
        assert_eq!(erf(-10.0), -1.0);
    }

    #[test]
    fn layer_norm_by_hand() {
        // mean 2, variance 1, so (x - 2) * weight + bias.
        let mut x = [1.0, 3.0, 1.0, 3.0];
        layer_norm(&mut x, &[1.0, 2.0, 3.0, 4.0], &[0.0, 0.0, 1.0, 1.0], 0.0);
        assert_eq!(x, [-1.0, 2.0, -2.0, 5.0]);
    }

    proptest! {
        #[test]
        fn both_versions_of_dot_give_the_same_bits(values in prop::collection::vec((-1.0f32..1.0, -1.0f32..1.0), 1..400)) {
            let query: Vec<f32> = values.iter().map(|v| v.0).collect();
            let row: Vec<u8> = values.iter().flat_map(|v| v.1.to_le_bytes()).collect();
            let fast = dot(&query, &row);
            prop_assert_eq!(fast.to_bits(), dot_body(&query, &row).to_bits());
            let exact: f64 = values.iter().map(|v| f64::from(v.0) * f64::from(v.1)).sum();
            prop_assert!((f64::from(fast) - exact).abs() < 1e-4);
        }

        #[test]
        fn softmax_rows_sum_to_one_and_match_f64(row in prop::collection::vec(-30.0f32..30.0, 1..150)) {
            let mut x = row.clone();
            scaled_softmax(&mut x, row.len(), 0.5);
            let maximum = row.iter().copied().fold(f32::MIN, f32::max);
            let e: Vec<f64> = row.iter().map(|v| (0.5 * f64::from(v - maximum)).exp()).collect();
            let sum: f64 = e.iter().sum();
            for (x, e) in x.iter().zip(e) {
                prop_assert!((f64::from(*x) - e / sum).abs() < 1e-6);
            }
        }
    }
}
