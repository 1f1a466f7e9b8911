#include "parallel/mesh/actor_mesh.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>

#include "actors/worker/worker.h"
#include "rref/ref_table.h"

namespace troupe::parallel {

namespace {

struct MeshCount final : internal::actors::Extension {
  std::atomic<uint64_t> meshes{0};
};

}  // namespace

size_t Points::size() const {
  size_t n = 1;
  for (const MeshDim& d : dims_) n *= d.size;
  return n;
}

std::string Points::str() const {
  std::string all;
  for (const MeshDim& d : dims_) all += fmt::format("{}{} {}", all.empty() ? "" : " x ", d.name, d.size);
  return all.empty() ? "none" : all;
}

size_t Points::index(std::string_view dim) const {
  const auto at = std::ranges::find(dims_, dim, &MeshDim::name);
  if (at == dims_.end())
    throw_invalid(fmt::format("[mesh] there is no dimension {}. There are: {}", dim, str()));
  return static_cast<size_t>(at - dims_.begin());
}

size_t Points::stride(std::string_view dim) const {
  size_t n = 1;
  for (size_t i = index(dim) + 1; i < dims_.size(); ++i) n *= dims_[i].size;
  return n;
}

size_t Points::coordinate(size_t point, std::string_view dim) const {
  return point / stride(dim) % size(dim);
}

Points Points::without(std::string_view dim) const {
  Points some = *this;
  some.dims_.erase(some.dims_.begin() + static_cast<ptrdiff_t>(index(dim)));
  return some;
}

void Points::check_coordinate(std::string_view dim, size_t i) const {
  if (i >= size(dim))
    throw_invalid(fmt::format("[mesh] dimension {} has size {}: give a coordinate below that, not {}", dim,
                              size(dim), i));
}

void Points::check_count(std::string_view dim, size_t count) const {
  if (count != size(dim))
    throw_invalid(
        fmt::format("[mesh] {} values along dimension {}, which has size {}", count, dim, size(dim)));
}

void Points::check_only() const {
  if (size() != 1)
    throw_invalid(fmt::format("[mesh] there are {} actors ({}): choose one with at()", size(), str()));
}

void Points::check_all(size_t count) const {
  if (count != size())
    throw_invalid(fmt::format("[mesh] {} values of {} actors: give what all gave", count, size()));
}

void install_meshes(internal::actors::Worker& worker) { worker.add_extension(std::make_unique<MeshCount>()); }

Mesh mesh_of_its_own(const Here& here, const Mesh& workers) {
  for (const ObjectId& m : workers.all().members())
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
  for (const ObjectId& m : mesh.all().members()) all.push_back(m.owner);
  return all;
}

}  // namespace troupe::parallel
