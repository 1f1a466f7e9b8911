// The reducers of the members on one worker: one at a time of a name, and how often there was one.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>

#include "actors/worker/worker.h"
#include "collective/group.h"
#include "core/base/mutex.h"

namespace troupe::parallel {

/// All members make the same reducers in the same order: so they agree on a name for each. Thread-safe.
class ReducerNames final : public internal::actors::Extension {
 public:
  struct Key {
    std::string group;
    size_t rank = 0;
    std::string name;
    auto operator<=>(const Key&) const = default;
  };
  /// Part of every worker's set-up.
  static void install(internal::actors::Worker& worker) {
    worker.add_extension(std::make_unique<ReducerNames>());
  }

  /// One use of a name, until it goes.
  class Use {
   public:
    Use() = default;
    Use(Use&&) noexcept = default;
    Use& operator=(Use&&) = delete;
    ~Use() {
      if (!names_) return;
      const internal::Lock lock(names_->mutex);
      names_->of[key_].second = false;
    }
    std::string name() const { return name_; }  ///< the same on all members, and new

   private:
    friend ReducerNames;
    struct Names {
      internal::Mutex mutex;
      std::map<Key, std::pair<uint64_t, bool>> of TROUPE_GUARDED_BY(mutex);  // uses so far; there is one now
    };
    std::shared_ptr<Names> names_;
    Key key_;
    std::string name_;
  };
  /// Without a name if there is such a reducer.
  Use use(Key key) {
    Use made;
    const internal::Lock lock(names_->mutex);
    auto& [count, now] = names_->of[key];
    if (std::exchange(now, true)) return made;
    made.name_ = key.name + (count ? " " + std::to_string(count + 1) : "");
    ++count;
    made.names_ = names_;
    made.key_ = std::move(key);
    return made;
  }

 private:
  const std::shared_ptr<Use::Names> names_ = std::make_shared<Use::Names>();
};

/// A name that is the same on all members of the group, each of which makes as many of it; of this thread's
/// worker. A use without a name: there is one already. `invalid`, beginning with `what`, if no worker runs
/// here.
ReducerNames::Use name_in_group(const Group& group, const std::string& name, const std::string& what);

}  // namespace troupe::parallel
