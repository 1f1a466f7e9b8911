#include "ops/inplace.h"

#include "core/error.h"
#include "ops/cpu/inplace.h"

namespace troupe::ops {
namespace {

void check(const char* op, std::initializer_list<const Tensor*> all) {
  const Tensor& a = **all.begin();
  for (const Tensor* t : all) {
    if (!t->defined()) throw_invalid("[" + std::string(op) + "] got an undefined tensor");
    if (!t->device().is_cpu())
      throw_error(ErrorKind::unimplemented,
                  "[" + std::string(op) + "] no kernel for device " + t->device().str());
    if (t->dtype() != a.dtype() || t->shape() != a.shape())
      throw_invalid("[" + std::string(op) + "] tensors differ: " + a.str() + " and " + t->str());
  }
  if (!is_floating(a.dtype()))
    throw_invalid("[" + std::string(op) + "] needs a floating dtype, got " + a.str());
}

}  // namespace

void add_(const Tensor& a, const Tensor& b, double alpha) {
  check("add_", {&a, &b});
  cpu::add_(a, b, alpha);
  a.bump_version("add_");
}
void add_(const Tensor& a, double s) {
  check("add_", {&a});
  cpu::affine_(a, 1, s);
  a.bump_version("add_");
}
void mul_(const Tensor& a, double s) {
  check("mul_", {&a});
  cpu::affine_(a, s, 0);
  a.bump_version("mul_");
}
void addcmul_(const Tensor& a, const Tensor& b, const Tensor& c, double value) {
  check("addcmul_", {&a, &b, &c});
  cpu::addcmul_(a, b, c, value);
  a.bump_version("addcmul_");
}
void addcdiv_(const Tensor& a, const Tensor& b, const Tensor& c, double value) {
  check("addcdiv_", {&a, &b, &c});
  cpu::addcdiv_(a, b, c, value);
  a.bump_version("addcdiv_");
}
void lerp_(const Tensor& a, const Tensor& b, double weight) {
  check("lerp_", {&a, &b});
  cpu::lerp_(a, b, weight);
  a.bump_version("lerp_");
}
void maximum_(const Tensor& a, const Tensor& b) {
  check("maximum_", {&a, &b});
  cpu::maximum_(a, b);
  a.bump_version("maximum_");
}
void sqrt_(const Tensor& a) {
  check("sqrt_", {&a});
  cpu::sqrt_(a);
  a.bump_version("sqrt_");
}

}  // namespace troupe::ops
