#include "core/graph/stateful.h"

#include <mutex>

#include "core/base/call_frame.h"
#include "core/base/mutex.h"
#include "core/base/type_name.h"

namespace troupe {
namespace {

struct LiveStatefuls {
  internal::Mutex mutex;
  Stateful *first = nullptr, *last = nullptr;
};
constinit LiveStatefuls live_statefuls;  // has nothing to destroy: objects may be static
constexpr char kNobody = 0;              // whose address is that of no actor

}  // namespace

Stateful::Stateful() : actor_(frame().actor.address()) {
  std::lock_guard lock(live_statefuls.mutex);
  before_ = live_statefuls.last;
  (before_ ? before_->after_ : live_statefuls.first) = this;
  live_statefuls.last = this;
}

Stateful::~Stateful() {
  std::lock_guard lock(live_statefuls.mutex);
  (before_ ? before_->after_ : live_statefuls.first) = after_;
  (after_ ? after_->before_ : live_statefuls.last) = before_;
}

void Stateful::unlist() {
  std::lock_guard lock(live_statefuls.mutex);
  actor_ = &kNobody;
}

std::string Stateful::state_name() const {
  const std::string name = class_name(typeid(*this));
  return name.substr(0, name.find('<'));
}

std::vector<Stateful*> Stateful::made_by(const void* actor) {
  std::lock_guard lock(live_statefuls.mutex);
  std::vector<Stateful*> out;
  for (Stateful* s = live_statefuls.first; s; s = s->after_)
    if (s->actor_ == actor) out.push_back(s);
  return out;
}

}  // namespace troupe
