//! Numbers as ggml stores them, back to f32. The block layouts are ggml's.

use half::{bf16, f16};

/// How a tensor's numbers are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(non_camel_case_types, reason = "these are ggml's names")]
pub enum StoredType {
    /// IEEE single.
    F32,
    /// IEEE half.
    F16,
    /// bfloat16.
    BF16,
    /// 32 numbers: scale, 4-bit values around 8.
    Q4_0,
    /// 32 numbers: scale, minimum, 4-bit values.
    Q4_1,
    /// 32 numbers: scale, 5-bit values around 16.
    Q5_0,
    /// 32 numbers: scale, minimum, 5-bit values.
    Q5_1,
    /// 32 numbers: scale, 8-bit values.
    Q8_0,
    /// 256 numbers in 8 blocks of 32, with 6-bit scales and minima; 4-bit values.
    Q4_K,
    /// As `Q4_K` with 5-bit values.
    Q5_K,
    /// 256 numbers in 16 blocks of 16 with 8-bit scales; 6-bit values around 32.
    Q6_K,
}

use StoredType::{BF16, F16, F32, Q4_0, Q4_1, Q4_K, Q5_0, Q5_1, Q5_K, Q6_K, Q8_0};

/// ggml's type code, name, numbers a block, bytes a block.
const TYPES: [(u32, StoredType, &str, usize, usize); 11] = [
    (0, F32, "F32", 1, 4),
    (1, F16, "F16", 1, 2),
    (30, BF16, "BF16", 1, 2),
    (2, Q4_0, "Q4_0", 32, 18),
    (3, Q4_1, "Q4_1", 32, 20),
    (6, Q5_0, "Q5_0", 32, 22),
    (7, Q5_1, "Q5_1", 32, 24),
    (8, Q8_0, "Q8_0", 32, 34),
    (12, Q4_K, "Q4_K", 256, 144),
    (13, Q5_K, "Q5_K", 256, 176),
    (14, Q6_K, "Q6_K", 256, 210),
];

impl StoredType {
    /// The type of ggml's code, if it is one of ours.
    pub fn from_code(code: u32) -> Option<Self> {
        TYPES.iter().find(|entry| entry.0 == code).map(|entry| entry.1)
    }

    /// ggml's name.
    pub fn name(self) -> &'static str {
        self.entry().2
    }

    /// The names of all supported types.
    pub fn names() -> String {
        TYPES.map(|entry| entry.2).join(", ")
    }

    /// Numbers and bytes a block.
    pub fn block(self) -> (usize, usize) {
        let entry = self.entry();
        (entry.3, entry.4)
    }

    fn entry(self) -> &'static (u32, StoredType, &'static str, usize, usize) {
        &TYPES[match self {
            F32 => 0,
            F16 => 1,
            BF16 => 2,
            Q4_0 => 3,
            Q4_1 => 4,
            Q5_0 => 5,
            Q5_1 => 6,
            Q8_0 => 7,
            Q4_K => 8,
            Q5_K => 9,
            Q6_K => 10,
        }]
    }

    /// The numbers of whole blocks; bytes of a last, partial block are ignored.
    pub fn dequantise(self, bytes: &[u8]) -> Vec<f32> {
        let (numbers, size) = self.block();
        let mut out = Vec::with_capacity(bytes.len() / size * numbers);
        for block in bytes.chunks_exact(size) {
            match self {
                F32 => out.push(f32::from_le_bytes([block[0], block[1], block[2], block[3]])),
                F16 => out.push(half(block)),
                BF16 => out.push(bf16::from_le_bytes([block[0], block[1]]).to_f32()),
                Q4_0 => nibbles(&block[2..], |low| half(block) * (f32::from(low) - 8.0), &mut out),
                Q4_1 => {
                    let (scale, minimum) = (half(block), half(&block[2..]));
                    nibbles(&block[4..], |low| scale * f32::from(low) + minimum, &mut out);
                }
                Q5_0 => five_bits(&block[2..], |value| half(block) * (f32::from(value) - 16.0), &mut out),
                Q5_1 => {
                    let (scale, minimum) = (half(block), half(&block[2..]));
                    five_bits(&block[4..], |value| scale * f32::from(value) + minimum, &mut out);
                }
                Q8_0 => {
                    let scale = half(block);
                    out.extend(block[2..].iter().map(|&byte| scale * f32::from(byte.cast_signed())));
                }
                Q4_K => q4_k(block, &mut out),
                Q5_K => q5_k(block, &mut out),
                Q6_K => q6_k(block, &mut out),
            }
        }
        out
    }
}

