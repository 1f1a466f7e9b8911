// Actors of a decoder on a mesh in memory.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "troupe/llm.h"
#include "troupe/troupe.h"

namespace troupe::testing {

using DecoderRank = parallel::ModuleStage<llm::Decoder>;

/// One actor for each point of the mesh, on workers of its own.
struct DecoderMesh {
  DecoderMesh(const std::vector<MeshDim>& dims, const llm::DecoderOptions& options) {
    size_t ranks = 1;
    for (const MeshDim& d : dims) ranks *= d.size;
    cluster = Cluster::in_process(static_cast<int>(ranks) + 1, hosting<DecoderRank>());
    std::vector<Place> places;
    for (size_t i = 1; i <= ranks; ++i) places.emplace_back(i);
    model.emplace(parallel::spawn<DecoderRank>(cluster->here(), Mesh(*cluster, dims, places), options));
  }
  std::unique_ptr<Cluster> cluster;
  std::optional<parallel::ActorMesh<DecoderRank>> model;
};

inline size_t size_of(const std::vector<MeshDim>& dims, const std::string& name) {
  for (const MeshDim& d : dims)
    if (d.name == name) return d.size;
  return 1;
}

}  // namespace troupe::testing
