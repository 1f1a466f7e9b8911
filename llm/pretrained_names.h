// What the parameters of a decoder are called in the files of its family.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "llm/decoder_options.h"

namespace troupe::llm {

/// The place of a parameter in files.
struct FilePlace {
  std::string name;
  bool transposed = false;      ///< GPT-2 writes [in, out]
  int64_t part = 0, parts = 1;  ///< of the columns there, or of the elements of a bias
};

/// All parameters of a decoder, without adapters.
std::vector<std::string> parameter_names(const DecoderOptions& options);
/// Finds a parameter by its name here, such as "model.layers.0.mlp.up_proj.weight". Empty for an adapter's.
std::optional<FilePlace> file_place(const DecoderOptions& options, const std::string& name);
/// Names begin without this in a file that has no language model, but what is inside it, without this.
std::string base_prefix(const DecoderOptions& options);
/// Whether files have such a tensor that is no parameter (causal masks, frequencies).
bool is_no_parameter(const DecoderOptions& options, const std::string& file_name);

}  // namespace troupe::llm
