#include "core/graph/stateful.h"

#include <mutex>

#include "core/base/call_frame.h"
#include "core/base/mutex.h"
#include "core/base/type_name.h"

namespace troupe {
namespace {

// Never destroyed: objects may be static.
struct LiveStatefuls {
  internal::Mutex mutex;
  Stateful *first = nullptr, *last = nullptr;
};

LiveStatefuls& live() {
  static LiveStatefuls& all = *new LiveStatefuls;
  return all;
}

}  // namespace

Stateful::Stateful() : actor_(frame().actor.address()) {
  std::lock_guard lock(live().mutex);
  before_ = live().last;
  (before_ ? before_->after_ : live().first) = this;
  live().last = this;
}

Stateful::~Stateful() {
  std::lock_guard lock(live().mutex);
  (before_ ? before_->after_ : live().first) = after_;
  (after_ ? after_->before_ : live().last) = before_;
}

std::string Stateful::state_name() const {
  const std::string name = class_name(typeid(*this));
  return name.substr(0, name.find('<'));
}

std::vector<Stateful*> Stateful::made_by(const void* actor) {
  std::lock_guard lock(live().mutex);
  std::vector<Stateful*> out;
  for (Stateful* s = live().first; s; s = s->after_)
    if (s->actor_ == actor) out.push_back(s);
  return out;
}

}  // namespace troupe
