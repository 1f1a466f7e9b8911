#include "parallel/mesh/actor_mesh.h"

#include <fmt/format.h>

#include <atomic>

#include "actors/worker/worker.h"
#include "rref/ref_table.h"

namespace troupe::parallel {

namespace {

struct MeshCount final : internal::actors::Extension {
  std::atomic<uint64_t> meshes{0};
};

}  // namespace

void install_meshes(internal::actors::Worker& worker) { worker.add_extension(std::make_unique<MeshCount>()); }

Mesh mesh_of_its_own(const Here& here, const Mesh& workers) {
  for (const ObjectId& m : internal::collective::ids_of(workers.all()))
    if (m.number)
      throw_invalid("[mesh] the mesh has actors at its points: give one of workers to spawn others there");
  auto* const count = here.table().worker().extension<MeshCount>();
  if (!count) throw_invalid("[mesh] worker " + here.name() + " was set up without meshes");
  std::vector<size_t> ranks(workers.all().size());
  for (size_t r = 0; r < ranks.size(); ++r) ranks[r] = r;
  return {workers.all().subset(
              ranks, fmt::format("{} {} of {}", workers.all().name(), ++count->meshes, here.name())),
          workers.dims()};
}

std::vector<WorkerId> workers_of(const Mesh& mesh) {
  std::vector<WorkerId> all;
  for (const ObjectId& m : internal::collective::ids_of(mesh.all())) all.push_back(m.owner);
  return all;
}

}  // namespace troupe::parallel
