// The driving side of a distributed optimizer.
#include "autograd/distributed/optim/distributed_optimizer.h"

#include <algorithm>

#include "autograd/distributed/optim/optimizer_messages.h"
#include "optim/optim.h"

namespace troupe::optim {
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

}  // namespace

DistributedOptimizer::DistributedOptimizer(std::vector<AnyRef> actors, const std::string& name,
                                           const ValueMap& options)
    : actors_(std::move(actors)), options_(make(name, options, NoParameters())) {
  if (actors_.empty()) throw_invalid("[optim] a distributed optimizer needs at least one actor");
  for (size_t i = 0; i < actors_.size(); ++i) {
    const AnyRef& a = actors_[i];
    owners_.push_back({object_name(a.type(), a.id()) + " on " + a.owner_name(), a.owner_name()});
    for (size_t j = 0; j < i; ++j)
      if (a == actors_[j])
        throw_invalid("[optim] actors " + std::to_string(j) + " and " + std::to_string(i) + " are the same");
  }
  internal::actors::Worker& worker = actors_.front().worker();
  key_ = "optim:" + worker.name() + ":" + std::to_string(worker.next_number());
  for (const AnyRef& a : actors_) created_.push_back(kCreate.send(a, key_, name, options_->options_map(0)));
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
  std::vector<Future<Value>> asked = created_;  // where it could not be made, that is what is told
  for (size_t i = 0; i < actors_.size(); ++i) {
    try {
      asked.push_back(send(i));
    } catch (...) {
      asked.push_back(Future<Value>::failed(current_error()));
    }
  }
  return settled(std::move(asked)).then([n = actors_.size()](const std::vector<Result<Value>>& all) {
    std::vector<Result<Value>> answers;
    const bool idle =
        std::all_of(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(n), [](const auto& made) {
          const int64_t* count = made.ok() ? made.value().template get_if<int64_t>() : nullptr;
          return count && *count == 0;
        });
    if (idle)
      return std::vector<Result<Value>>(
          n, Result<Value>(Error(ErrorKind::invalid,
                                 "[optim] there is no parameter to train: no module of these "
                                 "actors has one")));
    for (size_t i = 0; i < n; ++i) answers.push_back(all[i].ok() ? all[n + i] : all[i]);
    return answers;
  });
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

Future<StepReport> DistributedOptimizer::try_step(const autograd::Context& context) {
  autograd::Context::Guard guard(context);
  return ask([this](size_t i) { return kStep.send(actors_[i], key_, options_->options_map(0)); })
      .then([owners = owners_](const auto& answers) { return report_of(owners, answers); });
}

Future<void> DistributedOptimizer::step_async(const autograd::Context& context) {
  return try_step(context).then([](const StepReport& report) {
    if (auto error = report.error("the step")) throw *error;
  });
}

double DistributedOptimizer::clip_grad_norm(const autograd::Context& context, double max_norm,
                                            const ClipOptions& options) {
  check_may_block("clip_grad_norm");
  autograd::Context::Guard guard(context);
  return optim::clip_grad_norm({gradients()}, max_norm, options).get();
}

ContextGradients DistributedOptimizer::gradients() {
  return {[this](bool largest) {
            return ask_all_async("the norm of the gradients",
                                 [&](size_t i) { return kSizes.send(actors_[i], key_, largest); })
                .then([](const ValueList& answers) {
                  std::vector<double> sizes;
                  for (const Value& v : answers)
                    for (const double size : kSizes.answer_in(v)) sizes.push_back(size);
                  return sizes;
                });
          },
          [this](double factor) {
            return ask_all_async("the scaling of gradients",
                                 [&](size_t i) { return kScale.send(actors_[i], key_, factor); })
                .then([](const ValueList&) {});
          }};
}

std::vector<std::map<std::string, Tensor>> DistributedOptimizer::state() {
  std::vector<std::map<std::string, Tensor>> states;
  for (Value& v :
       ask_all("the state", [&](size_t i) { return kState.send(actors_[i], key_, options_map(0)); }))
    states.push_back(kState.answer_in(std::move(v)));
  return states;
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
    return kSave.send(actors_[i], key_, options_map(0), folder, file_name(i, actors_.size()));
  });
}

void DistributedOptimizer::load(const std::string& folder) {
  take_options(ask_all("loading the state", [&](size_t i) {
    return kLoad.send(actors_[i], key_, folder, file_name(i, actors_.size()));
  }));
}

// Of all actors, so the same; unless the states were put together by hand.
void DistributedOptimizer::take_options(ValueList of_owners) {
  const auto options = [](Value& v) { return kLoad.answer_in(std::move(v)); };
  const ValueMap first = options(of_owners.front());
  for (size_t i = 1; i < of_owners.size(); ++i)
    for (const auto& [name, value] : options(of_owners[i]))
      if (const auto at = first.find(name); at == first.end() || !same(at->second, value))
        throw_invalid("[optim] the states of actors 0 and " + std::to_string(i) + " differ in the option " +
                      name + ": they are not of one optimizer");
  options_->change_options(0, first);
}

}  // namespace troupe::optim
