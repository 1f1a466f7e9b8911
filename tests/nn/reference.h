// Layers beside PyTorch's: the same parameters and inputs, and the results of PyTorch 1.13 in float64.
#pragma once
#include <catch2/catch.hpp>
#include <cmath>
#include <functional>

#include "autograd/autograd.h"
#include "core/tensor/creation.h"
#include "nn/nn.h"
#include "tests/support/near.h"

namespace troupe::testing {

/// Element i is cos(start + 0.7 i).
inline Tensor wave(const Shape& shape, double start = 0) {
  const Tensor t = empty(shape, float64);
  for (int64_t i = 0; i < t.numel(); ++i)
    t.data<double>()[i] = std::cos(start + 0.7 * static_cast<double>(i));
  return t;
}

/// Element i of parameter number p becomes 0.5 sin(1 + 7 p + i).
template <class M>
M filled(M module) {
  double p = 0;
  for (const Tensor& t : module.parameters()) {
    for (int64_t i = 0; i < t.numel(); ++i)
      t.data<double>()[i] = 0.5 * std::sin(1 + 7 * p + static_cast<double>(i));
    ++p;
  }
  return module;
}

inline void check_values(const Tensor& got, const std::vector<double>& wanted) {
  REQUIRE(got.numel() == static_cast<int64_t>(wanted.size()));
  CHECK(difference(got, tensor(wanted, float64).reshape(got.shape()), 0, 2e-14) == "");
}

inline std::vector<std::string> names_of(const nn::NamedTensors& list) {
  std::vector<std::string> out;
  for (const auto& [name, t] : list) out.push_back(name);
  return out;
}

/// Gradcheck of the input and all parameters of a module, as `call` uses it.
inline void check_gradients(nn::Module& module, const Tensor& x,
                            const std::function<Tensor(const Tensor&)>& call) {
  Tensors in{x};
  const Tensors parameters = module.parameters();
  for (const Tensor& p : parameters) in.push_back(p.clone_data());
  struct Lister final : nn::Members {
    const Tensors* in;
    size_t next = 1;
    void operator()(const std::string&, Tensor& p) override {
      if (p.defined()) p = (*in)[next++];
    }
    void operator()(const std::string&, nn::Module& child) override { child.members(*this); }
    void buffer(const std::string&, Tensor&) override {}
  };
  const auto report = autograd::gradcheck(
      [&](const Tensors& at) {
        Lister lister;
        lister.in = &at;
        module.members(lister);
        return call(at[0]);
      },
      in);
  INFO(report.text);
  CHECK(report.ok);
}
inline void check_gradients(nn::Layer& layer, const Tensor& x) {
  check_gradients(layer, x, [&](const Tensor& at) { return layer(at); });
}

}  // namespace troupe::testing
