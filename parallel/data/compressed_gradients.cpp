#include "parallel/data/compressed_gradients.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "collective/schedule/schedule.h"
#include "core/graph/node.h"
#include "core/tensor/creation.h"
#include "ops/ops.h"
#include "parallel/server/compression/own_compression.h"

namespace troupe::parallel {
namespace {

// In front of the elements: bytes of all, numbers of forms and of parts, the forms, and for each part its
// dtype and number of elements; -1: it is undefined.
using Header = std::vector<int64_t>;

Tensor bytes_of(const Packed& packed) {
  Header header{0, static_cast<int64_t>(packed.forms.size()), static_cast<int64_t>(packed.parts.size())};
  header.insert(header.end(), packed.forms.begin(), packed.forms.end());
  for (const Tensor& part : packed.parts) {
    header.push_back(part.defined() ? static_cast<int64_t>(part.dtype()) : 0);
    header.push_back(part.defined() ? part.numel() : -1);
  }
  const size_t front = header.size() * sizeof(int64_t);
  header[0] = static_cast<int64_t>(front) + packed.bytes();
  const Tensor all = empty({header[0]}, uint8);
  std::byte* to = all.bytes();
  std::memcpy(to, header.data(), front);
  to += front;
  for (const Tensor& part : packed.parts) {
    if (!part.defined() || !part.numel()) continue;
    const Tensor elements = part.contiguous_data();
    std::memcpy(to, elements.bytes(), elements.nbytes());
    to += elements.nbytes();
  }
  return all;
}

// Takes what one rank brought from the front of what is left.
class Reader {
 public:
  explicit Reader(const Tensor& all) : all_(all.contiguous_data()) {}

  Packed next(size_t rank, const Tensors& leaves) {
    rank_ = rank;
    const size_t begin = at_;
    const int64_t total = number();
    const size_t forms = count(leaves.size()), parts = count(2 * leaves.size());
    Packed out;
    for (size_t i = 0; i < forms; ++i) out.forms.push_back(number());
    std::vector<std::pair<DType, int64_t>> kinds;
    for (size_t i = 0; i < parts; ++i) {
      const int64_t dtype = number();
      check(dtype >= 0 && dtype < kDTypeCount);
      kinds.emplace_back(static_cast<DType>(dtype), number());
    }
    for (const auto& [dtype, n] : kinds) out.parts.push_back(elements(dtype, n));
    check(total >= 0 && at_ - begin == static_cast<size_t>(total));
    return out;
  }
  void end() { check(at_ == size()); }

 private:
  size_t size() const { return static_cast<size_t>(all_.numel()); }
  void check(bool good) const {
    if (!good)
      throw_invalid(fmt::format(
          "[GradientReducer] what rank {} brought of its gradients is none of a bucket of these parameters",
          rank_));
  }
  int64_t number() {
    check(size() - at_ >= sizeof(int64_t));
    int64_t n;
    std::memcpy(&n, all_.bytes() + at_, sizeof n);
    at_ += sizeof n;
    return n;
  }
  size_t count(size_t most) {
    const int64_t n = number();
    check(n >= 0 && static_cast<uint64_t>(n) <= most);
    return static_cast<size_t>(n);
  }
  Tensor elements(DType dtype, int64_t n) {
    if (n == -1) return {};
    check(n >= 0 && static_cast<uint64_t>(n) <= (size() - at_) / item_size(dtype));
    const Tensor t = empty({n}, dtype);
    std::memcpy(t.bytes(), all_.bytes() + at_, t.nbytes());
    at_ += t.nbytes();
    return t;
  }

