#include "core/saved_tensor.h"

namespace troupe {
namespace {

constinit thread_local TensorStore* tls_store = nullptr;

}  // namespace

TensorStore* TensorStore::current() { return tls_store; }
StoreScope::StoreScope(TensorStore* store) : before_(tls_store) { tls_store = store; }
StoreScope::~StoreScope() { tls_store = before_; }

SavedTensor::SavedTensor(const Tensor& t) {
  if (tls_store) [[unlikely]] {
    number_ = tls_store->put(t);
    if (number_ != TensorStore::kNot) {
      store_ = Ref<TensorStore>(tls_store);
      return;
    }
  }
  tensor_ = t;
  version_ = t.version();
}

std::string SavedTensor::complaint() const {
  const char* writer = tensor_.storage()->last_writer();
  return "was changed in place by " + std::string(writer ? writer : "nobody") + " afterwards: version " +
         std::to_string(tensor_.version()) + ", expected " + std::to_string(version_) +
         ". Write after the backward pass, or to a clone()";
}

void SavedTensor::clear() {
  if (store_) store_->drop(number_);
  store_ = nullptr;
  tensor_ = {};
}

}  // namespace troupe
