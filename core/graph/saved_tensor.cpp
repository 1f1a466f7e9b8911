#include "core/graph/saved_tensor.h"

#include "core/graph/node.h"

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
  if (t.is_leaf() && t.requires_grad()) leaf_storage_ = t.storage(), leaf_dtype_ = t.dtype();
  version_ = t.version();
}

std::string SavedTensor::complaint() const {
  const char* writer = storage()->last_writer();
  return "was changed in place by " + std::string(writer ? writer : "nobody") + " afterwards: version " +
         std::to_string(storage()->version()) + ", expected " + std::to_string(version_) +
         ". Write after the backward pass, or to a clone()";
}

Tensor SavedTensor::elements_of_then() const {
  if (!leaf_storage_ || tensor_.storage().get() == leaf_storage_.get()) return tensor_;
  const TensorImpl& leaf = *tensor_.impl();
  Tensor then(make_ref<TensorImpl>(leaf_storage_, leaf.shape, leaf.strides, leaf.offset, leaf_dtype_,
                                   leaf.contiguous));
  then.set_grad_fn(tensor_.gradient_edge());
  return then;
}

void SavedTensor::detach_from(const TensorImpl& base) {
  const TensorImpl* impl = tensor_.impl();
  if (impl && !leaf_storage_ && (impl == &base || impl->base.get() == &base)) tensor_ = tensor_.detach();
}

void SavedTensor::clear() {
  if (store_) store_->drop(number_);
  store_ = nullptr;
  tensor_ = {};
  leaf_storage_ = nullptr;
}

}  // namespace troupe
