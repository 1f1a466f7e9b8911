// Tensors as they come from another process of the host.
#pragma once
#include <sys/mman.h>

#include <cstring>
#include <memory>
#include <new>

#include "core/tensor/tensor.h"

namespace troupe::testing {

/// The elements of `t` in pages that this process cannot write: whoever does it without a copy is killed.
inline Tensor received(const Tensor& t) {
  const Tensor dense = t.contiguous_data();
  const size_t bytes = dense.nbytes(), mapped = bytes + 1;  // never 0
  void* const pages = ::mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED) throw std::bad_alloc();
  if (bytes) std::memcpy(pages, dense.bytes(), bytes);
  ::mprotect(pages, mapped, PROT_READ);
  const std::shared_ptr<void> owner(pages, [mapped](void* p) { ::munmap(p, mapped); });
  return Tensor(make_ref<TensorImpl>(Storage::borrow(pages, bytes, owner), dense.shape(),
                                     dense.shape().contiguous_strides(), 0, dense.dtype(), true));
}

}  // namespace troupe::testing
