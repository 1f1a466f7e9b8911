// A model that lies in pieces with many actors, in one file.
#pragma once
#include <string>
#include <vector>

#include "rref/any_ref.h"

namespace troupe::parallel {

/// Writes the model that actors have together into one safetensors file, which any number of ranks, one
/// process or PyTorch reads: what ranks or replicas (any Shard) have cut put together, copies once, stages
/// side by side. Parameters are fetched one at a time, so this worker needs memory for the largest; until it
/// returns nobody may train. `invalid`, and nothing is written, if actors differ in the shape or dtype of
/// what they call the same, or if elements are with none of them: give all ranks. Two actors that have a name
/// both have copies of it, unless it is cut. Blocks.
void gather_to(const std::vector<AnyRef>& actors, const std::string& file);
/// Gives actors what they have of a model in one file, whatever wrote it. Each worker reads `file` itself, by
/// that path, and copies its pieces alone. Right behind the constructor of DataParallel or Pipelines, too: it
/// waits until these have joined the actors. `invalid`, and nothing is changed, unless the file has all that
/// they have, in these shapes, and nothing else. Blocks.
void load_whole(const std::vector<AnyRef>& actors, const std::string& file);

/// Part of every worker's set-up.
void install_whole_models(internal::actors::Worker& worker);

}  // namespace troupe::parallel
