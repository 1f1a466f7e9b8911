#include "collective/mesh.h"

#include <algorithm>
#include <charconv>

#include "actors/worker/worker.h"

namespace troupe {

namespace {

std::vector<Place> all_of(internal::actors::Worker& cluster) {
  std::vector<Place> all;
  for (const auto& member : cluster.members().all()) all.emplace_back(member);
  return all;
}

std::string text(const std::vector<MeshDim>& dims) {
  std::string all;
  for (const MeshDim& d : dims) all += (all.empty() ? "" : " x ") + d.name + " " + std::to_string(d.size);
  return all;
}

}  // namespace

std::vector<MeshDim> mesh_dims(std::string_view text, const std::vector<std::string>& names, size_t members) {
  std::vector<MeshDim> dims;
  for (const std::string& name : names) dims.push_back({name, 1});
  bool gives_last = false;
  for (size_t from = 0; from < text.size();) {
    const size_t end = std::min(text.find(',', from), text.size());
    const std::string_view one = text.substr(from, end - from);
    const size_t equals = std::min(one.find('='), one.size());
    const auto at = std::ranges::find(dims, one.substr(0, equals), &MeshDim::name);
    size_t size = 0;
    if (equals < one.size()) {
      const char *first = one.data() + equals + 1, *last = one.data() + one.size();
      if (const auto read = std::from_chars(first, last, size); read.ec != std::errc() || read.ptr != last)
        size = 0;
    }
    if (at == dims.end() || !size) {
      std::string known;
      for (const std::string& name : names) known += (known.empty() ? "" : ", ") + name + "=N";
      throw_invalid("[mesh] the dimensions have \"" + std::string(one) + "\"; expected " + known +
                    " with N of 1 or more, and commas between them");
    }
    at->size = size;
    gives_last = gives_last || at + 1 == dims.end();
    from = end + 1;
  }
  if (!gives_last && !dims.empty()) {
    size_t left = members;
    for (const MeshDim& d : dims) left = left % d.size ? 0 : left / d.size;
    dims.back().size = std::max(left, size_t{1});
  }
  return dims;
}

Mesh::Mesh(internal::actors::Worker& cluster, std::vector<MeshDim> dims, const std::vector<Place>& workers,
           const std::string& name)
    : Mesh(Group(cluster, workers.empty() ? all_of(cluster) : workers, name), std::move(dims)) {}

Mesh::Mesh(Group all, std::vector<MeshDim> dims) : all_(std::move(all)), dims_(std::move(dims)) {
  size_t product = 1;
  for (size_t i = 0; i < dims_.size(); ++i) {
    const MeshDim& d = dims_[i];
    if (!d.size) throw_invalid("[mesh] dimension " + d.name + " has size 0: give 1 at least");
    if (std::ranges::find(dims_.begin(), dims_.begin() + static_cast<ptrdiff_t>(i), d.name, &MeshDim::name) !=
        dims_.begin() + static_cast<ptrdiff_t>(i))
      throw_invalid("[mesh] two dimensions are called " + d.name + ": give each a name of its own");
    if (product > all_.size()) break;  // it does not fit, and might not be counted
    product *= d.size;
  }
  if (product != all_.size())
    throw_invalid("[mesh] " + text(dims_) + " are not the " + std::to_string(all_.size()) +
                  " members: give sizes whose product is their number, or fewer members");
}

size_t Mesh::index(std::string_view dim) const {
  const auto at = std::ranges::find(dims_, dim, &MeshDim::name);
  if (at == dims_.end())
    throw_invalid("[mesh] there is no dimension " + std::string(dim) +
                  ". There are: " + (dims_.empty() ? "none" : text(dims_)));
  return static_cast<size_t>(at - dims_.begin());
}

size_t Mesh::stride(size_t dim) const {
  size_t n = 1;
  for (size_t i = dim + 1; i < dims_.size(); ++i) n *= dims_[i].size;
  return n;
}

size_t Mesh::coordinate(std::string_view dim) const {
  const size_t i = index(dim);
  return all_.rank() / stride(i) % dims_[i].size;
}

Group Mesh::along(size_t dim, size_t rank) const {
  const size_t step = stride(dim), first = rank - rank / step % dims_[dim].size * step;
  std::vector<size_t> ranks;
  for (size_t k = 0; k < dims_[dim].size; ++k) ranks.push_back(first + k * step);
  return all_.subset(ranks, all_.name() + "/" + dims_[dim].name);
}

Group Mesh::operator[](std::string_view dim) const { return along(index(dim), all_.rank()); }

std::vector<Group> Mesh::groups(std::string_view dim) const {
  const size_t i = index(dim), step = stride(i);
  std::vector<Group> all;
  for (size_t r = 0; r < all_.size(); ++r)
    if (r / step % dims_[i].size == 0) all.push_back(along(i, r));
  return all;
}

namespace {

// As a mesh travels.
struct SentMesh {
  Group all;
  std::vector<MeshDim> dims;
};

}  // namespace

Value Codec<Mesh>::to(Mesh m) { return internal::to_value(SentMesh{std::move(m).all(), m.dims()}); }

Mesh Codec<Mesh>::from(Value v) {
  auto s = internal::from_value<SentMesh>(std::move(v));
  return s.dims.empty() && !s.all.size() ? Mesh() : Mesh(std::move(s.all), std::move(s.dims));
}

}  // namespace troupe
