// A model that lies in pieces with many actors, in one file.
#pragma once
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "data/formats/safetensors_writer.h"
#include "rref/any_ref.h"

namespace troupe::parallel {

/// Writes the model that actors have together into one safetensors file, which any number of ranks, one
/// process or PyTorch reads: what ranks or replicas (any Shard) have cut put together, copies once, stages
/// side by side. Parameters are fetched one at a time, so this worker needs memory for the largest; until it
/// returns nobody may train. `invalid`, and nothing is written, if actors differ in the shape or dtype of
/// what they call the same, or if elements are with none of them: give all ranks. Two actors that have a name
/// both have copies of it, unless it is cut. Blocks.
void gather_to(const std::vector<AnyRef>& actors, const std::string& file);
/// The same, for who writes them elsewhere: by name, each fetched when its elements are asked for.
std::map<std::string, datasets::detail::LaterTensor> whole_tensors(const std::vector<AnyRef>& actors);

struct LoadOptions {
  bool strict = true;       ///< the names are those that there are; else what both have is loaded
  std::string reader = {};  ///< how the file is read: see register_whole_reader()
  std::function<bool(const std::string&)> may_lack = {};  ///< what a file need not have, though strict
};
/// What a load left as it was, and what it left over.
struct LoadReport {
  std::vector<std::string> missing, unexpected;
};

/// Gives actors what they have of a model in one file, whatever wrote it. Each worker reads `file` itself, by
/// that path, and copies its pieces alone. Right behind the constructor of DataParallel or Pipelines, too: it
/// waits until these have joined the actors. `invalid`, and nothing is changed, unless the file has all that
/// they have, in these shapes, and nothing else; or, not `strict`, for other shapes alone. Blocks.
LoadReport load_whole(const std::vector<AnyRef>& actors, const std::string& file,
                      const LoadOptions& options = {});

/// Part of every worker's set-up.
void install_whole_models(internal::actors::Worker& worker);

}  // namespace troupe::parallel
