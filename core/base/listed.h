// Objects that can be found while they are alive, without a list that outlives them.
#pragma once
#include <vector>

#include "core/base/mutex.h"

namespace troupe::internal {

/// Base of a class T whose objects are found by all_listed(). Thread-safe, but an object may end at any time
/// unless it is of the caller's thread.
template <class T>
class Listed {
 public:
  /// The objects that are alive, in the order of their construction.
  static std::vector<T*> all_listed() {
    std::vector<T*> all;
    const Lock lock(mutex_);
    for (Listed* l = first_; l; l = l->after_) all.push_back(static_cast<T*>(l));
    return all;
  }

 protected:
  Listed() {
    const Lock lock(mutex_);
    before_ = last_;
    (before_ ? before_->after_ : first_) = this;
    last_ = this;
  }
  Listed(const Listed&) = delete;
  Listed& operator=(const Listed&) = delete;
  ~Listed() {
    const Lock lock(mutex_);
    (before_ ? before_->after_ : first_) = after_;
    (after_ ? after_->before_ : last_) = before_;
  }

 private:
  static inline Mutex mutex_;
  static inline Listed *first_ TROUPE_GUARDED_BY(mutex_) = nullptr,
                               *last_ TROUPE_GUARDED_BY(mutex_) = nullptr;
  Listed *before_ = nullptr, *after_ = nullptr;
};

}  // namespace troupe::internal
