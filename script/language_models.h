// Language models by name: trained on meshes, served, and written by.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "llm/decoder_options.h"
#include "llm/generate.h"
#include "llm/serve_model.h"
#include "script/parallel.h"

namespace troupe::script {

/// What stages of a language model were made of.
struct LanguageModel {
  llm::DecoderOptions options;
  std::string base;  ///< the folder that it came from; empty: it began from nothing
};
/// Pipelines of a folder with weights, or of a config.json alone. Options: those of pipelines, shard, gather,
/// reduce, dtype, and lora: a rank, or {r, lora_alpha, ...}.
std::unique_ptr<MeshPipelines> language_stages(Session& session, const Mesh& mesh, const std::string& path,
                                               ValueMap options);
/// Writes the adapters, or without such the model. `invalid` for pipelines of another one.
void save_language_model(const MeshPipelines& stages, const std::string& folder);

/// A model in this process. Options: dtype, adapters, lora (new ones).
std::unique_ptr<llm::Decoder> load_language_model(const std::string& folder, ValueMap options);
/// How a text goes on: max_new_tokens, temperature, top_k, top_p, seed, stop.
llm::GenerateOptions generate_options(ValueMap options);
/// Served on workers ("w1", or a list). Options: on, dtype, adapters, pages, page_size.
llm::ServedModel serve_language_model(Session& session, const std::string& folder, ValueMap options);

}  // namespace troupe::script
