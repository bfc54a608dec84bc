//! The mathematics of the learning algorithms: pure functions of slices and tensors.
//!
//! ```text
//! rewards ──advantage──▶ A ─┐
//! log π, log π_old ─────────┼─loss::clipped_ratio──▶ ℓ [tokens] ─┐
//! log π, log π_ref ─────────┴─kl::k3───────────────▶ k [tokens] ─┼─ Σ wᵢ (ℓᵢ + β kᵢ − η Hᵢ) ──▶ scalar loss
//! logits ─────────────────────entropy::from_logits─▶ H [tokens] ─┤
//! sequence lengths ───────────aggregate::token_weights ▶ w [tokens]
//! ```

pub mod advantage;
pub mod aggregate;
pub mod entropy;
pub mod kl;
pub mod loss;
