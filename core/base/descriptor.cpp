#include "core/base/descriptor.h"

#include <unistd.h>

namespace troupe::internal {

void Descriptor::reset(int fd) {
  if (fd_ >= 0) ::close(fd_);
  fd_ = fd;
}

}  // namespace troupe::internal
