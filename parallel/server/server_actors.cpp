#include "parallel/server/server_actors.h"

#include "parallel/server/served_module.h"
#include "parallel/server/server.h"
#include "parallel/server/table.h"

namespace troupe::internal::parallel {

actors::TypeRegistry server_actors() {
  using namespace troupe::parallel;
  return hosting<Server, Table, ServedModule>();
}

}  // namespace troupe::internal::parallel
