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
  return workers.in_turn(0, fmt::format("{} {} of {}", workers.all().name(), ++count->meshes, here.name()));
}

std::vector<WorkerId> workers_of(const Mesh& mesh) {
  const MeshPoints points(mesh.dims());
  const auto& members = internal::collective::ids_of(mesh.all());
  std::vector<WorkerId> all;
  for (size_t p = 0; p < points.size() && !members.empty(); ++p)
    all.push_back(members.at(points.member(p)).owner);
  return all;
}

std::vector<Mesh> mesh_by_turn(const Mesh& mesh) {
  std::vector<Mesh> all;
  for (size_t t = 0; t < MeshPoints(mesh.dims()).turns(); ++t)
    all.push_back(t ? mesh.in_turn(t, fmt::format("{} turn {}", mesh.all().name(), t)) : mesh);
  return all;
}

}  // namespace troupe::parallel
