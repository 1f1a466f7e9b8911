// Hugging Face's config.json.
#pragma once
#include <optional>
#include <string>

#include "llm/decoder_options.h"

namespace troupe::llm {

/// What a config.json describes; `path` is the file, or its folder. Known are models of model_types().
/// `invalid`, naming file and field, for another model, for a field that is missing or not as expected, and
/// for what changes the model and is not known here, such as another kind of rotary embedding or quantized
/// weights. Dropout that a file asks for is left out.
DecoderOptions read_config(const std::string& path);
/// Reads a text; `what` names it in errors.
DecoderOptions parse_config(const std::string& text, const std::string& what);
/// A config.json that transformers reads as that model.
std::string config_json(const DecoderOptions& options);

}  // namespace troupe::llm
