#include "script/optimizers.h"

#include "core/base/error.h"
#include "data/formats/safetensors.h"
#include "optim/clip.h"
#include "optim/optim.h"

namespace troupe::script {
namespace {

using OptionGroups = std::vector<optim::DistributedOptimizer::Group>;

// Takes groups = {{params = "*.bias", weight_decay = 0}, ...} out of the options.
OptionGroups take_groups(ValueMap& options) {
  OptionGroups out;
  const auto taken = options.extract("groups");
  if (taken.empty()) return out;
  const auto* list = taken.mapped().get_if<ValueList>();
  if (!list) throw_invalid("[optim] groups is a list of tables, got " + taken.mapped().describe());
  for (const Value& v : *list) {
    const auto* group = v.get_if<ValueMap>();
    const auto params = group ? group->find("params") : ValueMap::const_iterator();
    if (!group || params == group->end())
      throw_invalid("[optim] a group is {params = {\"*.bias\", ...}, option = ...}, got " + v.describe());
    ValueMap own = *group;
    own.erase("params");
    const auto* one = params->second.get_if<std::string>();
    out.push_back(
        {one ? std::vector<std::string>{*one} : Codec<std::vector<std::string>>::from(params->second),
         std::move(own)});
  }
  return out;
}

// The actors, or tensors, that a list has.
void sort_out(const std::string& name, Value what, std::vector<AnyRef>& actors, Tensors& tensors) {
  if (!what.get_if<ValueList>()) what = ValueList{std::move(what)};
  for (Value& v : *what.get_if<ValueList>()) {
    if (v.get_if<RefValue>())
      actors.push_back(Codec<AnyRef>::from(std::move(v)));
    else if (v.get_if<Tensor>())
      tensors.push_back(*v.get_if<Tensor>());
    else
      throw_invalid("optim." + name + " takes actors, or tensors, or a module; got " + v.describe());
  }
  if (actors.empty() && tensors.empty())
    throw_invalid("optim." + name + "({a, b}, options) takes actors, or tensors, or a module; got none");
  if (!actors.empty() && !tensors.empty())
    throw_invalid("optim." + name + ": an optimizer is of actors or of tensors, not of both");
}

}  // namespace

NamedOptimizer NamedOptimizer::make(const std::string& name, Value what, ValueMap options) {
  NamedOptimizer out;
  out.name_ = name;
  std::vector<AnyRef> actors;
  Tensors tensors;
  sort_out(name, std::move(what), actors, tensors);
  OptionGroups groups = take_groups(options);
  if (!groups.empty() && actors.empty())
    throw_invalid("optim." + name +
                  ": groups choose parameters of actors by their names; of tensors here make an optimizer of "
                  "each part");
  if (actors.empty())
    out.local_ = optim::make(name, options, std::move(tensors));
  else
    out.distributed_ =
        std::make_shared<optim::DistributedOptimizer>(std::move(actors), name, options, std::move(groups));
  return out;
}

NamedOptimizer NamedOptimizer::make(const std::string& name, std::vector<optim::OptionGroup> groups) {
  NamedOptimizer out;
  out.name_ = name;
  out.local_ = optim::make(name, std::move(groups));
  return out;
}

void NamedOptimizer::step(Session& session, const Step* step, const std::string& call) {
  if (!distributed_) return local_->step();
  if (!step) throw_invalid("the optimizer of actors steps with the gradients of a context: " + call);
  session.get(distributed_->step_async(step->context()));
}

void NamedOptimizer::zero_grad() {
  if (local_) local_->zero_grad();
}

void NamedOptimizer::save(const std::string& path) {
  if (local_)
    datasets::write_safetensors(path, local_->state());
  else
    distributed_->save(path);
}

void NamedOptimizer::load(const std::string& path) {
  if (local_)
    local_->load_state(datasets::read_safetensors(path));
  else
    distributed_->load(path);
}

std::string NamedOptimizer::str() const { return name_ + " " + text_of(Value(tunable().options_map(0))); }

void step_all(const std::vector<const NamedOptimizer*>& optimizers, const Step* step,
              const std::string& call) {
  std::vector<optim::StepPart> parts;
  for (const NamedOptimizer* o : optimizers) {
    if (!o->distributed())
      throw_invalid("step_all: an optimizer of tensors here steps by itself, as it cannot be lost; got " +
                    o->name());
    parts.push_back(o->distributed()->part());
  }
  if (parts.empty()) throw_invalid("step_all takes a list of optimizers; got none");
  if (!step) throw_invalid("the optimizers of actors step with the gradients of a context: " + call);
  optim::step_all(step->context(), std::move(parts));
}

double clip_grad_norm(const std::vector<const NamedOptimizer*>& optimizers, double most, const Step* step,
                      const std::string& call) {
  std::vector<optim::ContextGradients> of_actors;
  Tensors here;
  for (const NamedOptimizer* o : optimizers)
    if (o->distributed()) {
      of_actors.push_back(o->distributed()->gradients());
    } else {
      const Tensors& params = o->local()->params();
      here.insert(here.end(), params.begin(), params.end());
    }
  if (of_actors.empty() == here.empty())
    throw_invalid(here.empty()
                      ? "optim.clip_grad_norm({a, b}, most) takes a list of optimizers; got none"
                      : "optim.clip_grad_norm: the optimizers are of actors, whose gradients are in a "
                        "context, or of tensors here, not of both");
  if (of_actors.empty()) return optim::clip_grad_norm_(here, most);
  if (!step) throw_invalid(call + " of actors needs the context that has the gradients");
  return optim::clip_grad_norm(step->context(), std::move(of_actors), most);
}

}  // namespace troupe::script
