#include "core/tensor/elements.h"

#include "core/base/error.h"
#include "core/memory/backend.h"
#include "core/tensor/creation.h"

namespace troupe {
namespace {

// Both contiguous and of one dtype, on two devices.
void transfer(const Tensor& to, const Tensor& from) {
  const size_t bytes = to.nbytes();
  const Device there = to.device(), here = from.device();
  if (bytes == 0) return;
  if (here.is_cpu()) {
    Backend& b = backend_of(there);
    return b.copy(to.address(), from.address(), bytes, CopyWay::from_host, there);
  }
  Backend& b = backend_of(here);
  if (there.is_cpu()) return b.copy(to.address(), from.address(), bytes, CopyWay::to_host, here);
  if (there.kind == here.kind) return b.copy_peer(to.address(), there, from.address(), here, bytes);
  transfer(to, from.data_on(cpu));
}

}  // namespace

void copy_elements(const Tensor& to, const Tensor& source) {
  if (to.shape() != source.shape()) [[unlikely]]
    throw_invalid("[copy_elements] shapes differ: " + to.shape().str() + " from " + source.shape().str());
  const Device there = to.device();
  to.storage()->written_here();
  if (there == source.device()) return backend_of(there).copy_elements(to, source);
  const Tensor dense = source.contiguous_data();
  if (to.is_contiguous() && to.dtype() == source.dtype()) return transfer(to, dense);
  const Tensor arrived = empty(source.shape(), {source.dtype(), there});
  transfer(arrived, dense);
  backend_of(there).copy_elements(to, arrived);
}

void fill_elements(const Tensor& to, Scalar value) {
  to.storage()->written_here();
  backend_of(to.device()).fill_elements(to, value);
}

void add_elements(const Tensor& out, const Tensor& a, const Tensor& b) {
  if (a.device() != b.device())
    throw_invalid("[add] " + a.summary() + " is on " + a.device().str() + ", " + b.summary() + " on " +
                  b.device().str());
  out.storage()->written_here();
  backend_of(out.device()).add_elements(out, a, b);
}

}  // namespace troupe
