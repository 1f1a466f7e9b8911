// Files of adapters as PEFT writes and reads them.
#pragma once
#include <string>
#include <vector>

#include "llm/decoder.h"
#include "rref/any_ref.h"

namespace troupe::llm {

/// The adapter_config.json of a folder, for DecoderOptions::lora. `invalid`, naming file and field, for what
/// is no LoRA, and for what changes it and is not known here (DoRA, ranks by pattern, trained biases or other
/// modules).
LoraOptions read_adapter_config(const std::string& folder);

/// Adapters of a folder into a model, which gets them if it has none. `invalid`, naming file and tensor, for
/// adapters of another base: a shape that differs, a layer that is not there, one that lacks its adapter.
void load_adapters(Decoder& model, const std::string& folder);
/// Loads them into actors on a mesh, whose options have the lora of read_adapter_config(folder).
void load_adapters(const std::vector<AnyRef>& actors, const std::string& folder);

/// Writes adapter_config.json and adapter_model.safetensors, without the base. `invalid` for a model without
/// adapters, and for GPT-2, whose files have one projection where there are three here. Blocks.
void save_adapters(Decoder& model, const std::string& folder, const std::string& base = "");
/// Writes those of a model on a mesh. `base`: the model's name, for PEFT.
void save_adapters(const std::vector<AnyRef>& actors, const DecoderOptions& options,
                   const std::string& folder, const std::string& base = "");

/// Part of every worker's set-up.
void install_adapters();

}  // namespace troupe::llm
