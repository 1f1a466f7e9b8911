#include "script/session.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "core/async/future_combinators.h"
#include "core/graph/node.h"
#include "rref/ref_table.h"

namespace troupe::script {
namespace {

std::string in_quotes(std::string_view text) { return fmt::format("{:?}", text); }

// The arguments in the order of the parameters; what is missing at the end is left to the callee's defaults.
ValueList arranged(const Entry& entry, ValueList positional, ValueMap named) {
  if (named.empty() && positional.size() <= entry.parameters.size()) {
    for (size_t i = 0; i < positional.size(); ++i)
      positional[i] = fitted(std::move(positional[i]), entry.parameters[i].type);
    return positional;
  }
  size_t given = positional.size();
  for (size_t i = 0; i < entry.parameters.size(); ++i)
    if (!entry.parameters[i].name.empty() && named.contains(entry.parameters[i].name))
      given = std::max(given, i + 1);
  Entry shorter = entry;
  if (given < shorter.parameters.size())
    shorter.parameters.erase(shorter.parameters.begin() + static_cast<std::ptrdiff_t>(given),
                             shorter.parameters.end());
  try {
    return complete(shorter, std::move(positional), std::move(named));
  } catch (const Error& e) {
    std::string text = e.message();
    if (const size_t at = text.find(shorter.signature()); at != std::string::npos)
      text = text.substr(0, at) + entry.signature();
    throw_invalid(text);
  }
}

// What of the arguments the call leaves without; nothing if none of them can go straight.
std::vector<internal::actors::LateReply> straight(const internal::actors::Worker& worker, const AnyRef& actor,
                                                  const Session::Later& later) {
  std::vector<internal::actors::LateReply> out;
  bool any = false;
  for (const auto& [place, future] : later) {
    const auto index = static_cast<uint32_t>(place);
    auto reply =
        worker.late_calls().reply(future, index, actor.owner(), true);  // the script may look at it later
    any |= reply.has_value();
    out.push_back(reply ? std::move(*reply) : internal::actors::LateReply{future, index, worker.id()});
  }
  if (!any) out.clear();
  return out;
}

struct CopyOfResult final : Node {
  Tensors apply(Tensors&& grads) override { return std::move(grads); }
  std::string name() const override { return "CopyOfResult"; }
  const char* partial() const override {
    return "is a copy of a result that went straight to another worker: gradients that come back from there "
           "do not pass it; take the result with :get() first, and give that as the argument";
  }
};

Tensor with_gradients_of_its_own(const Tensor& t) {
  const auto node = make_ref<CopyOfResult>();
  node->set_next({t.gradient_edge()});
  const Tensor copy = t.detach();
  copy.set_grad_fn({node, 0});
  return copy;
}

}  // namespace

const std::vector<TypeReport>& Session::types(WorkerId of) {
  {
    const internal::Lock lock(mutex_);
    if (const auto it = types_.find(of); it != types_.end()) return it->second;
  }
  std::vector<TypeReport> told = get(ask_types(worker(), of));
  const internal::Lock lock(mutex_);
  return types_.emplace(of, std::move(told)).first->second;
}

const TypeReport& Session::type(WorkerId of, const std::string& name) {
  const auto& all = types(of);
  if (const auto it = std::ranges::find(all, name, &TypeReport::name); it != all.end()) return *it;
  const TypeReport* found = nullptr;
  for (const TypeReport& t : all)
    if (t.name.ends_with("::" + name)) {
      if (found)
        throw_invalid(fmt::format("[spawn] {} may be {} or {}: write the one that is meant", in_quotes(name),
                                  found->name, t.name));
      found = &t;
    }
  if (found) return *found;
  std::vector<std::string> names;
  for (const TypeReport& t : all) names.push_back(t.name);
  const std::string near = nearest(name, names);
  throw_invalid(fmt::format("[spawn] {} has no actor type {}; {}", worker().members().name_of(of),
                            in_quotes(name),
                            near.empty() ? fmt::format("it has: {}", fmt::join(names, ", "))
                                         : "did you mean " + in_quotes(near) + "?"));
}

std::vector<Entry> Session::methods(const AnyRef& actor) {
  for (const TypeReport& t : types(actor.owner()))
    if (t.name == actor.type()) return t.methods;
  return {};
}

AnyRef Session::spawn(const std::string& type, const Place& where, ValueList args, ValueMap named,
                      const std::string& name) {
  const auto table = cluster_.here();
  const WorkerId owner = where.in(worker().members());
  const TypeReport& known = this->type(owner, type);
  // The constructor with that many parameters that takes them: those with the right types first.
  const size_t count = args.size() + named.size();
  std::optional<std::string> refused;
  for (const auto& c : known.constructors) {
    if (c.entry.parameters.size() != count) continue;
    try {
      ValueList values = arranged(c.entry, args, named);
      const NoGradGuard none;
      AnyRef made(table.table().spawn(owner, known.name, c.id, std::move(values), name));
      get(made.ready());
      return made;
    } catch (const Error& e) {
      if (e.kind() != ErrorKind::invalid) throw;
      if (!refused || c.listed) refused = e.what();
    }
  }
  if (refused) throw_invalid(*refused);
  std::vector<std::string> signatures;
  for (const auto& c : known.constructors) signatures.push_back(c.entry.signature());
  throw_invalid(fmt::format("[spawn] {} is not made from {} argument{}; it has: {}", type, count,
                            count == 1 ? "" : "s",
                            signatures.empty() ? "no constructor that this program uses or lists"
                                               : fmt::format("{}", fmt::join(signatures, ", "))));
}

Future<Value> Session::whole(const Future<Value>& future, const std::shared_ptr<Step>& step) const {
  using internal::rref::RefTable;
  return future.then([table = RefTable::of(cluster_.worker()), step](const Value& value) {
    const auto kept = RefTable::kept_result(value);
    if (!kept) return Future<Value>::ready(value);
    const InStep in(step.get());
    return table->fetch(*kept, {}).then([](Value copy) {
      visit_tensors(copy, [](Tensor& t) {
        if (t.defined() && t.requires_grad()) t = with_gradients_of_its_own(t);
      });
      return copy;
    });
  });
}

ValueList Session::arguments(const AnyRef& actor, const std::string& method, ValueList args, ValueMap named) {
  const std::vector<TypeReport>& all_types = types(actor.owner());
  const auto type = std::ranges::find(all_types, actor.type(), &TypeReport::name);
  if (type != all_types.end()) {
    const auto it = std::ranges::find(type->methods, method, &Entry::name);
    if (it == type->methods.end())
      find_entry(type->methods, method, "[call] " + actor.type() + " has no method");
    return arranged(*it, std::move(args), std::move(named));
  }
  if (!named.empty()) throw_invalid("[call] " + actor.str() + " takes arguments by position");
  return args;
}

Future<Value> Session::call(const AnyRef& actor, const std::string& method, ValueList args, ValueMap named,
                            const std::shared_ptr<Step>& step, Later later) {
  check();
  args = arguments(actor, method, std::move(args), std::move(named));
  const InStep in(step.get());
  if (later.empty()) return actor.call(method, std::move(args));
  if (auto replies = straight(worker(), actor, later); !replies.empty())
    return actor.call(method, std::move(args), {.late = std::move(replies)});
  // The call leaves on the thread that brings the argument.
  std::vector<Future<Value>> awaited;
  std::vector<size_t> places;
  for (auto& [place, future] : later) {
    places.push_back(place);
    awaited.push_back(std::move(future));
  }
  return all(awaited).then([actor, method, step, places, args](const ValueList& values) {
    ValueList whole = args;
    for (size_t i = 0; i < places.size(); ++i) whole[places[i]] = values[i];
    const InStep in(step.get());
    return actor.call(method, std::move(whole));
  });
}

uint64_t Session::keep(const Future<Value>& future, std::string what) {
  const internal::Lock lock(mutex_);
  if (kept_.size() >= prune_at_) {
    std::erase_if(kept_, [&](const Kept& k) TROUPE_REQUIRES(mutex_) {
      const auto* r = k.future.peek();
      if (r && !r->ok()) failures_.push_back({k.what + ": " + r->error().what(), r->error().kind()});
      return r != nullptr;
    });
    prune_at_ = std::max<size_t>(64, 2 * kept_.size());
  }
  kept_.push_back({future, std::move(what), ++last_number_});
  return last_number_;
}

std::vector<Session::Failure> Session::unseen_failures() {
  const internal::Lock lock(mutex_);
  std::erase_if(kept_, [&](const Kept& k) TROUPE_REQUIRES(mutex_) {
    const auto* r = k.future.peek();
    if (r && !r->ok()) failures_.push_back({r->error().what(), r->error().kind()});
    return r != nullptr;
  });
  return std::exchange(failures_, {});
}

void Session::seen(uint64_t number) {
  const internal::Lock lock(mutex_);
  for (size_t i = kept_.size(); i-- > 0 && kept_[i].number >= number;)  // most often the newest
    if (kept_[i].number == number) {
      kept_.erase(kept_.begin() + static_cast<ptrdiff_t>(i));
      return;
    }
}

}  // namespace troupe::script