fn half(bytes: &[u8]) -> f32 {
    f16::from_le_bytes([bytes[0], bytes[1]]).to_f32()
}

/// 16 bytes hold 32 values: the low halves first, then the high halves.
fn nibbles(bytes: &[u8], value: impl Fn(u8) -> f32, out: &mut Vec<f32>) {
    out.extend(bytes.iter().map(|&byte| value(byte & 15)));
    out.extend(bytes.iter().map(|&byte| value(byte >> 4)));
}

/// 4 bytes with the fifth bits of 32 values, then the lower four as in [`nibbles`].
fn five_bits(bytes: &[u8], value: impl Fn(u8) -> f32, out: &mut Vec<f32>) {
    let high = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    let fifth = |index: usize| ((high >> index & 1) as u8) << 4;
    out.extend(bytes[4..].iter().enumerate().map(|(index, &byte)| value(byte & 15 | fifth(index))));
    out.extend(bytes[4..].iter().enumerate().map(|(index, &byte)| value(byte >> 4 | fifth(index + 16))));
}

/// The `index`-th of eight 6-bit (scale, minimum) pairs packed into 12 bytes.
fn scale_and_minimum(packed: &[u8], index: usize) -> (f32, f32) {
    let (scale, minimum) = if index < 4 {
        (packed[index] & 63, packed[index + 4] & 63)
    } else {
        (
            packed[index + 4] & 15 | packed[index - 4] >> 6 << 4,
            packed[index + 4] >> 4 | packed[index] >> 6 << 4,
        )
    };
    (f32::from(scale), f32::from(minimum))
}

/// d, dmin (f16), 12 bytes of scales, 128 bytes: each 32 bytes hold two blocks, low halves and high halves.
fn q4_k(block: &[u8], out: &mut Vec<f32>) {
    let (scale, minimum) = (half(block), half(&block[2..]));
    for (pair, bytes) in block[16..].chunks_exact(32).enumerate() {
        for (part, shift) in [(2 * pair, 0), (2 * pair + 1, 4)] {
            let (s, m) = scale_and_minimum(&block[4..16], part);
            let (s, m) = (scale * s, minimum * m);
            out.extend(bytes.iter().map(|byte| s * f32::from(byte >> shift & 15) - m));
        }
    }
}

/// As [`q4_k`], with 32 bytes of fifth bits before the lower four: bit `part` of byte `i` belongs to value `i` of
/// block `part`.
fn q5_k(block: &[u8], out: &mut Vec<f32>) {
    let (scale, minimum) = (half(block), half(&block[2..]));
    let high = &block[16..48];
    for (pair, bytes) in block[48..].chunks_exact(32).enumerate() {
        for (part, shift) in [(2 * pair, 0), (2 * pair + 1, 4)] {
            let (s, m) = scale_and_minimum(&block[4..16], part);
            let (s, m) = (scale * s, minimum * m);
            out.extend(bytes.iter().zip(high).map(|(byte, high)| {
                let value = byte >> shift & 15 | (high >> part & 1) << 4;
                s * f32::from(value) - m
            }));
        }
    }
}

/// 128 bytes of low halves, 64 of upper two bits, 16 scales (i8), d (f16); two halves of 128 numbers each.
fn q6_k(block: &[u8], out: &mut Vec<f32>) {
    let scale = half(&block[208..]);
    for part in 0..2 {
        let low = &block[64 * part..64 * (part + 1)];
        let high = &block[128 + 32 * part..128 + 32 * (part + 1)];
        let scales = &block[192 + 8 * part..192 + 8 * (part + 1)];
        for quarter in 0..4 {
            for index in 0..32 {
                let byte = low[index + 32 * (quarter % 2)];
                let bits = if quarter < 2 { byte & 15 } else { byte >> 4 };
                let value = bits | (high[index] >> (2 * quarter) & 3) << 4;
                let s = f32::from(scales[2 * quarter + index / 16].cast_signed());
                out.push(scale * s * (f32::from(value) - 32.0));
            }
        }
    }
}
