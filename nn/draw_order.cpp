#include "nn/draw_order.h"

#include <algorithm>
#include <map>

#include "core/base/error.h"

namespace troupe::nn {

struct DrawOrder::Draw {
  Module* module;
  bool covered;  // a module around it drew for it afterwards
};

uint64_t DrawOrder::versions(Module& module) {
  struct Sum final : Members {
    uint64_t all = 0;
    void operator()(const std::string&, Tensor& parameter) override {
      if (parameter.defined()) all += parameter.version();
    }
    void operator()(const std::string&, Module& child) override { child.members(*this); }
    void buffer(const std::string&, Tensor&) override {}
  } sum;
  module.members(sum);
  return sum.all;
}

void DrawOrder::keep(Module& module) {
  module.drawn_ = {};
  for (auto& [name, child] : module.children()) keep(*child);
}

// In the order of the draws: a module's constructor draws after those of its members.
void DrawOrder::gather(Module& module, bool covered, std::vector<Draw>& all) {
  const size_t from = all.size();
  const bool drew = module.drawn_.source != nullptr;
  for (auto& [name, child] : module.children()) gather(*child, covered || drew, all);
  if (drew) all.push_back({&module, covered});
  std::stable_sort(
      all.begin() + static_cast<std::ptrdiff_t>(from), all.end(),
      [](const Draw& a, const Draw& b) { return a.module->drawn_.first < b.module->drawn_.first; });
}

void DrawOrder::restore(std::initializer_list<Module*> layers, bool any_order) {
  std::map<std::pair<const void*, uint64_t>, std::vector<Draw>> by_source;
  for (Module* layer : layers) {
    if (!layer) continue;
    std::vector<Draw> all;
    gather(*layer, false, all);
    for (const Draw& draw : all) {
      const Drawn& from = draw.module->drawn_;
      by_source[{from.source, from.seed}].push_back(draw);
    }
  }
  for (auto& [source, draws] : by_source) {
    const auto later = [](const Draw& a, const Draw& b) {
      return a.module->drawn_.first > b.module->drawn_.first;
    };
    if (std::adjacent_find(draws.begin(), draws.end(), later) != draws.end()) again(draws, any_order);
  }
}

void DrawOrder::again(std::vector<Draw>& draws, bool any_order) {
  std::vector<Drawn> numbers;  // as they were drawn
  for (const Draw& draw : draws) numbers.push_back(draw.module->drawn_);
  std::sort(numbers.begin(), numbers.end(), [](const Drawn& a, const Drawn& b) { return a.first < b.first; });
  bool known = true;
  for (size_t i = 1; i < numbers.size(); ++i) known = known && numbers[i].first == numbers[i - 1].end;
  for (const Draw& draw : draws)
    known = known && (draw.covered || versions(*draw.module) == draw.module->drawn_.versions);
  if (!known && !any_order) return;
  if (!known)
    throw_invalid(
        "[nn] these layers were made in another order than that of the arguments, as this compiler may do, "
        "and the constructor of one of them drew numbers, or wrote parameters, in a way that cannot be done "
        "again: the model would depend on the compiler. Write nn::Sequential{...} with braces, whose "
        "arguments are made in order, or add() the layers one by one");
  Generator::Position at{numbers[0].seed, numbers[0].first};
  for (const Draw& draw : draws) {
    Drawn& from = draw.module->drawn_;
    Generator generator;
    from.first = at.counter;
    if (from.of_stream)
      generator = Generator(Generator::number(at)), ++at.counter;
    else
      generator.set_position(at);
    draw.module->reset(generator);
    if (!from.of_stream) at.counter = generator.position().counter;
    from.end = at.counter;
  }
  for (const Draw& draw : draws) draw.module->drawn_.versions = versions(*draw.module);
}

}  // namespace troupe::nn
