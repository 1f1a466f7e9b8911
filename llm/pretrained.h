// Folders of language models as Hugging Face's libraries write and read them.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "llm/config.h"
#include "llm/decoder.h"
#include "parallel/tensor/whole_model.h"

namespace troupe::llm {

/// A model of a folder with config.json and weights (*.safetensors, in one file or several), in one process:
///
///   llm::Decoder model = llm::load_pretrained("Llama-3.2-1B", bfloat16);
///
/// `dtype`: of the weights here; empty: as in config.json. `invalid` as read_config(), naming the file, for
/// weights that are missing, left over, or of another shape.
Decoder load_pretrained(const std::string& folder, std::optional<DType> dtype = {});
/// Weights alone, into actors on a mesh, whose `net` is a Decoder of read_config(folder). Each worker reads
/// the folder itself, by that path, a parameter at a time, and keeps its pieces. Adapters stay as they are.
///
///   auto options = llm::read_config(folder);
///   auto stages = parallel::spawn<parallel::ModuleStage<llm::Decoder>>(cluster.here(), mesh, options);
///   llm::load_pretrained(stages, folder);
void load_pretrained(const std::vector<AnyRef>& actors, const std::string& folder);

/// Writes config.json and model.safetensors as transformers reads them; a folder that is there already keeps
/// its other files, such as a tokenizer's. Adapters are left out: merge_adapters() puts them into the
/// weights. `invalid` for a folder that cannot be made. Blocks.
void save_pretrained(Decoder& model, const std::string& folder);
/// Writes a model that lies on a mesh, fetched a parameter at a time.
void save_pretrained(const std::vector<AnyRef>& actors, const DecoderOptions& options,
                     const std::string& folder);

/// Part of every worker's set-up.
void install_pretrained();

}  // namespace troupe::llm
