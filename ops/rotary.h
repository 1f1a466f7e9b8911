// Rotary position embeddings (Su et al. 2021), and the scalings of their frequencies for longer texts.
#pragma once
#include "ops/dispatch/op.h"

namespace troupe::ops {

/// The angles of rotary(), with the names of Hugging Face's configurations.
struct RotaryOptions {
  double theta = 10000;
  /// "default"; "linear": positions divided by factor; "dynamic" (NTK): theta grows with the sequence;
  /// "yarn" (Peng et al. 2023) and "llama3": long waves are stretched by factor, short ones are not.
  std::string scaling = "default";
  double factor = 1;
  /// What the model was trained with; for "dynamic", "yarn" and "llama3".
  int64_t original_max_position_embeddings = 0;
  int64_t sequence_length = 0;           ///< "dynamic": the longest one so far; 0: as trained
  double beta_fast = 32, beta_slow = 1;  ///< "yarn": where stretching begins and is whole, in rotations
  double attention_factor = 0;           ///< "yarn": of cosines and sines; 0: 0.1 log(factor) + 1
  double low_freq_factor = 1, high_freq_factor = 4;  ///< "llama3"
};

/// Cosines and sines of positions [..] (integers, or float32) times each frequency: two of float32 [.., width
/// / 2]. `invalid` for an odd width and options that do not fit.
struct RotaryTable {
  Tensor cos, sin;
};
RotaryTable rotary_table(const Tensor& positions, int64_t width, const RotaryOptions& options = {});

/// Gives x [.., time, width], in which pairs of columns are turned by angles whose cosines and sines are [.., time,
/// n], and broadcast: the columns i and i + n, as in Llama's files from Hugging Face, or, interleaved, 2 i
/// and 2 i + 1, as in GPT-J and Meta's. Columns from 2 n on stay as they are. Halves are rounded once.
Tensor rotary(const Tensor& x, const Tensor& cos, const Tensor& sin, bool interleaved = false);

extern const Op kRotary;

}  // namespace troupe::ops
