#include "nn/summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>

#include "core/base/readable_bytes.h"
#include "core/graph/node.h"
#include "core/tensor/creation.h"

namespace troupe::nn {
namespace {

// 1234567 as "1,234,567".
std::string grouped(int64_t n) {
  std::string text = std::to_string(n);
  for (int64_t at = static_cast<int64_t>(text.size()) - 3; at > 0; at -= 3)
    text.insert(static_cast<size_t>(at), ",");
  return text;
}

using Shapes = std::map<const Module*, Shape>;

struct SummaryTable {
  const Shapes* shapes = nullptr;
  std::vector<std::array<std::string, 5>> rows{{"layer", "what", "result", "parameters", "bytes"}};
  std::set<const TensorImpl*> counted;
  int64_t parameters = 0, trained = 0, buffers = 0, bytes = 0;

  void add(Module& module, const std::string& name, size_t depth) {
    for (auto& [child, m] : module.children())
      if (child.empty()) return add(*m, name, depth);  // it is what the module is
    int64_t own = 0, own_bytes = 0;
    const auto count = [&](const Tensor& t, int64_t& elements) {
      if (!counted.insert(t.impl()).second) return false;
      elements += t.numel();
      own_bytes += static_cast<int64_t>(t.nbytes());
      return true;
    };
    const auto inside = [](const std::string& n) { return n.find('.') != std::string::npos; };
    for (const auto& [n, t] : module.named_parameters())
      if (!inside(n) && count(t, own) && t.requires_grad()) trained += t.numel();
    for (const auto& [n, t] : module.named_buffers())
      if (!inside(n)) count(t, buffers);
    parameters += own, bytes += own_bytes;
    std::string shape = "-";
    if (shapes)
      if (const auto it = shapes->find(&module); it != shapes->end()) shape = it->second.str();
    rows.push_back({std::string(2 * depth, ' ') + name, module.str(), shape, own ? grouped(own) : "-",
                    own_bytes ? grouped(own_bytes) : "-"});
    for (auto& [child, m] : module.children()) add(*m, child, depth + 1);
  }

  std::string str() const {
    std::array<size_t, 5> width{};
    for (const auto& row : rows)
      for (size_t c = 0; c < row.size(); ++c) width[c] = std::max(width[c], row[c].size());
    std::string out;
    for (size_t r = 0; r < rows.size(); ++r) {
      std::string line;
      for (size_t c = 0; c < rows[r].size(); ++c) {
        if (c == 2 && !shapes) continue;
        const std::string pad(width[c] - rows[r][c].size(), ' ');
        line += (c < 3 ? rows[r][c] + pad : pad + rows[r][c]) + (c < 4 ? "  " : "\n");
      }
      out += line;
      if (r == 0) out += std::string(line.size() - 1, '-') + "\n";
    }
    return out + fmt::format("{} parameters ({} trained), {} elements of buffers, {}\n", grouped(parameters),
                             grouped(trained), grouped(buffers), readable_bytes(bytes));
  }
};

void collect_modes(Module& module, std::vector<std::pair<Module*, bool>>& modes) {
  modes.emplace_back(&module, module.training());
  for (auto& [name, child] : module.children()) collect_modes(*child, modes);
}

// eval() and an observer, for a while.
class Watch {
 public:
  Watch(Module& module, const Module::Observer& observer) : module_(module) {
    collect_modes(module, modes_);
    module.eval();
    module.observe(&observer);
  }
  ~Watch() {
    module_.observe(nullptr);
    for (const auto& [m, training] : modes_) m->train(training);  // outer ones first
  }
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

 private:
  Module& module_;
  std::vector<std::pair<Module*, bool>> modes_;
};

std::string table(Module& module, const Shapes* shapes) {
  SummaryTable out{.shapes = shapes};
  out.add(module, "model", 0);
  return out.str();
}

}  // namespace

std::string summary(Module& module) { return table(module, nullptr); }

std::string summary(Layer& layer, const Tensor& example) {
  Shapes shapes;
  {
    const Module::Observer note = [&](Module& m, const Tensor& result) { shapes[&m] = result.shape(); };
    const Watch watch(layer, note);
    const NoGradGuard no_grad;
    layer(example);
  }
  return table(layer, &shapes);
}

std::string summary(Layer& layer, const Shape& input) { return summary(layer, zeros(input)); }

}  // namespace troupe::nn
