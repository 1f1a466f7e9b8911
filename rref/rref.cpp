// What most references need, compiled once.
#include "rref/rref.h"

namespace troupe::internal::rref {

template Future<void> convert<void>(const Future<Value>& reply);
template Future<Tensor> convert<Tensor>(const Future<Value>& reply);
template void add_later<Tensor, Tensor>(Arguments& to, const Future<Tensor>& a);

}  // namespace troupe::internal::rref
