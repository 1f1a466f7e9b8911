#include "script/groups.h"

#include <fmt/format.h>

namespace troupe::script {
namespace {

ReduceOp reduction_of(const std::string& wanted) {
  std::string known;
  for (int i = 0; i < internal::collective::kReduceOpCount; ++i) {
    const auto op = static_cast<ReduceOp>(i);
    const std::string name(internal::collective::name(op));
    if (name == wanted) return op;
    known += (i ? ", " : "") + name;
  }
  throw_invalid("[group] op must be one of " + known + "; got \"" + wanted + "\"");
}

}  // namespace

size_t rank_in(const Group& group, int64_t rank) {
  if (rank < 0 || static_cast<size_t>(rank) >= group.size())
    throw_invalid(fmt::format("[group] rank {} of a group of {}: ranks count from 0", rank, group.size()));
  return static_cast<size_t>(rank);
}

Duration time_limit(double seconds) {
  if (!(seconds >= 0 && seconds < 1e9))
    throw_invalid(fmt::format("[group] a timeout of {} s; expected 0 (none) or more", seconds));
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
}

CollectiveOptions collective_options(ValueMap options) {
  CollectiveOptions out;
  for (auto& [name, value] : options) {
    if (name == "op")
      out.op = reduction_of(Codec<std::string>::from(std::move(value)));
    else if (name == "tag")
      out.tag = Codec<std::string>::from(std::move(value));
    else if (name == "timeout")
      out.timeout = time_limit(Codec<double>::from(std::move(value)));
    else if (name == "way")
      out.way = Codec<std::string>::from(std::move(value));
    else if (name == "rows")
      out.rows = Codec<std::vector<int64_t>>::from(std::move(value));
    else if (name == "gradients")
      out.gradients = Codec<bool>::from(std::move(value));
    else
      throw_invalid("[group] an operation has the options op, tag, timeout, way, rows and gradients, not " +
                    name);
  }
  return out;
}

Group group_of(Session& session, Value members, const std::string& name) {
  std::vector<Place> places;
  std::vector<AnyRef> actors;
  if (members.is_null()) {
    for (const std::string& w : session.cluster().workers()) places.emplace_back(w);
    return Group(session.worker(), places, name);
  }
  auto* list = members.get_if<ValueList>();
  if (!list)
    throw_invalid("[group] the members are a list of references, or of workers; got " + members.describe());
  for (Value& v : *list)
    if (v.get_if<RefValue>())
      actors.push_back(Codec<AnyRef>::from(std::move(v)));
    else if (const auto* text = v.get_if<std::string>())
      places.emplace_back(*text);
    else if (const auto* number = v.get_if<int64_t>())
      places.emplace_back(*number);
    else
      throw_invalid("[group] a member is a reference, or a worker: \"w1\" or 1; got " + v.describe());
  if (!actors.empty() && !places.empty())
    throw_invalid("[group] the members are actors or workers, not both");
  return actors.empty() ? Group(session.worker(), places, name) : Group(actors, name);
}

Mesh mesh_of(Session& session, const std::vector<std::pair<std::string, int64_t>>& dims, Value members,
             const std::string& name) {
  std::vector<MeshDim> out;
  for (const auto& [dim, size] : dims) {
    if (size < 1) throw_invalid(fmt::format("[mesh] dimension {} has size {}: give 1 at least", dim, size));
    out.push_back({dim, static_cast<size_t>(size)});
  }
  return Mesh(group_of(session, std::move(members), name), std::move(out));
}

}  // namespace troupe::script
