//! The standard normal distribution.

/// The value below which a standard normal variable lies with the given probability, for `0 < probability < 1`.
///
/// Relative error about 1e-16. Source: M. J. Wichura, "Algorithm AS 241: the percentage points of the normal
/// distribution", Applied Statistics 37 (1988), routine PPND16: three rational approximations, one for the middle and two
/// for the tails in `r = sqrt(-ln(tail probability))`.
pub(super) fn quantile(probability: f64) -> f64 {
    let from_middle = probability - 0.5;
    if from_middle.abs() <= 0.425 {
        let r = 0.425 * 0.425 - from_middle * from_middle;
        return from_middle * polynomial(&MIDDLE_ABOVE, r) / polynomial(&MIDDLE_BELOW, r);
    }
    let r = (-probability.min(1.0 - probability).ln()).sqrt();
    let distance = if r <= 5.0 {
        polynomial(&TAIL_ABOVE, r - 1.6) / polynomial(&TAIL_BELOW, r - 1.6)
    } else {
        polynomial(&FAR_ABOVE, r - 5.0) / polynomial(&FAR_BELOW, r - 5.0)
    };
    distance.copysign(from_middle)
}

/// `c[0] + c[1] x + … + c[7] x^7`.
fn polynomial(coefficients: &[f64; 8], x: f64) -> f64 {
    coefficients.iter().rev().fold(0.0, |sum, coefficient| sum * x + coefficient)
}

// Numerators (above) and denominators (below) of the three approximations, lowest power first.
const MIDDLE_ABOVE: [f64; 8] = [
    3.3871328727963665,
    133.14166789178438,
    1971.5909503065513,
    13731.69376550946,
    45921.95393154987,
    67265.7709270087,
    33430.57558358813,
    2509.0809287301227,
];
const MIDDLE_BELOW: [f64; 8] = [
    1.0,
    42.31333070160091,
    687.1870074920579,
    5394.196021424751,
    21213.794301586597,
    39307.89580009271,
    28729.085735721943,
    5226.495278852854,
];
const TAIL_ABOVE: [f64; 8] = [
    1.4234371107496835,
    4.630337846156546,
    5.769497221460691,
    3.6478483247632045,
    1.2704582524523684,
    0.2417807251774506,
    0.022723844989269184,
    0.0007745450142783414,
];
const TAIL_BELOW: [f64; 8] = [
    1.0,
    2.053191626637759,
    1.6763848301838038,
    0.6897673349851,
    0.14810397642748008,
    0.015198666563616457,
    0.0005475938084995345,
    1.0507500716444169e-09,
];
const FAR_ABOVE: [f64; 8] = [
    6.657904643501103,
    5.463784911164114,
    1.7848265399172913,
    0.29656057182850487,
    0.026532189526576124,
    0.0012426609473880784,
    2.7115555687434876e-05,
    2.0103343992922881e-07,
];
const FAR_BELOW: [f64; 8] = [
    1.0,
    0.599832206555888,
    0.1369298809227358,
    0.014875361290850615,
    0.0007868691311456133,
    1.8463183175100548e-05,
    1.421511758316446e-07,
    2.0442631033899397e-15,
];
