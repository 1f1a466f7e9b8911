// The bytes stay where they are; the storage becomes one that wraps them, which is never shared lazily.
#include "core/graph/exposed.h"

#include <memory>
#include <utility>

#include "core/base/error.h"

namespace troupe {

void expose(const Tensor& t, const char* writer) {
  begin_write(t, writer);
  Ref<Storage>& storage = t.impl()->storage;
  if (storage->wrapped()) return;
  if (!storage->device().is_cpu())
    throw_invalid("[" + std::string(writer) + "] the host has no pointer to " + t.summary());
  if (storage->use_count() != 1)
    throw_invalid("[" + std::string(writer) + "] other tensors have the elements of " + t.summary() +
                  ", such as views or recorded steps: expose them when the tensor is made");
  std::byte* const bytes = storage->data();
  const size_t size = storage->size();
  const Ref<Storage> before = storage;
  Ref<Storage> wrapped = Storage::wrap(bytes, size, std::make_shared<Ref<Storage>>(storage));
  wrapped->succeed(*before, writer);
  storage = std::move(wrapped);
}

}  // namespace troupe
