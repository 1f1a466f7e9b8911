// Small language models that transformers made, and what it computes of them.
#pragma once
#include <string>
#include <vector>

#include "ops/ops.h"
#include "tests/support/oracle.h"
#include "tests/support/places.h"

namespace troupe::testing {

inline const std::vector<std::string> kFamilies{"gpt2",    "llama", "qwen2",  "qwen3",
                                                "mistral", "gemma", "gemma2", "gemma3_text"};

inline std::string model_folder(const std::string& family) {
  return std::string(kSourceFolder) + "/tests/oracle/language_models/" + family;
}

struct ModelValues {
  Tensor ids;                                ///< int64 [2, time]
  Tensor logits;                             ///< float32 [2, time, vocab_size]
  Tensor bf16;                               ///< of the last place, of the model in bfloat16 [2, vocab_size]
  std::vector<std::vector<int64_t>> greedy;  ///< what greedy search adds to each row
};

inline ModelValues model_values(const std::string& family) {
  static const nlohmann::json all = read_oracle("language_models/values.json");
  const auto& of = all.at("families").at(family);
  return {to_tensor(of.at("ids")), to_tensor(of.at("logits"), float32), to_tensor(of.at("bfloat16"), float32),
          of.at("greedy").get<std::vector<std::vector<int64_t>>>()};
}

/// Adapters that PEFT wrote, and what it made of them with SGD of 0.1.
struct AdapterValues {
  Tensor logits;  ///< of the last place
  std::vector<double> losses;
};
inline std::string adapter_folder(const std::string& family) {
  return std::string(kSourceFolder) + "/tests/oracle/language_models/adapters/" + family;
}
inline AdapterValues adapter_values(const std::string& family) {
  const nlohmann::json all = read_oracle("language_models/values.json");
  const auto& of = all.at("families").at(family).at("lora");
  return {to_tensor(of.at("logits"), float32), of.at("losses").get<std::vector<double>>()};
}

inline double largest_difference(const Tensor& a, const Tensor& b) {
  return ops::max(ops::abs(ops::sub(a.to(float64), b.to(float64)))).item<double>();
}

}  // namespace troupe::testing
