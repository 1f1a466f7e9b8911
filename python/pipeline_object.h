// Pipelines and meshes, as several files have them.
#pragma once
#include <memory>

#include "python/cluster.h"
#include "script/parallel.h"

namespace troupe::python {

/// One pipeline, or several on a mesh, until the cluster's shutdown, though Python may hold it longer.
struct PipelineObject {
  struct Held {
    std::unique_ptr<parallel::Pipeline> one;
    std::unique_ptr<script::MeshPipelines> several;  // one of both
  };
  PipelineObject(ClusterPtr c, std::unique_ptr<parallel::Pipeline> one,
                 std::unique_ptr<script::MeshPipelines> several)
      : cluster(std::move(c)), held(std::make_shared<Held>(std::move(one), std::move(several))) {
    cluster->at_end.push_back([weak = std::weak_ptr<Held>(held)] {
      if (const auto open = weak.lock()) open->one.reset(), open->several.reset();
    });
  }
  /// `invalid` after the shutdown.
  parallel::Pipeline* one() const { return (void)cluster->session(), held->one.get(); }
  script::MeshPipelines* several() const { return (void)cluster->session(), held->several.get(); }

  ClusterPtr cluster;
  std::shared_ptr<Held> held;
};
struct MeshObject {
  ClusterPtr cluster;
  Mesh mesh;
};

}  // namespace troupe::python
