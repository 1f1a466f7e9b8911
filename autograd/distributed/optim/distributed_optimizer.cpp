// The driving side of a distributed optimizer.
#include "autograd/distributed/optim/distributed_optimizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "autograd/distributed/optim/optimizer_messages.h"
#include "core/base/shown.h"

namespace troupe::optim {

template class Distributed<SGD>;
template class Distributed<Adam>;
template class Distributed<AdamW>;
template class Distributed<Adamax>;
template class Distributed<LAMB>;
template class Distributed<Adafactor>;
template class Distributed<Muon>;
template class Distributed<NAdam>;
template class Distributed<RAdam>;
template class Distributed<Lion>;
template class Distributed<RMSprop>;
template class Distributed<Adagrad>;
template class Distributed<Adadelta>;
template class Distributed<Rprop>;

namespace {

std::string file_name(size_t index, size_t count) {
  return "optimizer-" + std::to_string(index) + "-of-" + std::to_string(count) + ".safetensors";
}

// The results of all, once all have ended.
Future<std::vector<Result<Value>>> settled(std::vector<Future<Value>> futures) {
  Promise<std::vector<Result<Value>>> promise;
  all(futures).on_ready([promise, futures](const Result<std::vector<Value>>&) {
    std::vector<Result<Value>> results;
    for (const auto& f : futures) results.push_back(*f.peek());
    promise.set(std::move(results));
  });
  return promise.future();
}

// `owners`: names alone.
StepReport report_of(std::vector<OwnerReport> owners, const std::vector<Result<Value>>& answers) {
  for (size_t i = 0; i < answers.size(); ++i) {
    if (!answers[i].ok())
      owners[i].error = answers[i].error();
    else if (const int64_t* updated = answers[i].value().get_if<int64_t>())
      owners[i].updated = *updated;
  }
  return {std::move(owners)};
}

// Options are numbers and flags.
bool same(const Value& a, const Value& b) {
  if (const double* x = a.get_if<double>()) return b.get_if<double>() && *b.get_if<double>() == *x;
  const bool *x = a.get_if<bool>(), *y = b.get_if<bool>();
  return x && y && *x == *y;
}

using Groups = std::vector<DistributedOptimizer::Group>;

std::unique_ptr<Optimizer> holder_of(const std::string& name, const ValueMap& options, const Groups& groups) {
  std::vector<OptionGroup> all{{options}};
  for (const auto& g : groups) {
    all.push_back({options});
    for (const auto& [option, value] : g.options) all.back().options[option] = value;
  }
  return make(name, std::move(all));
}

// For each actor. A function chooses names of that actor alone.
std::vector<std::vector<NamedGroup>> named_groups(const std::vector<AnyRef>& actors, const Groups& groups,
                                                  const std::vector<ValueMap>& options) {
  std::vector<NamedGroup> same{{{}, options[0]}};
  bool functions = false;
  for (size_t g = 0; g < groups.size(); ++g) {
    same.push_back({groups[g].params.names(), options[g + 1]});
    functions |= bool(groups[g].params.chosen());
  }
  std::vector<std::vector<NamedGroup>> all(actors.size(), same);
  if (!functions) return all;
  check_may_block("a group of parameters that a function chooses");
  std::vector<Future<NamedShapes>> asked;
  for (const AnyRef& a : actors) asked.push_back(kParameters.ask(a));
  const std::vector<NamedShapes> parameters = troupe::all(asked).get();
  for (size_t i = 0; i < actors.size(); ++i)
    for (size_t g = 0; g < groups.size(); ++g)
      if (const auto& chosen = groups[g].params.chosen())
        for (const auto& [name, shape] : parameters[i])
          if (chosen(name, shape)) all[i][g + 1].names.push_back(name);
  return all;
}

OwnerReport owner_of(const AnyRef& actor) {
  return {object_name(actor.type(), actor.id()) + " on " + actor.owner_name(), actor.owner_name()};
}

bool is_among(const AnyRef& actor, const std::vector<AnyRef>& all) {
  return std::ranges::find(all, actor) != all.end();
}

}  // namespace

// Whether its parts were created, or why not.
struct DistributedOptimizer::Made {
  std::vector<std::optional<Error>> errors;  // of each actor
  std::vector<GroupNames> names;             // the same; empty with an error

  Made(const std::vector<Result<Value>>& answers, const Groups& groups)
      : errors(answers.size()), names(answers.size()) {
    bool whole = true;
    for (size_t i = 0; i < answers.size(); ++i) {
      try {
        if (!answers[i].ok()) throw answers[i].error();
        names[i] = kCreate.answer_in(answers[i].value());
        if (names[i].size() != groups.size() + 1)
          throw_invalid(fmt::format("[optim] its parameters are in {} groups, expected {}", names[i].size(),
                                    groups.size() + 1));
      } catch (const Error& e) {
        errors[i] = e, names[i] = {}, whole = false;
      }
    }
    // Who failed might have had what is missing.
    if (const std::string why = whole ? missing(groups) : ""; !why.empty())
      errors.assign(errors.size(), Error(ErrorKind::invalid, "[optim] " + why));
  }

