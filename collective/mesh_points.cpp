#include "collective/mesh_points.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "core/base/error.h"

namespace troupe {

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

size_t size_along(const std::vector<MeshDim>& dims, std::string_view name) {
  const auto at = std::ranges::find(dims, name, &MeshDim::name);
  return at == dims.end() ? 1 : at->size;
}

size_t MeshPoints::size() const {
  size_t n = 1;
  for (const MeshDim& d : dims_) n *= d.size;
  return n;
}

size_t MeshPoints::turns() const {
  size_t n = 1;
  for (const MeshDim& d : dims_) n *= d.turns;
  return n;
}

size_t member_at(const MeshDim& dim, size_t coordinate) {
  const size_t members = dim.size / dim.turns, at = coordinate % members;
  return dim.back && coordinate / members % 2 ? members - 1 - at : at;
}

size_t coordinate_of(const MeshDim& dim, size_t member, size_t turn) {
  const size_t members = dim.size / dim.turns;
  return turn * members + (dim.back && turn % 2 ? members - 1 - member : member);
}

MeshPoints MeshPoints::members() const {
  std::vector<MeshDim> dims = dims_;
  for (MeshDim& d : dims) d.size /= d.turns, d.turns = 1, d.back = false;
  return MeshPoints(std::move(dims));
}

size_t MeshPoints::member(size_t point) const {
  size_t member = 0, step = 1;
  for (size_t i = dims_.size(); i-- > 0;) {
    const MeshDim& d = dims_[i];
    member += member_at(d, point % d.size) * step;
    point /= d.size, step *= d.size / d.turns;
  }
  return member;
}

size_t MeshPoints::turn(size_t point) const {
  size_t turn = 0;
  for (const MeshDim& d : dims_) turn += coordinate(point, d.name) / (d.size / d.turns);
  return turn;
}

size_t MeshPoints::point(size_t member, size_t turn) const {
  size_t point = 0, step = 1;
  for (size_t i = dims_.size(); i-- > 0;) {
    const MeshDim& d = dims_[i];
    const size_t members = d.size / d.turns;
    point += coordinate_of(d, member % members, d.turns > 1 ? turn : 0) * step;
    member /= members, step *= d.size;
  }
  return point;
}

std::string MeshPoints::str() const {
  std::string all;
  for (const MeshDim& d : dims_) all += fmt::format("{}{} {}", all.empty() ? "" : " x ", d.name, d.size);
  return all.empty() ? "none" : all;
}

size_t MeshPoints::index(std::string_view dim) const {
  const auto at = std::ranges::find(dims_, dim, &MeshDim::name);
  if (at == dims_.end())
    throw_invalid(fmt::format("[mesh] there is no dimension {}. There are: {}", dim, str()));
  return static_cast<size_t>(at - dims_.begin());
}

size_t MeshPoints::stride(std::string_view dim) const {
  size_t n = 1;
  for (size_t i = index(dim) + 1; i < dims_.size(); ++i) n *= dims_[i].size;
  return n;
}

size_t MeshPoints::coordinate(size_t point, std::string_view dim) const {
  return point / stride(dim) % size(dim);
}

std::vector<size_t> MeshPoints::along(size_t point, std::string_view dim) const {
  const size_t step = stride(dim), first = point - coordinate(point, dim) * step;
  std::vector<size_t> all;
  for (size_t k = 0; k < size(dim); ++k) all.push_back(first + k * step);
  return all;
}

std::vector<size_t> MeshPoints::across(size_t point, const std::vector<std::string>& dims) const {
  std::vector<size_t> all{point};
  for (const std::string& dim : dims) {
    std::vector<size_t> more;
    for (const size_t p : all) {
      const auto line = along(p, dim);
      more.insert(more.end(), line.begin(), line.end());
    }
    all = std::move(more);
  }
  std::ranges::sort(all);
  const auto twice = std::ranges::unique(all);
  all.erase(twice.begin(), twice.end());
  return all;
}

MeshPoints MeshPoints::without(std::string_view dim) const {
  MeshPoints some = *this;
  some.dims_.erase(some.dims_.begin() + static_cast<ptrdiff_t>(index(dim)));
  return some;
}

void MeshPoints::check_coordinate(std::string_view dim, size_t i) const {
  if (i >= size(dim))
    throw_invalid(fmt::format("[mesh] dimension {} has size {}: give a coordinate below that, not {}", dim,
                              size(dim), i));
}

void MeshPoints::check_count(std::string_view dim, size_t count) const {
  if (count != size(dim))
    throw_invalid(
        fmt::format("[mesh] {} values along dimension {}, which has size {}", count, dim, size(dim)));
}

void MeshPoints::check_only() const {
  if (size() != 1)
    throw_invalid(fmt::format("[mesh] there are {} actors ({}): choose one with at()", size(), str()));
}

void MeshPoints::check_all(size_t count) const {
  if (count != size())
    throw_invalid(fmt::format("[mesh] {} values of {} actors: give what all gave", count, size()));
}

}  // namespace troupe
