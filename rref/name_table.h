// The names of objects that live on one worker, and the lookups that wait for a name to be given.
#pragma once
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "actors/cell/invocation.h"
#include "rref/handle.h"

namespace troupe::internal::rref {

inline constexpr size_t kMaxName = 200;

/// "w1/server" in its parts; `invalid` if it has another form.
std::pair<std::string, std::string> split_name(const std::string& full);
/// `invalid` unless it may be a name: 1 to 200 printable characters without '/'.
void check_name(const std::string& name);

/// Not synchronized. Each name holds a reference.
class NameTable {
 public:
  using Call = Ref<actors::Invocation>;
  /// `invalid`, saying whose the name is, if it is taken. `worker`: for error texts.
  void give(const std::string& worker, const std::string& name, HandlePtr ref);
  /// Null if nothing has that name.
  HandlePtr find(const std::string& name) const;
  /// The reference of the name, to be let go without any lock; `invalid` if there is none.
  HandlePtr drop(const std::string& worker, const std::string& name);
  /// "[names] w1 has no 'servr'; it has: server (Layer), ...": at most eight of them, with the nearest first.
  Error unknown(const std::string& worker, const std::string& name) const;

  /// A lookup waits until the name is given. Those whose deadline has passed, to be let go without any lock.
  std::vector<Call> wait(const std::string& name, const Call& lookup, TimePoint now);
  /// Those that wait for it no longer do.
  std::vector<Call> arrived(const std::string& name);
  /// Lookups of a lost worker, to be let go without any lock.
  std::vector<Call> lose(WorkerId worker);

  /// The references of those names, to be let go likewise.
  std::vector<HandlePtr> drop_all(const std::function<bool(const ObjectId&)>& which);

  const std::map<std::string, HandlePtr>& all() const { return names_; }
  size_t waiting() const { return waiting_.size(); }

 private:
  std::vector<Call> take(const std::function<bool(const std::string&, const Call&)>& which);
  std::map<std::string, HandlePtr> names_;
  std::vector<std::pair<std::string, Call>> waiting_;  // looked through when it has doubled
  size_t prune_at_ = 64;
};

}  // namespace troupe::internal::rref
