// A scope that joins the calls made in it.
#pragma once
#include <functional>
#include <memory>

#include "actors/frame_slots.h"
#include "core/async/future.h"

namespace troupe {

/// Gathers the calls that are made while it is there, on its thread or in its coroutine; their futures need
/// not be kept. As soon as one fails the others are cancelled. In a method:
///
///   CallScope scope;
///   for (auto& stage : stages) scope.add(stage.call<&Stage::load>(path));
///   co_await scope.joined();
///
/// A scope that ends without having been joined, because an exception or a return leaves the block, cancels
/// what has not ended. Scopes may lie in each other: a call belongs to the innermost. To be made and ended by
/// one thread, or in one coroutine, in the order of blocks.
class CallScope {
 public:
  CallScope();
  ~CallScope();
  CallScope(const CallScope&) = delete;

  /// Also waits for this future, whatever it comes from. (Calls made in the scope are added by themselves.)
  void add(const FutureBase& future);
  /// Ready when all calls have ended, with the first error in time if there is one. Gathers no more.
  Future<void> joined();
  /// Blocks until then and throws the error; in an actor, co_await joined().
  void join() { joined().get(); }

  /// Adds a future to the scope that the thread is in, if it is in one.
  static void gather(const FutureBase& future) {
    if (auto* scope = frame().scope.get()) scope->add(future);
  }

 private:
  struct Group;
  bool enter(std::function<void()> cancel);

  std::shared_ptr<Group> group_;
  CallScope* outer_;
  bool joined_ = false;
};

}  // namespace troupe
