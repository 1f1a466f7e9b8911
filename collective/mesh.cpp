#include "collective/mesh.h"

#include <algorithm>

#include "actors/worker/worker.h"

namespace troupe {

namespace {

constexpr size_t kMostTurns = 1 << 20;

std::vector<Place> all_of(internal::actors::Worker& cluster) {
  std::vector<Place> all;
  for (const auto& member : cluster.members().all()) all.emplace_back(member);
  return all;
}

}  // namespace

Mesh::Mesh(internal::actors::Worker& cluster, std::vector<MeshDim> dims, const std::vector<Place>& workers,
           const std::string& name)
    : Mesh(Group(cluster, workers.empty() ? all_of(cluster) : workers, name), std::move(dims)) {}

Mesh::Mesh(Group all, std::vector<MeshDim> dims) : all_(std::move(all)), points_(std::move(dims)) {
  size_t product = 1, in_turns = 0;
  const std::vector<MeshDim>& all_dims = points_.dims();
  for (size_t i = 0; i < all_dims.size(); ++i) {
    const MeshDim& d = all_dims[i];
    if (!d.size) throw_invalid("[mesh] dimension " + d.name + " has size 0: give 1 at least");
    if (std::ranges::count(all_dims, d.name, &MeshDim::name) > 1)
      throw_invalid("[mesh] two dimensions are called " + d.name + ": give each a name of its own");
    if (!d.turns || d.size % d.turns)
      throw_invalid("[mesh] dimension " + d.name + " has size " + std::to_string(d.size) + " in " +
                    std::to_string(d.turns) + " turns: give a size that is a multiple of them");
    if (d.turns > 1 && ++in_turns > 1)
      throw_invalid("[mesh] two dimensions have turns, " + d.name + " the second: one may have them");
    if (d.size / d.turns > all_.size() ||
        d.turns > kMostTurns) {  // it does not fit, and might not be counted
      product = 0;
      break;
    }
    product = std::min(product * (d.size / d.turns), all_.size() + 1);
  }
  if (product != all_.size())
    throw_invalid("[mesh] " + points_.str() + " are not the " + std::to_string(all_.size()) +
                  " members: give sizes whose product is their number, or fewer members");
  members_ = points_.members();
}

void Mesh::check_meets(std::string_view dim) const {
  const size_t turns = points_.dims()[points_.index(dim)].turns;
  if (turns > 1)
    throw_invalid("[mesh] a member has " + std::to_string(turns) + " points along " + std::string(dim) +
                  ", and would meet itself in a group along it: make groups along other dimensions");
}

Mesh Mesh::in_turn(size_t turn, const std::string& name) const {
  Mesh mesh = *this;
  std::vector<size_t> ranks(all_.size());
  for (size_t r = 0; r < ranks.size(); ++r) ranks[r] = r;
  mesh.all_ = all_.subset(ranks, name), mesh.turn_ = turn;
  return mesh;
}

Group Mesh::along(std::string_view dim, size_t rank) const {
  check_meets(dim);
  return all_.subset(members_.along(rank, dim), all_.name() + "/" + std::string(dim));
}

Group Mesh::operator[](std::string_view dim) const { return along(dim, all_.rank()); }

Group Mesh::across(const std::vector<std::string>& dims) const {
  std::string name;
  for (const std::string& dim : dims) check_meets(dim), name += (name.empty() ? "" : "+") + dim;
  return all_.subset(members_.across(all_.rank(), dims), all_.name() + "/" + name);
}

std::vector<Group> Mesh::groups(std::string_view dim) const {
  std::vector<Group> all;
  for (size_t r = 0; r < all_.size(); ++r)
    if (members_.coordinate(r, dim) == 0) all.push_back(along(dim, r));
  return all;
}

namespace {

// As a mesh travels.
struct SentMesh {
  Group all;
  std::vector<MeshDim> dims;
  size_t turn = 0;
};

}  // namespace

Value Codec<Mesh>::to(Mesh m) {
  return internal::to_value(SentMesh{std::move(m.all_), m.points_.dims(), m.turn_});
}

Mesh Codec<Mesh>::from(Value v) {
  auto s = internal::from_value<SentMesh>(std::move(v));
  if (s.dims.empty() && !s.all.size()) return {};
  Mesh mesh(std::move(s.all), std::move(s.dims));
  if (s.turn >= mesh.points_.turns())
    throw_invalid("a mesh came in turn " + std::to_string(s.turn) + " of " +
                  std::to_string(mesh.points_.turns()));
  mesh.turn_ = s.turn;
  return mesh;
}

}  // namespace troupe
