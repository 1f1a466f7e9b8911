// A few recorded functions on float64 tensors, so that the engine is tested by itself.
#pragma once
#include <functional>
#include <string>

#include "core/base/error.h"
#include "core/graph/node.h"
#include "core/tensor/creation.h"
#include "tests/support/error_of.h"

namespace troupe::testing {

/// What happened to the nodes of a test, in order.
struct Journal {
  std::vector<std::string> ran, released;
};

/// A node with a function for its gradient.
class Step final : public Node {
 public:
  using Rule = std::function<Tensors(const Tensors&)>;
  Step(std::string name, Rule rule, Journal* journal, uint32_t results = 1)
      : name_(std::move(name)), rule_(std::move(rule)), journal_(journal) {
    num_inputs_ = results;
  }
  Tensors apply(Tensors&& grads) override {
    if (!rule_)
      throw_invalid("[backward] " + name_ + " runs a second time, but its saved values are released");
    if (journal_) journal_->ran.push_back(name_);
    return rule_(grads);
  }
  void release_saved() override {
    if (journal_) journal_->released.push_back(name_);
    rule_ = nullptr;
  }
  std::string name() const override { return name_; }

 private:
  std::string name_;
  Rule rule_;
  Journal* journal_;
};

/// elementwise(f) of one or two tensors of one shape, contiguous.
inline Tensor zip(const Tensor& a, const Tensor& b, const std::function<double(double, double)>& f) {
  Tensor out = empty(a.shape(), float64);
  const auto x = a.to_vector<double>(), y = b.to_vector<double>();
  for (size_t i = 0; i < x.size(); ++i) out.data<double>()[i] = f(x[i], y[i]);
  return out;
}

/// Attaches a Step to `out` if grad mode is on and an input needs a gradient.
inline Tensor record(Tensor out, const Tensors& inputs, Step::Rule rule, const std::string& name,
                     Journal* journal) {
  bool needed = false;
  Edges next;
  for (const Tensor& t : inputs) next.push_back(t.gradient_edge()), needed |= t.requires_grad();
  if (!needed || !grad_enabled()) return out;
  auto node = make_ref<Step>(name, std::move(rule), journal);
  node->set_next(std::move(next));
  out.set_grad_fn({std::move(node), 0});
  return out;
}

inline Tensor mul(const Tensor& a, const Tensor& b, Journal* journal = nullptr,
                  const std::string& name = "mul") {
  return record(
      zip(a, b, std::multiplies<>()), {a, b},
      [a, b](const Tensors& g) {
        return Tensors{mul(g[0], b), mul(g[0], a)};
      },
      name, journal);
}

/// Both inputs get the very same gradient tensor.
inline Tensor add(const Tensor& a, const Tensor& b, Journal* journal = nullptr,
                  const std::string& name = "add") {
  return record(
      zip(a, b, std::plus<>()), {a, b},
      [](const Tensors& g) {
        return Tensors{g[0], g[0]};
      },
      name, journal);
}

inline Tensor leaf(const std::vector<double>& values) {
  Tensor t = tensor(values, float64);
  t.requires_grad_();
  return t;
}

}  // namespace troupe::testing
