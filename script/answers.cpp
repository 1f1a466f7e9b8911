#include "script/answers.h"

#include <algorithm>
#include <utility>

namespace troupe::script {

void Answer::look(Session& session) {
  if (std::exchange(argument, false)) future = session.whole(future, step);
}

Value Answer::get(Session& session) {
  look(session);
  Value value = [&] {
    try {
      return session.get(future);
    } catch (const Error&) {
      session.seen(number);
      throw;
    }
  }();
  session.seen(number);
  step.reset();
  return value;
}

Value Answer::wait(Session& session) {
  look(session);
  const Result<Value>& result = session.wait(future);
  session.seen(number);
  return result.value();
}

void Answer::cancel(Session& session) {
  future.cancel();
  session.seen(number);
}

std::string Answer::str() const {
  const auto* r = future.peek();
  return "future of " + what +
         (!r        ? ", not there yet"
          : r->ok() ? ", there"
                    : ", failed: " + r->error().message());
}

Answer answer_of(Session& session, const Future<Value>& future, std::string what, bool gives) {
  const uint64_t number = session.keep(future, what);
  return {future, std::move(what), nullptr, number, gives};
}

Answer call(Session& session, const AnyRef& actor, const std::string& method,
            std::vector<CallArgument> arguments, ValueMap named, std::shared_ptr<Step> step) {
  Session::Later later;
  ValueList args;
  for (CallArgument& a : arguments) {
    if (a.answer && !a.answer->future.is_ready()) {
      session.seen(a.answer->number);
      a.answer->look(session);  // a second use is one of a copy
      later.emplace_back(args.size(), a.answer->future);
      a.answer->argument = true;
    } else if (a.answer) {
      a.value = a.answer->get(session);
    }
    args.push_back(std::move(a.value));
  }
  bool gives = true;
  for (const Entry& m : session.methods(actor))
    if (m.name == method) gives = !m.result.empty();
  const auto future = session.call(actor, method, std::move(args), std::move(named), step, std::move(later));
  Answer out = answer_of(session, future, actor.type() + "::" + method + " on " + actor.owner_name(), gives);
  out.step = std::move(step);
  return out;
}

bool names_parameters(Session& session, const AnyRef& actor, const std::string& method, const ValueMap& map) {
  const std::vector<Entry> methods = session.methods(actor);
  const auto it = std::ranges::find(methods, method, &Entry::name);
  return it != methods.end() &&
         std::ranges::any_of(it->parameters, [&](const Parameter& p) { return map.contains(p.name); });
}

bool names_parameters(Session& session, const std::string& type, const Place& where, const ValueMap& map) {
  for (const auto& made : session.type(where.in(session.worker().members()), type).constructors)
    for (const Parameter& p : made.entry.parameters)
      if (map.contains(p.name)) return true;
  return false;
}

}  // namespace troupe::script
