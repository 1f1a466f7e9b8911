#include "autograd/dist/optimizer.h"

#include "core/copy_on_write.h"
#include "optim/optim.h"

namespace troupe::optim {
namespace {

constexpr const char* kCreate = "optim.create";  // key, optimizer name, options
constexpr const char* kStep = "optim.step";      // key, learning rate; gradients of the call's context
constexpr const char* kDrop = "optim.drop";      // key

constexpr const char* kCopyOnWrite = "optim.copy_on_write";  // attached to an actor: its parameters are

// Beside the actor, so that nothing else touches its parameters meanwhile.
Optimizer& attached(actors::Invocation& call, const std::string& key) {
  auto& attachments = call.cell()->attachments();
  auto at = attachments.find(key);
  if (at == attachments.end())
    throw_invalid("[optim] actor " + call.cell()->label() + " has no such optimizer");
  return *std::any_cast<std::shared_ptr<Optimizer>&>(at->second);
}

void create(Actor& actor, actors::Invocation& call) {
  auto [key, name, options] =
      actors::ListCodec<std::string, std::string, ValueMap>::from(std::move(call.call().args), kCreate);
  call.cell()->attachments()[key] = std::shared_ptr<Optimizer>(make(name, options, actor.parameters()));
  call.complete(Value());
}

void step(Actor&, actors::Invocation& call) {
  auto [key, lr] = actors::ListCodec<std::string, double>::from(std::move(call.call().args), kStep);
  Optimizer& optimizer = attached(call, key);
  Tensors grads;
  for (const Tensor& p : optimizer.params()) grads.push_back(autograd::context_gradient(p));
  optimizer.set_lr(lr);
  if (call.cell()->attachments().contains(kCopyOnWrite))
    for (size_t i = 0; i < grads.size(); ++i)
      if (grads[i].defined()) replace_if_held(optimizer.params()[i]);
  optimizer.step(grads);
  call.complete(Value());
}

void drop(Actor&, actors::Invocation& call) {
  auto [key] = actors::ListCodec<std::string>::from(std::move(call.call().args), kDrop);
  call.cell()->attachments().erase(key);
  call.complete(Value());
}

}  // namespace

void set_copy_on_write() {
  const auto cell = actors::current_cell();
  if (!cell) throw_invalid("[optim] set_copy_on_write() is for the constructor and the methods of an actor");
  cell->attachments()[kCopyOnWrite] = true;
}

void install_distributed(actors::Worker& worker) {
  worker.add_actor_method(kCreate, create);
  worker.add_actor_method(kStep, step);
  worker.add_actor_method(kDrop, drop);
}

DistributedOptimizer::DistributedOptimizer(std::vector<AnyRef> actors, const std::string& name,
                                           const ValueMap& options)
    : actors_(std::move(actors)), lr_(actors::from_value<double>(options.at("lr"))) {
  if (actors_.empty()) throw_invalid("[optim] a distributed optimizer needs at least one actor");
  actors::Worker& worker = actors_.front().worker();
  key_ = "optim:" + worker.name() + ":" + std::to_string(worker.next_number());
  for (const AnyRef& a : actors_)
    created_.push_back(a.call(kCreate, {Value(key_), Value(name), Value(options)}));
}

DistributedOptimizer::~DistributedOptimizer() {
  for (const AnyRef& a : actors_) {
    try {
      (void)a.call(kDrop, {Value(key_)}, {.one_way = true});
    } catch (const Error&) {  // the actor, or the cluster, is gone
    }
  }
}

Future<void> DistributedOptimizer::step_async(const autograd::Context& context) {
  autograd::Context::Guard guard(context);
  std::vector<Future<Value>> steps = std::exchange(created_, {});
  for (const AnyRef& a : actors_) {
    try {
      steps.push_back(a.call(kStep, {Value(key_), Value(lr_)}));
    } catch (const Error& e) {
      steps.push_back(Future<Value>::failed(e));
    }
  }
  return all(steps).then([](const std::vector<Value>&) {});
}

void DistributedOptimizer::set_lr(double lr) {
  if (!(lr >= 0) || lr > 1e300)
    throw_invalid("[optim] learning rate must be finite and not negative, got " + std::to_string(lr));
  lr_ = lr;
}

}  // namespace troupe::optim