  const Tensor all_;
  size_t at_ = 0, rank_ = 0;
};

// As unpack() has it, with shapes.
Tensors gradients_in(Packed packed, const Tensors& leaves, size_t rank) {
  std::vector<Whole> wholes;
  for (const Tensor& leaf : leaves) wholes.push_back({compute_dtype(leaf.dtype()), leaf.shape()});
  Tensors gradients = unpack(std::move(packed), wholes);
  for (size_t k = 0; k < leaves.size(); ++k) {
    if (k >= gradients.size() || (gradients[k].defined() && gradients[k].numel() != leaves[k].numel()))
      throw_invalid(fmt::format("[GradientReducer] rank {} brought {} for a gradient of {}", rank,
                                k < gradients.size() ? gradients[k].summary() : "nothing",
                                leaves[k].summary()));
    if (gradients[k].defined())
      gradients[k] = ops::to(gradients[k].reshape(leaves[k].shape()), wholes[k].dtype);
  }
  return gradients;
}

}  // namespace

std::optional<DType> wire_dtype(const Compression& how, DType own) {
  if (!is_floating(own) || is_half(own)) return {};
  if (how.kind == Compression::Kind::fp16) return float16;
  if (how.kind == Compression::Kind::bf16) return bfloat16;
  return {};
}

double travelling_bytes(const Compression& how, const Shape& shape, DType dtype, size_t members) {
  const auto item = static_cast<double>(item_size(dtype));
  if (const auto wire = wire_dtype(how, dtype)) return static_cast<double>(shape.numel()) * item_size(*wire);
  if (how.keeps_residual())  // each sends what it has to all others, as it is packed
    return static_cast<double>(std::min(packed_bytes(how, shape.numel(), compute_dtype(dtype)),
                                        static_cast<int64_t>(item) * shape.numel())) *
           static_cast<double>(members) / 2;
  if (how.kind == Compression::Kind::own && how.name.starts_with("powersgd"))
    return static_cast<double>(power_sgd_elements(shape, power_sgd_rank(how.name))) * item;
  return static_cast<double>(shape.numel()) * item;
}

Tensor pack_gradients(const Tensors& gradients, const Compression& how, Tensors& residual) {
  const NoGradGuard guard;
  Tensors here;
  for (const Tensor& g : gradients) here.push_back(g.defined() ? g.detach().to(cpu) : g);
  return bytes_of(pack(here, how, &residual));
}

Tensors sum_packed(const Tensor& packed, size_t ranks, const Tensors& leaves) {
  const NoGradGuard guard;
  Reader reader(packed);
  std::vector<Tensors> brought;
  for (size_t r = 0; r < ranks; ++r) brought.push_back(gradients_in(reader.next(r, leaves), leaves, r));
  reader.end();
  Tensors sums;
  for (size_t k = 0; k < leaves.size(); ++k) {
    internal::collective::order_of_sum(ranks, [&](size_t a, size_t b) {
      Tensor &sum = brought[a][k], &other = brought[b][k];
      sum = !sum.defined() ? other : !other.defined() ? sum : ops::add(sum, other);
    });
    const Tensor& sum = brought[0][k];
    sums.push_back(sum.defined() ? ops::to(sum, leaves[k].dtype()).to(leaves[k].device()) : sum);
  }
  return sums;
}

Tensors Residuals::take(const std::vector<size_t>& parameters) {
  Tensors out;
  const internal::Lock lock(mutex_);
  for (const size_t i : parameters) out.push_back(std::exchange(left_[i], Tensor()));
  return out;
}

void Residuals::give(size_t parameter, const Tensor& residual) {
  if (!residual.defined()) return;
  const NoGradGuard guard;
  const internal::Lock lock(mutex_);
  Tensor& left = left_[parameter];
  left = left.defined() ? ops::add(left, residual) : residual;
}

StateDict Residuals::state() const {
  StateDict out;
  const internal::Lock lock(mutex_);
  for (size_t i = 0; i < left_.size(); ++i)
    if (left_[i].defined()) out["residual." + std::to_string(i)] = left_[i];  // never written to
  return out;
}

void Residuals::load_state(const StateDict& state) {
  const internal::Lock lock(mutex_);
  Tensors left(parameters_.size());
  size_t known = 0;
  for (size_t i = 0; i < left.size(); ++i) {
    const auto at = state.find("residual." + std::to_string(i));
    if (at == state.end()) continue;
    ++known;
    if (!at->second.defined() || at->second.shape() != parameters_[i].shape())
      throw_invalid(fmt::format("[GradientReducer] the state has {} as {}, for a parameter {}",
                                at->second.defined() ? at->second.summary() : "nothing", at->first,
                                parameters_[i].summary()));
    left[i] = at->second.clone_data();
  }
  if (known != state.size())
    throw_invalid(fmt::format(
        "[GradientReducer] the state has {} residuals, of which {} are of its {} parameters: give it the "
        "parameters in the order that they had",
        state.size(), known, left.size()));
  left_ = std::move(left);
}

}  // namespace troupe::parallel
