// What describes an adapter of low rank.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace troupe::llm {

/// LoRA (Hu et al. 2021), with the names of PEFT: a projection W x becomes W x + alpha / r B A x, with A [r,
/// in] and B [out, r], of which A and B alone are trained. B starts at 0.
struct LoraOptions {
  int64_t r = 8;
  double lora_alpha = 8;
  double lora_dropout = 0;  ///< of x on the way to A, while training
  bool use_rslora = false;  ///< alpha / sqrt(r) (Kalajdzievski 2023)
  /// The projections of each layer that get one, of "q_proj", "k_proj", "v_proj", "o_proj", "gate_proj",
  /// "up_proj", "down_proj".
  std::vector<std::string> target_modules = {"q_proj", "v_proj"};
  bool operator==(const LoraOptions&) const = default;
};

/// The projections that a layer has.
const std::vector<std::string>& projection_names();
/// `invalid`, naming the field, unless adapters can be made of them.
void check(const LoraOptions& options);

}  // namespace troupe::llm
