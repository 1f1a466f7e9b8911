// What other processes of this host have of this one's memory. They let go of it without a message, so
// whoever wants something looks: the allocator before it asks the system, a write before it copies, upkeep at
// times.
#pragma once
#include <cstddef>
#include <memory>

namespace troupe {

/// Holds storages for other processes, or has something else to do until they are done.
class Lender {
 public:
  virtual ~Lender() = default;
  /// Lets go of what has come back. False: nothing is left to do, for good. May be called on any thread that
  /// allocates or writes; allocates no tensors itself.
  virtual bool collect() = 0;
  virtual size_t lent_bytes() const = 0;
};

/// Keeps it until collect() says that it is over.
void add_lender(std::shared_ptr<Lender> lender);
void collect_lent();
size_t lent_bytes();

}  // namespace troupe