 private:
  // Why it could train nothing, or not what was meant.
  std::string missing(const Groups& groups) const {
    std::set<std::string> all;
    std::vector<bool> found(groups.size() + 1);
    for (const GroupNames& of_actor : names)
      for (size_t g = 0; g < of_actor.size(); ++g) {
        if (!of_actor[g].empty()) found[g] = true;
        all.insert(of_actor[g].begin(), of_actor[g].end());
      }
    if (all.empty()) return "there is no parameter to train: no module of these actors has one";
    for (size_t g = 0; g < groups.size(); ++g)
      if (!found[g + 1])
        return fmt::format("group {} ({}) is for no parameter that no group before it has; there are: {}",
                           g + 1, groups[g].params.str(), shown(fmt::format("{}", fmt::join(all, ", "))));
    return "";
  }
};

DistributedOptimizer::DistributedOptimizer(std::vector<AnyRef> actors, const std::string& name,
                                           const ValueMap& options, std::vector<Group> groups)
    : actors_(std::move(actors)),
      name_(name),
      groups_(std::move(groups)),
      options_(holder_of(name, options, groups_)) {
  if (actors_.empty()) throw_invalid("[optim] a distributed optimizer needs at least one actor");
  for (size_t i = 0; i < actors_.size(); ++i) {
    const AnyRef& a = actors_[i];
    owners_.push_back(owner_of(a));
    for (size_t j = 0; j < i; ++j)
      if (a == actors_[j])
        throw_invalid("[optim] actors " + std::to_string(j) + " and " + std::to_string(i) + " are the same");
  }
  internal::actors::Worker& worker = actors_.front().worker();
  key_ = "optim:" + worker.name() + ":" + std::to_string(worker.next_number());
  auto named = named_groups(actors_, groups_, all_options());
  std::vector<Future<Value>> created;
  for (size_t i = 0; i < actors_.size(); ++i)
    created.push_back(kCreate.send(actors_[i], key_, name, std::move(named[i])));
  made_ = settled(std::move(created)).then([groups = groups_](const std::vector<Result<Value>>& answers) {
    return std::shared_ptr<const Made>(std::make_shared<Made>(answers, groups));
  });
}

size_t DistributedOptimizer::group_count() const { return options_->group_count(); }
ValueMap DistributedOptimizer::options_map(size_t group) const { return options_->options_map(group); }
void DistributedOptimizer::change_options(size_t group, const ValueMap& changed) {
  options_->change_options(group, changed);
}

DistributedOptimizer::~DistributedOptimizer() {
  for (const AnyRef& a : actors_) {
    try {
      kDrop.tell(a, key_);
    } catch (const Error&) {  // the actor, or the cluster, is gone
    }
  }
}

Future<std::vector<Result<Value>>> DistributedOptimizer::ask(const Send& send) {
  std::vector<Future<Value>> asked;
  for (size_t i = 0; i < actors_.size(); ++i) {
    try {
      asked.push_back(send(i));
    } catch (...) {
      asked.push_back(Future<Value>::failed(current_error()));
    }
  }
  return settled(std::move(asked)).then([made = made_](const std::vector<Result<Value>>& answers) {
    return made.then([answers](const std::shared_ptr<const Made>& m) {
      std::vector<Result<Value>> out = answers;  // where it could not be made, that is what is told
      for (size_t i = 0; i < out.size(); ++i)
        if (m->errors[i]) out[i] = *m->errors[i];
      return out;
    });
  });
}

std::vector<ValueMap> DistributedOptimizer::all_options() const {
  std::vector<ValueMap> all;
  for (size_t g = 0; g < group_count(); ++g) all.push_back(options_map(g));
  return all;
}

std::vector<std::vector<std::string>> DistributedOptimizer::parameters_by_group() {
  check_may_block("the parameters of groups");
  const std::shared_ptr<const Made> made = made_.get();
  std::vector<std::vector<std::string>> all(group_count());
  StepReport report{owners_};
  for (size_t i = 0; i < actors_.size(); ++i) {
    report.owners[i].error = made->errors[i];
    for (size_t g = 0; g < made->names[i].size(); ++g)
      for (const std::string& name : made->names[i][g]) all[g].push_back(name + " of " + owners_[i].actor);
  }
  if (auto error = report.error("the making of the optimizer")) throw *error;
  return all;
}

Future<ValueList> DistributedOptimizer::ask_all_async(const char* what, const Send& send) {
  return ask(send).then([owners = owners_, what](const std::vector<Result<Value>>& answers) {
    if (auto error = report_of(owners, answers).error(what)) throw *error;
    ValueList values;
    for (const auto& answer : answers) values.push_back(answer.value());
    return values;
  });
}

ValueList DistributedOptimizer::ask_all(const char* what, const Send& send) {
  check_may_block(what);
  return ask_all_async(what, send).get();
}

Future<StepReport> DistributedOptimizer::step_by(const autograd::Context& context, double factor) {
  const std::shared_ptr<StepWatch> watch = watch_;
  if (watch) watch->before_step(actors_);
  autograd::Context::Guard guard(context);
  return make_step(factor).then([watch](StepReport report) {
    if (watch) watch->after_step(report);
    return report;
  });
}

Future<StepReport> DistributedOptimizer::make_step(double factor) {
  return ask([&](size_t i) { return kStep.send(actors_[i], key_, all_options(), factor); })
      .then([owners = owners_](const auto& answers) { return report_of(owners, answers); });
}

StepPart DistributedOptimizer::part() {
  return {.ready =
              [this](bool sizes) {
                return ask_all_async(
                           "the step",
                           [&](size_t i) { return kReady.send(actors_[i], key_, all_options(), sizes); })
                    .then([](const ValueList& answers) {
                      std::vector<double> all;
                      for (const Value& answer : answers)
                        for (const double size : kReady.answer_in(answer)) all.push_back(size);
                      return all;
                    });
              },
          .make = [this](double factor) { return make_step(factor); },
          .actors = actors_,
          .optimizer = this,
          .watch = watch_};
}

Future<StepReport> DistributedOptimizer::try_step(const autograd::Context& context) {
  return step_by(context, 1);
}

namespace {

void throw_failed(const StepReport& report) {
  if (auto error = report.error("the step")) throw *error;
}

}  // namespace

Future<void> DistributedOptimizer::step_async(const autograd::Context& context) {
  return try_step(context).then(throw_failed);
}

Future<bool> DistributedOptimizer::step_async(const autograd::Context& context, LossScaler& scaler) {
  const auto go_on = [this, &context](bool finite, double factor) {
    if (!finite) return Future<bool>::ready(false);
    return step_by(context, factor).then([](const StepReport& report) {
      throw_failed(report);
      return true;
    });
  };
  if (const auto finite = scaler.unscaled(this)) return go_on(*finite, 1);
  autograd::Context::Guard guard(context);
  return gradients().sizes(true).then([this, go_on, &scaler](const std::vector<double>& sizes) {
    const bool finite = std::ranges::all_of(sizes, [](double size) { return std::isfinite(size); });
    scaler.note_unscaled(this, finite);
    return go_on(finite, 1 / scaler.scale());
  });
}

double DistributedOptimizer::clip_grad_norm(const autograd::Context& context, double max_norm,
                                            const ClipOptions& options) {
  return optim::clip_grad_norm(context, {*this}, max_norm, options);
}

ContextGradients DistributedOptimizer::gradients() {
  std::vector<std::string> actors;
  for (const OwnerReport& o : owners_) actors.push_back(o.actor);
  return {[this](bool largest) {
            return ask_all_async("the norm of the gradients",
                                 [&](size_t i) { return kSizes.send(actors_[i], key_, largest); })
                .then([owners = owners_](const ValueList& answers) {
                  std::vector<double> sizes;
                  std::vector<std::pair<std::string, std::vector<CopySizes>>> copies;
                  for (size_t i = 0; i < answers.size(); ++i) {
                    SizesHere here = kSizes.answer_in(answers[i]);
                    sizes.insert(sizes.end(), here.counted.begin(), here.counted.end());
                    copies.emplace_back(owners[i].actor, std::move(here.copies));
                  }
                  check_copies(copies);
                  return sizes;
                });
          },
          [this](double factor, bool wide) {
            return ask_all_async("the scaling of gradients",
                                 [&](size_t i) { return kScale.send(actors_[i], key_, factor, wide); })
                .then([](const ValueList&) {});
          },
          std::move(actors), this};
}

std::vector<std::map<std::string, Tensor>> DistributedOptimizer::state() {
  std::vector<std::map<std::string, Tensor>> states;
  for (Value& v :
       ask_all("the state", [&](size_t i) { return kState.send(actors_[i], key_, all_options()); }))
    states.push_back(kState.answer_in(std::move(v)));
  return states;
}

std::map<std::string, Tensor> DistributedOptimizer::state_of(size_t actor) {
  if (actor >= actors_.size())
    throw_invalid(fmt::format("[optim] state_of({}) of an optimizer of {} actors", actor, actors_.size()));
  check_may_block("the state");
  return kState.ask(actors_[actor], key_, all_options()).get();
}

void DistributedOptimizer::load_state(const std::vector<std::map<std::string, Tensor>>& states) {
  if (states.size() != actors_.size())
    throw_invalid("[optim] " + std::to_string(states.size()) + " states for " +
                  std::to_string(actors_.size()) + " actors");
  take_options(
      ask_all("loading the state", [&](size_t i) { return kLoadState.send(actors_[i], key_, states[i]); }));
}

void DistributedOptimizer::save(const std::string& folder) {
  ask_all("saving the state", [&](size_t i) {
    return kSave.send(actors_[i], key_, all_options(), folder, file_name(i, actors_.size()));
  });
}

void DistributedOptimizer::load(const std::string& folder) {
  take_options(ask_all("loading the state", [&](size_t i) {
    return kLoad.send(actors_[i], key_, folder, file_name(i, actors_.size()));
  }));
}

// Of all actors, so the same; unless the states were put together by hand.
void DistributedOptimizer::take_options(ValueList of_owners) {
  std::vector<GroupOptions> all;
  for (Value& v : of_owners) {
    all.push_back(kLoad.answer_in(std::move(v)));
    if (all.back().size() != group_count())
      throw_invalid(fmt::format("[optim] the state of actor {} has the options of {} groups, expected {}",
                                all.size() - 1, all.back().size(), group_count()));
  }
  for (size_t i = 1; i < all.size(); ++i)
    for (size_t g = 0; g < group_count(); ++g)
      for (const auto& [name, value] : all[i][g])
        if (const auto at = all[0][g].find(name); at == all[0][g].end() || !same(at->second, value))
          throw_invalid("[optim] the states of actors 0 and " + std::to_string(i) + " differ in the option " +
                        name + (g > 0 ? " of group " + std::to_string(g) : "") +
                        ": they are not of one optimizer");
  for (size_t g = 0; g < group_count(); ++g) options_->change_options(g, all[0][g]);
}

// ---- actors that come and go

std::vector<DistributedOptimizer*> DistributedOptimizer::all_of(const std::vector<AnyRef>& actors) {
  std::vector<DistributedOptimizer*> all;
  for (DistributedOptimizer* o : all_listed()) {
    // In another cluster of this process other actors have the same numbers.
    if (&o->actors_.front().handle()->table() != &actors.front().handle()->table()) continue;
    const auto has = std::ranges::count_if(actors, [&](const AnyRef& a) { return is_among(a, o->actors_); });
    if (has > 0 && has < std::ssize(actors))
      throw_invalid(fmt::format(
          "[optim] an optimizer ({}) has {} of {} replicas: others cannot take their place unless it has all",
          o->name_, has, actors.size()));
    if (has) all.push_back(o);
  }
  return all;
}

std::vector<GroupNames> DistributedOptimizer::create_at(const std::vector<AnyRef>& newcomers) {
  check_may_block("an optimizer's parts at actors that are new");
  auto named = named_groups(newcomers, groups_, all_options());
  std::vector<Future<GroupNames>> created;
  for (size_t i = 0; i < newcomers.size(); ++i)
    created.push_back(kCreate.ask(newcomers[i], key_, name_, std::move(named[i])));
  return all(created).get();
}

void DistributedOptimizer::follow(const std::vector<AnyRef>& before, const std::vector<AnyRef>& now,
                                  const std::vector<GroupNames>& names_of_newcomers) {
  const std::shared_ptr<const Made> was = made_.get();
  auto made = std::make_shared<Made>(*was);
  made->errors.clear(), made->names.clear();
  std::vector<AnyRef> actors;
  const auto take = [&](const AnyRef& a, std::optional<Error> error, const GroupNames& names) {
    actors.push_back(a);
    made->errors.push_back(std::move(error));
    made->names.push_back(names);
  };
  const auto place_of = [&](const AnyRef& a) {
    return static_cast<size_t>(std::ranges::find(actors_, a) - actors_.begin());
  };
  const auto take_all = [&] {
    auto names = names_of_newcomers.begin();
    for (const AnyRef& a : now)
      if (const size_t i = place_of(a); i < actors_.size())
        take(a, was->errors[i], was->names[i]);
      else
        take(a, std::nullopt, *names++);
  };
  bool taken = false;
  for (size_t i = 0; i < actors_.size(); ++i) {
    if (!is_among(actors_[i], before))
      take(actors_[i], was->errors[i], was->names[i]);
    else if (!std::exchange(taken, true))
      take_all();
  }
  for (const AnyRef& a : before) {
    if (is_among(a, now)) continue;
    try {
      kDrop.tell(a, key_);
    } catch (const Error&) {  // it is gone
    }
  }
  actors_ = std::move(actors);
  owners_.clear();
  for (const AnyRef& a : actors_) owners_.push_back(owner_of(a));
  made_ = Future<std::shared_ptr<const Made>>::ready(std::shared_ptr<const Made>(std::move(made)));
}

}  // namespace troupe::optim
