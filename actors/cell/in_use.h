// Keeps an actor's object while a coroutine works on it.
#pragma once
#include <memory>

namespace troupe::internal::actors {

class ActorCell;

/// While one is alive, the object is. Made and destroyed in the mailbox.
class InUse {
 public:
  explicit InUse(std::shared_ptr<ActorCell> cell);
  InUse(InUse&&) = default;
  ~InUse();

 private:
  std::shared_ptr<ActorCell> cell_;
};

}  // namespace troupe::internal::actors
