// Process groups and meshes by name: their members, and their operations on values.
#pragma once
#include <string>
#include <string_view>

#include "core/base/call_frame.h"
#include "script/session.h"
#include "troupe/groups.h"

namespace troupe::script {

/// The thread of a script acts as its worker, w0: operations of groups that have it as a member, and its
/// rank.
class AsWorker {
 public:
  explicit AsWorker(Session& session) : scope_(frame_of(session)) {}

 private:
  static CallFrame frame_of(Session& session) {
    CallFrame f = frame();
    f.worker = &session.worker();
    return f;
  }
  CallFrameScope scope_;
};

/// A group of the members that a list has: references to actors, or names or numbers of workers; of nothing,
/// all workers.
Group group_of(Session& session, Value members, const std::string& name);
/// A rank of that group; `invalid` for others.
size_t rank_in(const Group& group, int64_t rank);
/// Options by name: op, tag, timeout (seconds), way, rows, gradients.
CollectiveOptions collective_options(ValueMap options);
/// Seconds from 0 on as a time limit.
Duration time_limit(double seconds);
/// A mesh of dimensions by name and size, the last one first.
Mesh mesh_of(Session& session, const std::vector<std::pair<std::string, int64_t>>& dims, Value members,
             const std::string& name);

}  // namespace troupe::script
