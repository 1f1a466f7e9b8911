// What keeps the object of a call alive.
#pragma once
#include <memory>

namespace troupe::internal::actors {

/// A reference, as calls see it: an object goes with the last of them, so a call that does not leave at once,
/// or waits at its callee for arguments, keeps the one that it was made with.
class Held : public std::enable_shared_from_this<Held> {};

}  // namespace troupe::internal::actors
