#include "ops/sort.h"

#include <fmt/format.h>

#include "core/tensor/creation.h"
#include "ops/gradient_rules.h"
#include "ops/index.h"

namespace troupe::ops {
namespace {

Specs sort_spec(const Call& c) {
  const Shape& x = c.in[0].shape();
  x.axis(c.attrs.integer("dim"), c.name());
  return {{x, c.in[0].dtype()}, {x, int64}};
}

Specs topk_spec(const Call& c) {
  if (c.in[0].dtype() == boolean) reject(c, "is not for " + c.in[0].summary() + "; use .to(int64)");
  if (c.in[0].dtype() == boolean) reject(c, fmt::format("is not for {}; use .to(int64)", c.in[0].summary()));
  Shape out = c.in[0].shape();
  const int dim = out.axis(c.attrs.integer("dim"), c.name());
  const int64_t k = c.attrs.integer("k"), size = out.empty() ? 1 : out[dim];
  if (k < 0 || k > size)
    reject(c, fmt::format("k is {}, expected 0 to {} for {}", k, size, c.in[0].summary()));
  if (!out.empty())
    out[dim] = k;
  else if (k == 0)
    reject(c, "k must be 1 for a 0-d tensor, got 0");
  return {{out, c.in[0].dtype()}, {out, int64}};
}

Tensors back_to_places(const Backward& b) {
  return {scatter_add(zeros(b.shape(0), {b.grads[0].dtype(), b.device()}), b.attrs.integer("dim"), b.out[1],
                      b.grads[0])};
}

}  // namespace

const Op kSort{.name = "sort",
               .text = "The elements in order along dim, and where they were.",
               .attrs = {{"dim", -1}, {"descending", false}, {"stable", false}},
               .shape = sort_spec,
               .saves_outputs = 0b10,
               .gradient = back_to_places,
               .takes_half = true,
               .samples = []() -> std::vector<Sample> {
                 return {{{sample({3, 4})}},
                         {{sample({2, 5, 3})}, {{"dim", 1}, {"descending", true}}},
                         {{sample({})}},
                         {{sample({0, 3})}, {{"dim", 0}}}};
               }};

const Op kArgsort{.name = "argsort",
                  .text = "Where the elements were that sort puts in order along dim.",
                  .attrs = {{"dim", -1}, {"descending", false}, {"stable", false}},
                  .compose = [](const Call& c) -> Tensors { return {apply(kSort, c.in, c.attrs)[1]}; },
                  .takes_half = true,
                  .samples = []() -> std::vector<Sample> {
                    return {{{sample({3, 4})}}, {{sample({3, 4})}, {{"dim", 0}, {"descending", true}}}};
                  }};

const Op kTopk{.name = "topk",
               .text = "The k largest (or smallest) elements along dim, and where they were.",
               .attrs = {{"k", 1}, {"dim", -1}, {"largest", true}, {"sorted", true}},
               .shape = topk_spec,
               .saves_outputs = 0b10,
               .gradient = back_to_places,
               .takes_half = true,
               .samples = []() -> std::vector<Sample> {
                 return {{{sample({3, 5})}, {{"k", 2}}},
                         {{sample({4, 2, 3})}, {{"k", 3}, {"dim", 0}, {"largest", false}}},
                         {{sample({})}, {{"k", 1}}},
                         {{sample({2, 3})}, {{"k", 0}}}};
               }};

ValuesAndIndices sort(const Tensor& x, int64_t dim, bool descending) {
  return values_and_indices(apply(kSort, {&x, 1}, {{"dim", dim}, {"descending", descending}}));
}
Tensor argsort(const Tensor& x, int64_t dim, bool descending) {
  return apply1(kArgsort, {x}, {{"dim", dim}, {"descending", descending}});
}
ValuesAndIndices topk(const Tensor& x, int64_t k, int64_t dim, bool largest) {
  return values_and_indices(apply(kTopk, {&x, 1}, {{"k", k}, {"dim", dim}, {"largest", largest}}));
}

}  // namespace troupe::ops
