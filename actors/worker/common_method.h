// Methods that every actor of a worker has besides its own: messages to the actor, handled in its mailbox.
#pragma once
#include "actors/cell/methods.h"
#include "actors/worker/service.h"

namespace troupe::internal::actors {

/// Declared as Service is. It is sent as the calls of an actor's own methods are: in the caller's context.
template <class Signature>
struct CommonMethod;
template <class R, class... Args>
struct CommonMethod<R(Args...)> : Message<R(Args...)> {
  using M = Message<R(Args...)>;
  using M::M, M::name, M::options;

  /// `actor`: an AnyRef. Throws if the actor, or the cluster, is known to be gone.
  template <class Ref>
  Future<typename M::Answer> ask(const Ref& actor, Args... args) const {
    return this->answer_in(send(actor, std::move(args)...));
  }
  /// The same without a type, for answers of several messages.
  template <class Ref>
  Future<Value> send(const Ref& actor, Args... args) const {
    return actor.call(name, M::pack(std::move(args)...),
                      {.timeout = options.timeout, .uncancellable = options.uncancellable});
  }
  /// Nobody waits for an answer.
  template <class Ref>
  void tell(const Ref& actor, Args... args) const {
    (void)actor.call(name, M::pack(std::move(args)...), {.timeout = options.timeout, .one_way = true});
  }

  template <auto f>
  static void handle_with(const M& m, Actor& actor, Invocation& call) {
    std::apply(
        [&](Args&&... args) {
          const auto run = [&]() -> decltype(auto) {
            if constexpr (std::is_invocable_v<decltype(f), Actor&, Invocation&, Args...>)
              return f(actor, call, std::move(args)...);
            else if constexpr (std::is_invocable_v<decltype(f), Actor&, Args...>)
              return f(actor, std::move(args)...);
            else
              return f(std::move(args)...);
          };
          if constexpr (std::is_same_v<decltype(run()), Task<R>>)
            finish(call, AnyTask(run()));
          else
            M::handle(call, run);
        },
        m.unpack(std::move(call.call().args)));
  }
};

/// Gives the actors of the worker the method M: they answer with f(actor, call, contents...),
/// f(actor, contents...) or f(contents...), which may be a coroutine.
template <const auto& M, auto f>
void serve(Worker& at) {
  at.add_actor_method(M.name,
                      [](Actor& actor, Invocation& call) { M.template handle_with<f>(M, actor, call); });
}

}  // namespace troupe::internal::actors
