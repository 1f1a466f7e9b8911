// Messages that workers exchange below the calls of actors' own methods. Each is declared once, for both
// ends: its name, what it carries, what it is answered with, and how it is sent. tests/messages.py writes the
// table of all in docs/explanation/messages.md from the declarations and the sentences above them.
#pragma once
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "actors/worker/worker.h"
#include "core/codec/codec.h"

namespace troupe::internal::actors {

struct MessageOptions {
  std::optional<Duration> timeout = {};  ///< empty: the worker's; zero: none
  bool in_context = false;  ///< part of what the sender does: with its autograd context, within its deadline
  bool uncancellable = false;  ///< CallOptions::uncancellable
  /// The handler gets a message whose contents could not be taken in as well: Call::unplaced is the reason.
  bool takes_unplaced = false;
};

/// Stands for a list of T, of any length, that is all that a message carries.
template <class T>
struct Each : std::vector<T> {
  using std::vector<T>::vector;
};

/// Packs the contents of a message as they travel, and unpacks them.
template <class... Args>
struct Contents {
  static ValueList pack(Args... args) {
    ValueList list;
    list.reserve(sizeof...(Args));
    (list.push_back(to_value(std::move(args))), ...);
    return list;
  }
  static std::tuple<Args...> unpack(ValueList&& list, ErrorPrefix what) {
    return ListCodec<Args...>::from(std::move(list), what);
  }
};
template <class T>
struct Contents<Each<T>> {
  static ValueList pack(Each<T> all) {
    ValueList list;
    list.reserve(all.size());
    for (T& x : all) list.push_back(to_value(std::move(x)));
    return list;
  }
  static std::tuple<Each<T>> unpack(ValueList&& list, ErrorPrefix what) {
    Each<T> all;
    try {
      for (Value& x : list) all.push_back(from_value<T>(std::move(x)));
    } catch (const Error& e) {
      argument_failed(what, all.size() + 1, e);
    }
    return all;
  }
};

/// The declaration of a message, of either kind of handler.
template <class Signature>
struct Message;
template <class R, class... Args>
struct Message<R(Args...)> {
  using Answer = std::conditional_t<std::is_void_v<R>, Value, R>;

  const char* name;
  MessageOptions options;
  uint64_t method;  ///< of net::Call

  constexpr Message(const char* n, MessageOptions o = {}) : name(n), options(o), method(net::method_id(n)) {}

  static ValueList pack(Args... args) { return Contents<Args...>::pack(std::move(args)...); }
  std::tuple<Args...> unpack(ValueList&& args) const {
    return Contents<Args...>::unpack(std::move(args), name);
  }
  Answer answer_in(Value answer) const {
    try {
      return from_value<Answer>(std::move(answer));
    } catch (const Error& e) {
      throw_invalid(std::string(name) + " was answered wrongly: " + e.message());
    }
  }
  Future<Answer> answer_in(Future<Value> answer) const {
    if constexpr (std::is_same_v<Answer, Value>)
      return answer;
    else
      return answer.then([m = *this](const Value& v) { return m.answer_in(v); });
  }
  template <class F, class... A>
  static void handle(Invocation& call, const F& f, A&&... args) {
    if constexpr (std::is_void_v<R>)
      f(std::forward<A>(args)...), call.complete(Value());
    else
      call.complete(to_value(R(f(std::forward<A>(args)...))));
  }
};

/// A message that the worker itself handles, on the thread that delivers.
template <class Signature>
struct Service;
template <class R, class... Args>
struct Service<R(Args...)> : Message<R(Args...)> {
  using M = Message<R(Args...)>;
  using M::M, M::name, M::options, M::method;

  /// The same with a time of its own.
  Service within(std::optional<Duration> timeout) const {
    Service other = *this;
    other.options.timeout = timeout;
    return other;
  }
  Future<typename M::Answer> ask(Worker& from, WorkerId to, Args... args) const {
    return ask_as(name, from, to, std::move(args)...);
  }
  /// The same; `label` names it in errors.
  Future<typename M::Answer> ask_as(std::string label, Worker& from, WorkerId to, Args... args) const {
    return this->answer_in(send(std::move(label), from, to, M::pack(std::move(args)...), false));
  }
  /// Nobody waits for an answer. Why it could not be sent.
  std::optional<Error> tell(Worker& from, WorkerId to, Args... args) const {
    const auto sent = send(name, from, to, M::pack(std::move(args)...), true);
    return sent.peek()->ok() ? std::nullopt : std::optional(sent.peek()->error());
  }

  /// Answers every message with f(call, contents...), or f(contents...). f must not block.
  template <class F>
  void serve(Worker& at, F f) const {
    add(at, [f = std::move(f), m = *this](const Ref<Invocation>& call) {
      std::apply(
          [&](Args&&... args) {
            if constexpr (std::is_invocable_v<const F&, Invocation&, Args...>)
              M::handle(*call, f, *call, std::move(args)...);
            else
              M::handle(*call, f, std::move(args)...);
          },
          m.unpack(std::move(call->call().args)));
    });
  }
  /// Calls f(call, contents...), which answers now or later. The call keeps its contents: it may be put aside
  /// and dispatched once more.
  template <class F>
  void serve_later(Worker& at, F f) const {
    add(at, [f = std::move(f), m = *this](const Ref<Invocation>& call) {
      std::apply([&](Args&&... args) { f(call, std::move(args)...); },
                 m.unpack(ValueList(call->call().args)));
    });
  }
  /// For f of serve_later().
  static void answer(Invocation& call, typename M::Answer result) {
    call.complete(to_value(std::move(result)));
  }

 private:
  template <class F>
  void add(Worker& at, F f) const {
    at.add_service(name, std::move(f), options.takes_unplaced);
  }
  Future<Value> send(std::string label, Worker& from, WorkerId to, ValueList args, bool one_way) const {
    CallFrameScope scope(options.in_context ? frame() : CallFrame{&from});
    return from.call(
        {to, kNoWorker, 0}, std::move(label), method, std::move(args),
        {.timeout = options.timeout, .one_way = one_way, .uncancellable = options.uncancellable});
  }
};

}  // namespace troupe::internal::actors
