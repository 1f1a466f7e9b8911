// Tensors as they travel between a trainer and its servers: compressed, and made whole again.
#pragma once
#include <utility>
#include <vector>

#include "core/tensor/tensor.h"
#include "parallel/server/compression/compression.h"

namespace troupe::parallel {

/// Tensors on their way. Each says for itself how it travels: what would not become smaller, or is not
/// finite, goes as it is.
struct Packed {
  Tensors parts;               ///< of all tensors in a row
  std::vector<int64_t> forms;  ///< of each tensor (PackedForm); empty: all travel as they are, one part each
  int64_t bytes() const;       ///< of the parts
};

/// The numbers travel.
enum class PackedForm : int64_t {
  plain = 0,
  half = 1,   ///< one part in bfloat16 or float16
  top = 2,    ///< places in ascending order, two of 32 bits in each int64; and the elements there
  signs = 3,  ///< int64, bit k of word w set where element 64 w + k is not negative; and [2]: the mean of the
              ///< elements that are negative, and of those that are not
};

/// Bytes of n elements of that dtype under a compression: the formulae that messages are held to.
/// fp16, bf16: 2 n. topk(f): k = ceil(f n) places of 4 bytes, in pairs, and elements. 1bit: n / 8, in words
/// of 8 bytes, and two elements.
int64_t packed_bytes(const Compression& how, int64_t n, DType dtype);

/// Any strides. With `residual`, for what keeps one: what is sent is tensor + residual, as nearly as it goes,
/// and the residual becomes what is missing, so that the sum of all that was sent, and the residual, is the
/// sum of all tensors (error feedback: Seide et al. 2014, Karimireddy et al. 2019). It starts undefined.
/// Undefined tensors travel as such, and leave it as it is, as do tensors that are not finite. Records
/// nothing.
Packed pack(const Tensors& tensors, const Compression& how, Tensors* residual = nullptr);

/// What comes of a tensor: pack() knew it, and so does the receiver.
struct Whole {
  DType dtype = float32;
  Shape shape = {};
};
/// `invalid`, naming the tensor by number, for what pack() would not make of such tensors. Those that travel
/// as they are, are not looked at.
Tensors unpack(Packed packed, const std::vector<Whole>& wholes);

}  // namespace troupe::parallel

namespace troupe {
/// What travels as it is, is a list of tensors and no more.
template <>
struct Codec<parallel::Packed> {
  using Parts = std::pair<Tensors, std::vector<int64_t>>;
  static std::string name() { return Codec<Tensors>::name() + ", or packed"; }
  static Value to(parallel::Packed p) {
    if (p.forms.empty()) return Codec<Tensors>::to(std::move(p.parts));
    return Codec<Parts>::to({std::move(p.parts), std::move(p.forms)});
  }
  static parallel::Packed from(Value v) {
    const auto* list = v.get_if<ValueList>();
    if (!list || list->empty() || !list->front().get_if<ValueList>())
      return {Codec<Tensors>::from(std::move(v)), {}};
    auto [parts, forms] = Codec<Parts>::from(std::move(v));
    return {std::move(parts), std::move(forms)};
  }
};
}  // namespace troupe
