// Functions by name that arrange elements, pick and place them.
#include "core/base/error.h"
#include "ops/dispatch/promote.h"
#include "ops/function_table.h"
#include "ops/ops.h"

namespace troupe::ops::internal {
namespace {

// One tensor for each dimension from the first on; none stands for the whole of it.
std::vector<TensorIndex> indices_of(const ValueList& values) {
  std::vector<TensorIndex> out;
  for (const Value& v : values) {
    if (v.is_null())
      out.emplace_back(Slice());
    else
      out.emplace_back(Codec<Tensor>::from(v));
  }
  return out;
}

void add_repeats(Table& t) {
  add(
      t, "repeat_interleave",
      [](Tensor x, Operand repeats, std::optional<int64_t> dim) {
        if (const auto* several = std::get_if<Tensor>(&repeats.value))
          return repeat_interleave(x, *several, dim);
        const Scalar& n = std::get<Scalar>(repeats.value);
        if (n.is_floating())
          throw_invalid("[repeat_interleave] repeats must be a whole number, got " + n.str());
        return repeat_interleave(x, n.to<int64_t>(), dim);
      },
      {{"input"}, {"repeats"}, none("dim")},
      "Each slice along dim (none: each element) repeats times in a row; repeats: a number, or one for "
      "each.");
  add(
      t, "broadcast_to", [](Tensor x, Shape size) { return broadcast_to(x, size); }, {{"input"}, {"size"}},
      "Dimensions of size 1 repeated without a copy. A view.");
  add(t, "hstack", &hstack, {{"tensors"}}, "Tensors side by side: along dimension 1, of vectors 0.");
  add(t, "vstack", &vstack, {{"tensors"}}, "Tensors upon each other: vectors are rows.");
  add(t, "dstack", &dstack, {{"tensors"}}, "Tensors joined along dimension 2.");
  add(
      t, "meshgrid",
      [](Tensors tensors, std::optional<std::string> indexing) {
        return meshgrid(tensors, indexing.value_or("ij"));
      },
      {{"tensors"}, none("indexing")},
      "Vectors over a grid of all of them; indexing: \"ij\" (so if none), or \"xy\". Views.");
}

void add_dimensions(Table& t) {
  add(
      t, "squeeze",
      [](Tensor x, std::optional<Shape> dim) { return dim ? squeeze(x, IntList(*dim)) : squeeze(x); },
      {{"input"}, none("dim")},
      "Without those of the dimensions dim (none: of all) that have size 1. A view.");
  add(
      t, "movedim",
      [](Tensor x, Shape source, Shape destination) {
        return movedim(x, IntList(source), IntList(destination));
      },
      {{"input"}, {"source"}, {"destination"}},
      "The dimensions source moved to the places destination. A view.");
  add(t, "diag", &diag, {{"input"}, with("diagonal", 0)},
      "Of a vector the matrix with that diagonal, of a matrix a copy of its diagonal.");
}

Tensor combined(const Tensor& x, int64_t dim, const Tensor& index, const Operand& src,
                const std::string& reduce) {
  if (reduce != "add" && reduce != "multiply")
    throw_invalid("[scatter] reduce must be \"add\" or \"multiply\", got \"" + reduce + "\"");
  const char* const how = reduce == "add" ? "sum" : "prod";
  if (const auto* t = std::get_if<Tensor>(&src.value)) return scatter_reduce(x, dim, index, *t, how);
  const Tensor number = wrapped(std::get<Scalar>(src.value), x.dtype(), x.device());
  return scatter_reduce(x, dim, index, expand(number, to_list(index.shape())), how);
}

void add_places(Table& t) {
  add(
      t, "nonzero",
      [](Tensor x, bool as_tuple) -> Value {
        const Tensor places = nonzero(x);
        return as_tuple ? Codec<Tensors>::to(
                              unbind(x.dim() ? places : zeros({places.size(0), 1}, {int64, x.device()}), 1))
                        : Value(places);
      },
      {{"input"}, with("as_tuple", false)},
      "The places of the elements that are not 0: int64 [n, dimensions], or a tensor for each dimension.");
  add(
      t, "scatter",
      [](Tensor x, int64_t dim, Tensor index, Operand src, std::optional<std::string> reduce) {
        if (reduce) return combined(x, dim, index, src, *reduce);
        return std::visit([&](const auto& s) { return scatter(x, dim, index, s); }, src.value);
      },
      {{"input"}, {"dim"}, {"index"}, {"src"}, none("reduce")},
      "A copy of input with src, a tensor or a number, written along dim at the numbers index; reduce: "
      "\"add\", \"multiply\".");
  add(
      t, "index_fill",
      [](Tensor x, int64_t dim, Tensor index, Operand value) {
        return std::visit([&](const auto& v) { return index_fill(x, dim, index, v); }, value.value);
      },
      {{"input"}, {"dim"}, {"index"}, {"value"}},
      "A copy of input with value in its slices index along dim.");
  add(
      t, "embedding",
      [](Tensor ids, Tensor weight, std::optional<int64_t> padding_idx) {
        return embedding(ids, weight, padding_idx);
      },
      {{"input"}, {"weight"}, none("padding_idx")},
      "The rows of weight with the numbers input; row padding_idx gets no gradient.");
  add(t, "take_along_dim", &take_along_dim, {{"input"}, {"indices"}, none("dim")},
      "The elements along dim with the numbers indices, which broadcast; without dim of all elements.");
  add(
      t, "index_put",
      [](Tensor x, ValueList indices, Tensor values, bool accumulate) {
        return index_put(x, indices_of(indices), values, accumulate);
      },
      {{"input"}, {"indices"}, {"values"}, with("accumulate", false)},
      "A copy of input with values where the indices, a list of tensors, say; accumulate: added.");
}

}  // namespace

void add_arrangement(Table& t) {
  add_repeats(t);
  add_dimensions(t);
  add_places(t);
}

}  // namespace troupe::ops::internal
